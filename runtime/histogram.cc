#include "runtime/histogram.h"

#include <algorithm>
#include <cmath>

namespace railhop {
namespace {

constexpr size_t kSubBuckets = size_t{1} << kHistogramSubBits;

// Below two powers' worth of buckets the buckets are one value wide.
int BucketShift(size_t bucket) {
  return bucket < 2 * kSubBuckets ? 0 : static_cast<int>(bucket / kSubBuckets) - 1;
}

}  // namespace

uint64_t HistogramBucketLow(size_t bucket) {
  const int shift = BucketShift(bucket);
  return (bucket - (static_cast<size_t>(shift) << kHistogramSubBits)) << shift;
}

uint64_t HistogramBucketHigh(size_t bucket) {
  return HistogramBucketLow(bucket) + ((uint64_t{1} << BucketShift(bucket)) - 1);
}

uint64_t HistogramSnapshot::Percentile(double percent) const {
  if (count_ == 0) return 0;
  if (percent >= 100) return max_;
  const double wanted = std::ceil(static_cast<double>(count_) * std::max(percent, 0.0) / 100);
  const uint64_t position = std::clamp<uint64_t>(static_cast<uint64_t>(wanted), 1, count_);
  uint64_t seen = 0;
  size_t bucket = 0;
  while (bucket + 1 < kHistogramBuckets && seen + buckets_[bucket] < position) {
    seen += buckets_[bucket++];
  }
  const uint64_t low = HistogramBucketLow(bucket);
  return std::min(low + (HistogramBucketHigh(bucket) - low) / 2, max_);
}

void HistogramSnapshot::Merge(const HistogramSnapshot& other) {
  for (size_t i = 0; i < kHistogramBuckets; ++i) buckets_[i] += other.buckets_[i];
  count_ += other.count_;
  max_ = std::max(max_, other.max_);
}

void HistogramSnapshot::Subtract(const HistogramSnapshot& earlier) {
  uint64_t highest = 0;
  count_ = 0;
  for (size_t i = 0; i < kHistogramBuckets; ++i) {
    buckets_[i] -= std::min(buckets_[i], earlier.buckets_[i]);
    count_ += buckets_[i];
    if (buckets_[i] != 0) highest = HistogramBucketHigh(i);
  }
  // The interval's own maximum is known to its bucket only, unless it is the maximum of all time.
  max_ = std::min(max_, highest);
}

HistogramSnapshot Histogram::Snapshot() const {
  HistogramSnapshot result;
  uint64_t highest = 0;
  for (size_t i = 0; i < kHistogramBuckets; ++i) {
    result.buckets_[i] = buckets_[i].load(std::memory_order_relaxed);
    result.count_ += result.buckets_[i];
    if (result.buckets_[i] != 0) highest = HistogramBucketLow(i);
  }
  // The writer stores the bucket first, so the maximum may lag behind what the buckets show.
  result.max_ = result.count_ == 0 ? 0 : std::max(max_.load(std::memory_order_relaxed), highest);
  return result;
}

}  // namespace railhop
