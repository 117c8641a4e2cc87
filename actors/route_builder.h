// From a target's metadata to the part of a TargetRoute that this rank's NICs decide: buffers,
// their rails, and which own NICs are on them. Pure; control path.
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

// The buffers of a route, sorted. `own_rails`: one per NIC of this rank, by position. An error
// names the two buffers that overlap, or the one that wraps: a write could not tell which key to
// use.
absl::StatusOr<std::vector<TargetBuffer>> BuildTargetBuffers(
    const TargetInfo& info, const RailMap& rail_map, std::span<const std::string> own_rails);

}  // namespace railhop
