// SlicePaths: which path a direct slice takes, and which are of no use just now.
//
// Once a slice has failed on a path everything behind it is flushed, so the path is broken until it
// is connected anew, which gives it another endpoint (EndpointActor sees to that). Until then
// slices take other ones: those that the target's buffer alternates over first, then any.
//
// Pure logic, one owner (SubmitActor), no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/target_route.h"
#include "transport/fabric/fabric.h"

namespace railhop {

class SlicePaths {
 public:
  explicit SlicePaths(uint32_t nic_count);

  // Whether slices for that buffer are dealt out over several paths.
  static bool Spreads(const TargetBuffer& buffer) { return buffer.paths.size() > 1; }
  // The path for a slice, of those that are not broken; `avoid`, on which the slice has failed
  // before, only if it is the last one. kNoPath: every path is broken; the target will be connected
  // anew, or will fail. `buffer`: that the slice begins in; nullptr: in none, the post fails
  // wherever it goes.
  PathId Choose(const TargetRoute& route, const TargetBuffer* buffer, uint64_t turn,
                PathId avoid = kNoPath) const;
  // A slice to that target has failed on this endpoint of that path.
  void NoteBroken(uint32_t target, PathId path, EndpointId endpoint) {
    broken_[target * path_count_ + path] = endpoint;
  }

 private:
  bool IsBroken(const TargetRoute& route, PathId path) const {
    return broken_[route.index * path_count_ + path] == route.endpoints[path];
  }

  const uint32_t path_count_;
  std::vector<EndpointId> broken_;  // target x path: the latest that broke; 0: none did
};

}  // namespace railhop
