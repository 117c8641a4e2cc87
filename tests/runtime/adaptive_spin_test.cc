#include "runtime/adaptive_spin.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace railhop {
namespace {

using std::chrono::microseconds;

constexpr microseconds kLongest{100};
constexpr microseconds kLongestWork{25};

class AdaptiveSpinTest : public testing::Test {
 protected:
  // A wait whose work comes after `length`; whether it was met spinning, looking every 10 us.
  bool Wait(microseconds length) {
    const auto until = now_ + length;
    spin_.Begin(now_);
    while (now_ < until && spin_.GoOn(now_)) now_ += microseconds(10);
    const bool spun = now_ >= until;
    now_ = std::max(now_, until);
    spin_.End(now_);
    return spun;
  }

  AdaptiveSpin::TimePoint now_{std::chrono::hours(1)};
  AdaptiveSpin spin_{kLongest, kLongestWork};
};

TEST_F(AdaptiveSpinTest, AShortWaitIsFollowedBySpinning) {
  EXPECT_FALSE(Wait(microseconds(50))) << "nothing is known yet";
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(Wait(microseconds(50))) << i;
}

TEST_F(AdaptiveSpinTest, ALongWaitIsSpunThroughOnceAndThenSlept) {
  Wait(microseconds(50));
  const auto began = now_;
  spin_.Begin(now_);
  while (spin_.GoOn(now_)) now_ += microseconds(10);
  EXPECT_EQ(now_ - began, kLongest);
  now_ += std::chrono::seconds(1);
  spin_.End(now_);
  spin_.Begin(now_);
  EXPECT_FALSE(spin_.GoOn(now_));
}

TEST_F(AdaptiveSpinTest, WorkNowAndThenIsSleptFor) {
  for (int i = 0; i < 10; ++i) EXPECT_FALSE(Wait(std::chrono::milliseconds(1))) << i;
}

TEST_F(AdaptiveSpinTest, LongWorkIsSleptFor) {
  Wait(microseconds(50));
  ASSERT_TRUE(Wait(microseconds(50)));
  now_ += kLongestWork + microseconds(1);
  EXPECT_FALSE(Wait(microseconds(50)));
  EXPECT_TRUE(Wait(microseconds(50))) << "and short work is not";
}

TEST_F(AdaptiveSpinTest, WhereOthersWantTheCoreItSleepsForAWhile) {
  Wait(microseconds(50));
  spin_.Begin(now_);
  ASSERT_TRUE(spin_.GoOn(now_));
  now_ += AdaptiveSpin::kOthersTurn;
  EXPECT_FALSE(spin_.GoOn(now_));
  spin_.End(now_);
  const auto rested = now_ + AdaptiveSpin::kRest;
  while (now_ + microseconds(50) < rested) ASSERT_FALSE(Wait(microseconds(50)));
  Wait(microseconds(50));
  EXPECT_TRUE(Wait(microseconds(50)));
}

// Waits that end while somebody else has the core: each look comes after his turn.
TEST_F(AdaptiveSpinTest, WhoAlwaysSharesItsCoreMovesOnceInAWhile) {
  Wait(microseconds(50));
  for (int i = 1; i <= AdaptiveSpin::kSharedWaits; ++i) {
    EXPECT_FALSE(spin_.ShouldMove(now_)) << i;
    ASSERT_TRUE(Wait(microseconds(20)));
  }
  EXPECT_TRUE(spin_.ShouldMove(now_));
  EXPECT_FALSE(spin_.ShouldMove(now_));
  const auto moved = now_;
  while (now_ - moved < AdaptiveSpin::kRest) {
    EXPECT_FALSE(spin_.ShouldMove(now_));
    Wait(microseconds(20));
  }
  EXPECT_TRUE(spin_.ShouldMove(now_)) << "it is no better there";
}

TEST_F(AdaptiveSpinTest, OneWaitAloneOnTheCoreIsEnoughToStay) {
  Wait(microseconds(50));
  for (int i = 1; i < AdaptiveSpin::kSharedWaits; ++i) ASSERT_TRUE(Wait(microseconds(20)));
  spin_.Begin(now_);
  for (int i = 0; i < 10; ++i, now_ += AdaptiveSpin::kSharedYield / 3)
    ASSERT_TRUE(spin_.GoOn(now_));
  spin_.End(now_);
  Wait(microseconds(20));
  EXPECT_FALSE(spin_.ShouldMove(now_));
}

}  // namespace
}  // namespace railhop
