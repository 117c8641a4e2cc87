// SubmitActor and its lanes: pieces, ring credit, what a relay answers, and how a lane ends. The
// lanes are mappings of real registry entries; the test plays copy actor and relay.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "actors/slot_states.h"
#include "tests/actors/lane_test.h"

namespace railhop {
namespace {

// --- Pieces

TEST_F(LaneTest, APieceIsCopiedAndCompletedByTheRelay) {
  sender_.OpenLane(0);
  const BatchId batch = sender_.Submit({Write(100, 200, 300)});
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  const CopyPiece piece = sender_.copies[0];
  EXPECT_EQ(piece.sequence, 2u);
  EXPECT_EQ(piece.lane, 0u);
  EXPECT_EQ(piece.lane_generation, 1u);
  EXPECT_EQ(piece.target, sender_.routes[0].get());
  ASSERT_EQ(piece.content->plans.size(), 1u);
  EXPECT_EQ(piece.content->plans[0], (PlanEntry{kTarget + 200, 300}));
  EXPECT_EQ(piece.content->copies[0].source, SourceAt(100));
  sender_.CopyAll();
  ExpectState(batch, BatchState::kPending);
  EXPECT_EQ(sender_.regions[0]->in_flight, 300u);
  EXPECT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  sender_.AnswerAll();
  ExpectCompleted(batch, 300, 300);
  EXPECT_EQ(sender_.submit.stats().pieces_relayed.load(), 1u);
  EXPECT_TRUE(sender_.posts.empty());
}

class LargePieceTest : public LaneTest {
 protected:
  LargePieceTest() : LaneTest(SenderHarness::Setup{}) {}
};

TEST_F(LargePieceTest, OnAnIdleLanePiecesAreSmallAndGrowWithTheBacklog) {
  sender_.OpenLane(0);
  const BatchId batch = sender_.Submit({Write(0, 0, 64 * kMiB)});
  sender_.Pass();
  ASSERT_FALSE(sender_.copies.empty());
  EXPECT_EQ(sender_.copies[0].content->length, kPiece);
  uint64_t largest = 0;
  uint64_t moved = 0;
  while (sender_.State(batch) == BatchState::kPending) {
    ASSERT_FALSE(sender_.copies.empty());
    for (const CopyPiece& piece : sender_.copies) {
      ASSERT_LE(piece.content->length, kSlotBytes);
      largest = std::max(largest, piece.content->length);
      moved += piece.content->length;
    }
    sender_.CopyAll();
    // The relay answers one by one, so that there always is a backlog.
    sender_.Answer(0, sender_.rung.front().sequence, 0);
    sender_.rung.pop_front();
    sender_.Pass();
    if (sender_.copies.empty()) sender_.AnswerAll();
  }
  EXPECT_GT(largest, 2 * kMiB);
  EXPECT_EQ(moved, 64 * kMiB);
  ExpectCompleted(batch, 64 * kMiB, 64 * kMiB);
}

// A copy engine that works on three pieces of a target at a time, as on a GPU.
class DeviceCopyTest : public LaneTest {
 protected:
  static constexpr uint64_t kRequest = 64 * kKiB;

