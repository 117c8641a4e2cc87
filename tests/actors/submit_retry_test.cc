// SubmitActor and direct slices that fail: which of them are sent again, where, and how often.
#include <gtest/gtest.h>

#include "actors/submit_actor.h"
#include "tests/actors/sender_harness.h"

namespace railhop {
namespace {

constexpr uint64_t kSlice = 64 * kKiB;

class RetryTest : public ::testing::Test {
 protected:
  explicit RetryTest(uint32_t nics = 2)
      : sender_({.pxn = false, .nics = nics, .slice_attempts = 3}) {
    sender_.AddTarget(0);
  }
  void TearDown() override { sender_.ExpectIdle(); }

  // Takes the only slice that was posted and not answered.
  PostSlice TakePost() {
    sender_.Pass();
    EXPECT_EQ(sender_.posts.size(), 1u);
    if (sender_.posts.empty()) return {};
    const PostSlice slice = sender_.posts.front();
    sender_.posts.pop_front();
    return slice;
  }
  void ExpectState(BatchId batch, BatchState state, TransferError error = TransferError::kNone) {
    EXPECT_EQ(sender_.Status(batch).state, state);
    EXPECT_EQ(sender_.Status(batch).error, error) << TransferErrorName(sender_.Status(batch).error);
  }
  uint64_t SentAgain() { return sender_.submit.stats().slices_again.load(); }

  SenderHarness sender_;
};

class OneNicRetryTest : public RetryTest {
 protected:
  OneNicRetryTest() : RetryTest(1) {}
};

TEST_F(RetryTest, ARequestIsDealtOutInSlicesAndTheTailGoesWithTheLast) {
  const BatchId batch = sender_.Submit({Write(0, 0, 3 * kSlice + 100)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 3u);
  EXPECT_EQ(sender_.posts[0].length, kSlice);
  EXPECT_EQ(sender_.posts[1].length, kSlice);
  EXPECT_EQ(sender_.posts[2].length, kSlice + 100);
  EXPECT_NE(sender_.posts[0].path, sender_.posts[1].path);
  EXPECT_EQ(sender_.posts[0].path, sender_.posts[2].path);
  sender_.RunToEnd();
  ExpectState(batch, BatchState::kCompleted);
}

TEST_F(OneNicRetryTest, WithOneNicThereIsNothingToDealOut) {
  const BatchId batch = sender_.Submit({Write(0, 0, 3 * kSlice + 100)});
  const PostSlice whole = TakePost();
  EXPECT_EQ(whole.length, 3 * kSlice + 100);
  sender_.PostDone(whole);
  ExpectState(batch, BatchState::kCompleted);
}

TEST_F(RetryTest, AFailedSliceGoesByTheOtherNic) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
  const PostSlice first = TakePost();
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty()) << "it is still under way";
  sender_.PostDone(first, TransferError::kTransport);
  const PostSlice second = TakePost();
  EXPECT_NE(second.path, first.path);
  EXPECT_NE(second.lkey, first.lkey);
  EXPECT_EQ(second.local, first.local);
  EXPECT_EQ(second.remote_address, first.remote_address);
  EXPECT_EQ(second.length, 1000u);
  ExpectState(batch, BatchState::kPending);
  sender_.PostDone(second);
  ExpectState(batch, BatchState::kCompleted);
  EXPECT_EQ(sender_.Status(batch).bytes, 1000u);
  EXPECT_EQ(SentAgain(), 1u);
}

TEST_F(RetryTest, NewSlicesLeaveABrokenPathAlone) {
  const BatchId first = sender_.Submit({Write(0, 0, 1000)});
  const PostSlice failed = TakePost();
  sender_.PostDone(failed, TransferError::kTransport);
  const BatchId next = sender_.Submit({Write(0, 0, 6 * kSlice)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 7u);
  for (const PostSlice& slice : sender_.posts) EXPECT_NE(slice.path, failed.path);
  sender_.PostAll();
  ExpectState(first, BatchState::kCompleted);
  ExpectState(next, BatchState::kCompleted);
  // Connected anew, both are good again.
  sender_.AddTarget(0, {{}}, 2);
  const BatchId last = sender_.Submit({Write(0, 0, 2 * kSlice)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 2u);
  EXPECT_NE(sender_.posts[0].path, sender_.posts[1].path);
  sender_.PostAll();
  ExpectState(last, BatchState::kCompleted);
}

TEST_F(OneNicRetryTest, WithoutAnotherPathItWaitsForTheTargetToBeConnectedAnew) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
  sender_.PostDone(TakePost(), TransferError::kTransport);
  const BatchId next = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  EXPECT_EQ(sender_.Pass(), 0u);
  EXPECT_TRUE(sender_.posts.empty());
  const TargetRoute& route = sender_.AddTarget(0, {{}}, 2);
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 2u);
  EXPECT_EQ(sender_.posts[0].length, 1000u) << "the older one first";
  EXPECT_EQ(sender_.posts[0].target, &route);
  sender_.PostAll();
  ExpectState(batch, BatchState::kCompleted);
  ExpectState(next, BatchState::kCompleted);
}

TEST_F(OneNicRetryTest, ATargetThatFailsMeanwhileEndsIt) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
  sender_.PostDone(TakePost(), TransferError::kTransport);
  sender_.Pass();
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 0, .token = kNoToken, .error = TransferError::kTargetDead, .version = 1}));
  sender_.Pass();
  ExpectState(batch, BatchState::kFailed, TransferError::kTargetDead);
  EXPECT_EQ(SentAgain(), 0u);
}

