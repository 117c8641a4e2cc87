#include "transport/fabric/sim/line_model.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

using std::chrono::nanoseconds;
using Kind = SimFault::Kind;

// One cycle a nanosecond, one byte a cycle, 10 ns of delay.
LineModel Make(std::vector<SimFault> faults = {}) {
  return LineModel(1e9, nanoseconds(10), 1.0, std::move(faults));
}

TEST(LineModelTest, RequestsFollowEachOtherOnTheLine) {
  LineModel line = Make();
  LineModel::Slot slot = line.Schedule(1000, 100, true);
  EXPECT_EQ(slot.start, 1000u);
  EXPECT_EQ(slot.complete, 1110u);
  slot = line.Schedule(1050, 200, true);  // posted while the line is busy
  EXPECT_EQ(slot.start, 1100u);
  EXPECT_EQ(slot.complete, 1310u);
  slot = line.Schedule(1300, 1, true);  // just free: the delay is not the line's
  EXPECT_EQ(slot.start, 1300u);
  slot = line.Schedule(5000, 0, true);  // after a gap
  EXPECT_EQ(slot.start, 5000u);
  EXPECT_EQ(slot.complete, 5010u);
}

TEST(LineModelTest, RateIsInBytesPerSecondWhateverTheClock) {
  LineModel line(25e9, nanoseconds(3000), 2.5, {});  // a clock of 2.5 GHz: 0.1 cycles a byte
  EXPECT_EQ(line.Schedule(0, 65536, true).complete, 6554u + 7500u);
}

TEST(LineModelTest, DelayHoldsOneRequestBackButNotTheLine) {
  LineModel line =
      Make({{.kind = Kind::kDelay, .first = 2, .count = 2, .time = nanoseconds(1000)}});
  EXPECT_EQ(line.Schedule(0, 100, true).complete, 110u);
  EXPECT_EQ(line.Schedule(0, 100, true).complete, 1210u);
  EXPECT_EQ(line.Schedule(0, 100, true).complete, 1310u);
  const LineModel::Slot last = line.Schedule(0, 100, true);
  EXPECT_EQ(last.start, 300u);
  EXPECT_EQ(last.complete, 410u);
}

TEST(LineModelTest, DropAndErrorHitTheRequestsTheyName) {
  LineModel line =
      Make({{.kind = Kind::kDrop, .first = 2},
            {.kind = Kind::kError, .first = 4, .status = FabricStatus::kRemoteAccess}});
  EXPECT_EQ(line.Schedule(0, 1, true).fault, Kind::kNone);
  EXPECT_EQ(line.Schedule(0, 1, true).fault, Kind::kDrop);
  EXPECT_EQ(line.Schedule(0, 1, true).fault, Kind::kNone);
  const LineModel::Slot slot = line.Schedule(0, 1, true);
  EXPECT_EQ(slot.fault, Kind::kError);
  EXPECT_EQ(slot.status, FabricStatus::kRemoteAccess);
  EXPECT_EQ(line.Schedule(0, 1, true).fault, Kind::kNone);
}

TEST(LineModelTest, LinkIsDownForAPeriod) {
  LineModel line = Make({{.kind = Kind::kLinkDown, .first = 2, .time = nanoseconds(500)}});
  EXPECT_EQ(line.Schedule(1000, 100, true).fault, Kind::kNone);
  LineModel::Slot slot = line.Schedule(1000, 100, true);  // would start, and it goes down, at 1100
  EXPECT_EQ(slot.fault, Kind::kLinkDown);
  EXPECT_EQ(slot.status, FabricStatus::kTransport);
  EXPECT_EQ(slot.complete, 1100u);
  EXPECT_EQ(line.Schedule(1599, 100, true).fault, Kind::kLinkDown);
  slot = line.Schedule(1600, 100, true);
  EXPECT_EQ(slot.fault, Kind::kNone);
  EXPECT_EQ(slot.complete, 1710u);
}

TEST(LineModelTest, PulledCable) {
  LineModel line = Make();
  EXPECT_EQ(line.Schedule(0, 100, false).fault, Kind::kLinkDown);
  EXPECT_EQ(line.Schedule(0, 100, true).complete, 110u);
}

}  // namespace
}  // namespace railhop