  DeviceCopyTest()
      : LaneTest(SenderHarness::Setup{
            .job_sizes = {
                .idle = 512 * kKiB, .backlog = kMiB, .at_once = 3, .whole = 128 * kKiB}}) {
    sender_.OpenLane(0);
  }
  BatchId SubmitOne(SegmentId target = 1) {
    next_ += kRequest;
    const BatchId batch = sender_.Submit({Write(next_, next_, kRequest, target)});
    sender_.Pass();
    return batch;
  }
  void FinishCopy(size_t index) {
    const CopyPiece piece = sender_.copies[index];
    sender_.copies.erase(sender_.copies.begin() + static_cast<ptrdiff_t>(index));
    sender_.Copied(piece);
    sender_.rung.push_back(piece);
    sender_.Pass();
  }
  std::vector<uint64_t> Lengths() const {
    std::vector<uint64_t> lengths;
    for (const CopyPiece& piece : sender_.copies) lengths.push_back(piece.content->length);
    return lengths;
  }
};

TEST_F(DeviceCopyTest, RequestsThatComeOneByOneGatherWhilePiecesAreCopied) {
  for (int i = 0; i < 8; ++i) SubmitOne();
  // Each was a quarter of all there was by then, at least.
  EXPECT_EQ(Lengths(), std::vector<uint64_t>(3, kRequest));
  // What waits goes on when a copy is over.
  FinishCopy(0);
  EXPECT_EQ(sender_.copies.size(), 3U);
  EXPECT_EQ(sender_.copies.back().content->length, 2 * kRequest);
  sender_.RunToEnd();
}

TEST_F(DeviceCopyTest, AnotherTargetsPiecesDoNotCount) {
  for (int i = 0; i < 20; ++i) SubmitOne(1);
  const size_t of_first = sender_.copies.size();
  EXPECT_EQ(of_first, 3U);
  SubmitOne(2);
  ASSERT_EQ(sender_.copies.size(), of_first + 1);
  EXPECT_EQ(sender_.copies.back().target->index, 1U);
  sender_.RunToEnd();
}

TEST_F(DeviceCopyTest, WhatGathersForLongerThanTheCreditTimeoutGoesDirect) {
  const BatchId first = SubmitOne();
  const BatchId second = SubmitOne();
  SubmitOne();
  SubmitOne();
  for (int i = 0; i < 4; ++i) SubmitOne();
  sender_.Advance(SenderHarness::kCreditTimeout);
  // There was credit all the time.
  EXPECT_GT(sender_.Direct(DirectReason::kSlowCopies), 0U);
  EXPECT_EQ(sender_.Direct(DirectReason::kCreditTimeout), 0U);
  ExpectState(first, BatchState::kPending);
  ExpectState(second, BatchState::kPending);
  sender_.RunToEnd();
}

TEST_F(DeviceCopyTest, AWaitForASlotAndOneForCopiesAreTwoWaits) {
  // All slots that the target may have are taken, and one of their copies is under way.
  for (uint64_t i = 0; i < 9; ++i) {
    sender_.Submit({Write(i * 2 * kRequest, i * 2 * kRequest, 2 * kRequest)});
    sender_.Pass();
    if (i != 8) FinishCopy(0);
  }
  ASSERT_EQ(sender_.copies.size(), 1U);
  ASSERT_EQ(SubmitActorPeer::Lane(sender_.submit, 0).in_flight(), 9U);
  next_ = kMiB * 16;
  SubmitOne();
  sender_.Advance(SenderHarness::kCreditTimeout - 1);
  // Now there is a slot, and it waits for the copies.
  sender_.Answer(0, sender_.rung.front().sequence, 0);
  sender_.rung.pop_front();
  sender_.Pass();
  sender_.Advance(1);
  EXPECT_TRUE(sender_.posts.empty());
  sender_.Advance(SenderHarness::kCreditTimeout - 1);
  EXPECT_EQ(sender_.posts.size(), 1U);
  EXPECT_EQ(sender_.Direct(DirectReason::kSlowCopies), 1U);
  EXPECT_EQ(sender_.Direct(DirectReason::kCreditTimeout), 0U);
  sender_.RunToEnd();
}

TEST_F(DeviceCopyTest, ACopyThatFailsCountsNoMore) {
  for (int i = 0; i < 8; ++i) SubmitOne();
  ASSERT_EQ(sender_.copies.size(), 3U);
  for (const CopyPiece& piece : std::exchange(sender_.copies, {})) {
    sender_.StartCopy(piece);
    EXPECT_TRUE(sender_.submit.OnPieceCopied({piece.sequence, piece.lane, CopyOutcome::kRefused}));
  }
  sender_.RunToEnd();
  EXPECT_GT(sender_.Direct(DirectReason::kLaneLost), 0U);
}

TEST_F(LaneTest, APieceCarriesSeveralRequestsAndBatchesOfATarget) {
  sender_.OpenLane(0);
  const BatchId one = sender_.Submit({Write(0, 0, 100), Write(100, 100, 50), Write(500, 500, 7)});
  const BatchId two = sender_.Submit({Write(1000, 1000, 10)});
  const BatchId elsewhere = sender_.Submit({Write(2000, 2000, 20, 2)});
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 2u);
  EXPECT_EQ(sender_.copies[0].content->plans,
            (std::vector<PlanEntry>{{kTarget, 150}, {kTarget + 500, 7}, {kTarget + 1000, 10}}));
  EXPECT_EQ(sender_.copies[1].target->index, 1u);
  sender_.CopyAll();
  sender_.AnswerAll();
  ExpectCompleted(one, 157, 157);
  ExpectCompleted(two, 10, 10);
  ExpectCompleted(elsewhere, 20, 20);
}

TEST_F(LaneTest, ARequestOverTwoAdjacentRegistrationsIsOneSpanOfThePiece) {
  sender_.OpenLane(0);
  sender_.AddTarget(
      5, {{.address = kTarget, .length = 1000}, {.address = kTarget + 1000, .length = 1000}});
  const BatchId batch = sender_.Submit({Write(0, 900, 300, 6)});
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  EXPECT_EQ(sender_.copies[0].content->plans, (std::vector<PlanEntry>{{kTarget + 900, 300}}));
  sender_.RunToEnd();
  ExpectCompleted(batch, 300, 300);
}

TEST_F(LaneTest, APieceHasAtMost4096Spans) {
  sender_.OpenLane(0);
  const BatchId first = SubmitPieces(9);  // all slots a target may have
  sender_.Pass();
  const BatchId batch = sender_.Submit(Tiny(10'000));
  for (int i = 0; i < 100; ++i) sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 9u);
  sender_.CopyAll();
  sender_.AnswerAll();
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 3u);
  for (const CopyPiece& piece : sender_.copies) {
    EXPECT_LE(piece.content->plans.size(), kMaxPlanEntries);
  }
  EXPECT_EQ(sender_.copies[0].content->plans.size(), kMaxPlanEntries);
  sender_.RunToEnd();
  ExpectCompleted(first, 9 * kPiece, 9 * kPiece);
  ExpectCompleted(batch, 640'000, 640'000);
}

TEST_F(LaneTest, HalfOfThePiecesOfALaneAreTheMostATargetHas) {
  sender_.OpenLane(0);
  const BatchId a = SubmitPieces(30, 1);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 9u);
  const BatchId b = SubmitPieces(30, 2);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 18u);
  // No slot is left for the third, until one comes free: then it is its turn.
  const BatchId c = SubmitPieces(1, 3);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 18u);
  const CopyPiece first = sender_.copies.front();
  sender_.copies.pop_front();
  sender_.Copied(first);
  sender_.Answer(0, first.sequence, 0);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 18u);
  sender_.RunToEnd();
  ExpectCompleted(a, 30 * kPiece, 30 * kPiece);
  ExpectCompleted(b, 30 * kPiece, 30 * kPiece);
  ExpectCompleted(c, kPiece, kPiece);
}

