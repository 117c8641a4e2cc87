#include "actors/deficit_round_robin.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <deque>

namespace railhop {
namespace {

constexpr uint64_t kQuantum = 1000;

// Three sources, each with a queue of item sizes, and a budget of bytes per run.
class DeficitRoundRobinTest : public testing::Test {
 protected:
  void Run(uint64_t budget) {
    uint32_t sources = 0;
    for (size_t i = 0; i < items_.size(); ++i) sources |= uint32_t{!items_[i].empty()} << i;
    rounds_.Run(
        sources, [&](size_t source) { return items_[source].empty() ? 0 : items_[source].front(); },
        [&](size_t source) {
          const uint64_t bytes = items_[source].front();
          if (bytes > budget) return Served::kNoRoom;
          budget -= bytes;
          sent_[source] += bytes;
          order_.push_back(source);
          items_[source].pop_front();
          return Served::kSent;
        });
  }

  DeficitRoundRobin<3> rounds_{kQuantum};
  std::array<std::deque<uint64_t>, 3> items_;
  std::array<uint64_t, 3> sent_{};
  std::vector<size_t> order_;
};

TEST_F(DeficitRoundRobinTest, EqualBytesWhateverTheSizes) {
  for (int i = 0; i < 400; ++i) items_[0].push_back(4000);
  for (int i = 0; i < 16000; ++i) items_[1].push_back(100);
  for (int i = 0; i < 1600; ++i) items_[2].push_back(1000);
  // In small helpings, as a relay's budget comes back; a big item waits until it fits.
  for (int i = 0; i < 180; ++i) Run(5000);
  const uint64_t total = sent_[0] + sent_[1] + sent_[2];
  EXPECT_GT(total, 500'000u);
  for (const uint64_t bytes : sent_) {
    EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(total) / 3, 4000 + kQuantum);
  }
}

TEST_F(DeficitRoundRobinTest, SendsAllThereIsWithRoomForIt) {
  items_[0] = {9000, 1};
  items_[2] = {1, 1, 1};
  Run(UINT64_MAX);
  EXPECT_EQ(sent_[0], 9001u);
  EXPECT_EQ(sent_[2], 3u);
}

TEST_F(DeficitRoundRobinTest, NothingFromNothing) {
  Run(UINT64_MAX);
  EXPECT_TRUE(order_.empty());
}

TEST_F(DeficitRoundRobinTest, AnIdleSourceSavesNothingUp) {
  for (int i = 0; i < 1000; ++i) items_[0].push_back(500);
  Run(100'000);
  for (int i = 0; i < 1000; ++i) items_[1].push_back(500);
  const uint64_t before = sent_[0];
  Run(100'000);
  EXPECT_NEAR(static_cast<double>(sent_[1]), static_cast<double>(sent_[0] - before), 2 * kQuantum);
}

TEST_F(DeficitRoundRobinTest, NoRoomKeepsTheTurn) {
  items_[0] = {800};
  items_[1] = {10, 10, 10};
  Run(500);  // source 0 is first, and its item does not fit: small ones may not overtake for ever
  EXPECT_TRUE(order_.empty());
  Run(10'000);
  EXPECT_EQ(order_, (std::vector<size_t>{0, 1, 1, 1}));
}

TEST(DeficitRoundRobin, DroppedItemsCostNothing) {
  DeficitRoundRobin<2> rounds(kQuantum);
  int left = 10;
  uint64_t sent = 0;
  rounds.Run(
      0b11, [&](size_t source) { return source == 0 && left != 0 ? 900u : 0u; },
      [&](size_t) {
        if (--left % 2 == 0) return Served::kDropped;
        sent += 900;
        return Served::kSent;
      });
  EXPECT_EQ(left, 0);
  EXPECT_EQ(sent, 5 * 900u);
}

TEST(DeficitRoundRobin, SourcesThatAreNotNamedAreNotAsked) {
  DeficitRoundRobin<8> rounds(kQuantum);
  std::vector<size_t> asked;
  uint32_t left = 0b0010'0100;
  rounds.Run(
      left,
      [&](size_t source) {
        asked.push_back(source);
        return (left >> source & 1) != 0 ? 10u : 0u;
      },
      [&](size_t source) {
        left &= ~(1u << source);
        return Served::kSent;
      });
  EXPECT_EQ(left, 0u);
  for (const size_t source : asked) EXPECT_TRUE(source == 2 || source == 5) << source;
}

TEST(DeficitRoundRobin, AsksAgainAfterEachItem) {
  // Sending of source 0 takes away what source 1 had.
  DeficitRoundRobin<2> rounds(kQuantum);
  bool sent = false;
  rounds.Run(
      0b11, [&](size_t) { return sent ? 0u : 10u; },
      [&](size_t source) {
        EXPECT_EQ(source, 0u);
        sent = true;
        return Served::kSent;
      });
  EXPECT_TRUE(sent);
}

}  // namespace
}  // namespace railhop
