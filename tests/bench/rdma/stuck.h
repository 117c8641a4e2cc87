// Slices that hang after a fault of RDMA: an engine of this process writes to a target in another
// one while that is killed or stopped, or a cable is pulled, and every slice is looked at when its
// deadline has passed and again when the fault is over. One thread.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/bench/sides/side.h"

namespace railhop {

enum class RdmaFault {
  kTargetKilled,
  kTargetStopped,
  kOwnCablePulled,
  kTargetCablePulled,
  kOwnLinkDown,
};
inline constexpr RdmaFault kRdmaFaults[] = {
    RdmaFault::kTargetKilled,      RdmaFault::kTargetStopped, RdmaFault::kOwnCablePulled,
    RdmaFault::kTargetCablePulled, RdmaFault::kOwnLinkDown,
};
std::string_view RdmaFaultName(RdmaFault fault);

struct StuckSlices {
  size_t slices = 0;
  size_t at_deadline = 0;  // neither ended nor TIMEOUT soon after their deadline
  size_t after_end = 0;    // not ended 5 s after the fault's end
  size_t completed = 0;
};

// Writes from rail 0 to `target`, which is on rail 1, and lets the fault happen once some bytes are
// there. The fault is over when this returns.
absl::StatusOr<StuckSlices> TryRdmaFault(RdmaFault fault, const SideProgram& target);

}  // namespace railhop
