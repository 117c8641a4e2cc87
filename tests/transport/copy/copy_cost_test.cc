#include "transport/copy/copy_cost.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;

// Nanoseconds, of the order of those in docs/results/gpu-h200.md.
CopyCosts Costs() {
  return {CopyWayCost{true, 6200, 1700, 0.0027}, CopyWayCost{true, 7100, 1060, 0.0027},
          CopyWayCost{true, 10500, 5, 0.0031, false}};
}
// The same as a measurement within one GPU sees them: what a copy costs first is not there.
CopyCosts WithinOneGpu() {
  CopyCosts costs = Costs();
  costs[1].fixed -= 900;
  costs[2].fixed -= 1900;
  return costs;
}

TEST(CopyCostTest, OneSpanIsOneCopy) {
  for (const CopyCosts& costs : {Costs(), WithinOneGpu()}) {
    for (const uint64_t bytes : {64UL, 64 * kKiB, 512 * kKiB, 8192 * kKiB}) {
      EXPECT_EQ(CheapestWay(costs, 1, bytes), CopyWay::kAsync) << bytes;
    }
  }
}

TEST(CopyCostTest, TwoSpansAreTwoCopies) {
  for (const CopyCosts& costs : {Costs(), WithinOneGpu()}) {
    for (const uint64_t bytes : {64UL, 64 * kKiB, 512 * kKiB}) {
      EXPECT_EQ(CheapestWay(costs, 2, bytes), CopyWay::kAsync) << bytes;
    }
  }
}

TEST(CopyCostTest, ManySpansAreGathered) {
  for (const CopyCosts& costs : {Costs(), WithinOneGpu()}) {
    EXPECT_EQ(CheapestWay(costs, 8, 8 * 2 * kKiB), CopyWay::kGather);
    EXPECT_EQ(CheapestWay(costs, 1024, 1024 * 2 * kKiB), CopyWay::kGather);
  }
}

TEST(CopyCostTest, WithoutKernelsManySpansAreABatch) {
  CopyCosts costs = Costs();
  costs[2].available = false;
  EXPECT_EQ(CheapestWay(costs, 8, 8 * 2 * kKiB), CopyWay::kBatch);
  costs[1].available = false;
  EXPECT_EQ(CheapestWay(costs, 8, 8 * 2 * kKiB), CopyWay::kAsync);
}

// Below the margin a way is not taken, above it is: and between the others no margin counts.
TEST(CopyCostTest, AnotherWayMustBeWorthwhile) {
  CopyCosts costs{CopyWayCost{true, 10000}, CopyWayCost{true, 8600}, CopyWayCost{false, 0}};
  EXPECT_EQ(CheapestWay(costs, 1, 1), CopyWay::kAsync);
  costs[1].fixed = 8400;
  EXPECT_EQ(CheapestWay(costs, 1, 1), CopyWay::kBatch);
  costs[2] = {true, 8300};
  EXPECT_EQ(CheapestWay(costs, 1, 1), CopyWay::kGather);
}

}  // namespace
}  // namespace railhop
