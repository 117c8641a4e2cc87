#include "tools/demo/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace railhop {
namespace {

using nlohmann::json;
using testing::ElementsAre;

constexpr double kTenthOfANanosecond = 0.00011;  // in microseconds

TracedPiece MakePiece(uint64_t sequence, std::array<uint64_t, kPieceStages> at) {
  TracedPiece piece;
  piece.at = at;
  piece.sender = 0;
  piece.relay = 1;
  piece.sequence = sequence;
  return piece;
}

// Events of the trace that are of this name.
std::vector<json> Events(const std::vector<TracedPiece>& pieces, const std::string& name) {
  std::ostringstream out;
  WriteChromeTrace(pieces, out);
  const json trace = json::parse(out.str());
  std::vector<json> found;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == name) found.push_back(event);
  }
  return found;
}

TEST(TraceFileTest, NothingIsStillATrace) {
  EXPECT_TRUE(Events({}, "process_name").empty());
}

TEST(TraceFileTest, AStageLiesInTheProcessOfTheActorThatEndsIt) {
  const std::vector<TracedPiece> pieces{MakePiece(1, {1000, 2000, 3000, 5000, 6000, 9000, 9500})};
  const json copied = Events(pieces, "copy issued -> doorbell seen").at(0);
  EXPECT_EQ(copied["ph"], "X");
  EXPECT_EQ(copied["pid"], 1);
  EXPECT_NEAR(copied["ts"].get<double>(), 2.0, kTenthOfANanosecond)
      << "microseconds since the first stage";
  EXPECT_NEAR(copied["dur"].get<double>(), 2.0, kTenthOfANanosecond);
  const json sent = Events(pieces, "posted -> completed").at(0);
  EXPECT_EQ(sent["pid"], 2);
  EXPECT_NEAR(sent["dur"].get<double>(), 3.0, kTenthOfANanosecond);
  EXPECT_EQ(sent["args"]["piece"], copied["args"]["piece"]);
  EXPECT_EQ(Events(pieces, "process_name").size(), 2u);
}

// Perfetto has one number for a thread, in whatever process it is, and none may be 0.
TEST(TraceFileTest, NoTwoRowsHaveOneNumber) {
  TracedPiece back = MakePiece(2, {1, 2, 3, 4, 5, 6, 7});
  std::swap(back.sender, back.relay);
  const std::vector<json> names =
      Events({MakePiece(1, {1, 2, 3, 4, 5, 6, 7}), back}, "thread_name");
  std::set<uint32_t> numbers;
  for (const json& name : names) {
    EXPECT_NE(name["pid"], 0);
    numbers.insert(name["tid"].get<uint32_t>());
  }
  EXPECT_EQ(names.size(), 8u) << "four actors of two ranks";
  EXPECT_EQ(numbers.size(), names.size());
  EXPECT_FALSE(numbers.contains(0));
}

TEST(TraceFileTest, StagesThatOverlapLieInDifferentRowsAndRowsAreUsedAgain) {
  const std::vector<json> sent =
      Events({MakePiece(1, {1, 2, 3, 4, 10, 50, 60}), MakePiece(2, {1, 2, 3, 4, 20, 55, 60}),
              MakePiece(3, {1, 2, 3, 4, 50, 70, 80})},
             "posted -> completed");
  std::vector<int> rows;
  for (const json& event : sent) rows.push_back(event["tid"]);
  EXPECT_THAT(rows, ElementsAre(11000, 11001, 11000)) << "of rank 1, its fourth actor";
}

// As Perfetto reads them: a time that lost a nanosecond would make neighbours overlap.
TEST(TraceFileTest, TimesThatAreCutOffAtNanosecondsAreStillTheSame) {
  for (const uint64_t ns :
       {uint64_t{501}, uint64_t{69'746'755}, uint64_t{69'747'256}, uint64_t{4'035'000'001'299}}) {
    const json sent =
        Events({MakePiece(1, {1, 2, 3, 4, 5, 5 + ns, 5 + ns})}, "posted -> completed").at(0);
    const json reaped =
        Events({MakePiece(1, {1, 2, 3, 4, 5, 5 + ns, 6 + ns})}, "completed -> reaped").at(0);
    EXPECT_EQ(static_cast<uint64_t>(sent["dur"].get<double>() * 1000), ns);
    EXPECT_EQ(static_cast<uint64_t>(reaped["ts"].get<double>() * 1000), 4 + ns);
  }
}

// A batch is submitted at once and sliced piece by piece.
TEST(TraceFileTest, TheWaitForASlotBeginsWhereThePieceBeforeWasSliced) {
  const std::vector<json> waits =
      Events({MakePiece(1, {1000, 4000, 0, 0, 0, 0, 0}), MakePiece(2, {1000, 6000, 0, 0, 0, 0, 0})},
             "submitted -> sliced");
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_NEAR(waits[1]["ts"].get<double>(), 3.0, kTenthOfANanosecond);
  EXPECT_NEAR(waits[1]["dur"].get<double>(), 2.0, kTenthOfANanosecond);
  EXPECT_DOUBLE_EQ(waits[1]["args"]["waited_us"], 5.0);
  EXPECT_EQ(waits[0]["tid"], waits[1]["tid"]);
}

TEST(TraceFileTest, StagesThatAreMissingAreLeftOut) {
  const std::vector<TracedPiece> pieces{MakePiece(1, {1, 2, 3, 0, 0, 0, 60})};
  EXPECT_EQ(Events(pieces, "sliced -> copy issued").size(), 1u);
  EXPECT_TRUE(Events(pieces, "copy issued -> doorbell seen").empty());
  EXPECT_TRUE(Events(pieces, "completed -> reaped").empty());
}

}  // namespace
}  // namespace railhop
