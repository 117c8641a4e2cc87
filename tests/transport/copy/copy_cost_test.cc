#include "transport/copy/copy_cost.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;

// Nanoseconds, of the order of those in docs/results/gpu-h200.md: towards another GPU.
CopyCosts Costs() {
  return {.ways = {CopyWayCost{true, 5500, 2400, 1500, 2300, 0.0027},
                   CopyWayCost{true, 7300, 1070, 3200, 600, 0.0027},
                   CopyWayCost{true, 10700, 11, 5300, 10, 0.0031}}};
}
CopyWay Alone(const CopyCosts& costs, size_t spans, uint64_t bytes) {
  return CheapestWay(costs, false, spans, bytes);
}

TEST(CopyCostTest, OneSpanIsOneCopy) {
  for (const uint64_t bytes : {64UL, 64 * kKiB, 512 * kKiB, 8192 * kKiB}) {
    EXPECT_EQ(Alone(Costs(), 1, bytes), CopyWay::kAsync) << bytes;
  }
}

TEST(CopyCostTest, OneSpanIsNoBatchHoweverCheapThatSeems) {
  CopyCosts costs = Costs();
  costs.ways[1].fixed = 0;
  EXPECT_EQ(Alone(costs, 1, 64), CopyWay::kAsync);
  EXPECT_EQ(Alone(costs, 2, 64), CopyWay::kBatch);
}

TEST(CopyCostTest, AFewSpansAreABatch) {
  for (const size_t spans : {2UL, 3UL, 4UL}) {
    EXPECT_EQ(Alone(Costs(), spans, spans * 64 * kKiB), CopyWay::kBatch) << spans;
  }
}

TEST(CopyCostTest, ManySpansAreGathered) {
  EXPECT_EQ(Alone(Costs(), 16, 16 * 2 * kKiB), CopyWay::kGather);
  EXPECT_EQ(Alone(Costs(), 1024, 1024 * 2 * kKiB), CopyWay::kGather);
}

TEST(CopyCostTest, WithoutKernelsManySpansAreABatch) {
  CopyCosts costs = Costs();
  costs.ways[2].available = false;
  EXPECT_EQ(Alone(costs, 8, 8 * 2 * kKiB), CopyWay::kBatch);
  costs.ways[1].available = false;
  EXPECT_EQ(Alone(costs, 8, 8 * 2 * kKiB), CopyWay::kAsync);
}

TEST(CopyCostTest, AKernelMustBeWorthwhile) {
  CopyCosts costs{
      .ways = {CopyWayCost{true, 10000}, CopyWayCost{false, 0}, CopyWayCost{true, 9100}}};
  EXPECT_EQ(Alone(costs, 2, 1), CopyWay::kAsync);
  costs.ways[2].fixed = 8900;
  EXPECT_EQ(Alone(costs, 2, 1), CopyWay::kGather);
  // Beside the cheaper of the others.
  costs.ways[1] = {true, 9800};
  EXPECT_EQ(Alone(costs, 2, 1), CopyWay::kBatch);
}

// Within one GPU, say: a copy shows sooner than a kernel, but keeps the stream for longer.
TEST(CopyCostTest, BehindOthersAnotherWayMayBeTheCheapest) {
  CopyCosts costs{.ways = {CopyWayCost{true, 4700, 5400, 1800, 5400, 0}, CopyWayCost{},
                           CopyWayCost{true, 9800, 9, 4700, 0, 0}}};
  EXPECT_EQ(CheapestWay(costs, false, 1, 1), CopyWay::kAsync);
  EXPECT_EQ(CheapestWay(costs, true, 1, 1), CopyWay::kGather);
}

TEST(CopyCostTest, ManyBytesCostTheSameBehindOthers) {
  const CopyWayCost cost{true, 100, 10, 50, 5, 2};
  EXPECT_EQ(cost.Of(CopyWay::kBatch, false, 3, 10), 130);
  EXPECT_EQ(cost.Of(CopyWay::kBatch, true, 3, 10), 70);
  EXPECT_EQ(cost.Of(CopyWay::kBatch, true, 3, 1000), 2050);
  EXPECT_EQ(cost.Of(CopyWay::kGather, true, 3, 1000), 2065);
}

}  // namespace
}  // namespace railhop
