// OutboundLane: the sender's book of one lane - which ring slots are taken, by what, and whether
// more may be offered.
//
// Pure logic, one owner (SubmitActor); slots() is for any thread. A slot's life: free -> copying ->
// rung -> completed -> free. Revoked pieces keep their ring slot until the relay has completed them
// too. Sequences of a lane are given out once and in order; the ring has room while next_sequence -
// reaped <= 18.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "actors/route_planner.h"
#include "actors/slicer.h"
#include "actors/target_route.h"

namespace railhop {

class LaneMapping;

struct RingPiece {
  PieceContent content;
  const TargetRoute* target = nullptr;
  uint64_t sequence = 0;  // 0: the slot is free
  uint64_t deadline = 0;  // cycles; kNoDeadline once it has been acted on
  bool copied = false;    // the source is no longer read
  bool revoked = false;   // the relay will not send it
  // Why spans of it go direct; kNone: they do not.
  DirectReason detour = DirectReason::kNone;
  bool completed = false;
  bool ended = false;      // each span has been finished or sent another way
  bool waiting = false;    // some could not be sent another way yet, for want of room
  uint32_t next_span = 0;  // the first of those
  int32_t status = 0;      // if completed
};

// What other threads may see of a lane's ring slots, at any time: 0 for a free one, else the
// sequence of its piece << 1, and 1 beside it once the piece is copied. Relaxed; one writer.
using SlotWords = std::array<std::atomic<uint64_t>, kSlotsPerLane>;

class OutboundLane {
 public:
  static constexpr uint64_t kNoDeadline = UINT64_MAX;

  enum class Offer : uint8_t {
    kClosed,  // no such lane, or its end was announced
    kOpen,
    kQuarantined,  // the relay is stuck: nothing new until all slots are free again
    kBroken,       // the relay wrote nonsense: nothing new until the lane is closed
  };

  // `generation`: how many LaneReady of the lane there were, this one included.
  void Open(const LaneMapping* mapping, uint64_t next_sequence, uint32_t generation);
  // Nothing new; what is under way goes on.
  void CloseOffers() { offer_ = Offer::kClosed; }
  void Quarantine() {
    if (offer_ == Offer::kOpen) offer_ = Offer::kQuarantined;
  }
  void Break() {
    if (offer_ != Offer::kClosed) offer_ = Offer::kBroken;
  }
  // After CloseOffers, with no slot taken: forgets the mapping.
  void Forget() { mapping_ = nullptr; }

  const LaneMapping* mapping() const { return mapping_; }
  Offer offer() const { return offer_; }
  bool HasCredit() const {
    return offer_ == Offer::kOpen && next_sequence_ - reaped_ <= kSlotsPerLane;
  }
  // When the relay last completed a piece of the lane, in cycles; 0: not yet.
  void NoteAnswer(uint64_t now) { last_answer_ = now; }
  uint64_t last_answer() const { return last_answer_; }
  uint32_t in_flight() const { return in_flight_; }
  // Of pieces that the relay has in hand: rung and not completed.
  uint64_t bytes_at_relay() const { return bytes_at_relay_; }
  uint64_t next_sequence() const { return next_sequence_; }
  uint32_t generation() const { return generation_; }
  const SlotWords& slots() const { return slots_; }

  // The slot of the next sequence, to cut a piece into. Only with credit.
  RingPiece& NextSlot() { return pieces_[SlotIndex(next_sequence_)]; }
  // Takes it: the content is in place.
  RingPiece& Take(const TargetRoute* target, uint64_t deadline);
  // The piece in flight under this sequence, or nullptr.
  RingPiece* Find(uint64_t sequence);
  // Its copy has ended; the relay has answered it, or never will. In any order.
  void NoteCopied(RingPiece& piece);
  void NoteCompleted(RingPiece& piece, int32_t status);
  // Frees the slot of a piece that is copied, completed and ended.
  void Release(RingPiece& piece);

  template <class Visit>
  void EachInFlight(Visit visit) {
    for (RingPiece& piece : pieces_) {
      if (piece.sequence != 0) visit(piece);
    }
  }

 private:
  const LaneMapping* mapping_ = nullptr;
  Offer offer_ = Offer::kClosed;
  uint32_t generation_ = 0;
  uint64_t next_sequence_ = 1;
  uint64_t reaped_ = 0;  // every sequence up to here is free again
  uint64_t last_answer_ = 0;
  uint32_t in_flight_ = 0;
  uint64_t bytes_at_relay_ = 0;
  std::array<RingPiece, kSlotsPerLane> pieces_;
  SlotWords slots_{};
};

}  // namespace railhop