TEST_F(OneNicRetryTest, AttemptsAreCounted) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
  for (uint32_t attempt = 1; attempt <= 3; ++attempt) {
    ExpectState(batch, BatchState::kPending);
    sender_.PostDone(TakePost(), TransferError::kTransport);
    sender_.AddTarget(0, {{}}, attempt + 1);
  }
  ExpectState(batch, BatchState::kFailed, TransferError::kTransport);
  EXPECT_EQ(SentAgain(), 2u);
}

TEST_F(OneNicRetryTest, ATargetThatHangsUpIsTriedOnceMore) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
  sender_.PostDone(TakePost(), TransferError::kHungUp);
  ExpectState(batch, BatchState::kPending);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty()) << "the path is broken";
  sender_.AddTarget(0, {{}}, 2);
  sender_.PostDone(TakePost(), TransferError::kHungUp);
  ExpectState(batch, BatchState::kFailed, TransferError::kHungUp);
  EXPECT_EQ(SentAgain(), 1u);
}

TEST_F(RetryTest, WhatEveryPathWouldMeetFailsAtOnce) {
  for (const TransferError error :
       {TransferError::kRemoteAccess, TransferError::kNotRegistered, TransferError::kTargetDead,
        TransferError::kExposed, TransferError::kStopping, TransferError::kDevice}) {
    const BatchId batch = sender_.Submit({Write(0, 0, 1000)});
    sender_.PostDone(TakePost(), error);
    ExpectState(batch, BatchState::kFailed, error);
  }
  EXPECT_EQ(SentAgain(), 0u);
}

TEST_F(OneNicRetryTest, ABatchThatIsGivenUpIsNotSentAgain) {
  const BatchId canceled = sender_.Submit({Write(0, 0, 1000)});
  const PostSlice slice = TakePost();
  sender_.Cancel(canceled);
  ExpectState(canceled, BatchState::kPending);
  sender_.PostDone(slice, TransferError::kTransport);
  ExpectState(canceled, BatchState::kFailed, TransferError::kTransport);

  sender_.AddTarget(0, {{}}, 2);
  const BatchId waiting = sender_.Submit({Write(0, 0, 1000)});
  sender_.PostDone(TakePost(), TransferError::kTransport);
  sender_.Expire(waiting);
  ExpectState(waiting, BatchState::kFailed, TransferError::kDeadline);
  sender_.AddTarget(0, {{}}, 3);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  EXPECT_EQ(SentAgain(), 0u);
}

TEST_F(RetryTest, SlicesThatWaitKeepTheirPlaceInTheWindow) {
  const BatchId batch = sender_.Submit({Write(0, 0, 1000 * kSlice)});
  sender_.Pass();
  const size_t window = sender_.posts.size();
  EXPECT_EQ(window, SubmitActor::kDirectWindow / 2);
  sender_.PostAll(TransferError::kTransport);
  EXPECT_EQ(SubmitActorPeer::WaitingAgain(sender_.submit), window);
  EXPECT_EQ(sender_.Pass(), 0u) << "both paths are broken";
  sender_.AddTarget(0, {{}}, 2);
  sender_.RunToEnd();
  ExpectState(batch, BatchState::kCompleted);
  EXPECT_EQ(sender_.Status(batch).bytes, 1000 * kSlice);
  EXPECT_EQ(SentAgain(), window);
}

}  // namespace
}  // namespace railhop
