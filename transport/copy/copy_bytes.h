// memcpy for the bytes of a piece, as fast wherever they lie.
//
// glibc copies large blocks with `rep movsb`. On AMD's Zen 3 that takes 1.4 times as long when both
// ends begin at the same offset of a page, as KV pages and ring slots do, and 15 times as long when
// the source begins some bytes before the destination's offset (glibc bug 30994; measured in
// docs/performance.md). Moves of 16 bytes, in blocks of a cache line, take the same time for all.
#pragma once

#include <cstddef>
#include <cstring>

namespace railhop {

// The ranges do not overlap.
inline void CopyBytes(std::byte* to, const std::byte* from, size_t length) {
  using Move = long long __attribute__((vector_size(16), aligned(1), may_alias));
  constexpr size_t kLine = 4 * sizeof(Move);
  for (; length >= kLine; length -= kLine, from += kLine, to += kLine) {
    const auto* const source = reinterpret_cast<const Move*>(from);
    auto* const destination = reinterpret_cast<Move*>(to);
    const Move a = source[0], b = source[1], c = source[2], d = source[3];
    destination[0] = a;
    destination[1] = b;
    destination[2] = c;
    destination[3] = d;
    asm volatile("");  // or the compiler makes one memcpy of the loop
  }
  std::memcpy(to, from, length);
}

}  // namespace railhop
