// One round of connecting a target: what is to be connected first, and what in its place if that
// cannot be.
//
// Wanted are the paths that some buffer alternates over and, from each own NIC, the best one, so
// that there is another at once when a path breaks. An own NIC that gets none of its own is
// connected to the first other of the target's NICs that will do.
// Control thread. A connection may take as long as the peer lets it: a round ends when the target's
// listener does not answer, and nothing more is tried in place of others once it took half a
// second.
#pragma once

#include <chrono>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "actors/route_builder.h"
#include "actors/target_route.h"
#include "transport/fabric/fabric.h"

namespace railhop {

struct PathRound {
  std::vector<PathId> made;
  std::vector<absl::Status> errors;  // each names NIC and target
  bool complete = true;              // every wanted path is connected
  std::chrono::nanoseconds took{0};
};

// `endpoints`: by path, 0 for those that are not connected; made ones are added.
PathRound ConnectPaths(std::span<Nic* const> nics, const TargetInfo& info,
                       const std::vector<PathPlan>& plans, std::vector<EndpointId>* endpoints);

}  // namespace railhop
