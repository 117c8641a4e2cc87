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

bool TargetRoute::Covers(const TargetBuffer& first, uint64_t address, uint64_t length) const {
  const TargetBuffer* const end = buffers.data() + buffers.size();
  for (const TargetBuffer* buffer = &first;; ++buffer) {
    const uint64_t here = buffer->length - (address - buffer->address);
    if (length <= here) return true;
    length -= here;
    address += here;
    if (buffer + 1 == end || buffer[1].address != address) return false;
  }
}

}  // namespace railhop
