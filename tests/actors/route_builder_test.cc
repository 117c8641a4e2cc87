#include "actors/route_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <set>

namespace railhop {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

using Names = std::vector<std::string>;

TargetInfo Target(const Names& nics, std::vector<RemoteBuffer> buffers) {
  TargetInfo info{.name = "decode-7", .kind = "rdma", .buffers = std::move(buffers), .nics = {}};
  for (const std::string& nic : nics) info.nics.push_back({nic, "10.0.0.7:15001@" + nic});
  return info;
}

TargetPlan Planned(const TargetInfo& info, const RouteOptions& options) {
  absl::StatusOr<TargetPlan> plan = PlanTarget(info, options);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return *std::move(plan);
}

// Paths of the only buffer, of a target with these NICs.
std::vector<PathId> PathsTo(const Names& nics, const Names& preferred,
                            const RouteOptions& options) {
  return Planned(Target(nics, {{0x1000, 16, {}, preferred}}), options).buffers[0].paths;
}

TEST(RouteBuilderTest, SortsBuffersAndLeavesOutEmptyOnes) {
  const TargetPlan plan =
      Planned(Target({"n", "m"},
                     {{0x3000, 16, {3, 4}, {"n"}}, {0x1000, 0, {1}, {}}, {0x2000, 16, {2}, {}}}),
              {.own_rails = {"n"}});
  ASSERT_THAT(plan.buffers, SizeIs(2));
  EXPECT_EQ(plan.buffers[0].address, 0x2000u);
  EXPECT_EQ(plan.buffers[0].rkeys[0], 2u);
  EXPECT_EQ(plan.buffers[1].address, 0x3000u);
  EXPECT_EQ(plan.buffers[1].length, 16u);
  EXPECT_EQ(plan.buffers[1].rkeys[1], 4u);
}

TEST(RouteBuilderTest, RailsComeThroughTheMapSortedAndOnce) {
  const RailMap map = {{"mlx0", "rail_b"}, {"mlx1", "rail_a"}, {"mlx2", "rail_b"}};
  const TargetPlan plan =
      Planned(Target({"mlx0"}, {{0x1000, 16, {1}, {"mlx2", "mlx0", "other", "mlx1"}}}),
              {.own_rails = {"x"}, .rail_map = map});
  EXPECT_THAT(plan.buffers[0].rails, ElementsAre("other", "rail_a", "rail_b"));
}

TEST(RouteBuilderTest, BuffersMayTouchButNotOverlap) {
  TargetInfo info = Target({"n"}, {{0x1000, 0x1000, {1}, {}}, {0x2000, 0x1000, {2}, {}}});
  EXPECT_TRUE(PlanTarget(info, {}).ok());
  info.buffers.push_back({0x2fff, 4, {3}, {}});
  const auto plan = PlanTarget(info, {});
  ASSERT_EQ(plan.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("decode-7"));
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("0x2fff"));
}

TEST(RouteBuilderTest, ABufferMayEndAtTheTopOfTheAddressSpaceButNotWrap) {
  constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();
  TargetInfo info = Target({"n"}, {{kTop - 15, 16, {1}, {}}});
  EXPECT_TRUE(PlanTarget(info, {}).ok());
  info.buffers[0].length = 17;
  EXPECT_FALSE(PlanTarget(info, {}).ok());
}

TEST(RouteBuilderTest, ATargetWithoutANicIsRefused) {
  const auto plan = PlanTarget(Target({}, {{0x1000, 16, {}, {}}}), {.own_rails = {"n"}});
  EXPECT_THAT(std::string(plan.status().message()), HasSubstr("decode-7"));
}

// --- Paths. An own NIC is named by its rail here, one of the target by its position.

TEST(RouteBuilderTest, OwnNicsOnPreferredRailsSendInTheOrderOfTheirNames) {
  const RouteOptions options{.own_rails = {"c", "x", "a", "b"}};
  EXPECT_THAT(PathsTo({"a", "b", "c"}, {"a", "b", "c"}, options),
              ElementsAre(MakePath(2, 0), MakePath(3, 1), MakePath(0, 2)));
  EXPECT_THAT(PathsTo({"a", "b", "c"}, {"b"}, options), ElementsAre(MakePath(3, 1)));
}

