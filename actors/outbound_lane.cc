#include "actors/outbound_lane.h"

#include <cassert>

namespace railhop {

void OutboundLane::Open(const LaneMapping* mapping, uint64_t next_sequence, uint32_t generation) {
  assert(mapping_ == nullptr && in_flight_ == 0);
  mapping_ = mapping;
  offer_ = Offer::kOpen;
  generation_ = generation;
  next_sequence_ = next_sequence;
  reaped_ = next_sequence - 1;
  last_answer_ = 0;
}

RingPiece& OutboundLane::Take(const TargetRoute* target, uint64_t deadline) {
  RingPiece& piece = NextSlot();
  assert(HasCredit() && piece.sequence == 0);
  piece.target = target;
  piece.sequence = next_sequence_++;
  piece.deadline = deadline;
  piece.copied = piece.revoked = piece.completed = piece.ended = piece.waiting = false;
  piece.detour = DirectReason::kNone;
  piece.next_span = 0;
  piece.status = 0;
  ++in_flight_;
  slots_[SlotIndex(piece.sequence)].store(piece.sequence << 1, std::memory_order_relaxed);
  return piece;
}

RingPiece* OutboundLane::Find(uint64_t sequence) {
  if (sequence == 0) return nullptr;
  RingPiece& piece = pieces_[SlotIndex(sequence)];
  return piece.sequence == sequence ? &piece : nullptr;
}

void OutboundLane::NoteCopied(RingPiece& piece) {
  piece.copied = true;
  slots_[SlotIndex(piece.sequence)].store(piece.sequence << 1 | 1, std::memory_order_relaxed);
  if (!piece.completed) bytes_at_relay_ += piece.content.length;
}

void OutboundLane::NoteCompleted(RingPiece& piece, int32_t status) {
  if (piece.completed) return;
  piece.completed = true;
  piece.status = status;
  if (piece.copied) bytes_at_relay_ -= piece.content.length;
}

void OutboundLane::Release(RingPiece& piece) {
  assert(piece.copied && piece.completed && piece.ended);
  slots_[SlotIndex(piece.sequence)].store(0, std::memory_order_relaxed);
  piece.sequence = 0;
  --in_flight_;
  while (reaped_ + 1 < next_sequence_ && pieces_[SlotIndex(reaped_ + 1)].sequence == 0) ++reaped_;
  if (offer_ == Offer::kQuarantined && in_flight_ == 0) offer_ = Offer::kOpen;
}

}  // namespace railhop
