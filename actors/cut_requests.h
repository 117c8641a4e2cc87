// Cuts a piece or slice into work requests: neighbours in the plan that are neighbours at the
// target too are merged, and a request ends as SliceSize says and at the end of a registration.
//
// Pure logic, no allocation. The route and the plan belong to the caller and outlive the cutter.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "actors/slice_size.h"
#include "actors/target_route.h"
#include "transport/ring/control_block.h"

namespace railhop {

// Whether each entry of the plan lies in one registration of the target, or in a chain of adjacent
// ones: then every request that is cut has a key.
bool InsideRegistrations(const TargetRoute& route, std::span<const PlanEntry> plan);

struct CutRequest {
  std::byte* local = nullptr;
  uint64_t remote_address = 0;
  uint32_t length = 0;
  uint32_t rkey = 0;  // 0: outside every registration; the NIC refuses it
  bool last = false;
};

class RequestCutter {
 public:
  RequestCutter() = default;
  // The bytes of the plan lie back to back from `local` on; the plan is not empty. The keys are
  // those of the target's NIC at that position.
  RequestCutter(const TargetRoute& route, std::byte* local, std::span<const PlanEntry> plan,
                SliceSize slice, uint32_t remote_nic = 0)
      : route_(&route), local_(local), plan_(plan), slice_(slice), remote_nic_(remote_nic) {}

  // Only before the last one was given. An entry of 0 bytes makes a request of 0 bytes.
  CutRequest Next();

 private:
  uint64_t RunLength(uint64_t enough) const;

  const TargetRoute* route_ = nullptr;
  const TargetBuffer* buffer_ = nullptr;  // that the last request lay in
  std::byte* local_ = nullptr;
  std::span<const PlanEntry> plan_;  // what is left; of the first entry without offset_ bytes
  uint64_t offset_ = 0;
  SliceSize slice_;
  uint32_t remote_nic_ = 0;
};

}  // namespace railhop
