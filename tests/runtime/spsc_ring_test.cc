#include "runtime/spsc_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "tests/support/manual_clock.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Item {
  uint64_t value = 0;
};

// The largest message there is: it fills its cell to the last byte.
struct Full {
  uint64_t words[7];
};
static_assert(sizeof(Full) == kMaxMessageBytes);
static_assert(Message<Full>);

struct TooBig {
  uint64_t words[8];
};
struct NotTrivial {
  std::vector<int> numbers;
};
struct alignas(16) OverAligned {
  uint64_t words[2];
};
static_assert(!Message<TooBig>);
static_assert(!Message<NotTrivial>);
static_assert(!Message<OverAligned>);

template <class Ring>
std::vector<uint64_t> Take(Ring& ring, size_t budget) {
  std::vector<uint64_t> values;
  ring.Drain(budget, [&](const Item& item) {
    values.push_back(item.value);
    return true;
  });
  return values;
}

// How many of Item{first}, Item{first + 1}, ... fit.
size_t Fill(SpscRing<Item>& ring, uint64_t first = 0) {
  size_t pushed = 0;
  while (ring.TryPush({first + pushed})) ++pushed;
  return pushed;
}

TEST(RingCapacityTest, IsThePowerOfTwoAtOrAboveTheWish) {
  EXPECT_EQ(RingCapacity(0), 2U);
  EXPECT_EQ(RingCapacity(1), 2U);
  EXPECT_EQ(RingCapacity(2), 2U);
  EXPECT_EQ(RingCapacity(3), 4U);
  EXPECT_EQ(RingCapacity(256), 256U);
  EXPECT_EQ(RingCapacity(257), 512U);
}

TEST(RingCapacityTest, CreditIsPublishedAtLeastTwicePerRing) {
  EXPECT_EQ(CreditInterval(2), 1U);
  EXPECT_EQ(CreditInterval(16), 8U);
  EXPECT_EQ(CreditInterval(32), 16U);
  EXPECT_EQ(CreditInterval(4096), 16U);
}

TEST(SpscRingTest, ANewRingIsEmpty) {
  SpscRing<Item> ring(4);
  EXPECT_TRUE(ring.Empty());
  EXPECT_EQ(ring.Front(), nullptr);
  EXPECT_EQ(ring.Room(), 4U);
  EXPECT_THAT(Take(ring, 16), IsEmpty());
}

