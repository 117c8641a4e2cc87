#include "actors/target_route.h"

#include <algorithm>

namespace railhop {

const TargetBuffer* TargetRoute::Find(uint64_t address) const {
  auto after = std::upper_bound(
      buffers.begin(), buffers.end(), address,
      [](uint64_t wanted, const TargetBuffer& buffer) { return wanted < buffer.address; });
  if (after == buffers.begin()) return nullptr;
  const TargetBuffer& buffer = *--after;
  return address - buffer.address < buffer.length ? &buffer : nullptr;
}

uint32_t ChooseNic(const TargetBuffer& buffer, uint32_t nic_count, uint64_t turn) {
  if (buffer.own_nics.empty()) return static_cast<uint32_t>(turn % nic_count);
  return buffer.own_nics[turn % buffer.own_nics.size()];
}

}  // namespace railhop