TEST_F(LaneTest, ATargetThatHoldsUpItsSlotsDoesNotHoldUpAnother) {
  sender_.OpenLane(0);
  const BatchId stuck = SubmitPieces(30, 1);
  sender_.Pass();
  std::deque<CopyPiece> held;
  held.swap(sender_.copies);
  // The pieces of the other are never within one ring of the stuck ones' sequences for long, so
  // only what the ring has room for goes by the lane; nothing is lost.
  const BatchId other = SubmitPieces(9, 2);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 9u);
  sender_.RunToEnd();
  ExpectCompleted(other, 9 * kPiece, 9 * kPiece);
  held.swap(sender_.copies);
  sender_.RunToEnd();
  ExpectCompleted(stuck, 30 * kPiece, 30 * kPiece);
}

// --- Credit

TEST_F(LaneTest, WhatGetsNoCreditInTimeGoesDirectAndIsCounted) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(20);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 9u);
  EXPECT_EQ(SubmitActorPeer::NextPoll(sender_.submit),
            sender_.clock.now() + SenderHarness::kCreditTimeout);
  sender_.Advance(SenderHarness::kCreditTimeout - 1);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  sender_.Advance(1);
  sender_.Pass();
  EXPECT_EQ(sender_.Direct(DirectReason::kCreditTimeout), 1u);
  uint64_t direct = 0;
  for (const PostSlice& slice : sender_.posts) direct += slice.length;
  EXPECT_EQ(direct, 11 * kPiece);
  EXPECT_EQ(SubmitActorPeer::NextPoll(sender_.submit), Poller::kNever);
  // The lane itself is as good as before.
  const BatchId next = SubmitPieces(1);
  sender_.RunToEnd();
  ExpectCompleted(batch, 20 * kPiece, 9 * kPiece);
  ExpectCompleted(next, kPiece, kPiece);
  EXPECT_EQ(sender_.Direct(DirectReason::kCreditTimeout), 1u);
}

TEST_F(LaneTest, TheWaitForCreditStartsAnewWithEachPiece) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(13);
  sender_.Pass();
  for (int i = 0; i < 4; ++i) {
    sender_.Advance(SenderHarness::kCreditTimeout - 1);
    sender_.Pass();
    const CopyPiece piece = sender_.copies.front();
    sender_.copies.pop_front();
    sender_.Copied(piece);
    sender_.Answer(0, piece.sequence, 0);
    sender_.Pass();
  }
  EXPECT_EQ(sender_.Direct(DirectReason::kCreditTimeout), 0u);
  sender_.RunToEnd();
  ExpectCompleted(batch, 13 * kPiece, 13 * kPiece);
}

