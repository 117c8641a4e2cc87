// ManualClock: a clock that stands still until the test moves it, so that times are exact values.
//
// Threads: one, that of the test. It must outlive what reads its clock().
#pragma once

#include <cstdint>

#include "runtime/cycle_clock.h"

namespace railhop {

class ManualClock {
 public:
  ManualClock() = default;
  ManualClock(const ManualClock&) = delete;
  ManualClock& operator=(const ManualClock&) = delete;

  CycleClock clock() const { return CycleClock(&now_); }
  uint64_t now() const { return now_; }
  void Advance(uint64_t cycles) { now_ += cycles; }

 private:
  uint64_t now_ = 1'000'000;  // not 0: times before it exist
};

}  // namespace railhop
