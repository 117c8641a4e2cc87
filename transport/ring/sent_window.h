// What a sender knows of the pieces it has out in one lane: ring credit, kept by its submit side,
// and which completions are still to come, kept by its poll side.
//
// Plain integers with one owner each; no atomics but the reads of the lane. Sequences go on where
// the claim of the lane says (LaneClaim::first_sequence).
#pragma once

#include <cstdint>

#include "transport/ring/completion.h"
#include "transport/ring/control_block.h"

namespace railhop {

// The window of sequences that were handed out and not yet reaped, reaped in any order.
class SequenceWindow {
 public:
  explicit SequenceWindow(uint64_t first_sequence) : oldest_(first_sequence) {}

  // Not reaped; all before it are.
  uint64_t oldest() const { return oldest_; }
  bool IsReaped(uint64_t sequence) const {
    return sequence < oldest_ ||
           (sequence - oldest_ < kSlotsPerLane && (reaped_ >> (sequence - oldest_) & 1) != 0);
  }
  // A sequence of the window: oldest() .. oldest() + 17; any other changes nothing.
  void Reap(uint64_t sequence) {
    if (sequence - oldest_ >= kSlotsPerLane) return;
    reaped_ |= 1u << (sequence - oldest_);
    while ((reaped_ & 1) != 0) {
      reaped_ >>= 1;
      ++oldest_;
    }
  }

 private:
  uint64_t oldest_;
  uint32_t reaped_ = 0;  // bit i: oldest_ + i is reaped
};

// Sequences to hand out: 18 beyond the last that was reaped with all before it.
class RingCredit {
 public:
  explicit RingCredit(uint64_t first_sequence) : next_(first_sequence), window_(first_sequence) {}

  bool Available() const { return next_ - (window_.oldest() - 1) <= kSlotsPerLane; }
  uint32_t Outstanding() const { return static_cast<uint32_t>(next_ - window_.oldest()); }
  // Only if Available().
  uint64_t Take() { return next_++; }
  // The completion of `sequence` was read, or the piece is given up with its slot quiescent.
  void Return(uint64_t sequence) { window_.Reap(sequence); }

 private:
  uint64_t next_;
  SequenceWindow window_;
};

struct SentCompletion {
  CompletionState state = CompletionState::kPending;
  uint64_t sequence = 0;
  int32_t status = 0;  // of kReady: 0 or negative
};

// Finds completions, in the order in which the relay wrote them or nearly so. A relay of another
// kind completes head first; this one does not rely on it.
class CompletionReader {
 public:
  explicit CompletionReader(uint64_t first_sequence) : window_(first_sequence) {}

  // The next one; kPending: no more for now. On kMalformed quarantine the lane and ask no more.
  SentCompletion Poll(const LaneControl& lane) {
    const uint64_t oldest = window_.oldest();
    const uint64_t head = LoadAcquire(lane.header.head);
    for (uint64_t i = 0; i < kSlotsPerLane && oldest + i <= head; ++i) {
      SentCompletion found{.sequence = oldest + i};
      if (window_.IsReaped(found.sequence)) continue;
      found.state = TryLoadCompletion(lane.completions[SlotIndex(found.sequence)], found.sequence,
                                      &found.status);
      if (found.state == CompletionState::kPending) continue;
      window_.Reap(found.sequence);
      return found;
    }
    return {};
  }

 private:
  SequenceWindow window_;
};

}  // namespace railhop
