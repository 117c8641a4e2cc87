#include "tools/demo/piece_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

namespace railhop {
namespace {

using enum PieceStage;
using testing::AllOf;
using testing::HasSubstr;

// Two ranks that relay for each other; times in microseconds.
class PieceReportTest : public testing::Test {
 protected:
  static constexpr std::array<uint64_t, 6> kUsual{100, 2, 20, 1, 50, 5};

  // A piece of `sender`, relayed by the other one, that takes so long from stage to stage.
  void Piece(uint32_t sender, std::array<uint64_t, 6> times, int32_t status = 0) {
    next_sequence_ += 64;
    const PieceRecord base{.relay_epoch = 11 - sender,
                           .sender_epoch = 10 + sender,
                           .sequence = next_sequence_,
                           .lane = 0};
    uint64_t at = next_sequence_ * 1'000'000;
    for (uint32_t i = 0; i < kPieceStages; ++i) {
      const auto stage = static_cast<PieceStage>(i);
      PieceRecord record = base;
      record.at = at;
      record.stage = stage;
      if (stage == kSliced) record.submitted = at - times[0] * 1000;
      if (stage == kReaped) record.status = status;
      const bool relay = stage == kDoorbellSeen || stage == kPosted || stage == kCompleted;
      if (stage != kSubmitted) {
        ranks_[relay ? 1 - sender : sender].trace.records.push_back(record);
      }
      if (i < times.size()) at += times[i] * 1000;
    }
  }
  void Busy(uint32_t rank, const std::string& actor, const std::string& reactor, double busy) {
    ranks_[rank].actors.push_back({actor, reactor, busy});
  }
  // After the run.
  ThroughputBound Bound() {
    report_.AddRun(std::exchange(ranks_, std::vector<RankTrace>(2)));
    return report_.FindBound();
  }
  std::string Tables() const {
    std::ostringstream out;
    report_.PrintTables(out);
    return out.str();
  }

  std::vector<RankTrace> ranks_{2};
  PieceReport report_{{4711, 4712}, 2};

 private:
  uint64_t next_sequence_ = 0;
};

TEST_F(PieceReportTest, AReactorWithoutTimeLeftNamesItsBusiestActor) {
  Piece(0, kUsual);
  Busy(0, "submit", "main", 0.2);
  Busy(0, "copy", "main", 0.3);
  Busy(1, "submit", "main", 0.4);
  Busy(1, "copy", "main", 0.5);
  Busy(1, "peer", "control", 0.6);
  const ThroughputBound bound = Bound();
  EXPECT_EQ(bound.actor, "copy");
  EXPECT_EQ(bound.rank, 1u);
  EXPECT_FALSE(bound.waits_for_nic);
  EXPECT_DOUBLE_EQ(bound.busy, 0.5);
  EXPECT_THAT(bound.evidence, AllOf(HasSubstr("busy 50 %"), HasSubstr("\"main\" 90 %"),
                                    HasSubstr("posted -> completed")));
}

TEST_F(PieceReportTest, ElseTheLongestStageWithASlotNamesItsActorAndRank) {
  Piece(0, {9000, 2, 20, 1, 50, 5});  // the wait for a slot is nobody's fault
  Piece(1, {9000, 2, 70, 1, 50, 5});
  Piece(1, {9000, 2, 90, 1, 50, 5});
  Busy(1, "copy", "copy", 0.7);
  const ThroughputBound bound = Bound();
  EXPECT_EQ(bound.actor, "copy");
  EXPECT_EQ(bound.rank, 1u);
  EXPECT_FALSE(bound.waits_for_nic);
  EXPECT_DOUBLE_EQ(bound.busy, 0.7);
  EXPECT_THAT(
      bound.evidence,
      AllOf(HasSubstr("slot for 118.0 us on average, 60.0 of them in copy issued -> doorbell"),
            HasSubstr("longest at rank 1 (80.0 us)"), HasSubstr("busy 70 %")));
}

TEST_F(PieceReportTest, TheNicIsNamedWhereItIsWaitedFor) {
  Piece(0, kUsual);
  Busy(1, "cq_poll", "main", 0.02);
  const ThroughputBound bound = Bound();
  EXPECT_EQ(bound.actor, "cq_poll");
  EXPECT_EQ(bound.rank, 1u) << "the relay";
  EXPECT_TRUE(bound.waits_for_nic);
  EXPECT_THAT(Tables(),
              HasSubstr("throughput is bounded by cq_poll of rank 1, which waits for its NIC"));
}

// Pieces that wait for the relay's budget wait for those that the NIC has.
TEST_F(PieceReportTest, TheNicIsNamedWhereItHoldsTheRelaysBudget) {
  Piece(0, {9000, 2, 20, 500, 50, 5});
  const ThroughputBound bound = Bound();
  EXPECT_EQ(bound.actor, "relay_post");
  EXPECT_EQ(bound.rank, 1u);
  EXPECT_TRUE(bound.waits_for_nic);
}

TEST_F(PieceReportTest, PiecesThatWentDirectDecideNothing) {
  Piece(0, {1, 9999, 1, 1, 1, 1}, -2);
  Piece(0, kUsual);
  EXPECT_EQ(Bound().actor, "cq_poll");
  EXPECT_THAT(Tables(), HasSubstr("2 pieces were recorded, 1 of them not relayed in the end"));
}

TEST_F(PieceReportTest, WithoutAnyPieceItIsNotKnown) {
  Busy(0, "copy", "main", 0.5);
  EXPECT_EQ(Bound().actor, "");
  EXPECT_THAT(Tables(), HasSubstr("not known: no piece was recorded"));
}

TEST_F(PieceReportTest, SlotsAreMeansOfTheSamplesAndSumsOfAllRuns) {
  ranks_[0].lanes = {{.lane = 0, .relay_pid = 4712, .samples = 4, .slots = {36, 8, 4, 20, 4}}};
  Bound();
  EXPECT_THAT(Tables(), HasSubstr("0        0       1        4      9.00      2.00      1.00"
                                  "      5.00      1.00"));
}

TEST_F(PieceReportTest, KeepsTheFirstPiecesForTheTraceAndCountsTheRest) {
  for (int i = 0; i < 5; ++i) Piece(0, kUsual);
  Bound();
  EXPECT_EQ(report_.kept().size(), 2u);
  EXPECT_EQ(report_.kept()[0].sequence, 64u);
  EXPECT_EQ(report_.pieces(), 5u);
}

}  // namespace
}  // namespace railhop
