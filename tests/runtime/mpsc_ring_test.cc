#include "runtime/mpsc_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/manual_clock.h"

namespace railhop {
namespace {

using testing::ElementsAre;

struct Item {
  uint64_t producer = 0;
  uint64_t value = 0;
};

std::vector<uint64_t> Take(MpscRing<Item>& ring, size_t budget) {
  std::vector<uint64_t> values;
  ring.Drain(budget, [&](const Item& item) {
    values.push_back(item.value);
    return true;
  });
  return values;
}

// A producer that the test can stop in the middle: it has its position but not yet its message.
class InterruptibleRing : public MpscRing<Item> {
 public:
  using MpscRing<Item>::MpscRing;
  uint64_t Claim() {
    const auto position = this->TryClaim();
    EXPECT_TRUE(position.has_value());
    return *position;
  }
  void Publish(uint64_t position, const Item& item) { this->Write(position, item); }
};

TEST(MpscRingTest, MessagesComeOutInTheOrderOfTheirPositions) {
  MpscRing<Item> ring(8);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_TRUE(ring.TryPush({0, i}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_TRUE(ring.Empty());
}

TEST(MpscRingTest, AFullRingTakesNothingAndLosesNothing) {
  MpscRing<Item> ring(4);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.TryPush({0, i}));
  EXPECT_FALSE(ring.TryPush({0, 4}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(0, 1, 2, 3));
  EXPECT_TRUE(ring.TryPush({0, 4}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(4));
}

TEST(MpscRingTest, CreditIsLazy) {
  MpscRing<Item> ring(8);
  for (uint64_t i = 0; i < 8; ++i) ASSERT_TRUE(ring.TryPush({0, i}));
  EXPECT_EQ(Take(ring, 3).size(), 3U);
  EXPECT_FALSE(ring.TryPush({0, 8}));
  ring.PublishCredit();
  for (uint64_t i = 8; i < 11; ++i) EXPECT_TRUE(ring.TryPush({0, i}));
  EXPECT_FALSE(ring.TryPush({0, 11}));
}

TEST(MpscRingTest, APreemptedProducerDoesNotStopTheOthers) {
  InterruptibleRing ring(8);
  ASSERT_TRUE(ring.TryPush({0, 0}));
  const uint64_t preempted = ring.Claim();
  // The others publish beside it as long as there is room ...
  for (uint64_t i = 2; i < 8; ++i) ASSERT_TRUE(ring.TryPush({1, i}));
  EXPECT_FALSE(ring.TryPush({1, 8}));
  // ... and the consumer takes what is before the gap and waits at it.
  EXPECT_THAT(Take(ring, 16), ElementsAre(0));
  EXPECT_TRUE(ring.Empty());
  EXPECT_FALSE(ring.AllTaken()) << "a claimed cell is a message on its way";
  ring.Publish(preempted, {0, 1});
  EXPECT_THAT(Take(ring, 16), ElementsAre(1, 2, 3, 4, 5, 6, 7));
  EXPECT_TRUE(ring.AllTaken());
}

TEST(MpscRingTest, AClosedRingTakesNothingMoreAndKeepsWhatItTook) {
  InterruptibleRing ring(8);
  ASSERT_TRUE(ring.TryPush({0, 0}));
  const uint64_t preempted = ring.Claim();
  EXPECT_FALSE(ring.closed());
  ring.Close();
  EXPECT_TRUE(ring.closed());
  EXPECT_FALSE(ring.TryPush({0, 2}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(0));
  EXPECT_FALSE(ring.AllTaken());
  ring.Publish(preempted, {0, 1});
  EXPECT_THAT(Take(ring, 16), ElementsAre(1));
  EXPECT_TRUE(ring.AllTaken());
  ring.Close();  // twice is once
  EXPECT_TRUE(ring.AllTaken());
  EXPECT_FALSE(ring.TryPush({0, 2}));
}

TEST(MpscRingTest, EveryNthMessageCarriesItsSendTime) {
  ManualClock clock;
  MpscRing<Item> ring(4, 2, clock.clock());
  const uint64_t start = clock.now();
  std::vector<uint64_t> stamps;
  for (int i = 0; i < 6; ++i) {
    clock.Advance(10);
    ASSERT_TRUE(ring.TryPush({}));
    ring.Drain(
        1, [](const Item&) { return true; },
        [&](uint64_t waited) { stamps.push_back(clock.now() - waited - start); });
  }
  EXPECT_THAT(stamps, ElementsAre(10, 30, 50));
}

TEST(MpscRingTest, EveryMessageOfEveryProducerArrivesOnceAndInOrder) {
  MpscRing<Item> ring(8);
  constexpr uint64_t kProducers = 4;
  constexpr uint64_t kMessages = 5'000;
  std::vector<std::thread> producers;
  producers.reserve(kProducers);
  for (uint64_t p = 0; p < kProducers; ++p) {
    producers.emplace_back([&, p] {
      for (uint64_t i = 0; i < kMessages; ++i) {
        while (!ring.TryPush({p, i})) std::this_thread::yield();
      }
    });
  }
  std::vector<uint64_t> next(kProducers);
  uint64_t wrong = 0;
  for (uint64_t total = 0; total < kProducers * kMessages;) {
    const size_t taken = ring.Drain(16, [&](const Item& item) {
      wrong += next[item.producer]++ != item.value ? 1 : 0;
      return true;
    });
    total += taken;
    if (taken == 0) std::this_thread::yield();
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(ring.AllTaken());
}

}  // namespace
}  // namespace railhop
