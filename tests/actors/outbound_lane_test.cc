#include "actors/outbound_lane.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

namespace railhop {
namespace {

class OutboundLaneTest : public testing::Test {
 protected:
  // The book never looks into the mapping.
  const LaneMapping* Mapping() const { return reinterpret_cast<const LaneMapping*>(this); }
  void Open(uint64_t next_sequence = 2, uint32_t generation = 1) {
    lane_.Open(Mapping(), next_sequence, generation);
  }
  uint64_t Take(uint64_t bytes = 100) {
    lane_.NextSlot().content.Clear();
    lane_.NextSlot().content.Append({.length = bytes});
    return lane_.Take(&target_, 5).sequence;
  }
  void Release(uint64_t sequence) {
    RingPiece& piece = *lane_.Find(sequence);
    piece.copied = piece.completed = piece.ended = true;
    lane_.Release(piece);
  }

  TargetRoute target_;
  OutboundLane lane_;
};

TEST_F(OutboundLaneTest, ALaneThatIsNotOpenHasNoCredit) {
  EXPECT_EQ(lane_.offer(), OutboundLane::Offer::kClosed);
  EXPECT_FALSE(lane_.HasCredit());
  EXPECT_EQ(lane_.Find(1), nullptr);
  EXPECT_EQ(lane_.Find(0), nullptr);
}

TEST_F(OutboundLaneTest, CreditIsEighteenPiecesAndSequencesGrowByOne) {
  Open();
  for (uint64_t sequence = 2; sequence < 20; ++sequence) {
    ASSERT_TRUE(lane_.HasCredit());
    EXPECT_EQ(Take(), sequence);
  }
  EXPECT_FALSE(lane_.HasCredit());
  EXPECT_EQ(lane_.in_flight(), 18u);
  Release(2);
  EXPECT_TRUE(lane_.HasCredit());
  EXPECT_EQ(Take(50), 20u);
  EXPECT_FALSE(lane_.HasCredit());
}

// Whichever of the two comes first.
TEST_F(OutboundLaneTest, KnowsWhatTheRelayHasInHand) {
  Open();
  RingPiece* const first = lane_.Find(Take(100));
  RingPiece* const second = lane_.Find(Take(20));
  EXPECT_EQ(lane_.bytes_at_relay(), 0u);
  lane_.NoteCopied(*first);
  EXPECT_EQ(lane_.bytes_at_relay(), 100u);
  lane_.NoteCompleted(*second, 0);
  lane_.NoteCopied(*second);
  EXPECT_EQ(lane_.bytes_at_relay(), 100u);
  lane_.NoteCompleted(*first, -4);
  lane_.NoteCompleted(*first, 0);  // the first answer counts
  EXPECT_EQ(lane_.bytes_at_relay(), 0u);
  EXPECT_EQ(first->status, -4);
}

// The relay may complete in any order, but a slot is free only when all before it are.
TEST_F(OutboundLaneTest, CreditComesBackOverTheContiguousPrefix) {
  Open();
  for (int i = 0; i < 18; ++i) Take();
  for (uint64_t sequence = 3; sequence < 20; ++sequence) Release(sequence);
  EXPECT_FALSE(lane_.HasCredit());
  EXPECT_EQ(lane_.in_flight(), 1u);
  Release(2);
  for (int i = 0; i < 18; ++i) {
    ASSERT_TRUE(lane_.HasCredit());
    Take();
  }
  EXPECT_FALSE(lane_.HasCredit());
}

TEST_F(OutboundLaneTest, FindsAPieceByItsSequenceAndNoOther) {
  Open();
  Take();
  RingPiece* const piece = lane_.Find(2);
  ASSERT_NE(piece, nullptr);
  EXPECT_EQ(piece->target, &target_);
  EXPECT_EQ(piece->deadline, 5u);
  EXPECT_FALSE(piece->copied || piece->revoked || piece->completed || piece->ended);
  EXPECT_EQ(lane_.Find(20), nullptr);  // the same slot
  EXPECT_EQ(lane_.Find(3), nullptr);
  Release(2);
  EXPECT_EQ(lane_.Find(2), nullptr);
  EXPECT_EQ(lane_.Find(0), nullptr);
}

TEST_F(OutboundLaneTest, ASlotComesBackClean) {
  Open();
  for (int i = 0; i < 18; ++i) Take();
  RingPiece& piece = *lane_.Find(2);
  piece.revoked = piece.waiting = true;
  piece.next_span = 7;
  piece.status = -4;
  piece.detour = DirectReason::kRelayError;
  Release(2);
  Take();
  const RingPiece& next = *lane_.Find(20);
  EXPECT_EQ(&next, &piece);
  EXPECT_FALSE(next.copied || next.revoked || next.completed || next.ended || next.waiting);
  EXPECT_EQ(next.next_span, 0u);
  EXPECT_EQ(next.status, 0);
  EXPECT_EQ(next.detour, DirectReason::kNone);
}

TEST_F(OutboundLaneTest, AQuarantineEndsWhenEverySlotIsFree) {
  Open();
  Take();
  Take();
  lane_.Quarantine();
  EXPECT_FALSE(lane_.HasCredit());
  Release(3);
  EXPECT_EQ(lane_.offer(), OutboundLane::Offer::kQuarantined);
  Release(2);
  EXPECT_EQ(lane_.offer(), OutboundLane::Offer::kOpen);
  EXPECT_TRUE(lane_.HasCredit());
}

TEST_F(OutboundLaneTest, ABrokenLaneStaysSoUntilItIsClosed) {
  Open();
  Take();
  lane_.Break();
  lane_.Quarantine();
  Release(2);
  EXPECT_EQ(lane_.offer(), OutboundLane::Offer::kBroken);
  lane_.CloseOffers();
  lane_.Break();
  lane_.Quarantine();
  EXPECT_EQ(lane_.offer(), OutboundLane::Offer::kClosed);
}

TEST_F(OutboundLaneTest, AClosedLaneCanBeOpenedAnewAtAnotherSequence) {
  Open(2);
  EXPECT_EQ(lane_.generation(), 1u);
  Take();
  lane_.NoteAnswer(9);
  lane_.CloseOffers();
  EXPECT_FALSE(lane_.HasCredit());
  EXPECT_NE(lane_.Find(2), nullptr);
  Release(2);
  lane_.Forget();
  EXPECT_EQ(lane_.mapping(), nullptr);
  Open(1000, 2);
  EXPECT_EQ(lane_.generation(), 2u);
  EXPECT_EQ(lane_.last_answer(), 0u);
  for (uint64_t sequence = 1000; sequence < 1018; ++sequence) EXPECT_EQ(Take(), sequence);
  EXPECT_FALSE(lane_.HasCredit());
}

TEST_F(OutboundLaneTest, VisitsWhatIsInFlightOnce) {
  Open();
  for (int i = 0; i < 5; ++i) Take();
  Release(4);
  std::multiset<uint64_t> seen;
  lane_.EachInFlight([&](RingPiece& piece) {
    seen.insert(piece.sequence);
    piece.copied = piece.completed = piece.ended = true;
    lane_.Release(piece);
  });
  EXPECT_EQ(seen, (std::multiset<uint64_t>{2, 3, 5, 6}));
  EXPECT_EQ(lane_.in_flight(), 0u);
}

TEST_F(OutboundLaneTest, OtherThreadsSeeWhichSlotsAreTakenAndCopied) {
  Open();
  const auto word = [&](uint64_t sequence) { return lane_.slots()[SlotIndex(sequence)].load(); };
  EXPECT_EQ(word(2), 0u);
  RingPiece& piece = *lane_.Find(Take());
  EXPECT_EQ(word(2), 2u << 1);
  lane_.NoteCopied(piece);
  EXPECT_EQ(word(2), 2u << 1 | 1);
  lane_.NoteCompleted(piece, 0);
  EXPECT_EQ(word(2), 2u << 1 | 1) << "what the relay did shows in its own words";
  piece.ended = true;
  lane_.Release(piece);
  for (const auto& slot : lane_.slots()) EXPECT_EQ(slot.load(), 0u);
}

}  // namespace
}  // namespace railhop
