#include "actors/piece_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace railhop {
namespace {

using enum PieceStage;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kSenderEpoch = 100;
constexpr uint64_t kRelayEpoch = 200;

// Two ranks: 0 sends, 1 relays. Records are made in any order, as actors write them.
class JoinTest : public testing::Test {
 protected:
  PieceRecord Record(PieceStage stage, uint64_t at, uint64_t sequence = 64) const {
    return {.at = at,
            .relay_epoch = kRelayEpoch,
            .sender_epoch = kSenderEpoch,
            .sequence = sequence,
            .lane = 3,
            .stage = stage};
  }
  void Sender(PieceRecord record) { traces_[0].records.push_back(record); }
  void Relay(PieceRecord record) { traces_[1].records.push_back(record); }
  void Sliced(uint64_t submitted, uint64_t at, uint64_t sequence = 64) {
    PieceRecord record = Record(kSliced, at, sequence);
    record.submitted = submitted;
    record.bytes = 4096;
    Sender(record);
  }
  void Answered(PieceStage stage, uint64_t at, int32_t status, uint64_t sequence = 64) {
    PieceRecord record = Record(stage, at, sequence);
    record.status = status;
    (stage == kReaped ? traces_[0] : traces_[1]).records.push_back(record);
  }
  // A piece that takes 10, 1, 20, 2, 30 and 3 from stage to stage.
  void WholePiece(uint64_t start, uint64_t sequence = 64) {
    Answered(kReaped, start + 66, 0, sequence);
    Answered(kCompleted, start + 63, 0, sequence);
    Relay(Record(kPosted, start + 33, sequence));
    Relay(Record(kDoorbellSeen, start + 31, sequence));
    Sender(Record(kCopyIssued, start + 11, sequence));
    Sliced(start, start + 10, sequence);
  }
  std::vector<TracedPiece> Join() const { return JoinPieces(traces_); }

