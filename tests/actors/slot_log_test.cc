#include "actors/slot_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "runtime/cycle_clock.h"
#include "runtime/log.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::IsEmpty;

class SlotLogTest : public testing::Test {
 protected:
  void SetUp() override {
    setenv("RAILHOP_LOG_LEVEL", "info", 1);
    previous_ = SetLogSink([this](LogLevel level, std::string_view message) {
      EXPECT_EQ(level, LogLevel::kInfo);
      lines_.emplace_back(message);
    });
  }
  void TearDown() override {
    SetLogSink(previous_);
    unsetenv("RAILHOP_LOG_LEVEL");
  }
  // What PeerActor does on each pass.
  std::vector<std::string> Pass(uint64_t now, const std::vector<LaneSlots>& lanes) {
    lines_.clear();
    if (now >= log_.due()) log_.Run(now, lanes);
    return lines_;
  }
  static LaneSlots Busy(uint32_t lane) {
    return {.lane = lane,
            .relay_pid = 4711,
            .rails = {"rail1", "rail2"},
            .free = 3,
            .copying = 5,
            .rung = 8,
            .posted = 2,
            .completed = 0};
  }
  static LaneSlots Idle(uint32_t lane) {
    return {.lane = lane, .relay_pid = 4711, .rails = {"rail1"}, .free = 18};
  }

  SlotLog log_{milliseconds(100)};
  const uint64_t every_ = ToCycles(milliseconds(100));

 private:
  LogSink previous_;
  std::vector<std::string> lines_;
};

TEST_F(SlotLogTest, ALinePerLaneTellsItsSlots) {
  EXPECT_THAT(Pass(1000, {Busy(0), Idle(2)}),
              ElementsAre("lane 0 to process 4711 (rail1, rail2): 3 free, 5 copying, 8 rung, "
                          "2 posted, 0 completed",
                          "lane 2 to process 4711 (rail1): 18 free, 0 copying, 0 rung, 0 posted, "
                          "0 completed"));
}

TEST_F(SlotLogTest, PassesWithinTheIntervalWriteNothing) {
  EXPECT_EQ(Pass(1000, {Busy(0)}).size(), 1u);
  for (uint64_t step = 0; step < every_; step += every_ / 1000) {
    ASSERT_THAT(Pass(1000 + step, {Busy(0), Busy(1)}), IsEmpty()) << step;
  }
  EXPECT_EQ(log_.due(), 1000 + every_) << "the reactor may sleep until then";
  EXPECT_EQ(Pass(1000 + every_, {Busy(0)}).size(), 1u);
}

TEST_F(SlotLogTest, WhatWasMissedIsNotMadeUpFor) {
  Pass(1000, {Busy(0)});
  EXPECT_EQ(Pass(1000 + 50 * every_, {Busy(0)}).size(), 1u);
  EXPECT_THAT(Pass(1001 + 50 * every_, {Busy(0)}), IsEmpty());
}

TEST_F(SlotLogTest, ALaneThatStaysIdleSaysSoOnce) {
  uint64_t now = 0;
  const auto next = [&](const LaneSlots& lane) { return Pass(now += every_, {lane}).size(); };
  EXPECT_EQ(next(Busy(0)), 1u);
  EXPECT_EQ(next(Idle(0)), 1u);
  EXPECT_EQ(next(Idle(0)), 0u);
  EXPECT_EQ(next(Busy(0)), 1u);
  EXPECT_EQ(next(Busy(0)), 1u);
}

TEST_F(SlotLogTest, ALaneThatWasClosedAndComesAgainIsNews) {
  EXPECT_EQ(Pass(1 * every_, {Idle(0)}).size(), 1u);
  EXPECT_THAT(Pass(2 * every_, {}), IsEmpty());
  EXPECT_EQ(Pass(3 * every_, {Idle(0)}).size(), 1u);
}

TEST_F(SlotLogTest, WithoutAnIntervalItIsNeverDue) {
  EXPECT_EQ(SlotLog(milliseconds(0)).due(), Poller::kNever);
}

}  // namespace
}  // namespace railhop
