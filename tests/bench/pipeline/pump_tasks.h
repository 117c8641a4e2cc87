// What a single-pump engine does for a request outside of its pump: the Transfer Engine that it is
// a transport of, as the single-pump implementation's own description tells it, step by step.
//
//   batch -> a task for each request -> which lane, if any -> spans by (target, lane) -> pieces
//   piece -> a submission: a slice for each span, and what is called when they are posted, are
//            done or have failed;   task: counts its slices
//
// Threads: one, that of the load generator and the pump; the counts are atomic all the same, since
// an engine's NIC workers and its callers are others.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "transport/engine/data_path.h"
#include "transport/fabric/fabric.h"

namespace railhop {

struct PumpTask;

struct PumpSlice {
  enum class Status : uint8_t { kPending, kPosted, kDone, kFailed };
  const std::byte* source = nullptr;
  uint64_t destination = 0;
  uint64_t length = 0;
  PumpTask* task = nullptr;
  Status status = Status::kPending;
};

struct PumpTask {
  std::vector<PumpSlice*> slices;
  uint64_t total_bytes = 0;
  std::atomic<uint64_t> moved_bytes{0};
  std::atomic<uint32_t> done{0};
  std::atomic<uint32_t> failed{0};
};

struct PumpBatch {
  explicit PumpBatch(size_t size) : tasks(size) {}
  std::vector<PumpTask> tasks;
};

struct PumpSpan {
  const std::byte* source = nullptr;
  uint64_t destination = 0;
  uint64_t length = 0;
  size_t request = 0;
};

struct PumpPiece {
  uint64_t length = 0;
  std::vector<PumpSpan> spans;
};

// A piece on its way, with the slices of its spans.
struct PumpSubmission {
  PumpPiece piece;
  std::string session;
  std::vector<PumpSlice*> slices;
  std::function<void(PumpSlice*)> posted, succeeded, failed;
  std::chrono::steady_clock::time_point enqueued;  // for the credit timeout

  // Slices and spans belong together, one to one.
  bool IsSound() const;
};

class PumpTasks {
 public:
  using Enqueue = std::function<void(uint32_t lane, PumpSubmission submission)>;

  explicit PumpTasks(std::string own_rail) : own_rail_(std::move(own_rail)) {}

  // Set-up.
  void AddSource(const std::byte* address, uint64_t length, std::string location);
  SegmentId AddTarget(TargetInfo target);
  void AddLane(const std::string& rail, uint32_t lane) { lane_of_rail_[rail] = lane; }

  std::unique_ptr<PumpBatch> Allocate(size_t size) { return std::make_unique<PumpBatch>(size); }
  // False: a request that is not relayed, which this benchmark has none of.
  bool Submit(PumpBatch& batch, std::span<const TransferRequest> requests, const Enqueue& enqueue);
  // Of one task: kPending until each of its slices has ended.
  static BatchState StateOf(const PumpBatch& batch, size_t task);
  void Free(std::unique_ptr<PumpBatch> batch);

 private:
  struct Source {
    const std::byte* address;
    uint64_t length;
    std::string location;
  };
  struct Group {
    SegmentId target;
    uint32_t lane;
    std::vector<PumpSpan> spans;
  };

  std::optional<uint32_t> SelectLane(const TransferRequest& request) const;
  PumpSubmission MakeSubmission(PumpBatch& batch, PumpPiece piece, const std::string& session);
  PumpSlice* TakeSlice();

  const std::string own_rail_;
  std::vector<Source> sources_;
  std::unordered_map<SegmentId, std::shared_ptr<const TargetInfo>> targets_;
  std::map<std::string, std::string> rail_map_;  // empty: a NIC is its own rail
  std::unordered_map<std::string, uint32_t> lane_of_rail_;
  std::deque<PumpSlice> slices_;  // the slice cache, and what of it is free
  std::vector<PumpSlice*> free_slices_;
};

// Spans into pieces of at most a slot and a descriptor's entries; a span may be split.
std::vector<PumpPiece> BuildPieces(std::span<const PumpSpan> spans);

}  // namespace railhop