TEST(RouteBuilderTest, AFabricThatKnowsOneNicOfTheTargetHasAPathFromEachOwnOne) {
  const RouteOptions options{.own_rails = {"c", "a", "b"}};
  EXPECT_THAT(PathsTo({"target"}, {"b"}, options), ElementsAre(MakePath(2)));
  EXPECT_THAT(PathsTo({"target"}, {"z"}, options),
              ElementsAre(MakePath(0), MakePath(1), MakePath(2)));
}

TEST(RouteBuilderTest, RailsAreNamesThroughTheMapNeverPositions) {
  const RailMap map = {{"mlx5_0", "r0"}, {"mlx5_1", "r1"}, {"roce_b", "r0"}, {"roce_a", "r1"}};
  const RouteOptions options{.own_rails = {"r0", "r1"}, .rail_map = map};
  EXPECT_THAT(PathsTo({"roce_a", "roce_b"}, {"roce_a", "roce_b"}, options),
              ElementsAre(MakePath(0, 1), MakePath(1, 0)));
}

TEST(RouteBuilderTest, OffItsRailANicTakesThePreferredOnesInTurn) {
  EXPECT_THAT(PathsTo({"a", "b", "c", "d"}, {"d", "b"}, {.own_rails = {"x"}}),
              ElementsAre(MakePath(0, 3), MakePath(0, 1)));
  // Several own NICs share them.
  EXPECT_THAT(PathsTo({"a", "b", "c", "d"}, {"d", "b"}, {.own_rails = {"x", "y"}}),
              ElementsAre(MakePath(0, 3), MakePath(1, 1)));
  EXPECT_THAT(PathsTo({"a", "b", "c", "d"}, {"a", "b", "d"}, {.own_rails = {"x", "y"}}),
              ElementsAre(MakePath(0, 0), MakePath(1, 1), MakePath(0, 3), MakePath(1, 1)));
}

TEST(RouteBuilderTest, DestinationAffinityPutsTheOwnRailBeforePreference) {
  RouteOptions options{.own_rails = {"a"}};
  EXPECT_THAT(PathsTo({"a", "b"}, {"b"}, options), ElementsAre(MakePath(0, 1)));
  options.destination_affinity = true;
  EXPECT_THAT(PathsTo({"a", "b"}, {"b"}, options), ElementsAre(MakePath(0, 0)));
  EXPECT_THAT(PathsTo({"c", "b"}, {"b"}, options), ElementsAre(MakePath(0, 1)));
}

TEST(RouteBuilderTest, TheOtherNicsComeAfterThemInOrder) {
  const TargetPlan plan = Planned(Target({"a", "b", "c", "d"}, {{0x1000, 16, {}, {"d", "b"}}}),
                                  {.own_rails = {"b", "x"}});
  ASSERT_THAT(plan.paths, SizeIs(1));
  EXPECT_THAT(plan.paths[0].first, ElementsAre(MakePath(0, 1)));
  EXPECT_THAT(plan.paths[0].of_own_nic[0],
              ElementsAre(MakePath(0, 1), MakePath(0, 3), MakePath(0, 0), MakePath(0, 2)));
  EXPECT_THAT(plan.paths[0].of_own_nic[1],
              ElementsAre(MakePath(1, 1), MakePath(1, 3), MakePath(1, 0), MakePath(1, 2)));
}

TEST(RouteBuilderTest, PreferredNicsThatTheTargetLacksCountForNothing) {
  EXPECT_THAT(PathsTo({"a", "b"}, {"gone", "b"}, {.own_rails = {"x"}}),
              ElementsAre(MakePath(0, 1)));
  EXPECT_THAT(PathsTo({"a", "b"}, {"gone"}, {.own_rails = {"x"}}),
              ElementsAre(MakePath(0, 0), MakePath(0, 1)));
}

