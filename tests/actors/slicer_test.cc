#include "actors/slicer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

class SlicerTest : public testing::Test {
 protected:
  Span MakeSpan(uint64_t source, uint64_t destination, uint64_t length, uint32_t batch = 0) {
    return {.source = reinterpret_cast<std::byte*>(0x1000'0000 + source),
            .destination = destination,
            .length = length,
            .region = &region_,
            .batch = batch};
  }
  bool Push(const Span& span) { return pool_.Push(queue_, span); }

  Region region_;
  SpanPool pool_{8192};
  SpanQueue queue_;
  PieceContent piece_;
};

TEST_F(SlicerTest, APoolGivesOutAsManySpansAsItHasAndTakesThemBack) {
  SpanPool pool(3);
  SpanQueue a, b;
  EXPECT_TRUE(pool.Push(a, MakeSpan(0, 0, 1)));
  EXPECT_TRUE(pool.Push(b, MakeSpan(0, 0, 2)));
  EXPECT_TRUE(pool.Push(a, MakeSpan(0, 0, 4)));
  EXPECT_EQ(pool.available(), 0u);
  EXPECT_FALSE(pool.Push(b, MakeSpan(0, 0, 8)));
  EXPECT_EQ(a.count, 2u);
  EXPECT_EQ(a.bytes, 5u);
  EXPECT_EQ(b.bytes, 2u);
  EXPECT_EQ(pool.Front(a).length, 1u);
  pool.PopFront(a);
  EXPECT_EQ(pool.Front(a).length, 4u);
  EXPECT_TRUE(pool.Push(b, MakeSpan(0, 0, 8)));
  pool.PopFront(a);
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a.bytes, 0u);
  pool.PopFront(b);
  pool.PopFront(b);
  EXPECT_EQ(pool.available(), 3u);
}

TEST_F(SlicerTest, RemovingFromAQueueKeepsTheOrderOfTheRest) {
  for (uint32_t i = 0; i < 10; ++i) ASSERT_TRUE(Push(MakeSpan(0, 0, 1 + i, i % 3)));
  pool_.RemoveIf(queue_, [](const Span& span) { return span.batch == 0; });
  EXPECT_EQ(queue_.count, 6u);
  EXPECT_EQ(pool_.available(), 8192u - 6);
  std::vector<uint64_t> lengths;
  uint64_t bytes = queue_.bytes;
  while (!queue_.empty()) {
    lengths.push_back(pool_.Front(queue_).length);
    bytes -= lengths.back();
    pool_.PopFront(queue_);
  }
  EXPECT_EQ(lengths, (std::vector<uint64_t>{2, 3, 5, 6, 8, 9}));
  EXPECT_EQ(bytes, 0u);
  pool_.RemoveIf(queue_, [](const Span&) { return true; });
  EXPECT_TRUE(Push(MakeSpan(0, 0, 1)));
  pool_.RemoveIf(queue_, [](const Span&) { return true; });
  EXPECT_TRUE(queue_.empty());
  EXPECT_TRUE(Push(MakeSpan(0, 0, 1)));
  EXPECT_EQ(pool_.Front(queue_).length, 1u);
}

constexpr uint64_t kMax = kSlotBytes;
constexpr JobSizes kSizes{.idle = 128 * kKiB, .backlog = kMiB};

// Idle: small pieces, so that copy and send overlap. Backlog at the relay: a quarter of it.
TEST_F(SlicerTest, PiecesGrowWithWhatTheRelayHas) {
  constexpr uint64_t kWaiting = kMiB;
  EXPECT_EQ(PieceTarget({kWaiting, 0}, kSizes, kMax), kSizes.idle);
  EXPECT_EQ(PieceTarget({kWaiting, 512 * kKiB}, kSizes, kMax), kSizes.idle);
  EXPECT_EQ(PieceTarget({kWaiting, kMiB}, kSizes, kMax), 256 * kKiB);
  EXPECT_EQ(PieceTarget({UINT64_MAX, 16 * kMiB}, kSizes, kMax), 4 * kMiB);
  EXPECT_EQ(PieceTarget({UINT64_MAX, 32 * kMiB}, kSizes, kMax), 8 * kMiB);
  EXPECT_EQ(PieceTarget({UINT64_MAX, UINT64_MAX}, kSizes, kMax), kMax);
  EXPECT_EQ(PieceTarget({kWaiting, 0}, kSizes, 64 * kKiB), 64 * kKiB);
  EXPECT_EQ(PieceTarget({kWaiting, kMiB}, kSizes, 64 * kKiB), 64 * kKiB);
}

