#include "actors/inbound_lane.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/actors/relay_support.h"

namespace railhop {
namespace {

using Result = InboundLane::Result;

class InboundLaneTest : public ::testing::Test {
 protected:
  Result Read() { return lane_.ReadNext(&record_, &bad_, &changed_hands_); }
  // A sender of lane 2 that may be read.
  LaneUser Claim(uint64_t epoch, bool version_one = false) {
    LaneUser user(memory_, 2, epoch, version_one);
    EXPECT_EQ(Read(), Result::kUnknownSender);
    EXPECT_EQ(lane_.sender_epoch(), epoch);
    lane_.Admit(epoch);
    return user;
  }

  RelayMemory memory_;
  InboundLane lane_{*memory_.block, memory_.side->file(), RelayMemory::kEpoch, 2};
  uint32_t record_ = 0;
  LanePiece bad_;
  bool changed_hands_ = false;
};

TEST_F(InboundLaneTest, PiecesWaitInTheOrderOfSequence) {
  EXPECT_EQ(Read(), Result::kNothing);
  LaneUser user = Claim(500);
  for (uint64_t i = 1; i <= 3; ++i) {
    user.Send("t", 0x1000, i);
    EXPECT_EQ(Read(), Result::kPiece);
    EXPECT_EQ(lane_.piece(record_).id.sequence, i);
    EXPECT_EQ(lane_.piece(record_).descriptor.piece_length, i);
  }
  EXPECT_EQ(Read(), Result::kNothing);
  EXPECT_EQ(lane_.waiting(), 3u);
  const uint32_t second = lane_.WaitingRecord(1);
  EXPECT_EQ(lane_.Take(1), TakeResult::kTaken);
  EXPECT_TRUE(lane_.IsPosted(500));
  EXPECT_FALSE(lane_.IsPosted(501));
  EXPECT_EQ(lane_.piece(lane_.WaitingRecord(0)).id.sequence, 1u);
  EXPECT_EQ(lane_.piece(lane_.WaitingRecord(1)).id.sequence, 3u);
  lane_.Drop(0);
  EXPECT_EQ(lane_.waiting(), 1u);
  lane_.Free(second);
  EXPECT_FALSE(lane_.IsPosted(500));
}

TEST_F(InboundLaneTest, ASlotIsReadAgainWhenItsPieceHasEnded) {
  LaneUser user = Claim(500);
  for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
    user.Send("t", 0x1000, 1);
    ASSERT_EQ(Read(), Result::kPiece);
  }
  user.Send("t", 0x1000, 1);
  EXPECT_EQ(Read(), Result::kNothing);
  lane_.Drop(1);  // sequence 2
  EXPECT_EQ(Read(), Result::kNothing);
  lane_.Drop(0);  // sequence 1, whose slot it is
  EXPECT_EQ(Read(), Result::kPiece);
  EXPECT_EQ(lane_.piece(record_).id.sequence, kSlotsPerLane + 1u);
}

TEST_F(InboundLaneTest, RevokedMeansNotTaken) {
  LaneUser user = Claim(500);
  user.Send("t", 0x1000, 1);
  ASSERT_EQ(Read(), Result::kPiece);
  ASSERT_TRUE(RevokePiece(user.side(), 1));
  EXPECT_EQ(lane_.Take(0), TakeResult::kRevoked);
  EXPECT_EQ(lane_.waiting(), 1u);
  EXPECT_FALSE(lane_.IsPosted(500));
}

TEST_F(InboundLaneTest, APieceIsNotTakenFromALaneThatIsNoLongerItsSenders) {
  LaneUser user = Claim(500, /*version_one=*/true);
  user.Send("t", 0x1000, 1);
  ASSERT_EQ(Read(), Result::kPiece);
  // Between the read and the claim another one took the lane: its words are no guard.
  LaneUser other(memory_, 2, 501, /*version_one=*/true);
  EXPECT_EQ(lane_.Take(0), TakeResult::kRevoked);
}

TEST_F(InboundLaneTest, ANewSendersFirstPieceComesBesideTheOldOnes) {
  LaneUser user = Claim(500);
  for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
    user.Send("t", 0x1000, 1);
    ASSERT_EQ(Read(), Result::kPiece);
  }
  lane_.Admit(501);  // told before it was seen
  LaneUser other(memory_, 2, 501);
  other.Send("t", 0x2000, 1);
  ASSERT_EQ(Read(), Result::kPiece);
  EXPECT_TRUE(changed_hands_);
  EXPECT_EQ(lane_.waiting(), kSlotsPerLane + 1u);
  for (uint32_t i = lane_.waiting(); i-- > 0;) {
    if (!lane_.IsOfThisClaim(lane_.piece(lane_.WaitingRecord(i)))) lane_.Drop(i);
  }
  ASSERT_EQ(lane_.waiting(), 1u);
  EXPECT_EQ(lane_.piece(lane_.WaitingRecord(0)).descriptor.plans[0].final_destination, 0x2000u);
  EXPECT_EQ(lane_.Take(0), TakeResult::kTaken);
}

TEST_F(InboundLaneTest, QuarantineIsSaidOnce) {
  LaneUser user = Claim(500);
  user.Ring(kSlotsPerLane + 1);
  EXPECT_EQ(Read(), Result::kQuarantined);
  EXPECT_EQ(Read(), Result::kNothing);
  user.Ring(1);
  EXPECT_EQ(Read(), Result::kNothing);
}

TEST_F(InboundLaneTest, ALostSenderIsNotAdmittedAgain) {
  LaneUser user = Claim(500);
  user.Send("t", 0x1000, 1);
  lane_.Lose(500);
  lane_.Admit(500);
  EXPECT_EQ(Read(), Result::kNothing);
}

TEST_F(InboundLaneTest, KnowsASenderOfVersionOne) {
  EXPECT_FALSE(lane_.IsVersionOne());
  {
    LaneUser old = Claim(500, /*version_one=*/true);
    EXPECT_TRUE(lane_.IsVersionOne());
    StoreLaneState(old.control().header, LaneState::kFree);
    EXPECT_FALSE(lane_.IsVersionOne());
  }
  Claim(501);
  EXPECT_FALSE(lane_.IsVersionOne());
}

}  // namespace
}  // namespace railhop
