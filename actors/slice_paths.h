// SlicePaths: which of this rank's NICs a direct slice leaves by, and which are of no use just now.
//
// A path is an endpoint: the connection of one NIC to one target. Once a slice has failed on it
// everything behind it is flushed, so the path is broken until the target is connected anew, which
// gives it another endpoint (EndpointActor sees to that). Until then slices leave by the other
// NICs: those on a rail that the target's buffer prefers first, then any.
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
  static constexpr uint32_t kNone = UINT32_MAX;

  explicit SlicePaths(uint32_t nic_count);

  // Whether slices for that buffer are dealt out over several NICs.
  bool Spreads(const TargetBuffer& buffer) const {
    return (buffer.own_nics.empty() ? nic_count_ : buffer.own_nics.size()) > 1;
  }
  // The NIC for a slice: number `turn` of those that ChooseNic counts through, or the next one
  // whose path is not broken; `avoid`, on which the slice has failed before, only if it is the last
  // one. kNone: every path is broken; the target will be connected anew, or will fail. `buffer`:
  // that the slice begins in; nullptr: in none, the post fails wherever it goes.
  uint32_t Choose(const TargetRoute& route, const TargetBuffer* buffer, uint64_t turn,
                  uint32_t avoid = kNone) const;
  // A slice to that target has failed on this endpoint of that NIC.
  void NoteBroken(uint32_t target, uint32_t nic, EndpointId endpoint) {
    broken_[target * nic_count_ + nic] = endpoint;
  }

 private:
  bool IsBroken(const TargetRoute& route, uint32_t nic) const {
    return broken_[route.index * nic_count_ + nic] == route.endpoints[nic];
  }

  const uint32_t nic_count_;
  std::vector<EndpointId> broken_;  // target x NIC: the latest that broke; 0: none did
};

}  // namespace railhop
