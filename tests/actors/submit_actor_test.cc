// Batches: from submission to their last state, over the direct path. What concerns lanes is in
// submit_lanes_test.cc.
#include "actors/submit_actor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/actors/sender_harness.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

// Nothing is relayed: no PXN.
class DirectTest : public ::testing::Test {
 protected:
  explicit DirectTest(const SenderHarness::Setup& setup = {.pxn = false}) : sender_(setup) {
    sender_.AddTarget(0);
    sender_.AddTarget(1);
  }
  void TearDown() override { sender_.ExpectIdle(); }

  // `count` requests that never touch each other.
  static std::vector<TransferRequest> Tiny(size_t count, SegmentId target = 1,
                                           uint64_t length = 64) {
    std::vector<TransferRequest> requests;
    for (size_t i = 0; i < count; ++i) {
      requests.push_back(Write(i * 4096, i * 4096, length, target));
    }
    return requests;
  }
  void ExpectCompleted(BatchId id, uint64_t bytes) {
    const BatchStatus status = sender_.Status(id);
    EXPECT_EQ(status.state, BatchState::kCompleted);
    EXPECT_EQ(status.error, TransferError::kNone);
    EXPECT_EQ(status.bytes, bytes);
  }
  void ExpectFailed(BatchId id, TransferError error, uint64_t bytes) {
    const BatchStatus status = sender_.Status(id);
    EXPECT_EQ(status.state, BatchState::kFailed);
    EXPECT_STREQ(TransferErrorName(status.error), TransferErrorName(error));
    EXPECT_EQ(status.bytes, bytes);
  }

  SenderHarness sender_;
};

// --- Requests

TEST_F(DirectTest, AWriteIsPostedAndCompletes) {
  const BatchId batch = sender_.Submit({Write(100, 200, 300)});
  sender_.Pass();
  EXPECT_EQ(sender_.State(batch), BatchState::kPending);
  ASSERT_EQ(sender_.posts.size(), 1u);
  const PostSlice& slice = sender_.posts[0];
  EXPECT_EQ(slice.local, SourceAt(100));
  EXPECT_EQ(slice.remote_address, kTarget + 200);
  EXPECT_EQ(slice.length, 300u);
  EXPECT_EQ(slice.target, sender_.routes[0].get());
  EXPECT_EQ(slice.lkey, 100u);
  EXPECT_EQ(slice.path, MakePath(0));
  EXPECT_EQ(slice.opcode, FabricOpcode::kWrite);
  sender_.PostAll();
  ExpectCompleted(batch, 300);
  EXPECT_EQ(sender_.Status(batch).relayed_bytes, 0u);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
}