TEST_F(LaneTest, ABatchThatIsGivenUpTakesItsWaitForCreditWithIt) {
  sender_.OpenLane(0);
  const BatchId first = SubmitPieces(9);
  sender_.Pass();
  const BatchId waiting = SubmitPieces(1);
  sender_.Pass();
  sender_.Advance(SenderHarness::kCreditTimeout / 2);
  sender_.Cancel(waiting);
  ExpectState(waiting, BatchState::kCanceled, TransferError::kCanceled);
  sender_.Advance(SenderHarness::kCreditTimeout / 2 + 1);
  const BatchId next = SubmitPieces(1);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty()) << "it has only just come";
  sender_.RunToEnd();
  ExpectCompleted(first, 9 * kPiece, 9 * kPiece);
  ExpectCompleted(next, kPiece, kPiece);
}

class SmallCopyEdgeTest : public LaneTest {
 protected:
  SmallCopyEdgeTest() : LaneTest({.max_piece_bytes = kPiece, .copy_edge = 2}) {}
};

TEST_F(SmallCopyEdgeTest, EdgeRoomIsNeededBeforeASlotIsTaken) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(9);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 2u);
  EXPECT_EQ(SubmitActorPeer::Lane(sender_.submit, 0).in_flight(), 2u);
  sender_.RunToEnd();
  ExpectCompleted(batch, 9 * kPiece, 9 * kPiece);
}

// --- Several lanes

TEST_F(LargePieceTest, RequestsAlternateOverTheLanesThatQualify) {
  sender_.OpenLane(1, 0);
  sender_.OpenLane(4, 1);
  sender_.AddTarget(5, {{.rails = {"rail1", "rail2"}}});
  std::vector<BatchId> batches;
  std::vector<uint32_t> lanes;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(sender_.Submit({Write(i * kMiB, i * kMiB, 1000, 6)}));
    sender_.Pass();
    ASSERT_EQ(sender_.copies.size(), 1u);
    lanes.push_back(sender_.copies[0].lane);
    sender_.RunToEnd();
  }
  EXPECT_EQ(lanes, (std::vector<uint32_t>{1, 4, 1, 4}));
  const BatchId large = sender_.Submit({Write(0, 0, 40 * kMiB, 6)});
  std::map<uint32_t, uint64_t> bytes;
  for (int i = 0; i < 200 && sender_.State(large) == BatchState::kPending; ++i) {
    sender_.Pass();
    for (const CopyPiece& piece : sender_.copies) bytes[piece.lane] += piece.content->length;
    sender_.CopyAll();
    sender_.AnswerAll();
  }
  ExpectCompleted(large, 40 * kMiB, 40 * kMiB);
  EXPECT_EQ(bytes[1], 24 * kMiB);
  EXPECT_EQ(bytes[4], 16 * kMiB);
}

TEST_F(LaneTest, DirectSlicesInBetweenDoNotDisturbTheTurnsOfTheLanes) {
  sender_.OpenLane(1, 0);
  sender_.OpenLane(4, 1);
  sender_.AddTarget(5, {{.rails = {"rail1", "rail2"}}});
  std::map<uint32_t, int> pieces;
  for (int i = 0; i < 10; ++i) {
    sender_.Submit({Write(0, 0, 1000, 6)});
    sender_.Pass();
    ASSERT_EQ(sender_.copies.size(), 1u);
    ++pieces[sender_.copies[0].lane];
    sender_.RunToEnd();
    sender_.Submit({Read(0, 0, 1000, 6)});
    sender_.RunToEnd();
  }
  EXPECT_EQ(pieces[1], 5);
  EXPECT_EQ(pieces[4], 5);
}

TEST_F(LaneTest, WithoutALaneToTheRailItGoesDirectAndAsksForOneOnceASecond) {
  sender_.OpenLane(1, 1);  // leads to rail2
  const auto ask = [&] {
    const BatchId batch = sender_.Submit({Write(0, 0, 1000), Write(5000, 5000, 10)});
    sender_.RunToEnd();
    ExpectCompleted(batch, 1010, 0);
  };
  ask();
  EXPECT_EQ(sender_.wanted, (std::vector<std::string>{"rail1"}));
  ask();
  sender_.Advance(ToCycles(std::chrono::milliseconds(990)));
  ask();
  EXPECT_EQ(sender_.wanted.size(), 1u);
  sender_.Advance(ToCycles(std::chrono::milliseconds(20)));
  ask();
  EXPECT_EQ(sender_.wanted.size(), 2u);
  EXPECT_EQ(sender_.Direct(DirectReason::kNoPeer), 8u);
}

