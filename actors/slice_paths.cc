#include "actors/slice_paths.h"

namespace railhop {

SlicePaths::SlicePaths(uint32_t nic_count)
    : nic_count_(nic_count), broken_(size_t{kMaxTargets} * nic_count) {}

uint32_t SlicePaths::Choose(const TargetRoute& route, const TargetBuffer* buffer, uint64_t turn,
                            uint32_t avoid) const {
  const auto usable = [&](uint32_t nic) { return nic != avoid && !IsBroken(route, nic); };
  if (buffer != nullptr) {
    const std::vector<uint32_t>& preferred = buffer->own_nics;
    for (size_t i = 0; i < preferred.size(); ++i) {
      const uint32_t nic = preferred[(turn + i) % preferred.size()];
      if (usable(nic)) return nic;
    }
  }
  for (uint32_t i = 0; i < nic_count_; ++i) {
    const auto nic = static_cast<uint32_t>((turn + i) % nic_count_);
    if (usable(nic)) return nic;
  }
  return avoid != kNone && !IsBroken(route, avoid) ? avoid : kNone;
}

}  // namespace railhop
