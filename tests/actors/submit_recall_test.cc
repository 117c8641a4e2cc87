// What SubmitActor takes back from a lane, and what it cannot: deadlines of batches and of pieces,
// cancel, want of spans, targets that fail, stop.
#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "tests/actors/lane_test.h"

namespace railhop {
namespace {

// --- Deadline and cancel

TEST_F(LaneTest, Rule8RevocationTakesAnOfferedPieceBackAtOnce) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  sender_.Expire(batch);
  ExpectState(batch, BatchState::kFailed, TransferError::kDeadline);
  EXPECT_EQ(ClaimOf(2), ClaimWord(2, ClaimState::kRevoked));
  EXPECT_EQ(sender_.Take(0, 2), TakeResult::kRevoked);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kOk);
  EXPECT_EQ(SubmitActorPeer::Lane(sender_.submit, 0).in_flight(), 1u) << "its slot stays taken";
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  sender_.Answer(0, 2, kRevoked);
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
}

TEST_F(LaneTest, AtItsDeadlineAPieceTheRelayHasTakenLeavesTheBatchInTimeout) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  sender_.Expire(batch);
  ExpectState(batch, BatchState::kTimeout, TransferError::kDeadline);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kBusy);
  EXPECT_EQ(sender_.regions[0]->in_flight, 4096u);
  sender_.Answer(0, 2, 0);
  ExpectCompleted(batch, 4096, 4096);
}

TEST_F(LaneTest, ATakenPieceThatFailsAfterTheDeadlineIsNotSentAgain) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  sender_.Expire(batch);
  sender_.Answer(0, 2, kTransport);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  ExpectState(batch, BatchState::kFailed, TransferError::kDeadline);
}

TEST_F(LaneTest, OfSeveralReasonsToGiveABatchUpTheFirstOneCounts) {
  sender_.OpenLane(0);
  const BatchId cancelled = OnePiece(2);
  const BatchId late = OnePiece(3);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  ASSERT_EQ(sender_.Take(0, 3), TakeResult::kTaken);
  sender_.Cancel(cancelled);
  sender_.Expire(cancelled);
  sender_.Expire(late);
  sender_.Cancel(late);
  ExpectState(cancelled, BatchState::kTimeout, TransferError::kDeadline);
  ExpectState(late, BatchState::kTimeout, TransferError::kDeadline);
  sender_.Answer(0, 2, kTransport);
  sender_.Answer(0, 3, kTransport);
  ExpectState(cancelled, BatchState::kCanceled, TransferError::kCanceled);
  ExpectState(late, BatchState::kFailed, TransferError::kDeadline);
}

TEST_F(LaneTest, AtItsDeadlineAPieceStillBeingCopiedIsTakenBackWhenItsCopyEnds) {
  sender_.OpenLane(0);
  const BatchId batch = sender_.Submit({Write(0, 0, 100)});
  sender_.Pass();
  sender_.StartCopy(sender_.copies[0]);
  sender_.Expire(batch);
  ExpectState(batch, BatchState::kTimeout, TransferError::kDeadline);
  EXPECT_EQ(ClaimOf(2), ClaimWord(2, ClaimState::kOffered));
  sender_.CopyAll();
  sender_.rung.clear();
  ExpectState(batch, BatchState::kFailed, TransferError::kDeadline);
  EXPECT_EQ(ClaimOf(2), ClaimWord(2, ClaimState::kRevoked));
  sender_.Answer(0, 2, kRevoked);
}

