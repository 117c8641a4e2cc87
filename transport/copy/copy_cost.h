// How a GPU copies a piece and rings its doorbell: what each way costs, as measured, and the
// cheapest of them.
//
// A copy command per span pays for each; a batch of commands less; a gather kernel pays for its
// launch and hardly for spans, but moves large spans slower than the copy engines do. Where the
// lines cross is a matter of machine and driver, so the numbers are measured where the copies go
// (copy_calibration.h) or come from the configuration, never from here. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace railhop {

enum class CudaDoorbell : uint8_t { kStreamWrite, kKernel, kCpu };
enum class CopyWay : uint8_t { kAsync, kBatch, kGather };
inline constexpr size_t kCopyWays = 3;

// From the first call until the doorbell shows, in nanoseconds.
struct CopyWayCost {
  bool available = false;
  double fixed = 0;
  double per_span = 0;
  double per_byte = 0;

  // Copy commands are carried out while further ones are issued: the slower of the two counts.
  double Of(CopyWay way, size_t spans, uint64_t bytes) const {
    const double issue = per_span * static_cast<double>(spans);
    const double move = per_byte * static_cast<double>(bytes);
    return fixed + (way == CopyWay::kGather ? issue + move : std::max(issue, move));
  }
};

using CopyCosts = std::array<CopyWayCost, kCopyWays>;  // by CopyWay

// A kernel takes room from those of the host, a copy does not: it must be so much cheaper.
inline constexpr double kWorthwhile = 0.9;

// Of the available ways; kAsync always is. One span is never a batch, which could win nothing.
inline CopyWay CheapestWay(const CopyCosts& costs, size_t spans, uint64_t bytes) {
  const auto cost = [&](CopyWay way) {
    return costs[static_cast<size_t>(way)].Of(way, spans, bytes);
  };
  const auto available = [&](CopyWay way) { return costs[static_cast<size_t>(way)].available; };
  CopyWay best = CopyWay::kAsync;
  if (spans > 1 && available(CopyWay::kBatch) && cost(CopyWay::kBatch) < cost(best)) {
    best = CopyWay::kBatch;
  }
  if (available(CopyWay::kGather) && cost(CopyWay::kGather) < kWorthwhile * cost(best)) {
    best = CopyWay::kGather;
  }
  return best;
}

}  // namespace railhop
