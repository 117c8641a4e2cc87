#include "tools/demo/piece_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <utility>

#include "transport/ring/control_block.h"

namespace railhop {
namespace {

using nlohmann::json;

constexpr const char* kSlotStates[] = {"free", "copying", "rung", "posted", "completed"};
// A reactor that works for this share of the time has nothing left: the rest is parking and waking.
constexpr double kNothingLeft = 0.85;
// Intervals of a piece that has a ring slot; before, it waits for one.
constexpr uint32_t kFirstInSlot = 1;

double PerSample(const RankTrace::Lane& lane, size_t state) {
  return lane.samples == 0
             ? 0
             : static_cast<double>(lane.slots[state]) / static_cast<double>(lane.samples);
}

}  // namespace

RankTrace ReadRankTrace(const json& reply) {
  RankTrace read;
  for (const json& row : reply["records"]) {
    read.trace.records.push_back({.at = row[0],
                                  .submitted = row[1],
                                  .relay_epoch = row[2],
                                  .sender_epoch = row[3],
                                  .sequence = row[4],
                                  .lane = row[5],
                                  .stage = static_cast<PieceStage>(row[6].get<uint32_t>()),
                                  .bytes = row[7],
                                  .status = row[8]});
  }
  read.trace.lost = reply["lost"];
  for (const json& lane : reply["lanes"]) {
    read.lanes.push_back({.lane = lane["lane"],
                          .relay_pid = lane["relay_pid"],
                          .samples = lane["samples"],
                          .slots = lane["slots"]});
  }
  for (const json& actor : reply["actors"]) {
    read.actors.push_back(
        {.actor = actor["actor"], .reactor = actor["reactor"], .busy = actor["busy"]});
  }
  return read;
}

PieceReport::PieceReport(std::vector<int32_t> pids, size_t keep)
    : pids_(std::move(pids)), keep_(keep), shares_(pids_.size()) {}

void PieceReport::AddRun(std::vector<RankTrace> ranks) {
  ranks_ = std::move(ranks);
  std::vector<PieceTrace> traces;
  for (RankTrace& rank : ranks_) {
    lost_ += rank.trace.lost;
    traces.push_back(std::exchange(rank.trace, {}));
  }
  for (const TracedPiece& piece : JoinPieces(traces)) AddPiece(piece);
}

void PieceReport::AddPiece(const TracedPiece& piece) {
  if (!times_.Add(piece)) return;
  if (kept_.size() < keep_) kept_.push_back(piece);
  if (piece.status != 0) return;
  for (uint32_t i = 0; i < kWholePiece; ++i) {
    const auto time = PieceIntervalTime(piece, i);
    if (!time) continue;
    Share& share = shares_[PieceIntervalOf(i).at_relay ? piece.relay : piece.sender];
    share.us[i] += static_cast<double>(*time) / 1000;
    ++share.count[i];
  }
}

PieceReport::Load PieceReport::BusiestReactor() const {
  Load busiest;
  for (uint32_t rank = 0; rank < ranks_.size(); ++rank) {
    std::map<std::string, Load> reactors;
    for (const RankTrace::Actor& actor : ranks_[rank].actors) {
      Load& load = reactors[actor.reactor];
      if (load.reactor_busy < 0) load = {.rank = rank, .actor = actor, .reactor_busy = 0};
      load.reactor_busy += actor.busy;
      if (actor.busy > load.actor.busy) load.actor = actor;
    }
    for (const auto& [name, load] : reactors) {
      if (load.reactor_busy > busiest.reactor_busy) busiest = load;
    }
  }
  return busiest;
}

// Of a mean piece, whichever ranks it passes; then the rank that takes longest for that.
PieceReport::LongestStage PieceReport::FindLongestStage() const {
  LongestStage longest;
  Share all;
  for (uint32_t i = kFirstInSlot; i < kWholePiece; ++i) {
    for (const Share& share : shares_) {
      all.us[i] += share.us[i];
      all.count[i] += share.count[i];
    }
    longest.in_slot_us += all.MeanUs(i);
    if (all.MeanUs(i) > longest.mean_us) longest.mean_us = all.MeanUs(longest.interval = i);
  }
  for (uint32_t rank = 0; rank < shares_.size(); ++rank) {
    const double mean = shares_[rank].MeanUs(longest.interval);
    if (mean <= longest.rank_us) continue;
    longest.rank = rank;
    longest.rank_us = mean;
  }
  return longest;
}

double PieceReport::BusyOf(uint32_t rank, const std::string& actor) const {
  for (const RankTrace::Actor& row : ranks_[rank].actors) {
    if (row.actor == actor) return row.busy;
  }
  return 0;
}

ThroughputBound PieceReport::FindBound() const {
  const Load load = BusiestReactor();
  const LongestStage stage = FindLongestStage();
  const std::string stage_text =
      stage.mean_us == 0
          ? "no piece was recorded"
          : fmt::format(
                "a piece has its slot for {:.1f} us on average, {:.1f} of them in {}, which takes "
                "longest at rank {} ({:.1f} us)",
                stage.in_slot_us, stage.mean_us, PieceIntervalName(stage.interval), stage.rank,
                stage.rank_us);
  if (load.reactor_busy >= kNothingLeft) {
    return {.rank = load.rank,
            .actor = load.actor.actor,
            .waits_for_nic = false,
            .busy = load.actor.busy,
            .evidence = fmt::format("it is busy {:.0f} % of the time and its reactor \"{}\" "
                                    "{:.0f} %; {}",
                                    100 * load.actor.busy, load.actor.reactor,
                                    100 * load.reactor_busy, stage_text)};
  }
  if (stage.mean_us == 0) return {.evidence = stage_text};
  // An actor of the relay that has time left waits for its NIC: for completions, or for the budget
  // and the send queue room that they give back.
  const PieceInterval& interval = PieceIntervalOf(stage.interval);
  const double busy = BusyOf(stage.rank, interval.actor);
  return {.rank = stage.rank,
          .actor = interval.actor,
          .waits_for_nic = interval.at_relay,
          .busy = busy,
          .evidence = fmt::format("{}; it is busy {:.0f} % of the time, and no reactor more than "
                                  "{:.0f} %",
                                  stage_text, 100 * busy, 100 * std::max(load.reactor_busy, 0.0))};
}

std::string PieceReport::RankOfPid(int32_t pid) const {
  const auto found = std::find(pids_.begin(), pids_.end(), pid);
  return found == pids_.end() ? "?" : std::to_string(found - pids_.begin());
}

void PieceReport::PrintTables(std::ostream& out) const {
  out << fmt::format("{:<5} {:>4} {:>7} {:>8}", "rank", "lane", "to rank", "samples");
  for (const char* state : kSlotStates) out << fmt::format(" {:>9}", state);
  out << fmt::format("   (of {} slots, mean while relayed batches ran)\n", kSlotsPerLane);
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const RankTrace::Lane& lane : ranks_[rank].lanes) {
      out << fmt::format("{:<5} {:>4} {:>7} {:>8}", rank, lane.lane, RankOfPid(lane.relay_pid),
                         lane.samples);
      for (size_t i = 0; i < lane.slots.size(); ++i) {
        out << fmt::format(" {:>9.2f}", PerSample(lane, i));
      }
      out << "\n";
    }
  }
  out << fmt::format("\n{:<30} {:>7} {:>11} {:>11} {:>11}  {}\n", "stage of a relayed piece",
                     "pieces", "p50 us", "p99 us", "max us", "actor");
  for (uint32_t i = 0; i < kPieceIntervals; ++i) {
    const LatencySummary time = times_.Summary(i);
    out << fmt::format("{:<30} {:>7} {:>11.2f} {:>11.2f} {:>11.2f}  {}\n", PieceIntervalName(i),
                       time.count, time.p50_us, time.p99_us, time.max_us, PieceIntervalOf(i).actor);
  }
  out << fmt::format(
      "{} pieces were recorded, {} of them not relayed in the end; {} records were "
      "lost\n\n",
      times_.pieces(), times_.failed(), lost_);
  const ThroughputBound bound = FindBound();
  if (bound.actor.empty()) {
    out << fmt::format("what bounds the throughput is not known: {}\n\n", bound.evidence);
  } else {
    out << fmt::format("throughput is bounded by {} of rank {}{}: {}\n\n", bound.actor, bound.rank,
                       bound.waits_for_nic ? ", which waits for its NIC" : "", bound.evidence);
  }
}

