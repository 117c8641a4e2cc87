// A latency histogram with fixed memory: log-linear buckets over all of uint64_t, values below 32
// exact, others reported within 1.6 % (32 buckets per power of two, their middle is what is told).
//
// Threads: one writer (Add, AddMany; about 3 ns, no allocation); any thread may take a Snapshot
// meanwhile. A snapshot taken while the writer runs may miss its latest values, never counts one
// twice. Units are the caller's: the runtime records cycles.
#pragma once

#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace railhop {

inline constexpr int kHistogramSubBits = 5;
inline constexpr size_t kHistogramBuckets = (64 - kHistogramSubBits + 1) << kHistogramSubBits;

// Bucket of a value. `shift` is 0 below 64, so that small values are their own bucket.
inline size_t HistogramBucket(uint64_t value) {
  const int shift =
      std::bit_width(value | (uint64_t{1} << kHistogramSubBits)) - 1 - kHistogramSubBits;
  return (static_cast<size_t>(shift) << kHistogramSubBits) + static_cast<size_t>(value >> shift);
}
// Smallest and largest value of a bucket.
uint64_t HistogramBucketLow(size_t bucket);
uint64_t HistogramBucketHigh(size_t bucket);

// A plain copy: no threads, value semantics. 15 KiB, so mind deep stacks.
class HistogramSnapshot {
 public:
  uint64_t Count() const { return count_; }
  // 0 when empty. Exact as long as nothing was subtracted; then within the width of a bucket.
  uint64_t Max() const { return max_; }
  // `percent` in 0..100: the value below or at which that share of all values lies; 0 when empty.
  uint64_t Percentile(double percent) const;

  // Adds what another histogram counted.
  void Merge(const HistogramSnapshot& other);
  // Takes away an earlier snapshot of the same histogram: what is left is the interval between.
  void Subtract(const HistogramSnapshot& earlier);

 private:
  friend class Histogram;

  std::array<uint64_t, kHistogramBuckets> buckets_{};
  uint64_t count_ = 0;
  uint64_t max_ = 0;
};

class Histogram {
 public:
  Histogram() = default;
  Histogram(const Histogram&) = delete;
  Histogram& operator=(const Histogram&) = delete;

  void Add(uint64_t value) { AddMany(value, 1); }

  // The same value n times.
  void AddMany(uint64_t value, uint64_t n) {
    // Plain load and store, not fetch_add: there is one writer and a locked add costs 20 cycles.
    std::atomic<uint64_t>& bucket = buckets_[HistogramBucket(value)];
    bucket.store(bucket.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    if (value > max_.load(std::memory_order_relaxed) && n != 0) {
      max_.store(value, std::memory_order_relaxed);
    }
  }

  HistogramSnapshot Snapshot() const;

 private:
  std::array<std::atomic<uint64_t>, kHistogramBuckets> buckets_{};
  std::atomic<uint64_t> max_{0};
};

}  // namespace railhop
