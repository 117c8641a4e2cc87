// What is recorded of a piece on its way, and where: each data actor owns a PieceTracer and writes
// into it the stages that it sees itself. docs/tracing.md has the way of a record to a table.
//
// Only pieces whose sequence is a multiple of `sample_every` are recorded, so that sender and relay
// choose the same ones without a word. For all others, and while tracing is off, a stage costs one
// test of the sequence.
//
// Threads: the tracer is written by its actor's reactor; Take from any other thread, one at a time.
// Clock: each stage reads the clock by itself (16 ns). The time of the reactor's pass would be up
// to one pass early, which is longer than most stages.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/trace_ring.h"

namespace railhop {

// In the order in which a relayed piece passes them.
enum class PieceStage : uint32_t {
  kSubmitted,     // the application submitted the first of the batches in it
  kSliced,        // SubmitActor took a ring slot for it and cut it
  kCopyIssued,    // CopyActor hands it to the copy engine
  kDoorbellSeen,  // RelayPostActor of the relay has read it
  kPosted,        // ... has claimed it and given it to the poster, which has room for it
  kCompleted,     // CqPollActor of the relay is about to write its completion
  kReaped,        // SubmitActor of the sender has the relay's answer
};
inline constexpr uint32_t kPieceStages = 7;
// "submitted", "sliced", "copy issued", ...
std::string_view PieceStageName(PieceStage stage);

// One stage of one piece. What names the piece is known to both sides: two pieces that are alike in
// all four are one process's on a lane that it gave back and claimed again.
struct PieceRecord {
  uint64_t at = 0;           // cycles; nanoseconds of CLOCK_MONOTONIC once a rank hands it out
  uint64_t submitted = 0;    // the same; kSliced, which tells of kSubmitted as well
  uint64_t relay_epoch = 0;  // of the relay's registration
  uint64_t sender_epoch = 0;
  uint64_t sequence = 0;
  uint32_t lane = 0;  // of the relay's control block
  PieceStage stage = PieceStage::kSubmitted;
  uint32_t bytes = 0;  // kSliced
  int32_t status = 0;  // kCompleted, kReaped: 0, or why it was not relayed
};

struct PieceTrace {
  std::vector<PieceRecord> records;  // of one actor in order, actors one after another
  uint64_t lost = 0;                 // records that were overwritten before they were taken
};

class PieceTracer {
 public:
  // Records between two Takes; older ones are lost.
  static constexpr uint32_t kCapacity = 8192;

  // Set-up. `sample_every` is a power of two. `own_epoch`: of this rank's registration.
  void Enable(uint64_t sample_every, uint64_t own_epoch) {
    ring_ = std::make_unique<TraceRing<PieceRecord>>(kCapacity);
    own_epoch_ = own_epoch;
    mask_ = sample_every - 1;
  }

  // The actor.
  bool Samples(uint64_t sequence) const { return (sequence & mask_) == 0; }
  // Only of pieces that it samples. Of this rank's own pieces, and of those of other ranks; the
  // epoch of this rank is filled in.
  void RecordOutbound(PieceRecord record) {
    record.sender_epoch = own_epoch_;
    ring_->Write(record);
  }
  void RecordInbound(PieceRecord record) {
    record.relay_epoch = own_epoch_;
    ring_->Write(record);
  }

  // The reader: visit(record) for each since the last Take; returns how many were lost.
  template <class Visit>
  uint64_t Take(Visit visit) {
    return ring_ == nullptr ? 0 : ring_->Take(visit);
  }

 private:
  uint64_t mask_ = UINT64_MAX;  // off: no sequence is 0
  uint64_t own_epoch_ = 0;
  std::unique_ptr<TraceRing<PieceRecord>> ring_;
};

}  // namespace railhop
