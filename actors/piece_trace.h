// Puts together what several ranks of a host recorded of pieces, and says how long each stage took.
//
//   std::vector<TracedPiece> pieces = JoinPieces(traces);   // one PieceTrace per rank
//   StageTimes times;
//   for (const TracedPiece& piece : pieces) times.Add(piece);
//
// Pure logic over plain values; any thread. Units: nanoseconds of CLOCK_MONOTONIC, as
// Rank::TakePieceTrace has them.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "actors/piece_record.h"
#include "runtime/histogram.h"

namespace railhop {

struct TracedPiece {
  static constexpr uint32_t kNobody = UINT32_MAX;

  std::array<uint64_t, kPieceStages> at{};  // by stage; 0: not recorded
  uint32_t sender = kNobody;                // position of the rank in JoinPieces' argument
  uint32_t relay = kNobody;
  uint64_t relay_epoch = 0;
  uint64_t sender_epoch = 0;
  uint64_t sequence = 0;
  uint32_t lane = 0;  // of the relay's control block
  uint32_t bytes = 0;
  int32_t status = 0;  // 0, or why it was not relayed

  uint64_t At(PieceStage stage) const { return at[static_cast<size_t>(stage)]; }
};

// Pieces in the order of their first stage but kSubmitted. A record that repeats a stage of a piece
// begins a new one: its lane was claimed anew.
std::vector<TracedPiece> JoinPieces(std::span<const PieceTrace> traces);

// The time between a stage and the next one, and between the first and the last.
inline constexpr uint32_t kPieceIntervals = kPieceStages;
inline constexpr uint32_t kWholePiece = kPieceIntervals - 1;
struct PieceInterval {
  PieceStage from, to;
  const char* actor;  // whose work, or wait, it is
  bool at_relay;      // of the relay, else of the sender
};
const PieceInterval& PieceIntervalOf(uint32_t interval);
// "submitted -> sliced", ...
std::string PieceIntervalName(uint32_t interval);
// nullopt: one of its ends is not recorded. The clocks of two processes agree to within some tens
// of nanoseconds: what would be less than 0 is 0.
std::optional<uint64_t> PieceIntervalTime(const TracedPiece& piece, uint32_t interval);

// Of relayed pieces: those that ended otherwise are only counted.
class StageTimes {
 public:
  // False, and nothing is counted: it is no piece, only an answer - to the probe of a lane, or to
  // what was no descriptor.
  bool Add(const TracedPiece& piece);

  LatencySummary Summary(uint32_t interval) const;
  uint64_t pieces() const { return pieces_; }
  uint64_t failed() const { return failed_; }  // of them: refused, revoked, or failed at the relay

 private:
  // Nanoseconds. On the heap: 15 KiB each.
  std::vector<std::unique_ptr<Histogram>> times_ = MakeHistograms();
  uint64_t pieces_ = 0;
  uint64_t failed_ = 0;

  static std::vector<std::unique_ptr<Histogram>> MakeHistograms();
};

}  // namespace railhop