TEST_F(SlicerTest, PiecesGrowWithWhatWaits) {
  EXPECT_EQ(PieceTarget({512 * kKiB, 0}, kSizes, kMax), kSizes.idle);
  EXPECT_EQ(PieceTarget({2 * kMiB, 0}, kSizes, kMax), 256 * kKiB);
  EXPECT_EQ(PieceTarget({8 * kMiB, 0}, kSizes, kMax), kMiB);
  EXPECT_EQ(PieceTarget({UINT64_MAX, 0}, kSizes, kMax), kSizes.backlog);
  EXPECT_EQ(PieceTarget({UINT64_MAX, 0}, kSizes, 64 * kKiB), 64 * kKiB);
  // An engine that wins nothing by it has them small.
  EXPECT_EQ(PieceTarget({UINT64_MAX, 0}, {40 * kKiB, 40 * kKiB}, kMax), 40 * kKiB);
  // A copy that costs nothing is never worth a piece of its own.
  EXPECT_EQ(PieceTarget({UINT64_MAX, 0}, {kMax, kMax}, kMax), kMax);
}

TEST_F(SlicerTest, WhatWouldBeLeftOfAQueueIsWorthAPieceOrGoesAlong) {
  constexpr JobSizes kHost{40 * kKiB, 40 * kKiB};
  EXPECT_EQ(PieceTarget({64 * kKiB, 0}, kHost, kMax), 64 * kKiB);
  EXPECT_EQ(PieceTarget({2 * kHost.idle - 1, 0}, kHost, kMax), 2 * kHost.idle - 1);
  EXPECT_EQ(PieceTarget({2 * kHost.idle, 0}, kHost, kMax), kHost.idle);
  EXPECT_EQ(PieceTarget({9 * kMiB, 32 * kMiB}, kHost, kMax), kMax);
  EXPECT_EQ(PieceTarget({64 * kKiB, 0}, kHost, 48 * kKiB), 48 * kKiB);
}

// An engine that has several jobs of a stream under way.
constexpr JobSizes kDevice{.idle = 512 * kKiB, .backlog = kMiB, .at_once = 3, .whole = 128 * kKiB};

TEST_F(SlicerTest, BesidePiecesThatAreBeingCopiedSmallOnesGather) {
  const auto target = [](uint64_t waiting, uint64_t under_way, uint32_t copying) {
    return PieceTarget({.waiting = waiting, .under_way = under_way, .copying = copying}, kDevice,
                       kMax);
  };
  // The first one goes at once, and so does one whose copy is the only one.
  EXPECT_EQ(target(1, 0, 0), 1U);
  EXPECT_EQ(target(64 * kKiB, 448 * kKiB, 0), 64 * kKiB);
  // Beside others a quarter of all there is must wait, as far as a piece gains by it.
  EXPECT_EQ(target(127 * kKiB, 385 * kKiB, 1), 0U);
  EXPECT_EQ(target(128 * kKiB, 384 * kKiB, 1), 128 * kKiB);
  EXPECT_EQ(target(128 * kKiB, 384 * kKiB, 2), 128 * kKiB);
  EXPECT_EQ(target(384 * kKiB, 1536 * kKiB, 1), 0U);
  EXPECT_EQ(target(480 * kKiB, 1440 * kKiB, 1), 480 * kKiB);
  EXPECT_EQ(target(511 * kKiB, 8 * kMiB, 1), 0U);
  EXPECT_EQ(target(512 * kKiB, 8 * kMiB, 1), 512 * kKiB);
  EXPECT_EQ(target(63 * kKiB, 193 * kKiB, 1), 0U);
  EXPECT_EQ(target(64 * kKiB, 192 * kKiB, 1), 64 * kKiB);
  // More than that would only queue in the stream.
  EXPECT_EQ(target(8 * kMiB, 384 * kKiB, 3), 0U);
}

TEST_F(SlicerTest, BesideOthersAPieceIsAQuarterOfAllThereIs) {
  const auto target = [](uint64_t waiting, uint64_t under_way) {
    return PieceTarget({.waiting = waiting, .under_way = under_way, .copying = 1}, kDevice, kMax);
  };
  EXPECT_EQ(target(320 * kKiB, 192 * kKiB), 128 * kKiB);
  EXPECT_EQ(target(448 * kKiB, 320 * kKiB), 192 * kKiB);
  EXPECT_EQ(target(448 * kKiB, 576 * kKiB), 256 * kKiB);
  // Where much waits, or nothing is under way, a piece is as large as ever.
  EXPECT_EQ(target(512 * kKiB, 512 * kKiB), 512 * kKiB);
  EXPECT_EQ(target(64 * kMiB, 512 * kKiB), kMiB);
  EXPECT_EQ(PieceTarget({.waiting = 448 * kKiB}, kDevice, kMax), 448 * kKiB);
  EXPECT_EQ(PieceTarget({.waiting = 448 * kKiB, .under_way = 576 * kKiB}, kDevice, 64 * kKiB),
            64 * kKiB);
}

