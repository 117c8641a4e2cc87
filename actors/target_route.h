// A resolved target as the data actors see it: where its buffers are, by which rails they are
// preferred, and which of this rank's NICs are connected to it.
//
// Made by EndpointActor, immutable afterwards, and alive until the rank is destroyed: actors hold
// plain pointers. A target that is connected anew gets a new TargetRoute with a higher version and
// the same index.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/fabric/fabric.h"

namespace railhop {

inline constexpr uint32_t kMaxTargets = 1024;  // of one rank, for its life

struct TargetBuffer {
  uint64_t address = 0;
  uint64_t length = 0;
  uint32_t rkey = 0;
  // Rails that the buffer is preferred on: NIC names taken through the rail map, sorted, unique.
  std::vector<std::string> rails;
  // This rank's NICs (positions in its list) that are on one of those rails, sorted by rail name.
  std::vector<uint32_t> own_nics;
};

struct TargetRoute {
  uint32_t index = 0;  // < kMaxTargets; the SegmentId is index + 1
  uint32_t version = 0;
  std::string name;
  std::vector<TargetBuffer> buffers;  // sorted by address, disjoint
  std::vector<EndpointId> endpoints;  // one per NIC of this rank

  // The buffer that `address` lies in, or nullptr.
  const TargetBuffer* Find(uint64_t address) const;
  // Whether the range lies in `first`, the buffer of its address, or in it and others without a
  // gap.
  bool Covers(const TargetBuffer& first, uint64_t address, uint64_t length) const;
};

// The NIC that sends a piece or slice: of this rank's NICs that qualify for the buffer, sorted by
// rail name, number `turn` mod count; of all its NICs if none does. Relay and sender agree on it
// with turn = sequence.
uint32_t ChooseNic(const TargetBuffer& buffer, uint32_t nic_count, uint64_t turn);

}  // namespace railhop
