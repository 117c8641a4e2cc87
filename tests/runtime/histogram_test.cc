#include "runtime/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace railhop {
namespace {

TEST(HistogramTest, BucketsCoverEveryValueOnceAndInOrder) {
  uint64_t expected_low = 0;
  for (size_t bucket = 0; bucket < kHistogramBuckets; ++bucket) {
    const uint64_t low = HistogramBucketLow(bucket);
    const uint64_t high = HistogramBucketHigh(bucket);
    ASSERT_EQ(low, expected_low) << bucket;
    ASSERT_EQ(HistogramBucket(low), bucket);
    ASSERT_EQ(HistogramBucket(high), bucket);
    ASSERT_LE(static_cast<double>(high - low), 0.032 * static_cast<double>(low) + 0.5);
    expected_low = high + 1;
  }
  EXPECT_EQ(expected_low, 0U) << "the last bucket ends at the largest value";
  EXPECT_EQ(HistogramBucket(UINT64_MAX), kHistogramBuckets - 1);
}

TEST(HistogramTest, EmptyShowsZeros) {
  const Histogram histogram;
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.Count(), 0U);
  EXPECT_EQ(snapshot.Max(), 0U);
  EXPECT_EQ(snapshot.Percentile(50), 0U);
}

TEST(HistogramTest, SmallValuesAreExact) {
  Histogram histogram;
  for (uint64_t value = 1; value <= 31; ++value) histogram.Add(value);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.Percentile(0), 1U);
  EXPECT_EQ(snapshot.Percentile(50), 16U);
  EXPECT_EQ(snapshot.Percentile(100), 31U);
}

TEST(HistogramTest, PercentilesAreWithinThreePercentOfTheSortedValues) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> latency(9, 3);
  Histogram histogram;
  std::vector<uint64_t> values;
  for (int i = 0; i < 20000; ++i) {
    values.push_back(static_cast<uint64_t>(latency(random)));
    histogram.Add(values.back());
  }
  std::sort(values.begin(), values.end());
  const HistogramSnapshot snapshot = histogram.Snapshot();
  for (const double percent : {0.0, 1.0, 25.0, 50.0, 90.0, 99.0, 99.9}) {
    const auto position = static_cast<size_t>(
        std::max(1.0, std::ceil(static_cast<double>(values.size()) * percent / 100)));
    const auto exact = static_cast<double>(values[position - 1]);
    EXPECT_NEAR(static_cast<double>(snapshot.Percentile(percent)), exact, 0.03 * exact) << percent;
  }
  EXPECT_EQ(snapshot.Percentile(100), values.back());
  EXPECT_EQ(snapshot.Max(), values.back());
}

TEST(HistogramTest, APercentileIsNeverAboveTheMaximum) {
  Histogram histogram;
  histogram.Add(1 << 20);  // the lowest value of a wide bucket
  EXPECT_EQ(histogram.Snapshot().Percentile(50), uint64_t{1} << 20);
}

TEST(HistogramTest, TheExtremesAreCounted) {
  Histogram histogram;
  histogram.Add(0);
  histogram.Add(UINT64_MAX);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.Count(), 2U);
  EXPECT_EQ(snapshot.Percentile(50), 0U);
  EXPECT_EQ(snapshot.Max(), UINT64_MAX);
}

TEST(HistogramTest, AddManyCountsEach) {
  Histogram histogram;
  histogram.AddMany(10, 99);
  histogram.AddMany(1000, 1);
  histogram.AddMany(5000, 0);
  const HistogramSnapshot snapshot = histogram.Snapshot();
  EXPECT_EQ(snapshot.Count(), 100U);
  EXPECT_EQ(snapshot.Percentile(99), 10U);
  EXPECT_EQ(snapshot.Max(), 1000U) << "a value added zero times is no maximum";
}

TEST(HistogramTest, MergeAddsCountsAndKeepsTheLargerMaximum) {
  Histogram a;
  Histogram b;
  a.AddMany(5, 3);
  b.AddMany(20, 1);
  HistogramSnapshot merged = a.Snapshot();
  merged.Merge(b.Snapshot());
  EXPECT_EQ(merged.Count(), 4U);
  EXPECT_EQ(merged.Percentile(75), 5U);
  EXPECT_EQ(merged.Max(), 20U);
}

TEST(HistogramTest, SubtractLeavesTheInterval) {
  Histogram histogram;
  histogram.AddMany(100'000, 10);
  const HistogramSnapshot before = histogram.Snapshot();
  histogram.AddMany(50, 4);
  HistogramSnapshot interval = histogram.Snapshot();
  interval.Subtract(before);
  EXPECT_EQ(interval.Count(), 4U);
  EXPECT_EQ(interval.Percentile(99), 50U);
  EXPECT_EQ(interval.Max(), 50U) << "the maximum before the interval is not the interval's";

  HistogramSnapshot nothing = before;
  nothing.Subtract(before);
  EXPECT_EQ(nothing.Count(), 0U);
  EXPECT_EQ(nothing.Max(), 0U);
}

TEST(HistogramTest, SnapshotsOfARunningWriterOnlyGrow) {
  constexpr uint64_t kValues = 200'000;
  Histogram histogram;
  std::thread writer([&histogram] {
    for (uint64_t i = 0; i < kValues; ++i) histogram.Add(i % 1000);
  });
  uint64_t last = 0;
  while (last < kValues) {
    const HistogramSnapshot snapshot = histogram.Snapshot();
    ASSERT_GE(snapshot.Count(), last);
    ASSERT_LE(snapshot.Count(), kValues);
    ASSERT_LE(snapshot.Percentile(50), snapshot.Max());
    last = snapshot.Count();
  }
  writer.join();
}

}  // namespace
}  // namespace railhop