TEST_F(SlicerTest, AnEmptyQueueGivesNoPiece) {
  piece_.Append(MakeSpan(0, 0, 1));
  EXPECT_FALSE(CutPiece(pool_, queue_, {kMiB}, &piece_));
  EXPECT_TRUE(piece_.spans.empty());
  EXPECT_EQ(piece_.length, 0u);
}

TEST_F(SlicerTest, APieceCarriesSpansOfSeveralRequestsAndBatches) {
  ASSERT_TRUE(Push(MakeSpan(0, 0x5000, 100, 1)));
  ASSERT_TRUE(Push(MakeSpan(5000, 0x9000, 200, 1)));
  ASSERT_TRUE(Push(MakeSpan(9000, 0x100, 300, 2)));
  ASSERT_TRUE(CutPiece(pool_, queue_, {kMiB}, &piece_));
  EXPECT_TRUE(queue_.empty());
  EXPECT_EQ(piece_.length, 600u);
  ASSERT_EQ(piece_.spans.size(), 3u);
  ASSERT_EQ(piece_.copies.size(), 3u);
  ASSERT_EQ(piece_.plans.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(piece_.copies[i].source, piece_.spans[i].source);
    EXPECT_EQ(piece_.copies[i].length, piece_.spans[i].length);
    EXPECT_EQ(piece_.plans[i].final_destination, piece_.spans[i].destination);
    EXPECT_EQ(piece_.plans[i].length, piece_.spans[i].length);
  }
  EXPECT_EQ(piece_.spans[2].batch, 2u);
}

TEST_F(SlicerTest, NeighboursShareAnEntryWhateverRequestTheyAreOf) {
  ASSERT_TRUE(Push(MakeSpan(0, 0x5000, 100)));
  ASSERT_TRUE(Push(MakeSpan(100, 0x5064, 50)));
  ASSERT_TRUE(Push(MakeSpan(150, 0x5096, 6, 1)));  // another batch
  ASSERT_TRUE(CutPiece(pool_, queue_, {kMiB}, &piece_));
  ASSERT_EQ(piece_.spans.size(), 3u);
  EXPECT_EQ(piece_.spans[1].length, 50u);
  ASSERT_EQ(piece_.copies.size(), 1u);
  ASSERT_EQ(piece_.plans.size(), 1u);
  EXPECT_EQ(piece_.copies[0].length, 156u);
  EXPECT_EQ(piece_.plans[0], (PlanEntry{0x5000, 156}));
}

TEST_F(SlicerTest, SpansThatDoNotContinueStayApart) {
  Region other;
  std::vector<Span> followers = {
      MakeSpan(101, 0x5064, 50),  // a gap in the source
      MakeSpan(100, 0x5065, 50),  // a gap in the target
      MakeSpan(100, 0x5064, 50),  // another region
  };
  followers[2].region = &other;
  for (const Span& follower : followers) {
    ASSERT_TRUE(Push(MakeSpan(0, 0x5000, 100)));
    ASSERT_TRUE(Push(follower));
    ASSERT_TRUE(CutPiece(pool_, queue_, {kMiB}, &piece_));
    EXPECT_EQ(piece_.plans.size(), 2u);
    EXPECT_EQ(piece_.length, 150u);
  }
}

