#include "actors/outlet.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop {
namespace {

class OutletTest : public testing::Test {
 protected:
  bool Push(uint32_t target, uint64_t length = 1) {
    return outlet_.Push(pool_, target, {.length = length});
  }
  // Takes one span off each flow that is visited, and tells which were.
  std::vector<uint32_t> Round(uint32_t stuck = UINT32_MAX) {
    std::vector<uint32_t> visited;
    outlet_.EachFlow([&](uint32_t target, Flow& flow) {
      visited.push_back(target);
      if (target != stuck) pool_.PopFront(flow.queue);
    });
    return visited;
  }

  SpanPool pool_{64};
  Outlet outlet_;
};

using Targets = std::vector<uint32_t>;

TEST_F(OutletTest, FlowsTakeTurnsAndLeaveWhenTheyAreEmpty) {
  EXPECT_TRUE(outlet_.empty());
  EXPECT_EQ(Round(), Targets{});
  for (const uint32_t target : {7u, 3u, 7u, 1000u, 7u, 3u}) ASSERT_TRUE(Push(target));
  EXPECT_EQ(Round(), (Targets{7, 3, 1000}));
  EXPECT_EQ(Round(), (Targets{7, 3}));
  ASSERT_TRUE(Push(5));
  EXPECT_EQ(Round(), (Targets{7, 5}));
  EXPECT_TRUE(outlet_.empty());
  EXPECT_EQ(Round(), Targets{});
  EXPECT_EQ(pool_.available(), 64u);
}

TEST_F(OutletTest, AFlowThatDoesNotMoveHoldsUpNobody) {
  ASSERT_TRUE(Push(1));
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Push(2));
  EXPECT_EQ(Round(1), (Targets{1, 2}));
  EXPECT_EQ(Round(1), (Targets{1, 2}));
  EXPECT_EQ(Round(1), (Targets{1, 2}));
  EXPECT_EQ(Round(1), (Targets{1}));
  EXPECT_EQ(Round(), (Targets{1}));
  EXPECT_TRUE(outlet_.empty());
}

TEST_F(OutletTest, TheLastTargetOfTheTableHasAFlow) {
  ASSERT_TRUE(Push(kMaxTargets - 1, 9));
  EXPECT_EQ(outlet_.flow(kMaxTargets - 1).queue.bytes, 9u);
  EXPECT_EQ(Round(), (Targets{kMaxTargets - 1}));
}

TEST_F(OutletTest, AVisitMayAddToTheFlowItSees) {
  ASSERT_TRUE(Push(1));
  ASSERT_TRUE(Push(2));
  int visits = 0;
  outlet_.EachFlow([&](uint32_t target, Flow& flow) {
    ++visits;
    pool_.PopFront(flow.queue);
    if (target == 1) {
      EXPECT_TRUE(Push(1));
    }
  });
  EXPECT_EQ(visits, 2);
  EXPECT_EQ(Round(), (Targets{1}));
  EXPECT_TRUE(outlet_.empty());
}

TEST_F(OutletTest, AFullPoolIsSaidAndListsNothing) {
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(Push(1));
  EXPECT_FALSE(Push(2));
  EXPECT_FALSE(outlet_.flow(2).listed);
  EXPECT_EQ(Round(), (Targets{1}));
  EXPECT_TRUE(Push(2));
  EXPECT_EQ(Round(), (Targets{1, 2}));
}

}  // namespace
}  // namespace railhop
