#include "transport/copy/copy_bytes.h"

#include <gtest/gtest.h>

#include <vector>

namespace railhop {
namespace {

constexpr std::byte kUntouched{0xEE};
constexpr size_t kMargin = 64;

std::byte PatternAt(size_t at) {
  return static_cast<std::byte>(at * 131 + 7);
}

// Wherever both ends begin within a cache line, those bytes arrive and no others are written.
TEST(CopyBytesTest, CopiesTheRangeAndNothingElse) {
  for (const size_t length : {0, 1, 15, 16, 63, 64, 65, 127, 128, 200, 4096, 4097}) {
    for (size_t from = 0; from < kMargin; from += 5) {
      for (size_t to = 0; to < kMargin; to += 7) {
        std::vector<std::byte> source(length + kMargin);
        for (size_t i = 0; i < source.size(); ++i) source[i] = PatternAt(i);
        std::vector<std::byte> destination(length + 2 * kMargin, kUntouched);
        CopyBytes(destination.data() + to, source.data() + from, length);
        for (size_t i = 0; i < destination.size(); ++i) {
          const bool inside = i >= to && i < to + length;
          ASSERT_EQ(destination[i], inside ? PatternAt(i - to + from) : kUntouched)
              << length << " bytes from " << from << " to " << to << ", at " << i;
        }
      }
    }
  }
}

}  // namespace
}  // namespace railhop