TEST(SpscRingTest, MessagesComeOutInTheOrderTheyWentIn) {
  SpscRing<Item> ring(8);
  for (uint64_t i = 10; i < 13; ++i) ASSERT_TRUE(ring.TryPush({i}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(10, 11, 12));
  EXPECT_TRUE(ring.Empty());
}

TEST(SpscRingTest, AMessageOf56BytesArrivesWhole) {
  SpscRing<Full> ring(2);
  const Full sent{{1, 2, 3, 4, 5, 6, ~uint64_t{0}}};
  // Several laps: the sequence word beside the value must not be part of it.
  for (int lap = 0; lap < 5; ++lap) {
    ASSERT_TRUE(ring.TryPush(sent));
    ASSERT_EQ(ring.Drain(1,
                         [&](const Full& got) {
                           EXPECT_THAT(got.words, ElementsAre(1, 2, 3, 4, 5, 6, ~uint64_t{0}));
                           return true;
                         }),
              1U);
  }
}

TEST(SpscRingTest, AFullRingTakesNothingAndLosesNothing) {
  SpscRing<Item> ring(4);
  EXPECT_EQ(Fill(ring), 4U);
  EXPECT_EQ(ring.Room(), 0U);
  EXPECT_FALSE(ring.TryPush({99}));
  EXPECT_THAT(Take(ring, 16), ElementsAre(0, 1, 2, 3));
}

TEST(SpscRingTest, ADrainStopsAtItsBudget) {
  SpscRing<Item> ring(64);
  ASSERT_EQ(Fill(ring), 64U);
  EXPECT_EQ(Take(ring, 16).size(), 16U);
  EXPECT_THAT(Take(ring, 1), ElementsAre(16));
}

TEST(SpscRingTest, ARefusedMessageStaysInFront) {
  SpscRing<Item> ring(8);
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(ring.TryPush({i}));
  std::vector<uint64_t> seen;
  const auto up_to_one = [&](const Item& item) {
    seen.push_back(item.value);
    return item.value < 2;
  };
  EXPECT_EQ(ring.Drain(16, up_to_one), 2U);
  EXPECT_EQ(ring.Drain(16, up_to_one), 0U);
  EXPECT_THAT(seen, ElementsAre(0, 1, 2, 2)) << "the same message again, and none behind it";
  EXPECT_FALSE(ring.Empty());
  EXPECT_THAT(Take(ring, 16), ElementsAre(2, 3));
}

TEST(SpscRingTest, CreditIsPublishedEveryHalfRing) {
  SpscRing<Item> ring(8);
  ASSERT_EQ(Fill(ring), 8U);
  EXPECT_EQ(Take(ring, 3).size(), 3U);
  EXPECT_EQ(ring.Room(), 0U) << "three cells are not worth a cache line";
  EXPECT_EQ(Take(ring, 1).size(), 1U);
  EXPECT_EQ(ring.Room(), 4U);
}

TEST(SpscRingTest, CreditOfALargeRingIsPublishedEvery16Cells) {
  SpscRing<Item> ring(1024);
  ASSERT_EQ(Fill(ring), 1024U);
  EXPECT_EQ(Take(ring, 15).size(), 15U);
  EXPECT_EQ(ring.Room(), 0U);
  EXPECT_EQ(Take(ring, 1).size(), 1U);
  EXPECT_EQ(ring.Room(), 16U);
}

TEST(SpscRingTest, CreditIsPublishedInTheMiddleOfADrain) {
  SpscRing<Item> ring(8);
  ASSERT_EQ(Fill(ring), 8U);
  std::vector<size_t> room;
  ring.Drain(16, [&](const Item&) {
    room.push_back(ring.Room(8));
    return true;
  });
  EXPECT_THAT(room, ElementsAre(0, 0, 0, 0, 4, 4, 4, 4));
}

TEST(SpscRingTest, AnEdgeWithTheCapacityForItsWindowIsNeverFoundFull) {
  EXPECT_EQ(CapacityForWindow(1), 2U);
  EXPECT_EQ(CapacityForWindow(4), 8U);
  EXPECT_EQ(CapacityForWindow(5), 16U);
  EXPECT_EQ(CapacityForWindow(18), 64U);
  EXPECT_EQ(CapacityForWindow(48), 64U);
  for (size_t window = 1; window <= 70; ++window) {
    SpscRing<Item> ring(CapacityForWindow(window));
    for (uint64_t i = 0; i < window; ++i) ASSERT_TRUE(ring.TryPush({i}));
    // The worst that can happen: each is sent again while its own handler runs.
    size_t refused = 0;
    ring.Drain(1'000, [&](const Item& item) {
      refused += ring.TryPush(Item(item)) ? 0 : 1;
      return true;
    });
    EXPECT_EQ(refused, 0U) << "window " << window;
  }
}

TEST(SpscRingTest, PublishCreditTellsAllRoomThereIs) {
  SpscRing<Item> ring(8);
  ASSERT_EQ(Fill(ring), 8U);
  EXPECT_EQ(Take(ring, 1).size(), 1U);
  ASSERT_EQ(ring.Room(), 0U);
  ring.PublishCredit();
  EXPECT_EQ(ring.Room(), 1U);
  EXPECT_TRUE(ring.TryPush({8}));
  EXPECT_FALSE(ring.TryPush({9}));
}

TEST(SpscRingTest, PopPublishesCreditLikeADrain) {
  SpscRing<Item> ring(8);
  ASSERT_EQ(Fill(ring), 8U);
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_NE(ring.Front(), nullptr);
    EXPECT_EQ(ring.Front()->value, i);
    ring.Pop();
  }
  EXPECT_EQ(ring.Room(), 0U);
  ring.Pop();
  EXPECT_EQ(ring.Room(), 4U);
}

TEST(SpscRingTest, AnEmptiedRingAlwaysHasRoomForTheProducer) {
  // Whatever is drained in whatever portions, the credit held back never blocks a producer that
  // wants one cell.
  for (size_t capacity = 2; capacity <= 64; capacity *= 2) {
    SpscRing<Item> ring(capacity);
    uint64_t next = 0;
    for (size_t portion = 1; portion <= capacity; ++portion) {
      for (size_t i = 0; i < portion; ++i) {
        if (!ring.TryPush({next})) break;
        ++next;
      }
      while (!ring.Empty()) Take(ring, 1);
      ASSERT_GE(ring.Room(), 1U) << "capacity " << capacity << ", portion " << portion;
    }
  }
}