TEST_F(LaneTest, SpansOfOthersInARevokedPieceGoDirectAndComplete) {
  sender_.OpenLane(0);
  const auto [given_up, other] = SharedPiece();
  sender_.Expire(given_up);
  ExpectState(given_up, BatchState::kFailed, TransferError::kDeadline);
  ExpectState(other, BatchState::kPending);
  sender_.Pass();
  ASSERT_EQ(sender_.posts.size(), 1u);
  EXPECT_EQ(sender_.posts[0].remote_address, kTarget + 10'000);
  EXPECT_EQ(sender_.Direct(DirectReason::kPieceRevoked), 1u);
  EXPECT_EQ(sender_.Direct(DirectReason::kPieceDeadline), 0u);
  sender_.PostAll();
  ExpectCompleted(other, 2000, 0);
  sender_.Answer(0, 2, kRevoked);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
}

TEST_F(LaneTest, SpansOfOthersInATakenPieceStayWhereTheyAre) {
  sender_.OpenLane(0);
  const auto [given_up, other] = SharedPiece();
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  sender_.Cancel(given_up);
  ExpectState(given_up, BatchState::kPending);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  sender_.Answer(0, 2, 0);
  ExpectCompleted(given_up, 1000, 1000);
  ExpectCompleted(other, 2000, 2000);
}

TEST_F(LaneTest, ACancelledBatchIsCanceledOnlyWhenNothingCanLand) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(20);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 9u);
  const CopyPiece copying = sender_.copies.back();
  sender_.copies.pop_back();
  sender_.CopyAll();
  sender_.rung.clear();
  ASSERT_EQ(sender_.Take(0, 3), TakeResult::kTaken);
  sender_.Cancel(batch);
  ExpectState(batch, BatchState::kPending);
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty() && sender_.posts.empty()) << "nothing new may start";
  sender_.Answer(0, 3, 0);
  ExpectState(batch, BatchState::kPending);
  EXPECT_EQ(sender_.table.Free(batch), FreeResult::kBusy);
  sender_.Copied(copying);
  ExpectState(batch, BatchState::kCanceled, TransferError::kCanceled);
  EXPECT_EQ(sender_.Status(batch).bytes, kPiece);
  for (uint64_t sequence = 2; sequence <= 10; ++sequence) sender_.Answer(0, sequence, kRevoked);
}

TEST_F(LaneTest, WithARelayOfVersion1NothingIsRevocable) {
  sender_.OpenLane(0, 0, 2, true);
  const BatchId late = OnePiece(2);
  const BatchId cancelled = OnePiece(3);
  sender_.Expire(late);
  sender_.Cancel(cancelled);
  ExpectState(late, BatchState::kTimeout, TransferError::kDeadline);
  ExpectState(cancelled, BatchState::kPending);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  sender_.Answer(0, 2, 0);
  sender_.Answer(0, 3, kTransport);
  ExpectCompleted(late, 4096, 4096);
  ExpectState(cancelled, BatchState::kCanceled, TransferError::kCanceled);
}

TEST_F(LaneTest, ARelayOfVersion1ThatDiesGivesItsPiecesBack) {
  sender_.OpenLane(0, 0, 2, true);
  const BatchId late = OnePiece(2);
  const BatchId other = OnePiece(3);
  sender_.Expire(late);
  sender_.Close(0);
  ExpectState(late, BatchState::kFailed, TransferError::kDeadline);
  sender_.RunToEnd();
  ExpectCompleted(other, 4096, 0);
}

// --- Deadline of a piece

TEST_F(LaneTest, APieceThatASilentRelayDoesNotTakeGoesDirectAndTheLaneIsQuarantined) {
  sender_.OpenLane(0);
  const BatchId batch = OnePiece(2);
  EXPECT_FALSE(sender_.ExpireLane(0));
  sender_.Advance(SenderHarness::kPieceTimeout);
  ASSERT_TRUE(sender_.ExpireLane(0));
  EXPECT_EQ(ClaimOf(2), ClaimWord(2, ClaimState::kRevoked));
  sender_.RunToEnd();
  ExpectCompleted(batch, 4096, 0);
  EXPECT_EQ(sender_.Direct(DirectReason::kPieceDeadline), 1u);
  // Nothing more until it has let go of this one.
  EXPECT_EQ(Offer(), OutboundLane::Offer::kQuarantined);
  const BatchId next = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ExpectCompleted(next, 10, 0);
  EXPECT_EQ(sender_.Direct(DirectReason::kNoPeer), 1u);
  sender_.Answer(0, 2, kRevoked);
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
  const BatchId again = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ExpectCompleted(again, 10, 10);
}