TEST_F(LaneTest, EachReasonToGoDirectIsCounted) {
  sender_.OpenLane(0);
  sender_.AddTarget(5, {{.rails = {"rail0"}}});
  sender_.AddTarget(6, {{}}, 1, std::string(300, 'n'));
  sender_.AddRegion(kSource + (uint64_t{1} << 40), kMiB, false);
  sender_.Submit(
      {Read(0, 0, 10), Write(0, 0, 10, 6), Write(0, 0, 10, 7), Write(uint64_t{1} << 40, 0, 10)});
  sender_.RunToEnd();
  for (const DirectReason reason : {DirectReason::kNotWrite, DirectReason::kOwnRail,
                                    DirectReason::kSessionName, DirectReason::kNotStaging}) {
    EXPECT_EQ(sender_.Direct(reason), 1u) << DirectReasonName(reason);
  }
  EXPECT_EQ(sender_.submit.stats().slices_direct.load(), 4u);
  EXPECT_EQ(sender_.submit.stats().bytes_direct.load(), 40u);
}

class SmallBatchTest : public LaneTest {
 protected:
  SmallBatchTest() : LaneTest({.min_relay_bytes = 1000}) {}
};

TEST_F(SmallBatchTest, TheWholeBatchCountsNotTheRequest) {
  sender_.OpenLane(0);
  const BatchId small = sender_.Submit({Write(0, 0, 500), Write(5000, 5000, 499)});
  const BatchId enough = sender_.Submit({Write(0, 0, 500), Write(5000, 5000, 500)});
  sender_.RunToEnd();
  ExpectCompleted(small, 999, 0);
  ExpectCompleted(enough, 1000, 1000);
  EXPECT_EQ(sender_.Direct(DirectReason::kSmallBatch), 2u);
}

// --- What a relay answers

TEST_F(LaneTest, AnErrorOfTheRelaySendsThePieceDirectOnce) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  sender_.Answer(0, 2, kBadDescriptor);
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 1u);
  EXPECT_EQ(sender_.Direct(DirectReason::kRelayError), 1u);
  sender_.PostAll();
  ExpectCompleted(batch, 4096, 0);
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
  EXPECT_FALSE(SubmitActorPeer::Suspect(sender_.submit, 0));
}

TEST_F(LaneTest, WhatFailsDirectTooFailsTheBatch) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  sender_.Answer(0, 2, -12345);  // another implementation's number
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 1u);
  sender_.PostAll(TransferError::kRemoteAccess);
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty() && sender_.posts.empty());
  ExpectState(batch, BatchState::kFailed, TransferError::kRemoteAccess);
}

TEST_F(LaneTest, ATransportErrorMakesTheTargetSuspectUntilADirectSliceCompletes) {
  sender_.OpenLane(0);
  const BatchId first = SubmitPieces(12);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 9u);
  sender_.CopyAll();
  sender_.Answer(0, 2, kTransport);
  sender_.rung.pop_front();
  EXPECT_TRUE(SubmitActorPeer::Suspect(sender_.submit, 0));
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty()) << "what was queued for the lane goes direct too";
  EXPECT_EQ(sender_.Direct(DirectReason::kTargetSuspect), 1u);
  // New batches to it go direct, those to others do not.
  const BatchId next = SubmitPieces(1);
  const BatchId other = SubmitPieces(1, 2);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  EXPECT_EQ(sender_.copies[0].target->index, 1u);
  EXPECT_EQ(sender_.Direct(DirectReason::kTargetSuspect), 2u);
  // A slice that fails proves nothing; the first that completes does.
  ASSERT_GE(sender_.posts.size(), 2u);
  const PostSlice last = sender_.posts.back();
  sender_.posts.pop_back();
  sender_.PostDone(last, TransferError::kTransport);
  EXPECT_TRUE(SubmitActorPeer::Suspect(sender_.submit, 0));
  sender_.PostAll();
  EXPECT_FALSE(SubmitActorPeer::Suspect(sender_.submit, 0));
  const BatchId again = SubmitPieces(1);
  sender_.RunToEnd();
  ExpectCompleted(first, 12 * kPiece, 8 * kPiece);
  ExpectState(next, BatchState::kFailed, TransferError::kTransport);
  ExpectCompleted(other, kPiece, kPiece);
  ExpectCompleted(again, kPiece, kPiece);
}

TEST_F(LaneTest, ACompletionMayComeBeforePieceCopied) {
  sender_.OpenLane(0);
  const BatchId good = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  sender_.Answer(0, 2, 0);
  ExpectState(good, BatchState::kPending);
  sender_.CopyAll();
  ExpectCompleted(good, 10, 10);
  sender_.rung.clear();

  const BatchId bad = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  sender_.Answer(0, 3, kTransport);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty()) << "the source is still being read";
  sender_.CopyAll();
  sender_.rung.clear();
  sender_.RunToEnd();
  ExpectCompleted(bad, 10, 0);
}

