#include "actors/slot_states.h"

#include <gtest/gtest.h>

#include <memory>

#include "transport/ring/control_block.h"

namespace railhop {
namespace {

class SlotStatesTest : public testing::Test {
 protected:
  // As OutboundLane has them: the newest piece of a slot.
  void Slot(uint64_t sequence, bool copied) {
    words_[SlotIndex(sequence)].store(sequence << 1 | (copied ? 1 : 0));
  }
  void Claim(uint64_t sequence, ClaimState state) {
    side_.claims[SlotIndex(sequence)] = ClaimWord(sequence, state);
  }
  void Complete(uint64_t sequence) {
    CommitCompletion(lane_->completions[SlotIndex(sequence)], sequence, 0);
  }
  void Expect(uint32_t free, uint32_t copying, uint32_t rung, uint32_t posted, uint32_t completed,
              bool version1 = false) const {
    const LaneSlots counts = CountSlots(words_, lane_->completions, version1 ? nullptr : &side_);
    EXPECT_EQ(counts.free, free);
    EXPECT_EQ(counts.copying, copying);
    EXPECT_EQ(counts.rung, rung);
    EXPECT_EQ(counts.posted, posted);
    EXPECT_EQ(counts.completed, completed);
    EXPECT_EQ(free + copying + rung + posted + completed, kSlotsPerLane);
  }

  SlotWords words_{};
  std::unique_ptr<LaneControl> lane_ = std::make_unique<LaneControl>();
  SideLane side_{};
};

TEST_F(SlotStatesTest, APieceGoesThroughAllOfThem) {
  Expect(18, 0, 0, 0, 0);
  Slot(20, false);
  Expect(17, 1, 0, 0, 0);
  Claim(20, ClaimState::kOffered);
  Expect(17, 1, 0, 0, 0);
  Slot(20, true);
  Expect(17, 0, 1, 0, 0);
  Claim(20, ClaimState::kTaken);
  Expect(17, 0, 0, 1, 0);
  Complete(20);
  Expect(17, 0, 0, 0, 1);
  words_[SlotIndex(20)].store(0);
  Expect(18, 0, 0, 0, 0);
}

// SubmitActor hears of the copy by a message; the relay may be faster.
TEST_F(SlotStatesTest, WhatTheRelayDidCountsBeforeTheSenderHeardOfTheCopy) {
  Slot(20, false);
  Claim(20, ClaimState::kTaken);
  Expect(17, 0, 0, 1, 0);
  Complete(20);
  Expect(17, 0, 0, 0, 1);
}

TEST_F(SlotStatesTest, WordsOfAnEarlierPieceInTheSlotSayNothing) {
  Complete(2);
  Claim(2, ClaimState::kTaken);
  Slot(2 + kSlotsPerLane, true);
  Expect(17, 0, 1, 0, 0);
}

TEST_F(SlotStatesTest, ARevokedPieceWaitsForItsAnswer) {
  Slot(5, true);
  Claim(5, ClaimState::kRevoked);
  Expect(17, 0, 1, 0, 0);
}

TEST_F(SlotStatesTest, AVersionOneRelayDoesNotTellWhatItTook) {
  Slot(5, true);
  Slot(6, true);
  Complete(6);
  Expect(16, 0, 1, 0, 1, true);
}

TEST_F(SlotStatesTest, AllSlotsAtOnce) {
  for (uint64_t sequence = 1; sequence <= kSlotsPerLane; ++sequence) {
    Slot(sequence, sequence > 3);
    Claim(sequence, sequence > 8 ? ClaimState::kTaken : ClaimState::kOffered);
    if (sequence > 16) Complete(sequence);
  }
  Expect(0, 3, 5, 8, 2);
}

}  // namespace
}  // namespace railhop
