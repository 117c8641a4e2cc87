#include "tools/demo/trace_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>
#include <utility>
#include <vector>

namespace railhop {
namespace {

using nlohmann::json;

constexpr std::string_view kActors[] = {"submit", "copy", "relay_post", "cq_poll"};
constexpr uint32_t kRowsPerActor = 1000;

// To Perfetto process and thread 0 are the kernel's idle task, and a thread's number is one of the
// whole machine: rows of two ranks under one number would be one row.
uint32_t ProcessOf(uint32_t rank) {
  return rank + 1;
}
uint32_t ThreadOf(uint32_t rank, uint32_t actor, uint32_t row) {
  return (ProcessOf(rank) * static_cast<uint32_t>(std::size(kActors)) + actor) * kRowsPerActor +
         row;
}

uint32_t ActorNumber(std::string_view actor) {
  const auto* const found = std::find(std::begin(kActors), std::end(kActors), actor);
  return static_cast<uint32_t>(found - std::begin(kActors));
}

struct Event {
  const TracedPiece* piece;
  uint32_t interval;
  uint32_t rank;
  uint64_t begin, end;  // ns
};

std::vector<Event> MakeEvents(std::span<const TracedPiece> pieces) {
  std::vector<Event> events;
  // By sender and lane: when its latest piece was sliced.
  std::map<std::array<uint64_t, 3>, uint64_t> last_sliced;
  for (const TracedPiece& piece : pieces) {
    for (uint32_t i = 0; i < kWholePiece; ++i) {
      const auto time = PieceIntervalTime(piece, i);
      if (!time) continue;
      const PieceInterval& interval = PieceIntervalOf(i);
      Event event{.piece = &piece,
                  .interval = i,
                  .rank = interval.at_relay ? piece.relay : piece.sender,
                  .begin = piece.At(interval.from),
                  .end = piece.At(interval.from) + *time};
      if (interval.to == PieceStage::kSliced) {
        uint64_t& last = last_sliced[{piece.sender_epoch, piece.relay_epoch, piece.lane}];
        event.begin = std::min(std::max(event.begin, last), event.end);
        last = event.end;
      }
      events.push_back(event);
    }
  }
  std::stable_sort(events.begin(), events.end(),
                   [](const Event& a, const Event& b) { return a.begin < b.begin; });
  return events;
}

// Hands out the rows of one actor: the first that is free again.
class Rows {
 public:
  uint32_t Take(const Event& event) {
    const auto free = std::find_if(free_at_.begin(), free_at_.end(),
                                   [&](uint64_t at) { return at <= event.begin; });
    const auto row = static_cast<uint32_t>(free - free_at_.begin());
    if (free == free_at_.end()) free_at_.push_back(0);
    free_at_[row] = event.end;
    return row;
  }
  size_t count() const { return free_at_.size(); }

 private:
  std::vector<uint64_t> free_at_;
};

json Metadata(const char* what, uint32_t rank, uint32_t thread, const std::string& name) {
  return {{"ph", "M"},
          {"name", what},
          {"pid", ProcessOf(rank)},
          {"tid", thread},
          {"args", {{"name", name}}}};
}

double Microseconds(uint64_t ns) {
  return static_cast<double>(ns) / 1000;
}

// Perfetto cuts times off at nanoseconds, and most of these numbers are a little less in binary
// than in decimal: an event would then begin one before the end of the event in front of it, and be
// dropped. A tenth of a nanosecond more, and all of them are what they are.
double EventMicroseconds(uint64_t ns) {
  return (static_cast<double>(ns) + 0.1) / 1000;
}

json ToJson(const Event& event, uint32_t thread, uint64_t start) {
  const TracedPiece& piece = *event.piece;
  json args{{"piece", fmt::format("{:x}-{:x}-{}-{}", piece.sender_epoch, piece.relay_epoch,
                                  piece.lane, piece.sequence)},
            {"sequence", piece.sequence},
            {"lane", piece.lane},
            {"bytes", piece.bytes},
            {"status", piece.status}};
  if (PieceIntervalOf(event.interval).to == PieceStage::kSliced) {
    args["waited_us"] = Microseconds(*PieceIntervalTime(piece, event.interval));
  }
  return {{"ph", "X"},
          {"cat", "piece"},
          {"name", PieceIntervalName(event.interval)},
          {"pid", ProcessOf(event.rank)},
          {"tid", thread},
          {"ts", EventMicroseconds(event.begin - start)},
          {"dur", EventMicroseconds(event.end - event.begin)},
          {"args", args}};
}

}  // namespace

void WriteChromeTrace(std::span<const TracedPiece> pieces, std::ostream& out) {
  const std::vector<Event> events = MakeEvents(pieces);
  const uint64_t start = events.empty() ? 0 : events.front().begin;
  std::map<uint32_t, std::array<Rows, std::size(kActors)>> rows;  // by rank
  const char* separator = "";
  const auto write = [&](const json& event) { out << std::exchange(separator, ",\n") << event; };
  out << "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  for (const Event& event : events) {
    const uint32_t actor = ActorNumber(PieceIntervalOf(event.interval).actor);
    const uint32_t row = rows[event.rank][actor].Take(event);
    write(ToJson(event, ThreadOf(event.rank, actor, row), start));
  }
  for (const auto& [rank, actors] : rows) {
    write(Metadata("process_name", rank, ThreadOf(rank, 0, 0), fmt::format("rank {}", rank)));
    for (uint32_t actor = 0; actor < std::size(kActors); ++actor) {
      for (uint32_t row = 0; row < actors[actor].count(); ++row) {
        write(Metadata("thread_name", rank, ThreadOf(rank, actor, row),
                       fmt::format("{} {}", kActors[actor], row)));
      }
    }
  }
  out << "\n]}\n";
}

}  // namespace railhop