TEST_F(LaneTest, ARelayThatOnlyLeftOnePieceAsideGoesOnBeingUsed) {
  sender_.OpenLane(0);
  const BatchId aside = OnePiece(2);
  sender_.Advance(SenderHarness::kPieceTimeout / 2);
  const BatchId other = OnePiece(3, 4096, 2);
  sender_.Answer(0, 3, 0);
  sender_.Advance(SenderHarness::kPieceTimeout / 2);
  ASSERT_TRUE(sender_.ExpireLane(0));
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
  const BatchId next = sender_.Submit({Write(0, 0, 10)});
  sender_.RunToEnd();
  ExpectCompleted(aside, 4096, 0);
  ExpectCompleted(other, 4096, 4096);
  ExpectCompleted(next, 10, 10);
  sender_.Answer(0, 2, kRevoked);
}

TEST_F(LaneTest, APieceThatTheRelayHoldsOnToQuarantinesTheLaneUntilItIsDrained) {
  sender_.OpenLane(0);
  const BatchId stuck = OnePiece(2);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  const BatchId offered = OnePiece(3);
  const BatchId queued = SubmitPieces(12);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 7u);
  sender_.Answer(0, 3, 0);  // it lives, but it does not end what it took
  sender_.Advance(SenderHarness::kPieceTimeout);
  ASSERT_TRUE(sender_.ExpireLane(0));
  EXPECT_EQ(Offer(), OutboundLane::Offer::kQuarantined);
  sender_.Pass();
  EXPECT_EQ(sender_.copies.size(), 8u);
  EXPECT_EQ(sender_.posts.size(), 4u) << "what is queued, and not the taken piece";
  for (const PostSlice& slice : sender_.posts) EXPECT_EQ(slice.length, kPiece);
  EXPECT_EQ(sender_.Direct(DirectReason::kPieceDeadline), 1u);
  EXPECT_EQ(sender_.Direct(DirectReason::kLaneLost), 0u);
  sender_.Answer(0, 2, 0);
  ExpectCompleted(stuck, 4096, 4096);
  ExpectCompleted(offered, 4096, 4096);
  EXPECT_EQ(Offer(), OutboundLane::Offer::kQuarantined);
  sender_.RunToEnd();
  ExpectState(queued, BatchState::kCompleted);
  // The pieces whose copies ended past their deadline were taken back.
  for (uint64_t sequence = 4; sequence <= 11; ++sequence) sender_.Answer(0, sequence, kRevoked);
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
}

TEST_F(LaneTest, APieceStillBeingCopiedAtItsDeadlineIsLookedAtWhenItsCopyEnds) {
  sender_.OpenLane(0);
  const BatchId batch = sender_.Submit({Write(0, 0, 100)});
  sender_.Pass();
  sender_.Advance(SenderHarness::kPieceTimeout + 5);
  ASSERT_TRUE(sender_.ExpireLane(0));
  EXPECT_EQ(Offer(), OutboundLane::Offer::kOpen);
  sender_.Pass();
  EXPECT_TRUE(sender_.posts.empty());
  sender_.CopyAll();
  sender_.rung.clear();
  sender_.Pass();
  EXPECT_EQ(sender_.posts.size(), 1u);
  sender_.RunToEnd();
  ExpectCompleted(batch, 100, 0);
  sender_.Answer(0, 2, kRevoked);
}

TEST_F(LaneTest, TheDeadlineOfTheNextPieceIsArmedWhenTheFirstHasExpired) {
  sender_.OpenLane(0);
  const BatchId first = OnePiece(2);
  const uint64_t started = sender_.clock.now();
  sender_.Advance(100);
  const BatchId second = OnePiece(3);
  const uint32_t slot = 0;  // of lane 0
  EXPECT_EQ(sender_.armed[slot].deadline, started + SenderHarness::kPieceTimeout);
  sender_.Answer(0, 2, 0);
  sender_.Advance(SenderHarness::kPieceTimeout - 100);
  ASSERT_TRUE(sender_.ExpireLane(0));
  sender_.Pass();
  EXPECT_EQ(sender_.armed[slot].deadline, started + 100 + SenderHarness::kPieceTimeout);
  sender_.Advance(100);
  ASSERT_TRUE(sender_.ExpireLane(0));
  sender_.RunToEnd();
  ExpectCompleted(first, 4096, 4096);
  ExpectCompleted(second, 4096, 0);
  sender_.Answer(0, 3, kRevoked);
}

