// The relay's side of one inbound lane: what its post actor reads and what its poll actor writes.
//
// Pure logic on the mapped block: no threads, no system calls, no allocation. RelayLaneReader
// belongs to the post actor, RelayLaneWriter to the poll actor; they share nothing but the block. A
// piece carries the lane's local generation from the one to the other, so that a completion of a
// claim that is gone is never written.
#pragma once

#include <array>
#include <cstdint>

#include "transport/ring/completion.h"
#include "transport/ring/control_block.h"
#include "transport/ring/descriptor.h"
#include "transport/ring/side_file.h"

namespace railhop {

// Names a piece of an inbound lane, for as long as the relay handles it.
struct LanePiece {
  uint64_t sequence = 0;
  uint64_t sender_epoch = 0;
  uint32_t generation = 0;  // grows by 1 with each claim of the lane that the reader saw
  DescriptorError error = DescriptorError::kNone;
  uint32_t slot() const { return SlotIndex(sequence); }
};

enum class LanePoll : uint8_t {
  kIdle,           // nothing new
  kPiece,          // a good piece
  kBadPiece,       // answer it with kBadDescriptor; nothing to post
  kNotReady,       // nobody holds the lane, or the relay itself does
  kUnknownSender,  // said once per claim: have the control thread look at the sender, then Admit
  kSlotBusy,       // the next slot is still read for a sender of before: wait for its EndPost
  kChanged,        // the lane changed hands under the read; ask again
  kQuarantined,    // the doorbell made no sense; until the lane is claimed anew
};

class RelayLaneReader {
 public:
  // `side` is the relay's own. `relay_epoch` is that of its registration.
  RelayLaneReader(const LaneControl& lane, const SideLane& side, uint64_t relay_epoch)
      : lane_(&lane), side_(&side), relay_epoch_(relay_epoch) {}

  // Whether Poll would have something to say: a few loads of one cache line.
  bool HasWork() {
    const LaneHeader& header = lane_->header;
    if (LoadLaneState(header) != LaneState::kReady) return held_;
    const uint64_t sender_epoch = LoadAcquire(header.sender_epoch);
    if (sender_epoch == relay_epoch_ || sender_epoch == 0) return held_;
    if (!held_ || sender_epoch != sender_epoch_ || WasCleared()) return true;
    if (quarantined_) return LoadAcquire(side_->claim_count) != claim_count_;
    if (admitted_epoch_ != sender_epoch_) return !asked_;
    // Any doorbell but the last one: a claim that started anew has a lower one.
    const uint64_t doorbell = LoadAcquire(header.doorbell);
    return doorbell >= next_sequence_ || doorbell != last_doorbell_;
  }
  // A claim of the lane was seen, and not yet its end.
  bool held() const { return held_; }
  // The sender announced a piece whose bytes are still being copied: do not sleep long.
  bool HasAnnounced() const {
    return held_ && admitted_epoch_ == sender_epoch_ && !quarantined_ &&
           LoadAcquire(lane_->header.head) >= next_sequence_;
  }

  // Reads the next piece, into `copy` and `piece` on kPiece and kBadPiece; it is then the caller's,
  // to be completed in any order.
  LanePoll Poll(DescriptorCopy& copy, LanePiece& piece);

  // The control thread saw the sender of this epoch alive and watches it (docs/ring.md, rule 11).
  void Admit(uint64_t sender_epoch) { admitted_epoch_ = sender_epoch; }
  // The sender died: nothing more is read from its lane.
  void Dismiss() { admitted_epoch_ = 0; }

  // Around the posts of a good piece: while one is out, its slot is not read for another sender.
  void BeginPost(const LanePiece& piece);
  void EndPost(const LanePiece& piece);
  // Pieces between BeginPost and EndPost. 0: the lane's posts are drained.
  uint32_t in_flight() const { return in_flight_; }

  // Of the claim last seen; 0 before the first.
  uint64_t sender_epoch() const { return sender_epoch_; }
  uint32_t generation() const { return generation_; }
  uint64_t next_sequence() const { return next_sequence_; }

 private:
  struct SlotUse {
    uint32_t posts = 0;
    uint32_t generation = 0;
  };

  // `completed`, which within a claim only the relay moves, is 0 again: the lane was claimed anew
  // under the same epoch, by a version-1 sender, which counts no claims.
  bool WasCleared() {
    const bool answered = LoadAcquire(lane_->header.completed) != 0;
    answered_ = answered_ || answered;
    return answered_ && !answered;
  }
  // The lane is still held by the claim that was seen.
  bool SameClaim() const;
  void Restart(uint64_t sender_epoch, uint64_t claim_count);

  const LaneControl* lane_;
  const SideLane* side_;
  uint64_t relay_epoch_;

  bool held_ = false;
  bool quarantined_ = false;
  bool asked_ = false;     // kUnknownSender was said
  bool answered_ = false;  // `completed` was seen above 0
  uint32_t generation_ = 0;
  uint64_t sender_epoch_ = 0;
  uint64_t claim_count_ = 0;
  uint64_t admitted_epoch_ = 0;
  uint64_t next_sequence_ = 1;
  uint64_t last_doorbell_ = 0;
  uint32_t in_flight_ = 0;
  std::array<SlotUse, kSlotsPerLane> slots_{};
};

class RelayLaneWriter {
 public:
  explicit RelayLaneWriter(LaneControl& lane) : lane_(&lane) {}

  // Answers a piece, once nothing of it is in flight any more (docs/ring.md, rule 2). In any order;
  // `completed` moves over the contiguous prefix. False: the lane has changed hands, or the piece
  // was answered before; nothing is written.
  bool Complete(const LanePiece& piece, RelayStatus status);

 private:
  LaneControl* lane_;
  uint32_t generation_ = 0;
  uint64_t completed_ = 0;
  uint32_t done_ = 0;  // bit i: completed_ + 1 + i is answered
};

}  // namespace railhop