TEST_F(SlicerTest, ASpanThatDoesNotFitIsSplit) {
  ASSERT_TRUE(Push(MakeSpan(0, 0x5000, 10 * kMiB)));
  ASSERT_TRUE(Push(MakeSpan(50 * kMiB, 0x9000'0000, 7)));
  ASSERT_TRUE(CutPiece(pool_, queue_, {8 * kMiB}, &piece_));
  EXPECT_EQ(piece_.length, 8 * kMiB);
  ASSERT_EQ(piece_.spans.size(), 1u);
  EXPECT_EQ(queue_.bytes, 2 * kMiB + 7);
  EXPECT_EQ(queue_.count, 2u);
  ASSERT_TRUE(CutPiece(pool_, queue_, {8 * kMiB}, &piece_));
  ASSERT_EQ(piece_.spans.size(), 2u);
  EXPECT_EQ(piece_.plans[0], (PlanEntry{0x5000 + 8 * kMiB, 2 * kMiB}));
  EXPECT_EQ(piece_.copies[0].source, reinterpret_cast<std::byte*>(0x1000'0000 + 8 * kMiB));
  EXPECT_EQ(piece_.plans[1], (PlanEntry{0x9000'0000, 7}));
  EXPECT_EQ(pool_.available(), 8192u);
}

TEST_F(SlicerTest, ASmallSpanIsNotSplitUnlessThePieceWouldBeTooLarge) {
  const auto cut = [this](const PieceLimits& limits) {
    EXPECT_TRUE(CutPiece(pool_, queue_, limits, &piece_));
    return piece_.length;
  };
  for (uint32_t i = 0; i < 4; ++i) ASSERT_TRUE(Push(MakeSpan(i * kMiB, i * kMiB, 100)));
  EXPECT_EQ(cut({.target = 150, .whole = 100, .max = 200}), 200U);
  EXPECT_EQ(cut({.target = 150, .whole = 100, .max = 199}), 150U);
  EXPECT_EQ(piece_.spans.back().length, 50U);
  ASSERT_TRUE(Push(MakeSpan(9 * kMiB, 9 * kMiB, 101)));
  EXPECT_EQ(cut({.target = 100, .whole = 100, .max = 1000}), 100U);
  EXPECT_EQ(queue_.bytes, 51U);
}

TEST_F(SlicerTest, APieceHasAtMost4096Spans) {
  for (const uint32_t gap : {0u, 90u}) {
    SpanQueue queue;
    for (uint32_t i = 0; i < 5000; ++i) {
      ASSERT_TRUE(pool_.Push(queue, MakeSpan(i * (10 + gap), i * (10 + gap), 10)));
    }
    const PlanEntry* const plans = piece_.plans.data();
    ASSERT_TRUE(CutPiece(pool_, queue, {8 * kMiB}, &piece_));
    EXPECT_EQ(piece_.spans.size(), kMaxPlanEntries);
    EXPECT_EQ(piece_.plans.size(), gap == 0 ? 1u : kMaxPlanEntries);
    EXPECT_EQ(piece_.plans.data(), plans) << "it has grown";
    EXPECT_EQ(queue.count, 5000u - kMaxPlanEntries);
    while (CutPiece(pool_, queue, {8 * kMiB}, &piece_)) continue;
  }
}

// Whatever goes in comes out: each byte once, in order, in pieces within all limits.
TEST_F(SlicerTest, RandomSpansComeOutWholeAndInOrder) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    struct Range {
      uint64_t source, destination, length;
      uint32_t batch;
    };
    std::vector<Range> in, out;
    uint64_t source = 0, destination = 0;
    for (int i = 0; i < 60; ++i) {
      const uint64_t length = 1 + random() % (random() % 5 == 0 ? 3 * kMiB : 5000);
      if (random() % 2 != 0) source += random() % 100;
      if (random() % 2 != 0) destination += random() % 100;
      in.push_back({source, destination, length, static_cast<uint32_t>(random() % 2)});
      source += length;
      destination += length;
      ASSERT_TRUE(Push(MakeSpan(in.back().source, in.back().destination, length, in.back().batch)));
    }
    while (!queue_.empty()) {
      const uint64_t max_bytes = 1 + random() % (2 * kMiB);
      ASSERT_TRUE(CutPiece(pool_, queue_, {max_bytes}, &piece_));
      ASSERT_LE(piece_.length, max_bytes);
      uint64_t sum = 0;
      for (const Span& span : piece_.spans) {
        sum += span.length;
        out.push_back({reinterpret_cast<uint64_t>(span.source) - 0x1000'0000, span.destination,
                       span.length, span.batch});
      }
      ASSERT_EQ(sum, piece_.length);
    }
    EXPECT_EQ(pool_.available(), 8192u);
    // Walk both byte by byte, in runs.
    size_t i = 0, o = 0;
    uint64_t in_at = 0, out_at = 0;
    while (i < in.size() && o < out.size()) {
      ASSERT_EQ(in[i].source + in_at, out[o].source + out_at);
      ASSERT_EQ(in[i].destination + in_at, out[o].destination + out_at);
      ASSERT_EQ(in[i].batch, out[o].batch);
      const uint64_t run = std::min(in[i].length - in_at, out[o].length - out_at);
      in_at += run;
      out_at += run;
      if (in_at == in[i].length) ++i, in_at = 0;
      if (out_at == out[o].length) ++o, out_at = 0;
    }
    ASSERT_EQ(i, in.size());
    ASSERT_EQ(o, out.size());
  }
}

}  // namespace
}  // namespace railhop