  std::vector<PieceTrace> traces_{2};
};

TEST_F(JoinTest, StagesOfBothProcessesMakeOnePiece) {
  WholePiece(1000);
  const std::vector<TracedPiece> pieces = Join();
  ASSERT_THAT(pieces, SizeIs(1));
  EXPECT_THAT(pieces[0].at, ElementsAre(1000, 1010, 1011, 1031, 1033, 1063, 1066));
  EXPECT_EQ(pieces[0].sender, 0u);
  EXPECT_EQ(pieces[0].relay, 1u);
  EXPECT_EQ(pieces[0].sequence, 64u);
  EXPECT_EQ(pieces[0].lane, 3u);
  EXPECT_EQ(pieces[0].bytes, 4096u);
  EXPECT_EQ(pieces[0].status, 0);
  std::vector<uint64_t> times;
  for (uint32_t i = 0; i < kPieceIntervals; ++i) times.push_back(*PieceIntervalTime(pieces[0], i));
  EXPECT_THAT(times, ElementsAre(10, 1, 20, 2, 30, 3, 66));
}

TEST_F(JoinTest, NothingMakesNothing) {
  EXPECT_THAT(Join(), IsEmpty());
  EXPECT_THAT(JoinPieces({}), IsEmpty());
}

TEST_F(JoinTest, WhatNamesAPieceKeepsOthersApart) {
  WholePiece(1000);
  WholePiece(1005, 128);
  for (int word = 0; word < 3; ++word) {
    PieceRecord other = Record(kSliced, 1010);
    (word == 0 ? other.relay_epoch : word == 1 ? other.sender_epoch : other.sequence) = 999;
    Sender(other);
  }
  PieceRecord other_lane = Record(kSliced, 1010);
  other_lane.lane = 4;
  Sender(other_lane);
  const std::vector<TracedPiece> pieces = Join();
  EXPECT_THAT(pieces, SizeIs(6));
  size_t whole = 0;
  for (const TracedPiece& piece : pieces) whole += PieceIntervalTime(piece, kWholePiece) ? 1 : 0;
  EXPECT_EQ(whole, 2u);
}

// A lane that was given back and claimed again by the same process counts from 1 again.
TEST_F(JoinTest, TheSameNameOnceMoreIsAnotherPiece) {
  WholePiece(1000);
  WholePiece(1060);  // it was submitted before the first was reaped
  const std::vector<TracedPiece> pieces = Join();
  ASSERT_THAT(pieces, SizeIs(2));
  EXPECT_THAT(pieces[0].at, ElementsAre(1000, 1010, 1011, 1031, 1033, 1063, 1066));
  EXPECT_EQ(pieces[1].At(kSliced), 1070u);
  EXPECT_EQ(pieces[1].At(kReaped), 1126u);
}

TEST_F(JoinTest, AStageThatIsMissingLeavesOutItsTwoIntervals) {
  Sliced(1000, 1010);
  Sender(Record(kCopyIssued, 1011));
  Relay(Record(kPosted, 1033));
  Answered(kCompleted, 1063, 0);
  Answered(kReaped, 1066, 0);
  StageTimes times;
  for (const TracedPiece& piece : Join()) times.Add(piece);
  std::vector<uint64_t> counts;
  for (uint32_t i = 0; i < kPieceIntervals; ++i) counts.push_back(times.Summary(i).count);
  EXPECT_THAT(counts, ElementsAre(1, 1, 0, 0, 1, 1, 1));
}

TEST_F(JoinTest, ARelayOfVersionOneRecordsNothing) {
  Sliced(1000, 1010);
  Sender(Record(kCopyIssued, 1011));
  Answered(kReaped, 1066, 0);
  const std::vector<TracedPiece> pieces = Join();
  ASSERT_THAT(pieces, SizeIs(1));
  EXPECT_EQ(pieces[0].relay, TracedPiece::kNobody);
  EXPECT_EQ(*PieceIntervalTime(pieces[0], kWholePiece), 66u);
}

// Refused by the relay, or failed there: its bytes went direct afterwards.
TEST_F(JoinTest, APieceThatWentDirectIsCountedAndNotTimed) {
  Sliced(1000, 1010);
  Sender(Record(kCopyIssued, 1011));
  Relay(Record(kDoorbellSeen, 1031));
  Answered(kCompleted, 1040, -2);
  Answered(kReaped, 1043, -2);
  WholePiece(2000, 128);
  StageTimes times;
  for (const TracedPiece& piece : Join()) times.Add(piece);
  EXPECT_EQ(times.pieces(), 2u);
  EXPECT_EQ(times.failed(), 1u);
  EXPECT_EQ(times.Summary(0).count, 1u);
  EXPECT_EQ(Join()[0].status, -2);
}

// Sequence 1 of a lane: the sender makes no piece of it, the relay refuses it.
TEST_F(JoinTest, TheProbeOfALaneIsNoPiece) {
  Answered(kCompleted, 1040, -1, 1);
  StageTimes times;
  for (const TracedPiece& piece : Join()) EXPECT_FALSE(times.Add(piece));
  EXPECT_EQ(times.pieces(), 0u);
}

TEST_F(JoinTest, ClocksThatDifferByALittleGiveNoTimeAtAll) {
  Sender(Record(kCopyIssued, 1011));
  Relay(Record(kDoorbellSeen, 1009));
  const std::vector<TracedPiece> pieces = Join();
  ASSERT_THAT(pieces, SizeIs(1));
  EXPECT_EQ(*PieceIntervalTime(pieces[0], 2), 0u);
}

TEST_F(JoinTest, PercentilesAreInMicroseconds) {
  for (uint64_t i = 1; i <= 100; ++i) WholePiece(i * 1'000'000, 64 * i);
  // One of them waited for long.
  Sliced(1'000'000'000, 1'005'000'000, 64 * 101);
  StageTimes times;
  for (const TracedPiece& piece : Join()) times.Add(piece);
  const LatencySummary summary = times.Summary(0);
  EXPECT_EQ(summary.count, 101u);
  EXPECT_DOUBLE_EQ(summary.p50_us, 0.010);
  EXPECT_DOUBLE_EQ(summary.max_us, 5000.0);
}

TEST(PieceIntervalTest, EachBeginsWhereTheOneBeforeEnds) {
  for (uint32_t i = 0; i + 1 < kWholePiece; ++i) {
    EXPECT_EQ(PieceIntervalOf(i).to, PieceIntervalOf(i + 1).from);
  }
  EXPECT_EQ(PieceIntervalName(2), "copy issued -> doorbell seen");
  EXPECT_EQ(PieceIntervalName(kWholePiece), "submitted -> reaped");
}

}  // namespace
}  // namespace railhop
