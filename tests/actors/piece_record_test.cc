#include "actors/piece_record.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

std::vector<PieceRecord> Take(PieceTracer& trace, uint64_t lost = 0) {
  std::vector<PieceRecord> records;
  EXPECT_EQ(trace.Take([&](const PieceRecord& record) { records.push_back(record); }), lost);
  return records;
}

TEST(PieceTracerTest, SamplesMultiplesOfItsInterval) {
  PieceTracer trace;
  trace.Enable(64, 7);
  for (uint64_t sequence = 1; sequence < 300; ++sequence) {
    EXPECT_EQ(trace.Samples(sequence), sequence % 64 == 0) << sequence;
  }
  PieceTracer all;
  all.Enable(1, 7);
  for (uint64_t sequence = 1; sequence < 300; ++sequence) EXPECT_TRUE(all.Samples(sequence));
}

TEST(PieceTracerTest, UnlessEnabledItSamplesNothingAndHasNothing) {
  PieceTracer trace;
  for (uint64_t sequence : {uint64_t{1}, uint64_t{64}, uint64_t{1} << 40, UINT64_MAX}) {
    EXPECT_FALSE(trace.Samples(sequence)) << sequence;
  }
  EXPECT_TRUE(Take(trace).empty());
}

TEST(PieceTracerTest, FillsInTheEpochOfItsOwnRank) {
  PieceTracer trace;
  trace.Enable(1, 7);
  trace.RecordOutbound({.relay_epoch = 9, .sequence = 3, .stage = PieceStage::kSliced});
  trace.RecordInbound({.sender_epoch = 8, .sequence = 4, .stage = PieceStage::kPosted});
  const std::vector<PieceRecord> records = Take(trace);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sender_epoch, 7u);
  EXPECT_EQ(records[0].relay_epoch, 9u);
  EXPECT_EQ(records[0].sequence, 3u);
  EXPECT_EQ(records[1].sender_epoch, 8u);
  EXPECT_EQ(records[1].relay_epoch, 7u);
  EXPECT_EQ(records[1].stage, PieceStage::kPosted);
}

TEST(PieceTracerTest, CountsWhatNobodyTookInTime) {
  PieceTracer trace;
  trace.Enable(1, 7);
  for (uint64_t sequence = 1; sequence <= PieceTracer::kCapacity + 9; ++sequence) {
    trace.RecordOutbound({.sequence = sequence});
  }
  EXPECT_EQ(Take(trace, 10).size(), PieceTracer::kCapacity - 1);
}

}  // namespace
}  // namespace railhop
