#include "actors/target_route.h"

#include <gtest/gtest.h>

#include <set>

namespace railhop {
namespace {

TargetRoute Route() {
  TargetRoute route;
  route.buffers.resize(3);
  route.buffers[0] = {.address = 1000, .length = 100, .rkeys = {1}, .paths = {}, .rails = {}};
  route.buffers[1] = {.address = 1100, .length = 50, .rkeys = {2}, .paths = {}, .rails = {}};
  route.buffers[2] = {.address = 5000, .length = 1, .rkeys = {3}, .paths = {}, .rails = {}};
  return route;
}

TEST(TargetRouteTest, FindsTheBufferAnAddressLiesIn) {
  const TargetRoute route = Route();
  EXPECT_EQ(route.Find(1000), &route.buffers[0]);
  EXPECT_EQ(route.Find(1099), &route.buffers[0]);
  EXPECT_EQ(route.Find(1100), &route.buffers[1]);
  EXPECT_EQ(route.Find(1149), &route.buffers[1]);
  EXPECT_EQ(route.Find(5000), &route.buffers[2]);
  for (const uint64_t address :
       {uint64_t{0}, uint64_t{999}, uint64_t{1150}, uint64_t{4999}, uint64_t{5001}, UINT64_MAX}) {
    EXPECT_EQ(route.Find(address), nullptr) << address;
  }
}

TEST(TargetRouteTest, ATargetWithoutBuffersHasNoneAnywhere) {
  EXPECT_EQ(TargetRoute().Find(0), nullptr);
  EXPECT_EQ(TargetRoute().Find(UINT64_MAX), nullptr);
}

TEST(TargetRouteTest, ABufferMayEndAtTheEndOfTheAddressSpace) {
  TargetRoute route;
  route.buffers.push_back(
      {.address = UINT64_MAX - 9, .length = 10, .rkeys = {1}, .paths = {}, .rails = {}});
  EXPECT_EQ(route.Find(UINT64_MAX), &route.buffers[0]);
  EXPECT_EQ(route.Find(UINT64_MAX - 10), nullptr);
}

// Sender and relay must agree on this table: own NICs that qualify, sorted by rail name, number
// `sequence mod count`. (What the paths of a buffer are: route_builder_test.cc.)
TEST(TargetRouteTest, ThePathIsTurnModCountOfThoseOfTheBuffer) {
  TargetRoute route;
  route.endpoints.assign(PathCount(4), 5);
  TargetBuffer two;
  two.paths = {MakePath(3), MakePath(1, 2)};
  const auto any = [](PathId, EndpointId) { return true; };
  EXPECT_EQ(route.ChoosePath(&two, 0, any), MakePath(3));
  EXPECT_EQ(route.ChoosePath(&two, 1, any), MakePath(1, 2));
  EXPECT_EQ(route.ChoosePath(&two, 2, any), MakePath(3));
  EXPECT_EQ(route.ChoosePath(&two, UINT64_MAX, any), MakePath(1, 2));
}

TEST(TargetRouteTest, APathThatIsNotConnectedOrNotUsableIsLeftOut) {
  TargetRoute route;
  route.endpoints.resize(PathCount(2));
  route.endpoints[MakePath(0, 3)] = 7;
  route.endpoints[MakePath(1, 0)] = 8;
  TargetBuffer buffer;
  buffer.paths = {MakePath(0, 0), MakePath(0, 3)};
  const auto any = [](PathId, EndpointId) { return true; };
  EXPECT_EQ(route.ChoosePath(&buffer, 0, any), MakePath(0, 3)) << "of the buffer's";
  const auto not_seven = [](PathId, EndpointId endpoint) { return endpoint != 7; };
  EXPECT_EQ(route.ChoosePath(&buffer, 0, not_seven), MakePath(1, 0)) << "any other";
  EXPECT_EQ(route.ChoosePath(nullptr, 4, any), MakePath(0, 3));
  const auto none = [](PathId, EndpointId) { return false; };
  EXPECT_EQ(route.ChoosePath(&buffer, 0, none), kNoPath);
  EXPECT_EQ(TargetRoute().ChoosePath(nullptr, 0, any), kNoPath);
}

TEST(TargetRouteTest, PathsAreNumberedByOwnNicAndThenByTheTargets) {
  for (uint32_t own = 0; own < 16; ++own) {
    for (uint32_t remote = 0; remote < kMaxRemoteNics; ++remote) {
      const PathId path = MakePath(own, remote);
      EXPECT_EQ(OwnNic(path), own);
      EXPECT_EQ(RemoteNicOf(path), remote);
      EXPECT_LT(path, PathCount(16));
    }
  }
}

}  // namespace
}  // namespace railhop
