#include "tools/demo/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

namespace railhop {
namespace {

using nlohmann::json;
using testing::ElementsAre;

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
  EXPECT_EQ(copied["pid"], 0);
  EXPECT_DOUBLE_EQ(copied["ts"], 2.0) << "microseconds since the first stage";
  EXPECT_DOUBLE_EQ(copied["dur"], 2.0);
  const json sent = Events(pieces, "posted -> completed").at(0);
  EXPECT_EQ(sent["pid"], 1);
  EXPECT_DOUBLE_EQ(sent["dur"], 3.0);
  EXPECT_EQ(sent["args"]["piece"], copied["args"]["piece"]);
  EXPECT_EQ(Events(pieces, "process_name").size(), 2u);
}

TEST(TraceFileTest, StagesThatOverlapLieInDifferentRowsAndRowsAreUsedAgain) {
  const std::vector<json> sent =
      Events({MakePiece(1, {1, 2, 3, 4, 10, 50, 60}), MakePiece(2, {1, 2, 3, 4, 20, 55, 60}),
              MakePiece(3, {1, 2, 3, 4, 50, 70, 80})},
             "posted -> completed");
  std::vector<int> rows;
  for (const json& event : sent) rows.push_back(event["tid"]);
  EXPECT_THAT(rows, ElementsAre(3000, 3001, 3000));
}

// A batch is submitted at once and sliced piece by piece.
TEST(TraceFileTest, TheWaitForASlotBeginsWhereThePieceBeforeWasSliced) {
  const std::vector<json> waits =
      Events({MakePiece(1, {1000, 4000, 0, 0, 0, 0, 0}), MakePiece(2, {1000, 6000, 0, 0, 0, 0, 0})},
             "submitted -> sliced");
  ASSERT_EQ(waits.size(), 2u);
  EXPECT_DOUBLE_EQ(waits[1]["ts"], 3.0);
  EXPECT_DOUBLE_EQ(waits[1]["dur"], 2.0);
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