class TightDeadlineEdgeTest : public LaneTest {
 protected:
  TightDeadlineEdgeTest() : LaneTest({.max_piece_bytes = kPiece, .deadline_edge = 2}) {}
};

TEST_F(TightDeadlineEdgeTest, TheDeadlineOfAPieceIsArmedLaterWhenTheEdgeIsFull) {
  sender_.OpenLane(0);
  const BatchId one = sender_.Submit({Write(0, 0, 100)});
  // An earlier deadline than that of the first: the edge is full now.
  const BatchId two = sender_.Submit({Write(500, 500, 100)}, SenderHarness::kFar - 1);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 1u);
  const uint32_t slot = 0;  // of lane 0
  EXPECT_FALSE(sender_.armed.contains(slot));
  sender_.Pass();
  ASSERT_TRUE(sender_.armed.contains(slot));
  EXPECT_EQ(sender_.armed[slot].deadline, sender_.clock.now() + SenderHarness::kPieceTimeout);
  sender_.RunToEnd();
  ExpectCompleted(one, 100, 100);
  ExpectCompleted(two, 100, 100);
}

// --- Want of spans

class NoSpansTest : public LaneTest {
 protected:
  // A piece of 4096 spans is rung; then other targets, which do not move, take every span.
  void SetUp() override {
    sender_.OpenLane(0);
    first_ = SubmitPieces(9);
    sender_.Pass();
    packed_ = sender_.Submit(Tiny(kMaxPlanEntries));
    for (int i = 0; i < 20; ++i) sender_.Pass();
    sender_.CopyAll();
    sender_.AnswerAll();
    sender_.Pass();
    ASSERT_EQ(sender_.copies.size(), 1u);
    ASSERT_EQ(sender_.copies[0].content->spans.size(), kMaxPlanEntries);
    sender_.CopyAll();
    sender_.rung.clear();
    for (uint32_t target = 10; SubmitActorPeer::FreeSpans(sender_.submit) > 1; ++target) {
      ASSERT_LT(target, 40u);
      sender_.AddTarget(target, {{.rails = {"rail0"}}});
      greedy_.push_back(sender_.Submit(Tiny(60'000, target + 1)));
      for (int i = 0; i < 100; ++i) sender_.Pass();
    }
    held_.swap(sender_.posts);
  }
  // The greedy ones go on.
  void Release() {
    for (const PostSlice& slice : held_) sender_.posts.push_back(slice);
    held_.clear();
  }
  void ExpectGreedyCompleted() {
    for (const BatchId batch : greedy_) ExpectCompleted(batch, 60'000 * 64, 0);
  }

  BatchId first_, packed_;
  std::vector<BatchId> greedy_;
  std::deque<PostSlice> held_;
};

TEST_F(NoSpansTest, APieceThatFindsNoSpansWaitsForThemAndComesBeforeNewRequests) {
  sender_.Answer(0, 11, kBadDescriptor);
  EXPECT_EQ(SubmitActorPeer::WaitingPieces(sender_.submit), 1u);
  sender_.Pass();
  EXPECT_EQ(SubmitActorPeer::WaitingPieces(sender_.submit), 1u);
  // A target that has no span yet and would take each that comes free.
  sender_.AddTarget(50, {{.rails = {"rail0"}}});
  greedy_.push_back(sender_.Submit(Tiny(60'000, 51)));
  Release();
  // As slices end, spans come free, and the piece gets them.
  size_t slices = 0, to_the_last = 0;
  while (SubmitActorPeer::WaitingPieces(sender_.submit) != 0) {
    ASSERT_FALSE(sender_.posts.empty());
    const PostSlice slice = sender_.posts.front();
    sender_.posts.pop_front();
    if (slice.target->index == 50) ++to_the_last;
    sender_.PostDone(slice);
    sender_.Pass();
    ASSERT_LT(++slices, 2 * kMaxPlanEntries);
  }
  EXPECT_LE(to_the_last, 1u) << "it took what the piece was waiting for";
  sender_.RunToEnd();
  ExpectCompleted(packed_, kMaxPlanEntries * 64, 0);
  EXPECT_EQ(sender_.Direct(DirectReason::kRelayError), kMaxPlanEntries);
  ExpectGreedyCompleted();
}

TEST_F(NoSpansTest, ABatchThatIsGivenUpWhileItsPieceWaitsEnds) {
  sender_.Answer(0, 11, kBadDescriptor);
  sender_.Cancel(packed_);
  sender_.Pass();
  EXPECT_EQ(SubmitActorPeer::WaitingPieces(sender_.submit), 0u);
  Release();
  sender_.RunToEnd();
  ExpectState(packed_, BatchState::kCanceled, TransferError::kCanceled);
  ExpectGreedyCompleted();
}

TEST_F(NoSpansTest, ARevokedPieceThatWaitsIsLetGoWhenThePeerDies) {
  sender_.Advance(SenderHarness::kPieceTimeout);
  ASSERT_TRUE(sender_.ExpireLane(0));
  EXPECT_EQ(SubmitActorPeer::WaitingPieces(sender_.submit), 1u);
  sender_.Close(0);
  EXPECT_TRUE(sender_.closed.empty());
  Release();
  sender_.RunToEnd();
  EXPECT_EQ(sender_.closed, (std::vector<uint32_t>{0}));
  ExpectCompleted(packed_, kMaxPlanEntries * 64, 0);
  ExpectGreedyCompleted();
}

// --- Targets and stop

TEST_F(LaneTest, ATargetThatFailsEndsWhatWaitsForTheLane) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(12);
  sender_.Pass();
  ASSERT_EQ(sender_.copies.size(), 9u);
  EXPECT_TRUE(sender_.submit.OnTargetFailed(
      {.target = 0, .token = kNoToken, .error = TransferError::kTargetDead, .version = 1}));
  sender_.Pass();
  sender_.CopyAll();
  sender_.AnswerAll();
  sender_.Pass();
  EXPECT_TRUE(sender_.copies.empty() && sender_.posts.empty());
  ExpectState(batch, BatchState::kFailed, TransferError::kTargetDead);
  EXPECT_EQ(sender_.Status(batch).bytes, 9 * kPiece);
}

TEST_F(LaneTest, ATargetConnectedAnewKeepsWhatIsQueuedAndUnderWay) {
  sender_.OpenLane(0);
  const BatchId batch = SubmitPieces(12);
  sender_.Pass();
  const TargetRoute& route = sender_.AddTarget(0, {{}}, 2);
  sender_.CopyAll();
  sender_.AnswerAll();
  sender_.Pass();
  ASSERT_FALSE(sender_.copies.empty());
  EXPECT_EQ(sender_.copies[0].target, &route);
  sender_.RunToEnd();
  ExpectCompleted(batch, 12 * kPiece, 12 * kPiece);
}

TEST_F(LaneTest, AFlushTakesBackWhatItCan) {
  sender_.OpenLane(0);
  const BatchId taken = OnePiece(2);
  ASSERT_EQ(sender_.Take(0, 2), TakeResult::kTaken);
  const BatchId offered = OnePiece(3);
  sender_.submit.OnStop();
  EXPECT_FALSE(sender_.submit.Drained());
  sender_.submit.OnFlush();
  EXPECT_TRUE(sender_.submit.Drained());
  ExpectState(taken, BatchState::kTimeout, TransferError::kStopping);
  ExpectState(offered, BatchState::kFailed, TransferError::kStopping);
  EXPECT_EQ(ClaimOf(3), ClaimWord(3, ClaimState::kRevoked));
  sender_.Answer(0, 2, 0);
  ExpectCompleted(taken, 4096, 4096);
  sender_.Answer(0, 3, kRevoked);
}

}  // namespace
}  // namespace railhop