TEST_F(LaneTest, CompletionsInAnyOrderAndThoseNobodyWaitsForAreTaken) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(9);
  sender_.Pass();
  sender_.CopyAll();
  std::reverse(sender_.rung.begin(), sender_.rung.end());
  sender_.Answer(0, 1, kBadDescriptor);  // the probe's
  sender_.Answer(0, 500, 0);
  sender_.Answer(0, 20, 0);  // the slot of sequence 2, but not its sequence
  sender_.Answer(3, 2, 0);   // a lane that is not open
  ExpectState(batch, BatchState::kPending);
  sender_.AnswerAll();
  ExpectCompleted(batch, 9 * kPiece, 9 * kPiece);
  sender_.Answer(0, 5, kTransport);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
}

TEST_F(LaneTest, ACompletionThatMakesNoSenseBreaksTheLaneUntilItIsClosed) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  sender_.Answer(0, 2, kMalformedCompletion);
  sender_.Pass();
  EXPECT_EQ(Offer(), OutboundLane::Offer::kBroken);
  ExpectState(batch, BatchState::kPending);
  EXPECT_TRUE(sender_.posts.empty()) << "whether it has landed is not known";
  const BatchId next = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ExpectCompleted(next, 10, 0);
  EXPECT_EQ(sender_.Direct(DirectReason::kNoPeer), 1u);
  sender_.Close(0);
  sender_.RunToEnd();
  ExpectCompleted(batch, 4096, 0);
  EXPECT_EQ(sender_.Direct(DirectReason::kLaneLost), 1u);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
}

TEST_F(LaneTest, WhatIsQueuedWhenALaneBreaksGoesDirect) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(12);
  sender_.Pass();
  sender_.CopyAll();
  sender_.Answer(0, 2, kMalformedCompletion);
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty());
  EXPECT_EQ(sender_.posts.size(), 3u);
  for (uint64_t sequence = 3; sequence <= 10; ++sequence) sender_.Answer(0, sequence, 0);
  sender_.rung.clear();
  sender_.PostAll();
  ExpectState(batch, BatchState::kPending);
  sender_.Close(0);
  sender_.RunToEnd();
  ExpectCompleted(batch, 12 * kPiece, 8 * kPiece);
}

TEST_F(LaneTest, APieceThatCopyActorRefusesGoesDirectAndTheLaneIsLeftAlone) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(2);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 2u);
  EXPECT_TRUE(sender_.submit.OnPieceCopied({2, 0, CopyOutcome::kRefused}));
  EXPECT_EQ(Offer(), OutboundLane::Offer::kBroken);
  sender_.copies.pop_front();
  sender_.CopyAll();
  sender_.AnswerAll();
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 1u);
  sender_.RunToEnd();
  ExpectCompleted(batch, 2 * kPiece, kPiece);
  const BatchId next = SubmitPieces(1);
  sender_.RunToEnd();
  ExpectCompleted(next, kPiece, 0);
}

// --- The end of a lane

TEST_F(LaneTest, Rule9RelayDeathSendsEachPieceDirectOnce) {
  sender_.OpenLane(0);
  const BatchId completed = OnePiece(2);
  sender_.Answer(0, 2, 0);
  const BatchId rung = OnePiece(3);
  const BatchId taken = OnePiece(4);
  ASSERT_EQ(sender_.Take(0, 4), TakeResult::kTaken);
  const BatchId copying = sender_.Submit({Write(0, 0, 100)});
  sender_.Pass();
  const BatchId queued = SubmitPieces(20);
  sender_.Pass();
  std::deque<CopyPiece> held;
  held.swap(sender_.copies);

  sender_.Close(0);
  EXPECT_TRUE(sender_.closed.empty()) << "copies still run";
  std::map<uint64_t, uint64_t> direct;  // by address
  const auto collect = [&] {
    for (const PostSlice& slice : sender_.posts) {
      EXPECT_TRUE(direct.emplace(slice.remote_address, slice.length).second) << "posted twice";
    }
    sender_.PostAll();
  };
  collect();
  ExpectCompleted(completed, 4096, 4096);
  ExpectCompleted(rung, 4096, 0);
  ExpectCompleted(taken, 4096, 0);
  ExpectState(copying, BatchState::kPending);
  for (const CopyPiece& piece : held) {
    EXPECT_TRUE(sender_.closed.empty());
    sender_.Copied(piece);
    sender_.Pass();
    collect();
  }
  ExpectCompleted(copying, 100, 0);
  ExpectCompleted(queued, 20 * kPiece, 0);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
  sender_.Answer(0, 3, 0);  // what the relay had written before it died
  sender_.Close(0);
  EXPECT_EQ(sender_.closed.size(), 1u);
}

