#include "actors/piece_trace.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace railhop {
namespace {

constexpr std::string_view kStageNames[kPieceStages] = {
    "submitted", "sliced", "copy issued", "doorbell seen", "posted", "completed", "reaped"};

using enum PieceStage;
constexpr PieceInterval kIntervals[kPieceIntervals] = {
    {kSubmitted, kSliced, "submit", false},      {kSliced, kCopyIssued, "copy", false},
    {kCopyIssued, kDoorbellSeen, "copy", false}, {kDoorbellSeen, kPosted, "relay_post", true},
    {kPosted, kCompleted, "cq_poll", true},      {kCompleted, kReaped, "submit", false},
    {kSubmitted, kReaped, "all of them", false},
};

bool IsOfRelay(PieceStage stage) {
  return stage == kDoorbellSeen || stage == kPosted || stage == kCompleted;
}

struct Placed {
  PieceRecord record;
  uint32_t rank;
};

class Joiner {
 public:
  void Add(const Placed& placed) {
    const PieceRecord& record = placed.record;
    TracedPiece& piece = PieceFor(record);
    piece.at[static_cast<size_t>(record.stage)] = record.at;
    (IsOfRelay(record.stage) ? piece.relay : piece.sender) = placed.rank;
    if (record.stage == kSliced) {
      piece.at[static_cast<size_t>(kSubmitted)] = record.submitted;
      piece.bytes = record.bytes;
    }
    if (record.status != 0) piece.status = record.status;
  }
  std::vector<TracedPiece> Take() { return std::move(pieces_); }

 private:
  using Key = std::tuple<uint64_t, uint64_t, uint32_t, uint64_t>;

  TracedPiece& PieceFor(const PieceRecord& record) {
    const Key key{record.relay_epoch, record.sender_epoch, record.lane, record.sequence};
    const auto [found, is_new] = open_.try_emplace(key, pieces_.size());
    if (!is_new && pieces_[found->second].At(record.stage) == 0) return pieces_[found->second];
    found->second = pieces_.size();
    TracedPiece& piece = pieces_.emplace_back();
    piece.relay_epoch = record.relay_epoch;
    piece.sender_epoch = record.sender_epoch;
    piece.lane = record.lane;
    piece.sequence = record.sequence;
    return piece;
  }

  std::map<Key, size_t> open_;
  std::vector<TracedPiece> pieces_;
};

}  // namespace

std::string_view PieceStageName(PieceStage stage) {
  return kStageNames[static_cast<size_t>(stage)];
}

std::vector<TracedPiece> JoinPieces(std::span<const PieceTrace> traces) {
  std::vector<Placed> all;
  for (uint32_t rank = 0; rank < traces.size(); ++rank) {
    for (const PieceRecord& record : traces[rank].records) all.push_back({record, rank});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Placed& a, const Placed& b) { return a.record.at < b.record.at; });
  Joiner joiner;
  for (const Placed& placed : all) joiner.Add(placed);
  return joiner.Take();
}

const PieceInterval& PieceIntervalOf(uint32_t interval) {
  return kIntervals[interval];
}

std::string PieceIntervalName(uint32_t interval) {
  const PieceInterval& ends = kIntervals[interval];
  return std::string(PieceStageName(ends.from)) + " -> " + std::string(PieceStageName(ends.to));
}

std::optional<uint64_t> PieceIntervalTime(const TracedPiece& piece, uint32_t interval) {
  const uint64_t from = piece.At(kIntervals[interval].from);
  const uint64_t to = piece.At(kIntervals[interval].to);
  if (from == 0 || to == 0) return std::nullopt;
  return to < from ? 0 : to - from;
}

std::vector<std::unique_ptr<Histogram>> StageTimes::MakeHistograms() {
  std::vector<std::unique_ptr<Histogram>> times;
  for (uint32_t i = 0; i < kPieceIntervals; ++i) times.push_back(std::make_unique<Histogram>());
  return times;
}

bool StageTimes::Add(const TracedPiece& piece) {
  if (piece.At(kSliced) == 0 && piece.At(kDoorbellSeen) == 0) return false;
  ++pieces_;
  if (piece.status != 0) {
    ++failed_;
    return true;
  }
  for (uint32_t i = 0; i < kPieceIntervals; ++i) {
    if (const auto time = PieceIntervalTime(piece, i)) times_[i]->Add(*time);
  }
  return true;
}

LatencySummary StageTimes::Summary(uint32_t interval) const {
  const HistogramSnapshot snapshot = times_[interval]->Snapshot();
  const auto microseconds = [](uint64_t ns) { return static_cast<double>(ns) / 1000; };
  return {.count = snapshot.Count(),
          .p50_us = microseconds(snapshot.Percentile(50)),
          .p99_us = microseconds(snapshot.Percentile(99)),
          .max_us = microseconds(snapshot.Max())};
}

}  // namespace railhop
