#include "transport/copy/copy_cost.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;

// Nanoseconds, of the order of those in docs/results/gpu-h200.md: towards another GPU.
CopyCosts Costs() {
  return {CopyWayCost{true, 5500, 2400, 0.0027}, CopyWayCost{true, 7300, 1070, 0.0027},
          CopyWayCost{true, 10700, 11, 0.0031}};
}

TEST(CopyCostTest, OneSpanIsOneCopy) {
  for (const uint64_t bytes : {64UL, 64 * kKiB, 512 * kKiB, 8192 * kKiB}) {
    EXPECT_EQ(CheapestWay(Costs(), 1, bytes), CopyWay::kAsync) << bytes;
  }
}

TEST(CopyCostTest, OneSpanIsNoBatchHoweverCheapThatSeems) {
  CopyCosts costs = Costs();
  costs[1].fixed = 0;
  EXPECT_EQ(CheapestWay(costs, 1, 64), CopyWay::kAsync);
  EXPECT_EQ(CheapestWay(costs, 2, 64), CopyWay::kBatch);
}

TEST(CopyCostTest, AFewSpansAreABatch) {
  for (const size_t spans : {2UL, 3UL, 4UL}) {
    EXPECT_EQ(CheapestWay(Costs(), spans, spans * 64 * kKiB), CopyWay::kBatch) << spans;
  }
}

TEST(CopyCostTest, ManySpansAreGathered) {
  EXPECT_EQ(CheapestWay(Costs(), 16, 16 * 2 * kKiB), CopyWay::kGather);
  EXPECT_EQ(CheapestWay(Costs(), 1024, 1024 * 2 * kKiB), CopyWay::kGather);
}

TEST(CopyCostTest, WithoutKernelsManySpansAreABatch) {
  CopyCosts costs = Costs();
  costs[2].available = false;
  EXPECT_EQ(CheapestWay(costs, 8, 8 * 2 * kKiB), CopyWay::kBatch);
  costs[1].available = false;
  EXPECT_EQ(CheapestWay(costs, 8, 8 * 2 * kKiB), CopyWay::kAsync);
}

TEST(CopyCostTest, AKernelMustBeWorthwhile) {
  CopyCosts costs{CopyWayCost{true, 10000}, CopyWayCost{false, 0}, CopyWayCost{true, 9100}};
  EXPECT_EQ(CheapestWay(costs, 2, 1), CopyWay::kAsync);
  costs[2].fixed = 8900;
  EXPECT_EQ(CheapestWay(costs, 2, 1), CopyWay::kGather);
  // Beside the cheaper of the others.
  costs[1] = {true, 9800};
  EXPECT_EQ(CheapestWay(costs, 2, 1), CopyWay::kBatch);
}

}  // namespace
}  // namespace railhop
