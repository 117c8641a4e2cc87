#include "transport/ring/relay_lane.h"

#include <utility>

#include "runtime/fault_point.h"

namespace railhop {

bool RelayLaneReader::SameClaim() const {
  return LoadAcquire(lane_->header.sender_epoch) == sender_epoch_ &&
         LoadAcquire(side_->claim_count) == claim_count_ &&
         LoadLaneState(lane_->header) == LaneState::kReady;
}

void RelayLaneReader::Restart(uint64_t sender_epoch, uint64_t claim_count) {
  held_ = true;
  quarantined_ = false;
  asked_ = false;
  answered_ = false;
  ++generation_;
  sender_epoch_ = sender_epoch;
  claim_count_ = claim_count;
  next_sequence_ = 1;
  last_doorbell_ = 0;
}

LanePoll RelayLaneReader::Poll(DescriptorCopy& copy, LanePiece& piece) {
  // Rule 1: state, sender_epoch, doorbell, the copy, then the first two again.
  const LaneHeader& header = lane_->header;
  if (LoadLaneState(header) != LaneState::kReady) {
    held_ = false;
    return LanePoll::kNotReady;
  }
  const uint64_t sender_epoch = LoadAcquire(header.sender_epoch);
  const uint64_t claim_count = LoadAcquire(side_->claim_count);
  if (sender_epoch == relay_epoch_ || sender_epoch == 0) {
    held_ = false;
    return LanePoll::kNotReady;
  }
  if (!held_ || sender_epoch != sender_epoch_ || claim_count != claim_count_ || WasCleared()) {
    Restart(sender_epoch, claim_count);
  }
  if (admitted_epoch_ != sender_epoch_) {
    return std::exchange(asked_, true) ? LanePoll::kNotReady : LanePoll::kUnknownSender;
  }
  if (quarantined_) return LanePoll::kQuarantined;

  const uint64_t doorbell = LoadAcquire(header.doorbell);
  if (doorbell < last_doorbell_ || doorbell > next_sequence_ + (kSlotsPerLane - 1)) {
    if (!SameClaim()) return LanePoll::kChanged;
    quarantined_ = true;
    return LanePoll::kQuarantined;
  }
  if (doorbell < next_sequence_) return LanePoll::kIdle;

  const uint32_t slot = SlotIndex(next_sequence_);
  if (slots_[slot].posts > 0 && slots_[slot].generation != generation_) return LanePoll::kSlotBusy;
  CopyDescriptor(lane_->descriptors[slot], copy);
  if (!SameClaim()) return LanePoll::kChanged;

  last_doorbell_ = doorbell;
  piece = {.sequence = next_sequence_,
           .sender_epoch = sender_epoch_,
           .generation = generation_,
           .error = Validate(copy, next_sequence_, relay_epoch_)};
  ++next_sequence_;
  return piece.error == DescriptorError::kNone ? LanePoll::kPiece : LanePoll::kBadPiece;
}

void RelayLaneReader::BeginPost(const LanePiece& piece) {
  SlotUse& use = slots_[piece.slot()];
  ++use.posts;
  use.generation = piece.generation;
  ++in_flight_;
}

void RelayLaneReader::EndPost(const LanePiece& piece) {
  --slots_[piece.slot()].posts;
  --in_flight_;
}

bool RelayLaneWriter::Complete(const LanePiece& piece, RelayStatus status) {
  if (piece.generation < generation_) return false;
  if (piece.generation > generation_) {
    generation_ = piece.generation;
    completed_ = 0;
    done_ = 0;
  }
  LaneHeader& header = lane_->header;
  if (LoadLaneState(header) != LaneState::kReady ||
      LoadAcquire(header.sender_epoch) != piece.sender_epoch) {
    return false;
  }
  const uint64_t ahead = piece.sequence - completed_ - 1;  // wraps for one that was answered
  if (ahead >= kSlotsPerLane || (done_ >> ahead & 1) != 0) return false;

  CommitCompletion(lane_->completions[piece.slot()], piece.sequence, static_cast<int32_t>(status));
  RAILHOP_FAULT_POINT("relay.completion_committed");
  done_ |= 1u << ahead;
  if ((done_ & 1) == 0) return true;
  while ((done_ & 1) != 0) {
    done_ >>= 1;
    ++completed_;
  }
  StoreRelease(header.completed, completed_);
  RAILHOP_FAULT_POINT("relay.completed_moved");
  return true;
}

}  // namespace railhop