TEST_F(LaneTest, AnIdleLaneIsClosedAtOnce) {
  sender_.OpenLane(3);
  sender_.Close(3);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{3}));
  EXPECT_EQ(SubmitActorPeer::Lane(sender_.submit, 3).mapping(), nullptr);
}

TEST_F(LaneTest, AStaleLaneGetsNothingNewAndCompletesWhatItHas) {
  sender_.OpenLane(0);
  const BatchId offered = OnePiece(2);
  const BatchId queued = SubmitPieces(12);
  sender_.Pass();
  sender_.Close(0, LaneEnd::kStale);
  EXPECT_EQ(sender_.copies.size(), 8u);
  EXPECT_EQ(sender_.Direct(DirectReason::kLaneLost), 1u);
  const BatchId next = SubmitPieces(1);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 8u);
  EXPECT_TRUE(sender_.closed.empty());
  sender_.Answer(0, 2, 0);
  ExpectCompleted(offered, 4096, 4096);
  sender_.RunToEnd();
  ExpectCompleted(queued, 12 * kPiece, 8 * kPiece);
  ExpectCompleted(next, kPiece, 0);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
}

TEST_F(LaneTest, AStaleLaneWhosePeerThenDiesIsAnsweredForOnce) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  sender_.Close(0, LaneEnd::kStale);
  EXPECT_TRUE(sender_.closed.empty());
  sender_.Close(0, LaneEnd::kPeerDead);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
  sender_.RunToEnd();
  ExpectCompleted(batch, 4096, 0);

  sender_.OpenLane(1);
  sender_.Close(1, LaneEnd::kStale);
  sender_.Close(1, LaneEnd::kPeerDead);
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0, 1}));
}

TEST_F(LaneTest, ALaneCanBeOpenedAgain) {
  sender_.OpenLane(0);
  const BatchId first = OnePiece(2);
  sender_.Answer(0, 2, 0);
  sender_.Close(0);
  sender_.OpenLane(0, 0, 500);
  const BatchId second = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  EXPECT_EQ(sender_.copies[0].sequence, 500u);
  EXPECT_EQ(sender_.copies[0].lane_generation, 2u);
  sender_.RunToEnd();
  ExpectCompleted(first, 4096, 4096);
  ExpectCompleted(second, 10, 10);
}

// Completions of the lane's last use may still be in the edge when it is opened again; taken for
// those of the new pieces they would end batches whose bytes are nowhere.
TEST_F(LaneTest, ALaneIsNotUsedAgainBeforeTheCompletionsOfItsLastUseWereTaken) {
  sender_.OpenLane(0);
  sender_.Close(0);
  const std::unique_ptr<LaneMapping> mapping = TestRelays::Get().Map(0, 0);
  sender_.lanes[0] = mapping.get();
  EXPECT_TRUE(
      sender_.submit.OnLaneReady({.mapping = mapping.get(), .next_sequence = 2, .lane = 0}));
  const BatchId early = sender_.Submit({Write(0, 0, 10)});
  // A full budget in one pass: there may be more.
  for (size_t i = 0; i < InPort::kBudget; ++i) sender_.Answer(0, 2 + i, 0);
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty());
  sender_.Answer(0, 2, 0);
  const BatchId late = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 1u);
  ExpectState(late, BatchState::kPending);
  sender_.RunToEnd();
  ExpectCompleted(early, 10, 0);
  ExpectCompleted(late, 10, 10);
  sender_.Close(0);
}

