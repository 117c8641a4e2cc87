// How a GPU copies a piece and rings its doorbell: what each way costs, as measured, and the
// cheapest of them.
//
// A copy command per span pays for each; a batch of commands less; a gather kernel pays for its
// launch and hardly for spans, but moves large spans slower than the copy engines do. Where the
// lines cross is a matter of machine and driver, and another one alone and behind other pieces: so
// the numbers are measured where the copies go (copy_calibration.h) or come from the configuration,
// never from here. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace railhop {

enum class CudaDoorbell : uint8_t { kStreamWrite, kKernel, kCpu };
enum class CopyWay : uint8_t { kAsync, kBatch, kGather };
inline constexpr size_t kCopyWays = 3;

// Nanoseconds.
struct CopyWayCost {
  bool available = false;
  // Of a piece alone: from the first call until its doorbell shows.
  double fixed = 0;
  double per_span = 0;
  // Of a piece behind others: from the doorbell before it to its own.
  double behind = 0;
  double behind_per_span = 0;
  double per_byte = 0;  // of both

  // Copy commands are carried out while further ones are issued: the slower of the two counts.
  double Of(CopyWay way, bool is_behind, size_t spans, uint64_t bytes) const {
    const double issue = (is_behind ? behind_per_span : per_span) * static_cast<double>(spans);
    const double move = per_byte * static_cast<double>(bytes);
    return (is_behind ? behind : fixed) +
           (way == CopyWay::kGather ? issue + move : std::max(issue, move));
  }
};

struct CopyCosts {
  std::array<CopyWayCost, kCopyWays> ways = {};  // by CopyWay
  // Behind others pieces follow each other sooner if the processor rings than if the device does,
  // and that is what their costs say.
  bool cpu_rings_behind = false;

  CopyWayCost& of(CopyWay way) { return ways[static_cast<size_t>(way)]; }
  const CopyWayCost& of(CopyWay way) const { return ways[static_cast<size_t>(way)]; }
};

// A kernel takes room from those of the host, a copy does not: it must be so much cheaper.
inline constexpr double kWorthwhile = 0.9;

// Of the available ways; kAsync always is. One span is never a batch, which could win nothing.
inline CopyWay CheapestWay(const CopyCosts& costs, bool is_behind, size_t spans, uint64_t bytes) {
  const auto cost = [&](CopyWay way) { return costs.of(way).Of(way, is_behind, spans, bytes); };
  CopyWay best = CopyWay::kAsync;
  if (spans > 1 && costs.of(CopyWay::kBatch).available && cost(CopyWay::kBatch) < cost(best)) {
    best = CopyWay::kBatch;
  }
  if (costs.of(CopyWay::kGather).available && cost(CopyWay::kGather) < kWorthwhile * cost(best)) {
    best = CopyWay::kGather;
  }
  return best;
}

}  // namespace railhop
