#include "actors/moving_rate.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(MovingRateTest, ASteadyRateIsThatRate) {
  MovingRate rate;
  auto now = MovingRate::Time(seconds(100));
  EXPECT_EQ(rate.Update(5000, now), 0) << "what was before the first look is not known";
  double latest = 0;
  for (int i = 1; i <= 100; ++i) {
    now += milliseconds(100);
    latest = rate.Update(5000 + static_cast<uint64_t>(i) * 10, now);
    EXPECT_LE(latest, 100.0);
  }
  EXPECT_NEAR(latest, 100.0, 0.1);
}

TEST(MovingRateTest, WhatIsPastFadesByEEachSecond) {
  MovingRate rate;
  auto now = MovingRate::Time(seconds(100));
  rate.Update(0, now);
  now += seconds(1);
  const double begun = rate.Update(1000, now);
  EXPECT_NEAR(begun, 1000 * (1 - 1 / std::exp(1.0)), 1e-6);
  now += seconds(1);
  EXPECT_NEAR(rate.Update(1000, now), begun / std::exp(1.0), 1e-6);
  EXPECT_EQ(rate.Update(1000, now), rate.Update(1000, now)) << "no time has passed";
}

}  // namespace
}  // namespace railhop