TEST_F(LaneTest, ALaneThatClosesBeforeItWasUsedIsAnsweredForOnce) {
  const std::unique_ptr<LaneMapping> mapping = TestRelays::Get().Map(0, 0);
  EXPECT_TRUE(
      sender_.submit.OnLaneReady({.mapping = mapping.get(), .next_sequence = 2, .lane = 0}));
  EXPECT_TRUE(sender_.submit.OnCloseLane({.lane = 0, .end = LaneEnd::kStale}));
  EXPECT_TRUE(sender_.submit.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
  sender_.Pass();
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
  const BatchId direct = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ExpectCompleted(direct, 10, 0);
  // CopyActor has counted that LaneReady, too.
  sender_.OpenLane(0);
  const BatchId relayed = sender_.Submit({Write(0, 0, 10)});
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  EXPECT_EQ(sender_.copies[0].lane_generation, 2u);
  sender_.RunToEnd();
  ExpectCompleted(relayed, 10, 10);
}

TEST_F(LaneTest, TheEndOfOneLaneLeavesTheOthersAlone) {
  sender_.OpenLane(0, 0);
  sender_.OpenLane(1, 1);
  sender_.AddTarget(5, {{.rails = {"rail2"}}});
  const BatchId one = SubmitPieces(20, 1);
  const BatchId two = SubmitPieces(20, 6);
  sender_.Pass();
  sender_.Close(0);
  sender_.RunToEnd();
  ExpectCompleted(one, 20 * kPiece, 0);
  ExpectCompleted(two, 20 * kPiece, 20 * kPiece);
}

// --- Tracing

std::vector<PieceRecord> TakeRecords(SubmitActor& submit) {
  std::vector<PieceRecord> records;
  EXPECT_EQ(submit.trace.Take([&](const PieceRecord& record) { records.push_back(record); }), 0u);
  return records;
}

TEST_F(LaneTest, RecordsWhenASampledPieceWasSubmittedSlicedAndReaped) {
  const LaneMapping& mapping = sender_.OpenLane(0);
  sender_.submit.trace.Enable(1, TestRelays::kSenderEpoch);
  const uint64_t start = sender_.clock.now();
  const BatchId late = sender_.Submit({Write(0, 0, 100)});
  const BatchId early = sender_.Submit({Write(500, 500, 7)});
  sender_.table.Find(late)->submitted = start - 20;
  sender_.table.Find(early)->submitted = start - 30;
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  std::vector<PieceRecord> records = TakeRecords(sender_.submit);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].stage, PieceStage::kSliced);
  EXPECT_EQ(records[0].submitted, start - 30) << "the first batch of those in it";
  EXPECT_EQ(records[0].at, start);
  EXPECT_EQ(records[0].bytes, 107u);
  EXPECT_EQ(records[0].sequence, 2u);
  EXPECT_EQ(records[0].relay_epoch, mapping.relay_epoch());
  EXPECT_EQ(records[0].sender_epoch, TestRelays::kSenderEpoch);

  sender_.CopyAll();
  sender_.clock.Advance(40);
  sender_.AnswerAll();
  records = TakeRecords(sender_.submit);
  ASSERT_EQ(records.size(), 1u);
  EXPECT_EQ(records[0].stage, PieceStage::kReaped);
  EXPECT_EQ(records[0].at, start + 40);
  EXPECT_EQ(records[0].status, 0);
  ExpectCompleted(late, 100, 100);
  ExpectCompleted(early, 7, 7);
}

TEST_F(LaneTest, RecordsTheErrorThatSentAPieceDirect) {
  sender_.OpenLane(0);
  sender_.submit.trace.Enable(2, TestRelays::kSenderEpoch);
  const BatchId batch = SubmitPieces(4);
  sender_.Pass();
  sender_.CopyAll();
  sender_.AnswerAll(static_cast<int32_t>(RelayStatus::kDeadline));
  sender_.RunToEnd();
  ExpectCompleted(batch, 4 * kPiece, 0);
  std::vector<uint64_t> reaped;
  for (const PieceRecord& record : TakeRecords(sender_.submit)) {
    EXPECT_EQ(record.sequence % 2, 0u);
    if (record.stage != PieceStage::kReaped) continue;
    reaped.push_back(record.sequence);
    EXPECT_EQ(record.status, static_cast<int32_t>(RelayStatus::kDeadline));
  }
  EXPECT_EQ(reaped, (std::vector<uint64_t>{2, 4}));
}

// What other threads see of a lane while it is used, by the words of sender and relay.
TEST_F(LaneTest, ItsSlotsCanBeCountedByState) {
  const LaneMapping& mapping = sender_.OpenLane(0);
  const auto count = [&] {
    return CountSlots(sender_.submit.slots(0), mapping.control().completions,
                      &TestRelays::Words(mapping));
  };
  const BatchId batch = SubmitPieces(3);
  sender_.Pass();
  EXPECT_EQ(count().copying, 3u);
  sender_.CopyAll();
  EXPECT_EQ(count().rung, 3u);
  EXPECT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  EXPECT_EQ(count().posted, 1u);
  CommitCompletion(mapping.control().completions[SlotIndex(2)], 2, 0);
  EXPECT_EQ(count().completed, 1u);
  EXPECT_EQ(count().rung, 2u);
  EXPECT_EQ(count().free, 15u);
  sender_.AnswerAll();
  EXPECT_EQ(count().free, 18u);
  ExpectCompleted(batch, 3 * kPiece, 3 * kPiece);
}

}  // namespace
}  // namespace railhop