TEST(SpscRingTest, RoomLooksForAsMuchAsTheProducerWants) {
  SpscRing<Item> ring(8);
  ASSERT_EQ(Fill(ring), 8U);
  EXPECT_EQ(Take(ring, 4).size(), 4U);
  ASSERT_TRUE(ring.TryPush({8}));  // this producer now knows of 3 free cells
  EXPECT_EQ(Take(ring, 4).size(), 4U);
  EXPECT_EQ(ring.Room(), 3U) << "one is enough: no look at the consumer's line";
  EXPECT_EQ(ring.Room(4), 7U);
}

TEST(SpscRingTest, TheValueIsVisibleBeforeTheMessageAndTheCellIsFreeAfterIt) {
  // Each message names a plain word that the producer wrote before it: without release and acquire
  // a thread sanitizer reports the word, and without credit it reports the cell.
  SpscRing<Item> ring(4);
  constexpr uint64_t kMessages = 20'000;
  std::vector<uint64_t> words(kMessages);
  std::thread producer([&] {
    for (uint64_t i = 0; i < kMessages; ++i) {
      words[i] = i * 7;
      while (!ring.TryPush({i})) std::this_thread::yield();
    }
  });
  uint64_t next = 0;
  uint64_t wrong = 0;
  while (next < kMessages) {
    const size_t taken = ring.Drain(16, [&](const Item& item) {
      wrong += item.value != next || words[item.value] != next * 7 ? 1 : 0;
      ++next;
      return true;
    });
    if (taken == 0) std::this_thread::yield();
  }
  producer.join();
  EXPECT_EQ(wrong, 0U);
}

class StampTest : public testing::Test {
 protected:
  // Sends one message at each of `count` successive cycles and returns the send times that the
  // consumer is told.
  std::vector<uint64_t> StampsOf(SpscRing<Item>& ring, size_t count) {
    std::vector<uint64_t> stamps;
    for (size_t i = 0; i < count; ++i) {
      clock_.Advance(1);
      EXPECT_TRUE(ring.TryPush({clock_.now()}));
      ring.Drain(
          1, [](const Item&) { return true; },
          [&](uint64_t waited) { stamps.push_back(clock_.now() - waited - start_); });
    }
    return stamps;
  }

  ManualClock clock_;
  const uint64_t start_ = clock_.now();
};

TEST_F(StampTest, EveryNthMessageCarriesItsSendTime) {
  SpscRing<Item> ring(4, 4, clock_.clock());
  EXPECT_THAT(StampsOf(ring, 10), ElementsAre(1, 5, 9));
}

TEST_F(StampTest, ARingSmallerThanTheStampIntervalStampsAsSeldom) {
  SpscRing<Item> ring(2, 8, clock_.clock());
  EXPECT_THAT(StampsOf(ring, 18), ElementsAre(1, 9, 17));
}

TEST_F(StampTest, StampsOfMessagesThatWaitTogetherAreKeptApart) {
  SpscRing<Item> ring(8, 2, clock_.clock());
  for (int i = 0; i < 8; ++i) {
    clock_.Advance(1);
    ASSERT_TRUE(ring.TryPush({}));
  }
  std::vector<uint64_t> stamps;
  ring.Drain(
      16, [](const Item&) { return true; },
      [&](uint64_t waited) { stamps.push_back(clock_.now() - waited - start_); });
  EXPECT_THAT(stamps, ElementsAre(1, 3, 5, 7));
}

TEST_F(StampTest, ARefusedMessageReportsItsStampOnceWhenItIsTaken) {
  SpscRing<Item> ring(4, 1, clock_.clock());
  ASSERT_TRUE(ring.TryPush({}));
  std::vector<uint64_t> stamps;
  const auto on_stamp = [&](uint64_t waited) { stamps.push_back(clock_.now() - waited - start_); };
  ring.Drain(
      16, [](const Item&) { return false; }, on_stamp);
  EXPECT_THAT(stamps, IsEmpty());
  ring.Drain(
      16, [](const Item&) { return true; }, on_stamp);
  EXPECT_THAT(stamps, ElementsAre(0));
}

}  // namespace
}  // namespace railhop
