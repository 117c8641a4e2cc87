// LandedBytes: memory that a peer writes to at any time, as it is now. No order of C++ leads from
// such a write, which another process caused, to the one who looks; ThreadSanitizer is told so.
#pragma once

#include <cstddef>
#include <vector>

namespace railhop {

__attribute__((no_sanitize_thread)) inline std::vector<std::byte> LandedBytes(
    const volatile std::byte* from, size_t bytes) {
  std::vector<std::byte> copy(bytes);
  for (size_t i = 0; i < bytes; ++i) copy.data()[i] = from[i];
  return copy;
}

}  // namespace railhop
