#include "actors/route_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(RouteBuilderTest, SortsBuffersAndLeavesOutEmptyOnes) {
  const TargetInfo info{
      .name = "t",
      .kind = "sim",
      .buffers = {{0x3000, 16, 3, {"n"}}, {0x1000, 0, 1, {}}, {0x2000, 16, 2, {}}},
      .connection = ""};
  const auto buffers = BuildTargetBuffers(info, {}, {});
  ASSERT_TRUE(buffers.ok()) << buffers.status();
  ASSERT_EQ(buffers->size(), 2u);
  EXPECT_EQ((*buffers)[0].address, 0x2000u);
  EXPECT_EQ((*buffers)[0].rkey, 2u);
  EXPECT_EQ((*buffers)[1].address, 0x3000u);
  EXPECT_EQ((*buffers)[1].length, 16u);
}

TEST(RouteBuilderTest, RailsComeThroughTheMapSortedAndOnce) {
  const RailMap map = {{"mlx0", "rail_b"}, {"mlx1", "rail_a"}, {"mlx2", "rail_b"}};
  const TargetInfo info{.name = "t",
                        .kind = "sim",
                        .buffers = {{0x1000, 16, 1, {"mlx2", "mlx0", "other", "mlx1"}}},
                        .connection = ""};
  const auto buffers = BuildTargetBuffers(info, map, {});
  ASSERT_TRUE(buffers.ok());
  EXPECT_THAT((*buffers)[0].rails, ElementsAre("other", "rail_a", "rail_b"));
  EXPECT_THAT((*buffers)[0].own_nics, IsEmpty());
}

TEST(RouteBuilderTest, OwnNicsAreInTheOrderOfTheirRailNames) {
  const TargetInfo info{.name = "t",
                        .kind = "sim",
                        .buffers = {{0x1000, 16, 1, {"a", "b", "c"}}, {0x2000, 16, 1, {"b"}}},
                        .connection = ""};
  const std::vector<std::string> own = {"c", "x", "a", "b"};
  const auto buffers = BuildTargetBuffers(info, {}, own);
  ASSERT_TRUE(buffers.ok());
  EXPECT_THAT((*buffers)[0].own_nics, ElementsAre(2, 3, 0));
  EXPECT_THAT((*buffers)[1].own_nics, ElementsAre(3));
}

TEST(RouteBuilderTest, BuffersMayTouchButNotOverlap) {
  TargetInfo info{.name = "decode-7",
                  .kind = "sim",
                  .buffers = {{0x1000, 0x1000, 1, {}}, {0x2000, 0x1000, 2, {}}},
                  .connection = ""};
  EXPECT_TRUE(BuildTargetBuffers(info, {}, {}).ok());
  info.buffers.push_back({0x2fff, 4, 3, {}});
  const auto buffers = BuildTargetBuffers(info, {}, {});
  ASSERT_EQ(buffers.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(buffers.status().message()), HasSubstr("decode-7"));
  EXPECT_THAT(std::string(buffers.status().message()), HasSubstr("0x2fff"));
}

TEST(RouteBuilderTest, ABufferMayEndAtTheTopOfTheAddressSpaceButNotWrap) {
  constexpr uint64_t kTop = std::numeric_limits<uint64_t>::max();
  TargetInfo info{
      .name = "t", .kind = "sim", .buffers = {{kTop - 15, 16, 1, {}}}, .connection = ""};
  EXPECT_TRUE(BuildTargetBuffers(info, {}, {}).ok());
  info.buffers[0].length = 17;
  EXPECT_FALSE(BuildTargetBuffers(info, {}, {}).ok());
}

}  // namespace
}  // namespace railhop
