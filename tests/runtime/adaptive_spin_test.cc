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

class AdaptiveSpinRestTest : public AdaptiveSpinTest {
 protected:
  // Somebody else has his turn during a yield. Returns how long nobody spins after it.
  std::chrono::nanoseconds RestAfterOthersTurn() {
    spin_.Begin(now_);
    EXPECT_TRUE(spin_.GoOn(now_));
    now_ += AdaptiveSpin::kOthersTurn;
    EXPECT_FALSE(spin_.GoOn(now_));
    spin_.End(now_);
    const auto began = now_;
    while (!Wait(microseconds(50))) {
    }
    return now_ - began - microseconds(50);
  }
  // Whole waits are counted.
  static void ExpectAbout(std::chrono::nanoseconds rest, std::chrono::nanoseconds wanted) {
    EXPECT_GE(rest, wanted);
    EXPECT_LE(rest, wanted + microseconds(100));
  }
};

TEST_F(AdaptiveSpinRestTest, WhereOthersWantTheCoreItSleepsForAWhile) {
  Wait(microseconds(50));
  ExpectAbout(RestAfterOthersTurn(), AdaptiveSpin::kShortestRest);
}

TEST_F(AdaptiveSpinRestTest, AgainAndAgainForLonger) {
  Wait(microseconds(50));
  std::chrono::milliseconds rest = AdaptiveSpin::kShortestRest;
  for (int i = 0; i < 10; ++i) {
    ExpectAbout(RestAfterOthersTurn(), rest);
    rest = std::min(2 * rest, AdaptiveSpin::kLongestRest);
  }
  // Not soon after.
  const auto later = now_ + 4 * AdaptiveSpin::kLongestRest;
  while (now_ < later) ASSERT_TRUE(Wait(microseconds(50)));
  ExpectAbout(RestAfterOthersTurn(), AdaptiveSpin::kShortestRest);
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
  while (now_ - moved < AdaptiveSpin::kLongestRest) {
    EXPECT_FALSE(spin_.ShouldMove(now_));
    Wait(microseconds(20));
  }
  EXPECT_TRUE(spin_.ShouldMove(now_)) << "it is no better there";
}

TEST_F(AdaptiveSpinTest, WaitsAloneOnTheCoreCountAgainstMoving) {
  Wait(microseconds(50));
  for (int i = 1; i < AdaptiveSpin::kSharedWaits; ++i) ASSERT_TRUE(Wait(microseconds(20)));
  spin_.Begin(now_);
  for (int i = 0; i < 10; ++i, now_ += AdaptiveSpin::kSharedYield / 3)
    ASSERT_TRUE(spin_.GoOn(now_));
  spin_.End(now_);
  for (int i = 0; i <= AdaptiveSpin::kAloneOutweighs; ++i) {
    EXPECT_FALSE(spin_.ShouldMove(now_)) << i;
    Wait(microseconds(20));
  }
  EXPECT_TRUE(spin_.ShouldMove(now_));
}

}  // namespace
}  // namespace railhop
