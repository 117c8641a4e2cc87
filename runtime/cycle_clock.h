// Time for the data path: one read of the CPU's constant-rate counter (16 ns under a hypervisor,
// where steady_clock takes 31 to 46).
//
// A CycleClock is either the machine's or, for deterministic tests, a word that the test advances.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace railhop {

inline uint64_t ReadCycles() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  uint64_t value;
  asm volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
#endif
}

// Cycles per nanosecond, measured once per process against steady_clock (about 10 ms).
double CyclesPerNanosecond();

inline uint64_t ToCycles(std::chrono::nanoseconds duration) {
  return static_cast<uint64_t>(static_cast<double>(duration.count()) * CyclesPerNanosecond());
}
inline std::chrono::nanoseconds ToNanoseconds(uint64_t cycles) {
  return std::chrono::nanoseconds(
      static_cast<int64_t>(static_cast<double>(cycles) / CyclesPerNanosecond()));
}

// The counter and steady_clock (CLOCK_MONOTONIC) at the same moment, but for some tens of
// nanoseconds. Takes some microseconds.
struct ClockPair {
  uint64_t cycles = 0;
  std::chrono::steady_clock::time_point time;
};
ClockPair ReadBothClocks();
// The time at `cycles`, counted back from `now` at the rate since `start`, which is long before.
// Processes of one host may compare such times: they differ by what ReadBothClocks may be off.
std::chrono::steady_clock::time_point ToSteadyTime(uint64_t cycles, const ClockPair& start,
                                                   const ClockPair& now);

class CycleClock {
 public:
  CycleClock() = default;
  // Reads *manual instead of the machine's counter; the word must outlive the clock.
  explicit CycleClock(const uint64_t* manual) : manual_(manual) {}
  uint64_t Now() const { return manual_ == nullptr ? ReadCycles() : *manual_; }

 private:
  const uint64_t* manual_ = nullptr;
};

}  // namespace railhop
