#include "runtime/cycle_clock.h"

#include <cmath>
#include <thread>

namespace railhop {
namespace {

using SteadyClock = std::chrono::steady_clock;

double MeasureCyclesPerNanosecond() {
  const ClockPair start = ReadBothClocks();
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const ClockPair end = ReadBothClocks();
  const std::chrono::duration<double, std::nano> elapsed = end.time - start.time;
  return static_cast<double>(end.cycles - start.cycles) / elapsed.count();
}

}  // namespace

// The reading that took the least time of several: one without an interrupt in the middle.
ClockPair ReadBothClocks() {
  ClockPair best;
  SteadyClock::duration best_width = SteadyClock::duration::max();
  for (int i = 0; i < 32; ++i) {
    const SteadyClock::time_point before = SteadyClock::now();
    const uint64_t cycles = ReadCycles();
    const SteadyClock::duration width = SteadyClock::now() - before;
    if (width < best_width) {
      best_width = width;
      best = {.cycles = cycles, .time = before + width / 2};
    }
  }
  return best;
}

SteadyClock::time_point ToSteadyTime(uint64_t cycles, const ClockPair& start,
                                     const ClockPair& now) {
  const std::chrono::duration<double, std::nano> elapsed = now.time - start.time;
  const double rate = elapsed.count() / static_cast<double>(now.cycles - start.cycles);
  const double back = static_cast<double>(static_cast<int64_t>(now.cycles - cycles)) * rate;
  return now.time - std::chrono::nanoseconds(std::llround(back));
}

double CyclesPerNanosecond() {
  static const double rate = MeasureCyclesPerNanosecond();
  return rate;
}

}  // namespace railhop
