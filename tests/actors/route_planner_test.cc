#include "actors/route_planner.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

namespace railhop {
namespace {

using Lanes = std::vector<uint32_t>;

class RoutePlannerTest : public testing::Test {
 protected:
  RoutePlannerTest() {
    target_.index = 5;
    target_.version = 1;
    target_.name = "decode";
    AddBuffer({"rail1"});
    AddBuffer({"rail1", "rail2"});
    AddBuffer({"rail0"});
    AddBuffer({"rail0", "rail1"});
    AddBuffer({});
    planner_.SetTarget(target_);
    planner_.OpenLane(2, {"rail1"});
    planner_.OpenLane(4, {"rail2", "rail7"});
  }
  void AddBuffer(std::vector<std::string> rails) {
    const uint64_t address = target_.buffers.size() * 1000;
    target_.buffers.push_back(
        {.address = address, .length = 1000, .rkeys = {}, .paths = {}, .rails = std::move(rails)});
  }
  RoutePlanner::Route Plan(size_t buffer, uint64_t bytes = 1 << 20, Opcode opcode = Opcode::kWrite,
                           bool staging = true) {
    return planner_.Plan(target_, target_.buffers[buffer], opcode, staging, bytes);
  }
  DirectReason Reason(size_t buffer) { return Plan(buffer).reason; }
  Lanes LanesOf(size_t buffer) {
    const RoutePlanner::Route route = Plan(buffer);
    return {route.lanes.begin(), route.lanes.begin() + route.lane_count};
  }

  TargetRoute target_;
  RoutePlanner planner_{{.pxn = true, .own_rails = {"rail0", "rail9"}, .min_relay_bytes = 4096}};
};

TEST_F(RoutePlannerTest, RelaysOverTheLanesThatLeadToAPreferredRail) {
  EXPECT_EQ(Reason(0), DirectReason::kNone);
  EXPECT_EQ(LanesOf(0), (Lanes{2}));
  EXPECT_EQ(LanesOf(1), (Lanes{2, 4}));
}

TEST_F(RoutePlannerTest, GoesDirectWhenOneOfItsOwnRailsIsPreferred) {
  EXPECT_EQ(Reason(2), DirectReason::kOwnRail);
  EXPECT_EQ(Reason(3), DirectReason::kOwnRail);
}

TEST_F(RoutePlannerTest, GoesDirectWhenNoRailIsPreferred) {
  EXPECT_EQ(Reason(4), DirectReason::kNoPeer);
  EXPECT_EQ(LanesOf(4), Lanes{});
}

TEST_F(RoutePlannerTest, TheFactsOfTheRequestCountBeforeTheBuffer) {
  EXPECT_EQ(Plan(0, 1 << 20, Opcode::kRead).reason, DirectReason::kNotWrite);
  EXPECT_EQ(Plan(0, 1 << 20, Opcode::kWrite, false).reason, DirectReason::kNotStaging);
  EXPECT_EQ(Plan(0, 4095).reason, DirectReason::kSmallBatch);
  EXPECT_EQ(Plan(0, 4096).reason, DirectReason::kNone);
  EXPECT_EQ(Plan(0, 1 << 20, Opcode::kRead, false).reason, DirectReason::kNotWrite);
}

TEST_F(RoutePlannerTest, NothingIsRelayedWithPxnOff) {
  RoutePlanner off({.pxn = false, .own_rails = {}, .min_relay_bytes = 0});
  off.SetTarget(target_);
  off.OpenLane(2, {"rail1"});
  EXPECT_EQ(off.Plan(target_, target_.buffers[0], Opcode::kWrite, true, 1 << 20).reason,
            DirectReason::kPxnOff);
}

TEST_F(RoutePlannerTest, AnAnswerIsDroppedWhenALaneComesOrGoes) {
  EXPECT_EQ(LanesOf(1), (Lanes{2, 4}));
  planner_.CloseLane(2);
  EXPECT_EQ(Reason(0), DirectReason::kNoPeer);
  EXPECT_EQ(LanesOf(1), (Lanes{4}));
  planner_.OpenLane(6, {"rail1"});
  EXPECT_EQ(LanesOf(0), (Lanes{6}));
  EXPECT_EQ(LanesOf(1), (Lanes{4, 6}));
  planner_.ReopenLane(2);
  EXPECT_EQ(LanesOf(1), (Lanes{2, 4, 6}));
  planner_.OpenLane(4, {"rail3"});
  EXPECT_EQ(LanesOf(1), (Lanes{2, 6}));
}

TEST_F(RoutePlannerTest, AnAnswerIsDroppedWhenTheTargetIsConnectedAnew) {
  EXPECT_EQ(Reason(0), DirectReason::kNone);
  target_.version = 2;
  target_.buffers[0].rails = {"rail0"};
  AddBuffer({"rail7"});
  planner_.SetTarget(target_);
  EXPECT_EQ(Reason(0), DirectReason::kOwnRail);
  EXPECT_EQ(LanesOf(5), (Lanes{4}));
}

TEST_F(RoutePlannerTest, ANameThatDoesNotFitADescriptorGoesDirect) {
  const std::vector<std::pair<std::string, DirectReason>> names = {
      {"", DirectReason::kSessionName},
      {std::string(257, 'x'), DirectReason::kSessionName},
      {std::string("a\0b", 3), DirectReason::kSessionName},
      {std::string("a\0", 2), DirectReason::kSessionName},
      {std::string(256, 'x'), DirectReason::kNone},
  };
  for (const auto& [name, reason] : names) {
    target_.name = name;
    planner_.SetTarget(target_);
    EXPECT_EQ(Reason(0), reason) << name.size();
  }
}

TEST_F(RoutePlannerTest, TargetsDoNotSeeEachOthersAnswers) {
  TargetRoute other = target_;
  other.index = kMaxTargets - 1;
  other.buffers[0].rails = {"rail0"};
  planner_.SetTarget(other);
  EXPECT_EQ(Reason(0), DirectReason::kNone);
  EXPECT_EQ(planner_.Plan(other, other.buffers[0], Opcode::kWrite, true, 1 << 20).reason,
            DirectReason::kOwnRail);
  EXPECT_EQ(Reason(0), DirectReason::kNone);
}

TEST(DirectReasonTest, EveryReasonHasANameOfItsOwn) {
  std::set<std::string> names;
  for (uint8_t i = 0; i < static_cast<uint8_t>(DirectReason::kCount); ++i) {
    names.insert(DirectReasonName(static_cast<DirectReason>(i)));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(DirectReason::kCount));
  EXPECT_FALSE(names.contains("unknown"));
}

}  // namespace
}  // namespace railhop
