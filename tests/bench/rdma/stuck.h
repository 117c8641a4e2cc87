// Slices that hang after a fault of RDMA: an engine of this process writes to a target in another
// one, some by way of a relay in a third one, while one of those is killed or stopped, or a cable
// is pulled, and every slice is looked at when its deadline has passed and again when the fault is
// over. One thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "tests/bench/sides/side.h"

namespace railhop {

enum class RdmaFault {
  kTargetKilled,
  kTargetStopped,
  kOwnCablePulled,
  kTargetCablePulled,
  kOwnLinkDown,
  kRelayKilled,
  kRelayStopped,
};
inline constexpr RdmaFault kRdmaFaults[] = {
    RdmaFault::kTargetKilled,      RdmaFault::kTargetStopped, RdmaFault::kOwnCablePulled,
    RdmaFault::kTargetCablePulled, RdmaFault::kOwnLinkDown,   RdmaFault::kRelayKilled,
    RdmaFault::kRelayStopped,
};
// "target_killed"
std::string_view RdmaFaultName(RdmaFault fault);
// Whether it hits a relay, and the slices go through one.
constexpr bool IsOfRelay(RdmaFault fault) {
  return fault == RdmaFault::kRelayKilled || fault == RdmaFault::kRelayStopped;
}

// Who is there: an engine of this process on rail 0, and others.
struct FaultSite {
  std::string config;  // of the engine
  SideProgram target;
  // What relays to the target's rail, of that name.
  std::optional<SideProgram> relay = {};
  std::string rail = {};
};

struct StuckSlices {
  size_t slices = 0;
  size_t at_deadline = 0;  // neither ended nor TIMEOUT soon after their deadline
  size_t after_end = 0;    // not ended 5 s after the fault's end
  size_t completed = 0;
};

// Writes to the target, and lets the fault happen once some bytes are there. The fault is over when
// this returns. Cables are those of rails 0 and 1.
absl::StatusOr<StuckSlices> TryRdmaFault(RdmaFault fault, const FaultSite& site);

}  // namespace railhop
