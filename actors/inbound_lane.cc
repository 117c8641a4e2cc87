#include "actors/inbound_lane.h"

#include <bit>
#include <cassert>
#include <utility>

namespace railhop {

InboundLane::InboundLane(const ControlBlock& block, SideFile& side, uint64_t relay_epoch,
                         uint32_t number)
    : header_(block.lanes[number].header),
      side_(side.lanes[number]),
      reader_(block.lanes[number], side.lanes[number], relay_epoch),
      pieces_(std::make_unique<InboundPiece[]>(kRecordsPerLane)) {}

bool InboundLane::IsHeldBy(uint64_t sender_epoch) const {
  return LoadLaneState(header_) == LaneState::kReady &&
         LoadAcquire(header_.sender_epoch) == sender_epoch;
}

InboundLane::Result InboundLane::ReadNext(uint32_t* record, LanePiece* bad, bool* changed_hands) {
  *changed_hands = false;
  if (!reader_.HasWork()) return Result::kNothing;
  // Take will want it: it comes from the sender's core beside the descriptor, not after it.
  __builtin_prefetch(&side_.claims[SlotIndex(reader_.next_sequence())], 1);
  // A sender that runs ahead of its completions would have its own piece overwritten here.
  const bool slot_busy = (busy_slots_ >> SlotIndex(reader_.next_sequence()) & 1) != 0;
  if (slot_busy && IsHeldBy(reader_.sender_epoch())) return Result::kNothing;

  assert(free_ != 0);
  const auto free = static_cast<uint32_t>(std::countr_zero(free_));
  InboundPiece& piece = pieces_[free];
  const LanePoll poll = reader_.Poll(piece.descriptor, piece.id);
  if (reader_.generation() != generation_) {
    generation_ = reader_.generation();
    busy_slots_ = 0;
    quarantined_ = false;
    *changed_hands = true;
  }
  switch (poll) {
    case LanePoll::kPiece:
      free_ &= ~(1u << free);
      busy_slots_ |= 1u << piece.id.slot();
      piece.route = nullptr;
      piece.name = InboundPiece::kNoName;
      piece.was_asked = false;
      piece.verdict = RelayStatus::kOk;
      waiting_[waiting_count_++] = static_cast<uint8_t>(free);
      *record = free;
      return Result::kPiece;
    case LanePoll::kBadPiece:
      *bad = piece.id;
      return Result::kBadPiece;
    case LanePoll::kUnknownSender:
      return Result::kUnknownSender;
    case LanePoll::kQuarantined:
      return std::exchange(quarantined_, true) ? Result::kNothing : Result::kQuarantined;
    default:
      return Result::kNothing;
  }
}

void InboundLane::Admit(uint64_t sender_epoch) {
  if (sender_epoch == lost_epoch_) return;
  admitted_epoch_ = sender_epoch;
  reader_.Admit(sender_epoch);
}

void InboundLane::Lose(uint64_t sender_epoch) {
  lost_epoch_ = sender_epoch;
  if (admitted_epoch_ == sender_epoch) reader_.Dismiss();
}

TakeResult InboundLane::Take(uint32_t position) {
  const uint32_t record = waiting_[position];
  const LanePiece& id = pieces_[record].id;
  // A lane that is no longer the sender's: whoever cleared it may write into the slot.
  if (!IsHeldBy(id.sender_epoch)) return TakeResult::kRevoked;
  const TakeResult result = TakePiece(side_, id.sender_epoch, id.sequence);
  if (result == TakeResult::kRevoked) return result;
  RemoveWaiting(position);
  posted_ |= 1u << record;
  reader_.BeginPost(id);
  return result;
}

void InboundLane::Free(uint32_t record) {
  assert((posted_ >> record & 1) != 0);
  posted_ &= ~(1u << record);
  reader_.EndPost(pieces_[record].id);
  Release(record);
}

void InboundLane::Drop(uint32_t position) {
  const uint32_t record = waiting_[position];
  RemoveWaiting(position);
  Release(record);
}

bool InboundLane::IsPosted(uint64_t sender_epoch) const {
  for (uint32_t left = posted_; left != 0; left &= left - 1) {
    if (pieces_[std::countr_zero(left)].id.sender_epoch == sender_epoch) return true;
  }
  return false;
}

bool InboundLane::IsVersionOne() const {
  return IsHeldBy(reader_.sender_epoch()) && reader_.sender_epoch() == admitted_epoch_ &&
         admitted_epoch_ != 0 && LoadAcquire(side_.sender_epoch) != admitted_epoch_;
}

void InboundLane::RemoveWaiting(uint32_t position) {
  --waiting_count_;
  for (uint32_t i = position; i < waiting_count_; ++i) waiting_[i] = waiting_[i + 1];
}

void InboundLane::Release(uint32_t record) {
  free_ |= 1u << record;
  const LanePiece& id = pieces_[record].id;
  if (id.generation == generation_) busy_slots_ &= ~(1u << id.slot());
}

}  // namespace railhop