TEST(RouteBuilderTest, BuffersThatPreferTheSameShareAPlanAndNoneMakesOne) {
  const RouteOptions options{.own_rails = {"a", "b"}};
  const TargetInfo three = Target(
      {"a", "b"}, {{0x1000, 16, {}, {"a"}}, {0x2000, 16, {}, {"b"}}, {0x3000, 16, {}, {"a"}}});
  EXPECT_THAT(Planned(three, options).paths, SizeIs(2));
  const TargetPlan empty = Planned(Target({"a", "b"}, {}), options);
  ASSERT_THAT(empty.paths, SizeIs(1));
  EXPECT_THAT(empty.paths[0].first, SizeIs(0));
  EXPECT_EQ(empty.paths[0].of_own_nic[1].front(), MakePath(1, 1));
}

TEST(RouteBuilderTest, NicsBeyondTheLimitAreNotUsed) {
  Names many;
  for (int i = 0; i < 40; ++i) many.push_back("n" + std::to_string(i));
  const TargetPlan plan = Planned(
      Target(many, {{0x1000, 16, std::vector<uint32_t>(40, 7), {"n30"}}}), {.own_rails = {"n30"}});
  EXPECT_THAT(plan.paths[0].of_own_nic[0], SizeIs(kMaxRemoteNics));
  EXPECT_THAT(plan.buffers[0].paths, SizeIs(kMaxRemoteNics));
  EXPECT_THAT(plan.buffers[0].rkeys, Each(7u));
}

// --- Hosts as they are built (field fault T5)

Names HostNics(int count) {
  Names nics;
  for (int i = 0; i < count; ++i) nics.push_back("mlx5_" + std::to_string(i));
  return nics;
}

// Two NICs for each GPU: whichever rank has one of the buffer's two rails sends by it, straight to
// the target's NIC on that rail; a rank that has both alternates.
TEST(RouteBuilderTest, EightGpusSixteenNics) {
  const Names nics = HostNics(16);
  for (int gpu = 0; gpu < 8; ++gpu) {
    const Names preferred = {nics[2 * gpu], nics[2 * gpu + 1]};
    for (int rank = 0; rank < 8; ++rank) {
      const RouteOptions options{.own_rails = {nics[2 * rank], nics[2 * rank + 1]}};
      const std::vector<PathId> paths = PathsTo(nics, preferred, options);
      if (rank == gpu) {
        std::set<PathId> expected = {MakePath(0, 2 * gpu), MakePath(1, 2 * gpu + 1)};
        EXPECT_EQ(std::set<PathId>(paths.begin(), paths.end()), expected) << gpu;
        EXPECT_THAT(paths, SizeIs(2));
      } else {  // only what is not relayed goes this way
        EXPECT_THAT(paths, ElementsAre(MakePath(0, 2 * gpu), MakePath(1, 2 * gpu + 1)));
      }
    }
  }
}

TEST(RouteBuilderTest, TwoGpusOnEachNic) {
  const Names nics = HostNics(4);
  for (int gpu = 0; gpu < 8; ++gpu) {
    EXPECT_THAT(PathsTo(nics, {nics[gpu / 2]}, {.own_rails = {nics[gpu / 2]}}),
                ElementsAre(MakePath(0, gpu / 2)));
  }
}

// The target has half as many NICs, and a management NIC that nothing prefers.
TEST(RouteBuilderTest, UnequalHosts) {
  const Names target = {"eth_mgmt", "mlx5_0", "mlx5_2"};
  EXPECT_THAT(PathsTo(target, {"mlx5_2"}, {.own_rails = HostNics(4)}), ElementsAre(MakePath(2, 2)));
  EXPECT_THAT(PathsTo(target, {"mlx5_0"}, {.own_rails = {"mlx5_3"}}), ElementsAre(MakePath(0, 1)));
}

}  // namespace
}  // namespace railhop
