#include "runtime/cycle_clock.h"

#include <gtest/gtest.h>

#include <cmath>

namespace railhop {
namespace {

using std::chrono::nanoseconds;

TEST(CycleClockTest, TheRateIsThatOfAMachine) {
  // Counters of the machines that exist run at 25 MHz (arm64) to 6 GHz.
  EXPECT_GT(CyclesPerNanosecond(), 0.01);
  EXPECT_LT(CyclesPerNanosecond(), 10.0);
  EXPECT_EQ(CyclesPerNanosecond(), CyclesPerNanosecond()) << "measured once per process";
}

TEST(CycleClockTest, TimeDoesNotRunBackwards) {
  const CycleClock clock;
  uint64_t last = clock.Now();
  for (int i = 0; i < 1000; ++i) {
    const uint64_t now = clock.Now();
    ASSERT_GE(now, last);
    last = now;
  }
}

TEST(CycleClockTest, ConversionsAreInverse) {
  for (const int64_t ns : {0LL, 1'000LL, 1'000'000LL, 30'000'000'000LL}) {
    const nanoseconds back = ToNanoseconds(ToCycles(nanoseconds(ns)));
    EXPECT_LE(std::abs(back.count() - ns), 2 + 1 / CyclesPerNanosecond()) << ns;
  }
}

TEST(CycleClockTest, AManualClockShowsItsWord) {
  uint64_t word = 41;
  const CycleClock clock(&word);
  EXPECT_EQ(clock.Now(), 41U);
  ++word;
  EXPECT_EQ(clock.Now(), 42U);
}

TEST(CycleClockTest, SteadyTimesLieOnTheLineThroughBothReadings) {
  using Time = std::chrono::steady_clock::time_point;
  const ClockPair start{1'000'000, Time(nanoseconds(5'000'000'000))};
  const ClockPair now{3'000'000, Time(nanoseconds(5'001'000'000))};  // half a nanosecond a cycle
  EXPECT_EQ(ToSteadyTime(3'000'000, start, now), now.time);
  EXPECT_EQ(ToSteadyTime(2'999'000, start, now), now.time - nanoseconds(500));
  EXPECT_EQ(ToSteadyTime(1'000'000, start, now), start.time);
  EXPECT_EQ(ToSteadyTime(3'000'200, start, now), now.time + nanoseconds(100)) << "read after `now`";
}

TEST(CycleClockTest, BothClocksAreReadAtOnce) {
  const auto before = std::chrono::steady_clock::now();
  const uint64_t cycles_before = ReadCycles();
  const ClockPair pair = ReadBothClocks();
  EXPECT_GE(pair.time, before);
  EXPECT_GE(pair.cycles, cycles_before);
  EXPECT_LE(pair.time, std::chrono::steady_clock::now());
  EXPECT_LE(pair.cycles, ReadCycles());
}

}  // namespace
}  // namespace railhop
