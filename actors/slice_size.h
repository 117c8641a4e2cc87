// How long a slice is: the unit that is posted as one work request, and that is sent again on
// another path when it fails.
#pragma once

#include <cstdint>

namespace railhop {

struct SliceSize {
  uint32_t bytes = 64 * 1024;
  // A tail of at most so many bytes goes with the slice before it, so that no request is tiny only
  // because a length is a little above a multiple of `bytes`.
  uint32_t fragment = 0;

  // Of `left` contiguous bytes, those that the next slice takes.
  constexpr uint64_t Next(uint64_t left) const {
    return left <= uint64_t{bytes} + fragment ? left : bytes;
  }
};

}  // namespace railhop
