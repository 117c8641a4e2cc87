// From a target's metadata to the part of a TargetRoute that this rank's NICs decide: buffers,
// their rails, and the paths that lead to them. Pure; control path.
//
// The own NICs for a buffer are those on a rail that it prefers, sorted by rail name, else all.
// From each of them, the target's NICs in this order:
//   1. on its own rail and preferred by the buffer
//   2. on its own rail (with destination_affinity)
//   3. preferred by the buffer, dealt out over the own NICs
//   4. all others
// Rails come first because NICs of one rail share a switch. The first of these that there are is
// what the buffer alternates over; the others are for when a path breaks.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/target_route.h"
#include "transport/fabric/fabric.h"

namespace railhop {

// NIC name -> rail name; a NIC that is not in it is its own rail.
using RailMap = std::map<std::string, std::string>;

// The rail that a NIC is on.
const std::string& RailOf(const RailMap& rail_map, const std::string& nic);

struct RouteOptions {
  std::vector<std::string> own_rails = {};  // one per NIC of this rank, by position
  RailMap rail_map = {};
  bool destination_affinity = false;  // MC_ENABLE_DEST_DEVICE_AFFINITY
};

// The paths for buffers that prefer the same NICs.
struct PathPlan {
  std::vector<PathId> first;  // to alternate over
  // For each own NIC, by position: the target's NICs that it may be connected to, the best first.
  std::vector<std::vector<PathId>> of_own_nic;
};
PathPlan PlanPaths(const TargetInfo& info, const std::vector<std::string>& preferred_nics,
                   const RouteOptions& options);

struct TargetPlan {
  std::vector<TargetBuffer> buffers;  // sorted
  std::vector<PathPlan> paths;        // each different one; one if there is no buffer
};
// An error names the two buffers that overlap, or the one that wraps - a write could not tell which
// key to use - or says that the target has no NIC.
absl::StatusOr<TargetPlan> PlanTarget(const TargetInfo& info, const RouteOptions& options);

}  // namespace railhop