TEST_F(DirectTest, AReadIsPostedAsOne) {
  const BatchId batch = sender_.Submit({Read(100, 200, 300)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 1u);
  EXPECT_EQ(sender_.posts[0].opcode, FabricOpcode::kRead);
  sender_.PostAll();
  ExpectCompleted(batch, 300);
}

TEST_F(DirectTest, ABatchOfNothingCompletes) {
  const BatchId batch = sender_.Submit({});
  sender_.Pass();
  ExpectCompleted(batch, 0);
}

TEST_F(DirectTest, RequestsOfNoLengthCompleteWhereverTheyStand) {
  const TransferRequest full = Write(0, 0, 10), nothing = Write(5, 5, 0);
  const std::vector<std::vector<TransferRequest>> batches = {
      {nothing, full},
      {full, nothing, full},
      {full, nothing},
      {nothing},
      {nothing, nothing, nothing},
      {nothing, full, nothing, nothing, full, nothing},
      {Write(0, 0, 0, 99), full},                    // a target nobody knows
      {full, Write(uint64_t{1} << 40, 0, 0), full},  // memory nobody registered
  };
  for (const std::vector<TransferRequest>& requests : batches) {
    uint64_t bytes = 0;
    for (const TransferRequest& request : requests) bytes += request.length;
    const BatchId batch = sender_.Submit(requests);
    sender_.Pass();
    EXPECT_EQ(sender_.State(batch), bytes == 0 ? BatchState::kCompleted : BatchState::kPending);
    EXPECT_EQ(sender_.posts.size(), bytes / 10);
    sender_.PostAll();
    ExpectCompleted(batch, bytes);
    EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
  }
}

// The data may have arrived before the last requests, of no length, were looked at.
TEST_F(DirectTest, AThousandRequestsOfNoLengthBehindTheDataDoNotEndTheBatchEarlyOrNever) {
  std::vector<TransferRequest> requests = {Write(0, 0, 10)};
  requests.resize(1000, Write(0, 0, 0));
  const BatchId batch = sender_.Submit(requests);
  sender_.Pass();
  sender_.PostAll();
  EXPECT_EQ(sender_.State(batch), BatchState::kPending);
  sender_.RunToEnd();
  ExpectCompleted(batch, 10);
}

TEST_F(DirectTest, ARequestWhoseSourceIsNotRegisteredFailsAloneWhereverItStands) {
  const TransferRequest good = Write(0, 0, 10), bad = Write(uint64_t{1} << 40, 0, 10);
  for (const std::vector<TransferRequest>& requests :
       {std::vector<TransferRequest>{bad, good, good},
        std::vector<TransferRequest>{good, bad, good},
        std::vector<TransferRequest>{good, good, bad}}) {
    const BatchId batch = sender_.Submit(requests);
    sender_.Pass();
    EXPECT_EQ(sender_.State(batch), BatchState::kPending);
    EXPECT_EQ(sender_.posts.size(), 2u);
    sender_.PostAll();
    ExpectFailed(batch, TransferError::kNotRegistered, 20);
  }
  const BatchId only = sender_.Submit({bad});
  sender_.Pass();
  ExpectFailed(only, TransferError::kNotRegistered, 0);
}

TEST_F(DirectTest, ASourceThatReachesOutOfItsRegionFails) {
  sender_.AddRegion(kSource + (uint64_t{1} << 36), 4096);  // adjacent to the first one
  const BatchId batch = sender_.Submit(
      {Write((uint64_t{1} << 36) - 5, 0, 10), Write((uint64_t{1} << 36) + 4090, 0, 10)});
  sender_.Pass();
  ExpectFailed(batch, TransferError::kNotRegistered, 0);
}

TEST_F(DirectTest, ATargetNobodyKnowsFailsItsRequestsAlone) {
  for (const SegmentId target :
       {SegmentId{0}, SegmentId{3}, kMaxTargets, kMaxTargets + 1, UINT32_MAX}) {
    const BatchId batch = sender_.Submit({Write(0, 0, 10, target), Write(0, 0, 10)});
    sender_.Pass();
    EXPECT_EQ(sender_.posts.size(), 1u);
    sender_.PostAll();
    ExpectFailed(batch, TransferError::kUnknownTarget, 10);
  }
}

TEST_F(DirectTest, TheFirstErrorIsTheOneThatShows) {
  const TransferRequest unknown = Write(0, 0, 10, 50), stray = Write(uint64_t{1} << 40, 0, 10);
  const BatchId first = sender_.Submit({unknown, stray});
  const BatchId second = sender_.Submit({stray, unknown});
  sender_.Pass();
  ExpectFailed(first, TransferError::kUnknownTarget, 0);
  ExpectFailed(second, TransferError::kNotRegistered, 0);
}

TEST_F(DirectTest, ARequestThatCannotBeRightFailsAlone) {
  TransferRequest wraps = Write(0, 0, 10);
  wraps.target_address = UINT64_MAX - 5;
  TransferRequest source_wraps = Write(0, 0, UINT64_MAX - 10);
  TransferRequest opcode = Write(0, 0, 10);
  opcode.opcode = static_cast<Opcode>(7);
  for (const TransferRequest& bad : {wraps, source_wraps, opcode}) {
    const BatchId batch = sender_.Submit({bad, Write(0, 0, 10)});
    sender_.Pass();
    sender_.PostAll();
    ExpectFailed(batch, TransferError::kInvalidRequest, 10);
  }
}

TEST_F(DirectTest, ARequestOverTwoAdjacentRegistrationsIsCutBetweenThem) {
  sender_.AddTarget(
      2, {{.address = kTarget, .length = 1000}, {.address = kTarget + 1000, .length = 1000}});
  const BatchId batch = sender_.Submit({Write(0, 900, 300, 3)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 2u);
  EXPECT_EQ(sender_.posts[0].remote_address, kTarget + 900);
  EXPECT_EQ(sender_.posts[0].length, 100u);
  EXPECT_EQ(sender_.posts[1].remote_address, kTarget + 1000);
  EXPECT_EQ(sender_.posts[1].local, SourceAt(100));
  EXPECT_EQ(sender_.posts[1].length, 200u);
  sender_.PostAll();
  ExpectCompleted(batch, 300);
}

TEST_F(DirectTest, ARequestIsCutWhereAPartOfItsOwnMemoryEnds) {
  constexpr uint64_t kOther = uint64_t{1} << 40;
  Region& region = sender_.AddRegion(kSource + kOther, 3000);
  region.part_ends = {1000, 2000, 3000};
  region.lkeys = {11, 12, 13};
  sender_.AddTarget(
      2, {{.address = kTarget, .length = 500}, {.address = kTarget + 500, .length = 10'000}});
  // Within a part; from the first to the last, and over the end of a remote one as well.
  const BatchId one = sender_.Submit({Write(kOther + 1000, 0, 1000)});
  const BatchId all = sender_.Submit({Read(kOther + 900, 0, 2100, 3)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 5u);
  const std::vector<std::array<uint64_t, 4>> expected = {{1000, 0, 1000, 12},
                                                         {900, 0, 100, 11},
                                                         {1000, 100, 400, 12},
                                                         {1400, 500, 600, 12},
                                                         {2000, 1100, 1000, 13}};
  for (size_t i = 0; i < expected.size(); ++i) {
    const PostSlice& slice = sender_.posts[i];
    EXPECT_EQ(slice.local, SourceAt(kOther + expected[i][0])) << i;
    EXPECT_EQ(slice.remote_address, kTarget + expected[i][1]) << i;
    EXPECT_EQ(slice.length, expected[i][2]) << i;
    EXPECT_EQ(slice.lkey, expected[i][3]) << i;
  }
  sender_.PostAll();
  ExpectCompleted(one, 1000);
  ExpectCompleted(all, 2100);
}

TEST_F(DirectTest, OnlyAReadIntoGpuMemoryAsksForAFlush) {
  constexpr uint64_t kOther = uint64_t{1} << 40;
  sender_.AddRegion(kSource + kOther, 3000).flush_gpu = 4;
  const BatchId batch = sender_.Submit({Write(kOther, 0, 10), Read(kOther, 0, 10), Read(0, 0, 10)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 3u);
  EXPECT_EQ(sender_.posts[0].flush_gpu, 0);
  EXPECT_EQ(sender_.posts[1].flush_gpu, 4);
  EXPECT_EQ(sender_.posts[2].flush_gpu, 0);
  sender_.PostAll();
  ExpectCompleted(batch, 30);
}

TEST_F(DirectTest, ARequestBeyondTheEndOfTheRegistrationFails) {
  sender_.AddTarget(2, {{.address = kTarget, .length = 1000}});
  const BatchId outside = sender_.Submit({Write(0, 1000, 1, 3)});
  const BatchId before = sender_.Submit({{.opcode = Opcode::kWrite,
                                          .source = SourceAt(0),
                                          .target = 3,
                                          .target_address = kTarget - 1,
                                          .length = 1}});
  const BatchId across = sender_.Submit({Write(0, 900, 101, 3), Write(0, 0, 7, 3)});
  sender_.Pass();
  ExpectFailed(outside, TransferError::kRemoteAccess, 0);
  ExpectFailed(before, TransferError::kRemoteAccess, 0);
  sender_.PostAll();
  EXPECT_EQ(sender_.State(across), BatchState::kFailed);
  EXPECT_EQ(sender_.Status(across).error, TransferError::kRemoteAccess);
}

TEST_F(DirectTest, ALargeRequestIsCutIntoSlicesOfEightMebibytes) {
  const BatchId batch = sender_.Submit({Write(0, 0, 20 * kMiB + 1)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 3u);
  EXPECT_EQ(sender_.posts[0].length, 8 * kMiB);
  EXPECT_EQ(sender_.posts[1].length, 8 * kMiB);
  EXPECT_EQ(sender_.posts[2].length, 4 * kMiB + 1);
  EXPECT_EQ(sender_.posts[2].remote_address, kTarget + 16 * kMiB);
  sender_.PostAll();
  ExpectCompleted(batch, 20 * kMiB + 1);
}

TEST_F(DirectTest, ASliceThatFailsFailsItsBatchAndNoOther) {
  const BatchId bad = sender_.Submit({Write(0, 0, 10), Write(100, 100, 20)});
  const BatchId good = sender_.Submit({Write(0, 0, 30)});
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 3u);
  sender_.PostDone(sender_.posts[0], TransferError::kTargetDead);
  EXPECT_EQ(sender_.State(bad), BatchState::kPending) << "its other slice can still land";
  sender_.PostDone(sender_.posts[1]);
  sender_.PostDone(sender_.posts[2]);
  sender_.posts.clear();
  ExpectFailed(bad, TransferError::kTargetDead, 20);
  ExpectCompleted(good, 30);
}

// --- Many requests

// Runs until nothing moves, answering at most `slices` per pass, and returns the order in which the
// batches ended.
std::vector<size_t> RunSlowly(SenderHarness& sender, const std::vector<BatchId>& batches,
                              size_t slices) {
  std::vector<size_t> order;
  std::vector<bool> ended(batches.size());
  for (size_t pass = 0; pass < 10'000'000 && order.size() < batches.size(); ++pass) {
    sender.Pass();
    for (size_t i = 0; i < slices && !sender.posts.empty(); ++i) {
      const PostSlice slice = sender.posts.front();
      sender.posts.pop_front();
      sender.PostDone(slice);
    }
    for (size_t i = 0; i < batches.size(); ++i) {
      if (ended[i] || sender.State(batches[i]) == BatchState::kPending) continue;
      ended[i] = true;
      order.push_back(i);
    }
  }
  return order;
}

TEST_F(DirectTest, TenThousandTinyRequestsComplete) {
  const BatchId batch = sender_.Submit(Tiny(10'000));
  sender_.RunToEnd();
  ExpectCompleted(batch, 640'000);
}

TEST_F(DirectTest, ABatchOfManyRequestsNeverTakesTheWholePool) {
  const BatchId batch = sender_.Submit(Tiny(50'000));
  for (int i = 0; i < 500; ++i) sender_.Pass();  // the NIC takes nothing
  EXPECT_GE(SubmitActorPeer::FreeSpans(sender_.submit), SubmitActor::kSpanPool / 2);
  EXPECT_EQ(sender_.Pass(), 0u) << "it must be able to sleep";
  sender_.RunToEnd();
  ExpectCompleted(batch, 50'000 * 64);
}

TEST_F(DirectTest, ManyRequestsDoNotStarveABatchForTheSameTarget) {
  const BatchId many = sender_.Submit(Tiny(60'000));
  for (int i = 0; i < 300; ++i) sender_.Pass();
  const BatchId few = sender_.Submit(Tiny(500));
  EXPECT_EQ(RunSlowly(sender_, {many, few}, 8), (std::vector<size_t>{1, 0}));
}

TEST_F(DirectTest, ManyRequestsDoNotStarveABatchForAnotherTarget) {
  const BatchId many = sender_.Submit(Tiny(60'000));
  for (int i = 0; i < 300; ++i) sender_.Pass();
  const BatchId few = sender_.Submit(Tiny(500, 2));
  EXPECT_EQ(RunSlowly(sender_, {many, few}, 8), (std::vector<size_t>{1, 0}));
}

TEST_F(DirectTest, HalfAMillionRequestsCompleteAndStarveNobody) {
  const size_t count = StressCount(100'000, 500'000);
  const BatchId many = sender_.Submit(Tiny(count));
  std::vector<BatchId> all = {many};
  for (SegmentId target : {1u, 2u, 1u}) all.push_back(sender_.Submit(Tiny(300, target)));
  const std::vector<size_t> order = RunSlowly(sender_, all, 64);
  ASSERT_EQ(order.size(), 4u);
  EXPECT_EQ(order.back(), 0u);
  ExpectCompleted(many, count * 64);
}

TEST_F(DirectTest, ATargetThatDoesNotMoveHoldsUpNobody) {
  const BatchId stuck = sender_.Submit(Tiny(60'000));
  for (int i = 0; i < 300; ++i) sender_.Pass();
  std::deque<PostSlice> kept;
  kept.swap(sender_.posts);  // never answered while the other one runs
  const BatchId other = sender_.Submit(Tiny(1000, 2));
  sender_.RunToEnd();
  ExpectCompleted(other, 64'000);
  EXPECT_EQ(sender_.State(stuck), BatchState::kPending);
  kept.swap(sender_.posts);
  sender_.RunToEnd();
  ExpectCompleted(stuck, 60'000 * 64);
}

TEST_F(DirectTest, StuckTargetsLeaveRoomInTheDirectWindow) {
  std::vector<BatchId> batches;
  std::deque<PostSlice> kept;
  for (uint32_t target = 2; target < 6; ++target) {
    sender_.AddTarget(target);
    batches.push_back(sender_.Submit(Tiny(1000, target + 1)));
    for (int i = 0; i < 10; ++i) sender_.Pass();
  }
  kept.swap(sender_.posts);
  EXPECT_EQ(std::count_if(kept.begin(), kept.end(),
                          [](const PostSlice& slice) { return slice.target->index == 2; }),
            SubmitActor::kDirectWindow / 2);
  EXPECT_LT(kept.size(), SubmitActor::kDirectWindow);
  const BatchId other = sender_.Submit(Tiny(1000));
  sender_.RunToEnd();
  ExpectCompleted(other, 64'000);
  kept.swap(sender_.posts);
  sender_.RunToEnd();
  for (const BatchId batch : batches) ExpectCompleted(batch, 64'000);
}

class SmallPostEdgeTest : public DirectTest {
 protected:
  SmallPostEdgeTest() : DirectTest({.pxn = false, .post_edge = 2}) {}
};

TEST_F(SmallPostEdgeTest, AFullEdgeKeepsTheWork) {
  const BatchId batch = sender_.Submit(Tiny(100));
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 2u);
  sender_.RunToEnd();
  ExpectCompleted(batch, 6400);
}

class SeveralNicsTest : public DirectTest {
 protected:
  SeveralNicsTest() : DirectTest({.pxn = false, .nics = 4}) {}
  std::vector<uint32_t> NicsOf(BatchId batch) {
    sender_.Pass();
    std::vector<uint32_t> nics;
    for (const PostSlice& slice : sender_.posts) {
      nics.push_back(OwnNic(slice.path));
      EXPECT_EQ(slice.lkey, 100u + OwnNic(slice.path));
    }
    sender_.PostAll();
    EXPECT_EQ(sender_.State(batch), BatchState::kCompleted);
    return nics;
  }
};

TEST_F(SeveralNicsTest, SlicesAlternateOverTheNicsThatQualify) {
  sender_.AddTarget(2, {{.rails = {"rail0"}, .own_nics = {3, 1}}});
  EXPECT_EQ(NicsOf(sender_.Submit(Tiny(5, 3))), (std::vector<uint32_t>{3, 1, 3, 1, 3}));
  EXPECT_EQ(NicsOf(sender_.Submit(Tiny(6, 1))), (std::vector<uint32_t>{0, 1, 2, 3, 0, 1}));
}

// --- Deadline and cancel

TEST_F(DirectTest, TheWatchdogIsToldOfTheEarliestDeadlineAlone) {
  const auto& armed = sender_.armed[kBatchDeadline].deadline;
  sender_.Submit({Write(0, 0, 10)}, 5'000'000);
  sender_.Pass();
  EXPECT_EQ(armed, 5'000'000u);
  sender_.Submit({Write(0, 0, 10)}, 6'000'000);
  sender_.Pass();
  EXPECT_EQ(armed, 5'000'000u);
  sender_.Submit({Write(0, 0, 10)}, 4'000'000);
  sender_.Pass();
  EXPECT_EQ(armed, 4'000'000u);
  sender_.RunToEnd();
}

// One message stands for many batches: those that are late are given up, the next one is armed, and
// those that are over are nobody's business.
TEST_F(DirectTest, AtADeadlineAllBatchesAreLookedAt) {
  const uint64_t now = sender_.clock.now();
  const BatchId over = sender_.Submit({Write(0, 0, 10)}, now + 100);
  sender_.RunToEnd();
  const BatchId late = sender_.Submit(Tiny(100'000), now + 200);
  const BatchId later = sender_.Submit(Tiny(100'000), now + 300);
  const BatchId in_time = sender_.Submit(Tiny(10), now + 301);
  sender_.Advance(300);
  sender_.Pass();
  EXPECT_TRUE(sender_.submit.OnDeadlineExpired({.slot = kBatchDeadline}));
  sender_.Pass();
  EXPECT_EQ(sender_.armed[kBatchDeadline].deadline, now + 301);
  sender_.RunToEnd();
  ExpectCompleted(over, 10);
  EXPECT_EQ(sender_.State(late), BatchState::kFailed);
  EXPECT_EQ(sender_.State(later), BatchState::kFailed);
  ExpectCompleted(in_time, 640);
}

class SmallDeadlineEdgeTest : public DirectTest {
 protected:
  SmallDeadlineEdgeTest() : DirectTest({.pxn = false, .deadline_edge = 2}) {}
};

TEST_F(SmallDeadlineEdgeTest, WhatFindsNoRoomIsArmedLater) {
  for (uint64_t deadline = 900'000; deadline >= 600'000; deadline -= 100'000) {
    sender_.Submit({Write(0, 0, 10)}, deadline);
  }
  sender_.Pass();
  EXPECT_EQ(sender_.armed[kBatchDeadline].deadline, 800'000u);
  sender_.Pass();
  EXPECT_EQ(sender_.armed[kBatchDeadline].deadline, 600'000u);
  sender_.RunToEnd();
}

TEST_F(DirectTest, AtItsDeadlineWhatIsQueuedEndsAtOnce) {
  const BatchId batch = sender_.Submit(Tiny(100'000));
  sender_.Expire(batch);  // before the first pass: nothing is on the wire
  ExpectFailed(batch, TransferError::kDeadline, 0);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
}

TEST_F(DirectTest, AtItsDeadlineABatchOnTheWireShowsTimeoutUntilItIsOver) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  for (int i = 0; i < 10; ++i) sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 128u);
  sender_.PostDone(sender_.posts.front());
  sender_.posts.pop_front();
  sender_.Expire(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kDeadline);
  EXPECT_EQ(sender_.Status(batch).bytes, 64u);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kBusy);
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 127u) << "nothing new may start";
  while (sender_.posts.size() > 1) {
    sender_.PostDone(sender_.posts.front());
    sender_.posts.pop_front();
    EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  }
  sender_.PostAll();
  ExpectFailed(batch, TransferError::kDeadline, 128 * 64);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
}

TEST_F(DirectTest, ABatchThatWasAllOnTheWireAtItsDeadlineCanStillComplete) {
  const BatchId batch = sender_.Submit(Tiny(10));
  sender_.Pass();
  sender_.Expire(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  sender_.PostAll();
  ExpectCompleted(batch, 640);
}

TEST_F(DirectTest, ABatchThatFailedBeforeItsDeadlineShowsItsOwnErrorInTheEnd) {
  const BatchId batch = sender_.Submit({Write(0, 0, 10, 99), Write(0, 0, 10)});
  sender_.Pass();
  sender_.Expire(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kDeadline);
  sender_.PostAll();
  ExpectFailed(batch, TransferError::kUnknownTarget, 10);
}

TEST_F(DirectTest, ACancelledBatchIsCanceledOnlyWhenNothingCanLand) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  sender_.Pass();
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kPending);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kBusy);
  const size_t posted = sender_.posts.size();
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), posted);
  sender_.PostAll();
  EXPECT_EQ(sender_.State(batch), BatchState::kCanceled);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kCanceled);
  EXPECT_EQ(sender_.Status(batch).bytes, posted * 64);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
}

TEST_F(DirectTest, ACancelBeforeAnythingMovedEndsTheBatchAtOnce) {
  const BatchId batch = sender_.Submit(Tiny(10));
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kCanceled);
}

TEST_F(DirectTest, ACancelThatComesTooLateChangesNothing) {
  const BatchId on_wire = sender_.Submit(Tiny(10));
  sender_.Pass();
  sender_.Cancel(on_wire);
  sender_.Cancel(on_wire);
  sender_.PostAll();
  ExpectCompleted(on_wire, 640);
  sender_.Cancel(on_wire);
  sender_.Expire(on_wire);
  ExpectCompleted(on_wire, 640);
}

TEST_F(DirectTest, ACancelledBatchPastItsDeadlineShowsTimeoutToo) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  sender_.Pass();
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kPending);
  sender_.Expire(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  EXPECT_EQ(sender_.Status(batch).error, TransferError::kDeadline);
  sender_.PostAll();
  EXPECT_EQ(sender_.State(batch), BatchState::kCanceled);
}

TEST_F(DirectTest, ACancelAfterTheDeadlineChangesNothing) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  sender_.Pass();
  sender_.Expire(batch);
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kTimeout);
  const size_t posted = sender_.posts.size();
  sender_.PostAll();
  ExpectFailed(batch, TransferError::kDeadline, posted * 64);
}

TEST_F(DirectTest, WhatConcernsABatchOfBeforeDoesNotReachTheNextOne) {
  const BatchId old = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ASSERT_EQ(sender_.table.Free(old), FreeResult::kOk);
  const BatchId next = sender_.Submit(Tiny(10));
  ASSERT_EQ(static_cast<uint32_t>(next.value), static_cast<uint32_t>(old.value));
  sender_.Cancel(old);
  sender_.Expire(old);
  sender_.RunToEnd();
  ExpectCompleted(next, 640);
}

TEST_F(DirectTest, AnAbandonedBatchLeavesTheSpansOfOthersInOrder) {
  const BatchId first = sender_.Submit(Tiny(2000));
  const BatchId second = sender_.Submit(Tiny(2000));
  const BatchId third = sender_.Submit(Tiny(2000, 2));
  for (int i = 0; i < 50; ++i) sender_.Pass();
  sender_.Cancel(first);
  sender_.RunToEnd();
  EXPECT_EQ(sender_.State(first), BatchState::kCanceled);
  ExpectCompleted(second, 2000 * 64);
  ExpectCompleted(third, 2000 * 64);
}

TEST_F(DirectTest, ABatchCanBeAbandonedWhileItsRequestsAreStillBeingRouted) {
  const BatchId first = sender_.Submit(Tiny(40'000));
  const BatchId second = sender_.Submit(Tiny(40'000));
  const BatchId third = sender_.Submit(Tiny(40'000));
  for (int i = 0; i < 20; ++i) sender_.Pass();
  sender_.Cancel(second);
  sender_.Expire(third);
  sender_.RunToEnd();
  ExpectCompleted(first, 40'000 * 64);
  EXPECT_EQ(sender_.State(second), BatchState::kCanceled);
  EXPECT_EQ(sender_.State(third), BatchState::kFailed);
}

// --- Targets

TEST_F(DirectTest, ATargetThatFailsEndsWhatWaitsForIt) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  const BatchId other = sender_.Submit(Tiny(1000, 2));
  for (int i = 0; i < 10; ++i) sender_.Pass();
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 0, .token = kNoToken, .error = TransferError::kTargetDead, .version = 1}));
  sender_.Pass();
  EXPECT_EQ(sender_.State(batch), BatchState::kPending) << "some are on the wire";
  std::deque<PostSlice> posts;
  posts.swap(sender_.posts);
  for (const PostSlice& slice : posts) {
    sender_.PostDone(slice,
                     slice.target->index == 0 ? TransferError::kTransport : TransferError::kNone);
  }
  ExpectFailed(batch, TransferError::kTargetDead, 0);
  const BatchId next = sender_.Submit(Tiny(10));
  sender_.Pass();
  ExpectFailed(next, TransferError::kTargetDead, 0);
  sender_.RunToEnd();
  ExpectCompleted(other, 64'000);
}

TEST_F(DirectTest, AFailureThatComesLateDoesNotEndTheNextConnection) {
  sender_.AddTarget(0, {{}}, 2);
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 0, .token = kNoToken, .error = TransferError::kTargetDead, .version = 1}));
  const BatchId batch = sender_.Submit(Tiny(10));
  sender_.RunToEnd();
  ExpectCompleted(batch, 640);
}

TEST_F(DirectTest, AFailureThatComesEarlyEndsTheConnectionItMeans) {
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 0, .token = kNoToken, .error = TransferError::kTargetDead, .version = 2}));
  sender_.AddTarget(0, {{}}, 2);
  const BatchId batch = sender_.Submit(Tiny(10));
  sender_.Pass();
  ExpectFailed(batch, TransferError::kTargetDead, 0);
  sender_.AddTarget(0, {{}}, 3);
  const BatchId next = sender_.Submit(Tiny(10));
  sender_.RunToEnd();
  ExpectCompleted(next, 640);
}

TEST_F(DirectTest, AFailureOfWhatNeverWasATargetIsNoNews) {
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = kMaxTargets, .token = 5, .error = TransferError::kUnknownTarget, .version = 0}));
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 7, .token = kNoToken, .error = TransferError::kTransport, .version = 0}));
  const BatchId batch = sender_.Submit(Tiny(1, 8));
  sender_.Pass();
  ExpectFailed(batch, TransferError::kTransport, 0);
}

// Queued for the old connection, posted through the new one - and cut where its registrations end.
TEST_F(DirectTest, WhatIsQueuedGoesThroughTheNewConnection) {
  const BatchId batch = sender_.Submit(Tiny(1000));
  const BatchId wide = sender_.Submit({Write(0, uint64_t{1} << 30, 1000)});
  for (int i = 0; i < 10; ++i) sender_.Pass();
  std::deque<PostSlice> old;
  old.swap(sender_.posts);
  const TargetRoute& route =
      sender_.AddTarget(0,
                        {{.address = kTarget, .length = (uint64_t{1} << 30) + 400},
                         {.address = kTarget + (uint64_t{1} << 30) + 400, .length = 4096}},
                        2);
  for (const PostSlice& slice : old) {
    EXPECT_EQ(slice.target, sender_.routes[0].get());
    sender_.PostDone(slice);
  }
  size_t wide_slices = 0;
  for (int i = 0; i < 50; ++i) {
    sender_.Pass();
    for (const PostSlice& slice : sender_.posts) {
      EXPECT_EQ(slice.target, &route);
      if (slice.remote_address < kTarget + (uint64_t{1} << 30)) continue;
      ++wide_slices;
      EXPECT_EQ(slice.length, wide_slices == 1 ? 400u : 600u);
    }
    sender_.PostAll();
  }
  EXPECT_EQ(wide_slices, 2u);
  ExpectCompleted(batch, 64'000);
  ExpectCompleted(wide, 1000);
}

TEST_F(DirectTest, WhatTheNewConnectionNoLongerHasIsPostedAndFailsThere) {
  const BatchId batch = sender_.Submit(Tiny(200));
  sender_.Pass();
  const size_t old = sender_.posts.size();
  sender_.AddTarget(0, {{.address = kTarget, .length = 10}}, 2);
  sender_.PostAll();
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 200 - old);
  sender_.PostAll(TransferError::kRemoteAccess);
  ExpectFailed(batch, TransferError::kRemoteAccess, old * 64);
}

// --- Regions

TEST_F(DirectTest, ARegionIsNotRemovedWhileATransferMayReadIt) {
  Region& region = sender_.AddRegion(kSource + (uint64_t{1} << 40), 1 << 20);
  const BatchId batch = sender_.Submit({Write(uint64_t{1} << 40, 0, 1000)});
  sender_.Pass();
  EXPECT_EQ(region.in_flight, 1000u);
  EXPECT_FALSE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  sender_.PostAll();
  ExpectCompleted(batch, 1000);
  EXPECT_TRUE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  EXPECT_FALSE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  const BatchId next = sender_.Submit({Write(uint64_t{1} << 40, 0, 1000)});
  sender_.Pass();
  ExpectFailed(next, TransferError::kNotRegistered, 0);
}

TEST_F(DirectTest, ARegionStaysWhileSomethingIsOnlyQueued) {
  Region& region = sender_.AddRegion(kSource + (uint64_t{1} << 40), 1 << 20);
  const BatchId full = sender_.Submit(Tiny(128));
  sender_.Pass();
  const BatchId batch = sender_.Submit({Write(uint64_t{1} << 40, 0, 1000)});
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 128u);
  EXPECT_FALSE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  sender_.Cancel(batch);
  EXPECT_EQ(sender_.State(batch), BatchState::kCanceled);
  EXPECT_TRUE(sender_.TellRegion(BatchCommand::kRemoveRegion, region));
  sender_.RunToEnd();
  ExpectCompleted(full, 128 * 64);
}

TEST_F(DirectTest, ARegionThatOverlapsIsRefused) {
  Region overlap;
  overlap.base = SourceAt(5);
  overlap.length = 5;
  EXPECT_FALSE(sender_.TellRegion(BatchCommand::kAddRegion, overlap));
}

// --- Stop

TEST_F(DirectTest, StoppingItRefusesNewBatchesAndDrainsTheOldOnes) {
  const BatchId old = sender_.Submit(Tiny(1000));
  sender_.Pass();
  EXPECT_FALSE(sender_.submit.Drained());
  sender_.submit.OnStop();
  const BatchId late = sender_.Submit(Tiny(10));
  sender_.Pass();
  ExpectFailed(late, TransferError::kStopping, 0);
  EXPECT_FALSE(sender_.submit.Drained());
  sender_.RunToEnd();
  ExpectCompleted(old, 64'000);
  EXPECT_TRUE(sender_.submit.Drained());
}

TEST_F(DirectTest, AFlushLeavesNobodyWaiting) {
  const BatchId wire = sender_.Submit(Tiny(1));
  sender_.Pass();
  const BatchId cancelled = sender_.Submit(Tiny(1000));
  sender_.Pass();
  sender_.Cancel(cancelled);
  const BatchId queued = sender_.Submit(Tiny(1000));
  sender_.submit.OnStop();
  EXPECT_FALSE(sender_.submit.Drained());
  sender_.submit.OnFlush();
  EXPECT_TRUE(sender_.submit.Drained());
  EXPECT_EQ(sender_.State(wire), BatchState::kTimeout);
  EXPECT_EQ(sender_.Status(wire).error, TransferError::kStopping);
  EXPECT_EQ(sender_.State(cancelled), BatchState::kTimeout);
  ExpectFailed(queued, TransferError::kStopping, 0);
  EXPECT_EQ(sender_.table.Free(wire), FreeResult::kBusy);
  // What comes in after all still counts.
  sender_.PostAll();
  ExpectCompleted(wire, 64);
  EXPECT_EQ(sender_.State(cancelled), BatchState::kCanceled);
}

}  // namespace
}  // namespace railhop