void PieceReport::WriteJsonLines(std::ostream& out) const {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const RankTrace::Lane& lane : ranks_[rank].lanes) {
      json line{{"name", "demo.slots"},        {"rank", rank},
                {"lane", lane.lane},           {"to_rank", RankOfPid(lane.relay_pid)},
                {"samples", lane.samples},     {"value", kSlotsPerLane - PerSample(lane, 0)},
                {"unit", "slots in use, mean"}};
      for (size_t i = 0; i < lane.slots.size(); ++i) line[kSlotStates[i]] = PerSample(lane, i);
      out << line << "\n";
    }
  }
  for (uint32_t i = 0; i < kPieceIntervals; ++i) {
    const LatencySummary time = times_.Summary(i);
    out << json{{"name", "demo.stage"},
                {"stage", PieceIntervalName(i)},
                {"actor", PieceIntervalOf(i).actor},
                {"value", time.p50_us},
                {"unit", "us"},
                {"p99_us", time.p99_us},
                {"max_us", time.max_us},
                {"count", time.count}}
        << "\n";
  }
  const ThroughputBound bound = FindBound();
  out << json{{"name", "demo.bound"},       {"rank", bound.rank},
              {"actor", bound.actor},       {"waits_for_nic", bound.waits_for_nic},
              {"value", bound.busy},        {"unit", "share of the time it is busy"},
              {"evidence", bound.evidence}, {"pieces", times_.pieces()},
              {"failed", times_.failed()},  {"records_lost", lost_}}
      << "\n";
}

}  // namespace railhop
