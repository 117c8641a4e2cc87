// Where the time of relayed pieces goes, over all ranks and runs of the demo: how the slots of each
// lane are used, how long each stage takes, and which actor bounds the throughput.
//
// One thread. Times of several processes are comparable: CLOCK_MONOTONIC of one machine.
#pragma once

#include <array>
#include <cstdint>
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "actors/piece_trace.h"

namespace railhop {

// What one rank process gathered (run_watch.h).
struct RankTrace {
  struct Lane {
    uint32_t lane = 0;
    int32_t relay_pid = 0;
    uint64_t samples = 0;
    std::array<uint64_t, 5> slots{};  // free, copying, rung, posted, completed: sums
  };
  struct Actor {
    std::string actor, reactor;
    double busy = 0;  // share of the time of relayed runs
  };
  PieceTrace trace;           // of the last run
  std::vector<Lane> lanes;    // of all runs so far
  std::vector<Actor> actors;  // the same
};
RankTrace ReadRankTrace(const nlohmann::json& reply);

// Who bounds the throughput, and how one can tell.
struct ThroughputBound {
  uint32_t rank = 0;
  std::string actor = {};      // empty: not known
  bool waits_for_nic = false;  // it has little to do itself
  double busy = 0;             // its share of the time of relayed runs
  std::string evidence = {};   // for people
};

class PieceReport {
 public:
  // Pieces beyond the first `keep` are counted and not kept for the trace file. `pids` by rank.
  PieceReport(std::vector<int32_t> pids, size_t keep);

  // After a relayed run: what each rank gathered, by rank.
  void AddRun(std::vector<RankTrace> ranks);

  // The first pieces, with all that was recorded of them; sender and relay are ranks.
  const std::vector<TracedPiece>& kept() const { return kept_; }
  uint64_t pieces() const { return times_.pieces(); }
  ThroughputBound FindBound() const;

  void PrintTables(std::ostream& out) const;
  void WriteJsonLines(std::ostream& out) const;

 private:
  // Of one rank's share in the pieces' time: what its own actors did or waited for.
  struct Share {
    std::array<double, kPieceIntervals> us{};
    std::array<uint64_t, kPieceIntervals> count{};
    double MeanUs(uint32_t interval) const {
      return count[interval] == 0 ? 0 : us[interval] / static_cast<double>(count[interval]);
    }
  };
  struct Load {
    uint32_t rank = 0;
    RankTrace::Actor actor;    // the busiest of the reactor
    double reactor_busy = -1;  // all actors of the reactor together; -1: nothing is known
  };
  struct LongestStage {
    uint32_t interval = 0;
    double mean_us = 0;  // 0: nothing was recorded
    double in_slot_us = 0;
    uint32_t rank = 0;  // that takes longest for it
    double rank_us = 0;
  };

  void AddPiece(const TracedPiece& piece);
  Load BusiestReactor() const;
  LongestStage FindLongestStage() const;
  double BusyOf(uint32_t rank, const std::string& actor) const;
  std::string RankOfPid(int32_t pid) const;

  const std::vector<int32_t> pids_;
  const size_t keep_;
  std::vector<RankTrace> ranks_;  // the latest
  std::vector<Share> shares_;     // by rank
  StageTimes times_;
  std::vector<TracedPiece> kept_;
  uint64_t lost_ = 0;
};

}  // namespace railhop
