// How much a stress test does: the short amount in every run, the long one when
// RAILHOP_LONG_TESTS=1 asks for it.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

namespace railhop {

inline bool LongTests() {
  const char* const value = std::getenv("RAILHOP_LONG_TESTS");
  return value != nullptr && std::string_view(value) == "1";
}

// Under a thread sanitizer a switch between threads costs ten times as much.
inline uint64_t StressCount(uint64_t in_every_run, uint64_t in_long_runs) {
#if defined(__SANITIZE_THREAD__)
  constexpr uint64_t kSlower = 10;
#else
  constexpr uint64_t kSlower = 1;
#endif
  return LongTests() ? in_long_runs : in_every_run / kSlower;
}

}  // namespace railhop
