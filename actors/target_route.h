// A resolved target as the data actors see it: where its buffers are, by which rails they are
// preferred, and which paths lead to it.
//
// A path is one of this rank's NICs and one of the target's: the connection between the two is what
// breaks and what is connected anew. Paths have numbers, so that whatever is kept for each of them
// lies in an array.
//
// Made by EndpointActor, immutable afterwards, and alive until the rank is destroyed: actors hold
// plain pointers. A target that is connected anew gets a new TargetRoute with a higher version and
// the same index.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "transport/fabric/fabric.h"

namespace railhop {

inline constexpr uint32_t kMaxTargets = 1024;   // of one rank, for its life
inline constexpr uint32_t kMaxRemoteNics = 16;  // of one target; what it has beyond is not used

// A path's number among those of its target; by own NIC, then by the target's (both are positions).
using PathId = uint16_t;
inline constexpr PathId kNoPath = UINT16_MAX;

constexpr PathId MakePath(uint32_t own_nic, uint32_t remote_nic = 0) {
  return static_cast<PathId>(own_nic * kMaxRemoteNics + remote_nic);
}
constexpr uint32_t OwnNic(PathId path) {
  return path / kMaxRemoteNics;
}
constexpr uint32_t RemoteNicOf(PathId path) {
  return path % kMaxRemoteNics;
}
// How many numbers there are.
constexpr uint32_t PathCount(size_t own_nics) {
  return static_cast<uint32_t>(own_nics) * kMaxRemoteNics;
}

struct TargetBuffer {
  uint64_t address = 0;
  uint64_t length = 0;
  std::array<uint32_t, kMaxRemoteNics> rkeys{};  // by the target's NIC
  // What pieces and slices for it alternate over (route_builder.h). Relay and sender agree on the
  // own NIC: number `sequence` of these, over and over.
  std::vector<PathId> paths;
  // Rails that the buffer is preferred on: NIC names taken through the rail map, sorted, unique.
  std::vector<std::string> rails;

  bool operator==(const TargetBuffer&) const = default;
};

struct TargetRoute {
  uint32_t index = 0;  // < kMaxTargets; the SegmentId is index + 1
  uint32_t version = 0;
  std::string name;
  std::vector<TargetBuffer> buffers;  // sorted by address, disjoint
  std::vector<EndpointId> endpoints;  // by path, PathCount of them; 0: not connected

  // The buffer that `address` lies in, or nullptr.
  const TargetBuffer* Find(uint64_t address) const;
  // Whether the range lies in `first`, the buffer of its address, or in it and others without a
  // gap.
  bool Covers(const TargetBuffer& first, uint64_t address, uint64_t length) const;
  // The path for a piece or slice: number `turn` of the buffer's, or the next one that is usable,
  // or any that is; kNoPath: none is. `buffer` may be nullptr. `usable(path, endpoint)` is asked
  // about connected ones only.
  template <class Usable>
  PathId ChoosePath(const TargetBuffer* buffer, uint64_t turn, Usable usable) const {
    const auto good = [&](PathId path) {
      const EndpointId endpoint = endpoints[path];
      return endpoint != 0 && usable(path, endpoint);
    };
    if (buffer != nullptr) {
      const std::vector<PathId>& paths = buffer->paths;
      for (size_t i = 0; i < paths.size(); ++i) {
        const PathId path = paths[(turn + i) % paths.size()];
        if (good(path)) return path;
      }
    }
    const size_t count = endpoints.size();
    for (size_t i = 0; i < count; ++i) {
      const auto path = static_cast<PathId>((turn * kMaxRemoteNics + i) % count);
      if (good(path)) return path;
    }
    return kNoPath;
  }
};

}  // namespace railhop
