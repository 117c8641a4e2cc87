#include "transport/fabric/rdma/eviction_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <vector>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class EvictionOrderTest : public testing::Test {
 protected:
  static constexpr uint32_t kPlaces = 8;

  void Add(std::initializer_list<uint32_t> places, EvictionOrder* order) {
    for (const uint32_t place : places) order->Add(place);
  }
  uint32_t Evict(EvictionOrder* order) {
    return order->Evict([this](uint32_t place) { return visited_.erase(place) != 0; });
  }

  EvictionOrder sieve_{kPlaces, EvictionPolicy::kSieve};
  std::set<uint32_t> visited_;
};

TEST_F(EvictionOrderTest, OfTheUnvisitedTheOldestGoes) {
  Add({3, 1, 2}, &sieve_);
  EXPECT_EQ(Evict(&sieve_), 3u);
  EXPECT_EQ(Evict(&sieve_), 1u);
  EXPECT_EQ(Evict(&sieve_), 2u);
  EXPECT_EQ(Evict(&sieve_), EvictionOrder::kNone);
}

TEST_F(EvictionOrderTest, TheVisitedStaysAndIsUnvisitedThen) {
  Add({0, 1, 2}, &sieve_);
  visited_ = {0};
  EXPECT_EQ(Evict(&sieve_), 1u);
  EXPECT_THAT(visited_, IsEmpty());
  EXPECT_EQ(sieve_.size(), 2u);
  EXPECT_TRUE(sieve_.Holds(0));
  EXPECT_FALSE(sieve_.Holds(1));
}

// The example of the paper: the hand goes on where it was, not from the oldest.
TEST_F(EvictionOrderTest, TheHandGoesOn) {
  Add({0, 1, 2, 3}, &sieve_);
  visited_ = {0};
  EXPECT_EQ(Evict(&sieve_), 1u);
  sieve_.Add(4);
  EXPECT_EQ(Evict(&sieve_), 2u);  // and not 0, which is unvisited by now
  EXPECT_EQ(Evict(&sieve_), 3u);
  EXPECT_EQ(Evict(&sieve_), 4u);
  EXPECT_EQ(Evict(&sieve_), 0u);  // round again
}

TEST_F(EvictionOrderTest, IfAllAreVisitedTheHandGoesRoundOnce) {
  Add({0, 1, 2}, &sieve_);
  visited_ = {0, 1, 2};
  EXPECT_EQ(Evict(&sieve_), 0u);
  EXPECT_THAT(visited_, IsEmpty());
}

TEST_F(EvictionOrderTest, ItEndsThoughAllAreVisitedForEver) {
  Add({0, 1, 2}, &sieve_);
  int asked = 0;
  EXPECT_NE(sieve_.Evict([&](uint32_t) {
    ++asked;
    return true;
  }),
            EvictionOrder::kNone);
  EXPECT_LE(asked, 4);
}

TEST_F(EvictionOrderTest, WhatIsRemovedIsNotEvicted) {
  Add({0, 1, 2, 3}, &sieve_);
  sieve_.Remove(0);
  sieve_.Remove(2);
  EXPECT_EQ(Evict(&sieve_), 1u);
  EXPECT_EQ(Evict(&sieve_), 3u);
  EXPECT_EQ(sieve_.size(), 0u);
}

TEST_F(EvictionOrderTest, RemovingTheOneAtTheHandMovesTheHand) {
  Add({0, 1, 2, 3}, &sieve_);
  visited_ = {0};
  EXPECT_EQ(Evict(&sieve_), 1u);  // the hand is at 2
  sieve_.Remove(2);
  EXPECT_EQ(Evict(&sieve_), 3u);
  sieve_.Add(2);
  EXPECT_EQ(Evict(&sieve_), 0u);  // it had come to the newest: round again
  EXPECT_EQ(Evict(&sieve_), 2u);
}

// What is used in between stays while one after the other comes and is never used again.
TEST_F(EvictionOrderTest, OnesThatComeOnceDoNotDriveOutTheUsed) {
  Add({0, 1}, &sieve_);
  std::vector<uint32_t> gone;
  for (const uint32_t once : {2, 3, 4, 5, 6}) {
    sieve_.Add(once);
    visited_ = {0, 1};
    gone.push_back(Evict(&sieve_));
  }
  EXPECT_THAT(gone, ElementsAre(2, 3, 4, 5, 6));
}

TEST_F(EvictionOrderTest, FifoAsksNobody) {
  EvictionOrder fifo(kPlaces, EvictionPolicy::kFifo);
  Add({2, 0, 1}, &fifo);
  visited_ = {0, 1, 2};
  EXPECT_EQ(Evict(&fifo), 2u);
  fifo.Add(2);
  EXPECT_EQ(Evict(&fifo), 0u);
  EXPECT_EQ(Evict(&fifo), 1u);
  EXPECT_EQ(Evict(&fifo), 2u);
  EXPECT_THAT(visited_, ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace railhop
