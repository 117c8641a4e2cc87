#include "actors/slice_paths.h"

namespace railhop {

SlicePaths::SlicePaths(uint32_t nic_count)
    : path_count_(PathCount(nic_count)), broken_(size_t{kMaxTargets} * path_count_) {}

PathId SlicePaths::Choose(const TargetRoute& route, const TargetBuffer* buffer, uint64_t turn,
                          PathId avoid) const {
  const PathId chosen = route.ChoosePath(buffer, turn, [&](PathId path, EndpointId) {
    return path != avoid && !IsBroken(route, path);
  });
  if (chosen != kNoPath || avoid == kNoPath) return chosen;
  return route.endpoints[avoid] != 0 && !IsBroken(route, avoid) ? avoid : kNoPath;
}

}  // namespace railhop
