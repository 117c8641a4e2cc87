// SubmitActor: batches whose sources are not ready yet.
#include <gtest/gtest.h>

#include "tests/actors/scripted_fences.h"
#include "tests/actors/sender_harness.h"

namespace railhop {
namespace {

class SubmitFenceTest : public ::testing::Test {
 protected:
  SubmitFenceTest() {
    sender_.AddTarget(0);
    sender_.AddTarget(1, {TestBuffer{.rails = {"rail0"}}});
    sender_.OpenLane(0);
  }
  ~SubmitFenceTest() override { sender_.ExpectIdle(); }

  BatchId Submit(const TransferRequest& request, uint64_t stream = 1) {
    return sender_.Submit({request}, SenderHarness::kFar, fences_.Next(stream));
  }
  void End(BatchId batch, FenceState state) {
    fences_.states[static_cast<uint32_t>(batch.value)] = state;
    sender_.Advance(uint64_t{1} << 40);  // however long that is, the next look is due
  }
  void ExpectNothingRead() {
    sender_.Pass();
    EXPECT_TRUE(sender_.copies.empty());
    EXPECT_TRUE(sender_.posts.empty());
    EXPECT_EQ(SubmitActorPeer::FreeSpans(sender_.submit), SubmitActor::kSpanPool);
  }

  ScriptedFences fences_;
  SenderHarness sender_{{.fences = &fences_}};
};

TEST_F(SubmitFenceTest, NoRouteReadsTheSourceBeforeTheFenceHasCompleted) {
  const BatchId relayed = Submit(Write(0, 0, 4096));
  const BatchId direct = Submit(Write(8192, 0, 4096, 2), 2);
  ExpectNothingRead();
  EXPECT_EQ(sender_.State(relayed), BatchState::kPending);
  End(relayed, FenceState::kDone);
  EXPECT_EQ(sender_.copies.size(), 1u);
  EXPECT_TRUE(sender_.posts.empty());
  End(direct, FenceState::kDone);
  EXPECT_EQ(sender_.posts.size(), 1u);
  sender_.RunToEnd();
  EXPECT_EQ(sender_.State(relayed), BatchState::kCompleted);
  EXPECT_EQ(sender_.State(direct), BatchState::kCompleted);
}

TEST_F(SubmitFenceTest, ASlowProducerHoldsUpItsOwnBatchesOnly) {
  const BatchId slow = Submit(Write(0, 0, 4096));
  const BatchId ready = sender_.Submit({Write(4096, 0, 4096)});
  const BatchId other = Submit(Write(8192, 0, 4096), 2);
  End(other, FenceState::kDone);
  sender_.RunToEnd();
  EXPECT_EQ(sender_.State(ready), BatchState::kCompleted);
  EXPECT_EQ(sender_.State(other), BatchState::kCompleted);
  EXPECT_EQ(sender_.State(slow), BatchState::kPending);
  End(slow, FenceState::kDone);
  sender_.RunToEnd();
  EXPECT_EQ(sender_.State(slow), BatchState::kCompleted);
}

TEST_F(SubmitFenceTest, ABatchWithoutAFenceIsNotAskedFor) {
  sender_.Submit({Write(0, 0, 4096)});
  sender_.RunToEnd();
  EXPECT_TRUE(fences_.asked.empty());
}

TEST_F(SubmitFenceTest, AFenceThatFailsFailsTheBatchAndNothingIsRead) {
  const BatchId batch = Submit(Write(0, 0, 4096));
  End(batch, FenceState::kFailed);
  EXPECT_EQ(sender_.State(batch), BatchState::kFailed);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kFence);
  ExpectNothingRead();
}

TEST_F(SubmitFenceTest, AFenceThatCouldNotBeRecordedFailsTheBatchAndNothingIsRead) {
  const BatchId batch =
      sender_.Submit({Write(0, 0, 4096)}, SenderHarness::kFar, {.state = FenceState::kFailed});
  EXPECT_EQ(sender_.State(batch), BatchState::kFailed);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kFence);
  ExpectNothingRead();
}

TEST_F(SubmitFenceTest, CancelEndsABatchThatWaits) {
  const BatchId batch = Submit(Write(0, 0, 4096));
  const BatchId next = Submit(Write(4096, 0, 4096));
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kCanceled);
  fences_.states[static_cast<uint32_t>(batch.value)] = FenceState::kDone;
  ExpectNothingRead();
  End(next, FenceState::kDone);
  sender_.RunToEnd();
  EXPECT_EQ(sender_.State(next), BatchState::kCompleted);
}

// Nothing of it was sent, so nothing can land: it has failed, and is not late.
TEST_F(SubmitFenceTest, ItsDeadlineEndsABatchThatWaits) {
  const BatchId batch = Submit(Write(0, 0, 4096));
  sender_.Expire(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kFailed);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kDeadline);
  ExpectNothingRead();
}

TEST_F(SubmitFenceTest, StopEndsABatchThatWaits) {
  const BatchId batch = Submit(Write(0, 0, 4096));
  sender_.submit.OnStop();
  EXPECT_FALSE(sender_.submit.Drained()) << "until its time is up";
  sender_.submit.OnFlush();
  EXPECT_EQ(sender_.State(batch), BatchState::kFailed);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kStopping);
  ExpectNothingRead();
}

TEST_F(SubmitFenceTest, ItsMemoryStaysRegisteredWhileABatchWaits) {
  Region& region = sender_.AddRegion(kSource + (uint64_t{1} << 40), 4096);
  const BatchId batch = Submit(Write(uint64_t{1} << 40, 0, 4096));
  sender_.Pass();
  EXPECT_FALSE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  sender_.Cancel(batch);
  EXPECT_TRUE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
}

}  // namespace
}  // namespace railhop
