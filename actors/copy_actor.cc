#include "actors/copy_actor.h"

#include <array>
#include <bit>
#include <cassert>
#include <utility>

#include "actors/slicer.h"
#include "runtime/fault_point.h"
#include "runtime/fence.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

constexpr int kLaneShift = 56;

uint64_t Pack(uint32_t lane, uint64_t sequence) {
  return uint64_t{lane} << kLaneShift | sequence;
}
uint32_t LaneOf(const CopyDone& done) {
  return static_cast<uint32_t>(done.user_data >> kLaneShift);
}
uint64_t SequenceOf(const CopyDone& done) {
  return done.user_data & ((uint64_t{1} << kLaneShift) - 1);
}

}  // namespace

CopyActor::CopyActor(std::string name, CopyEngine* engine)
    : Actor(std::move(name)), engine_(*engine) {
  AddPoller(this);
}

bool CopyActor::OnLaneReady(const LaneReady& ready) {
  Lane& lane = lanes_[ready.lane];
  engine_.Reset(ready.lane);
  lane = {.mapping = ready.mapping,
          .writer = {},
          .generation = lane.generation + 1,
          .closed = false,
          .rung = ready.next_sequence - 1};
  return true;
}

// SubmitActor answers only when every copy of the lane is done, so there is nothing to wait for
// here, once. The mapping is kept for pieces that are still in the edge.
bool CopyActor::OnCloseLane(const CloseLane& close) {
  if (unwoken_ != 0) WakeRelays();
  if (!std::exchange(lanes_[close.lane].closed, true)) lane_closed_out.Send({close.lane});
  return true;
}

bool CopyActor::OnCopyPiece(const CopyPiece& piece) {
  Lane& lane = lanes_[piece.lane];
  // SubmitActor heard of the lane first; LaneReady is on its way here, on an edge of its own.
  if (piece.lane_generation != lane.generation) return false;
  if (unwoken_ != 0) WakeRelays();
  const LaneMapping& mapping = *lane.mapping;
  Descriptor& descriptor = mapping.descriptor(piece.sequence);
  if (lane.failed ||
      lane.writer.Prepare(descriptor, SlotIndex(piece.sequence), mapping.relay_epoch(),
                          piece.target->name, piece.content->plans) != DescriptorError::kNone) {
    copied_out.Send({piece.sequence, piece.lane, CopyOutcome::kRefused});
    return true;
  }
  mapping.Offer(piece.sequence);
  RAILHOP_FAULT_POINT("sender.offered");
  DescriptorWriter::Commit(descriptor, piece.sequence);
  RAILHOP_FAULT_POINT("sender.committed");
  mapping.DemoteDescriptor(piece.sequence);
  // Before the issue: a GPU may be seen to have rung the doorbell before the call returns.
  if (trace.Samples(piece.sequence)) {
    trace.RecordOutbound({.at = reactor().clock().Now(),
                          .relay_epoch = mapping.relay_epoch(),
                          .sequence = piece.sequence,
                          .lane = mapping.claim().lane,
                          .stage = PieceStage::kCopyIssued});
  }
  [[maybe_unused]] const bool issued =
      engine_.Issue({.stream = piece.lane,
                     .spans = piece.content->copies,
                     .destination = mapping.slot(piece.sequence),
                     .doorbell = &mapping.control().header.doorbell,
                     .sequence = piece.sequence,
                     .user_data = Pack(piece.lane, piece.sequence)});
  assert(issued);  // a stream takes as many jobs as the ring has slots
  ++in_flight_;
  if (engine_.DeviceRings(piece.lane)) Announce(piece.lane, piece.sequence);
  return true;
}

size_t CopyActor::Poll(uint64_t) {
  if (unwoken_ != 0) WakeRelays();
  if (in_flight_ == 0) return 0;
  engine_.Progress(kCopyBudget);
  const size_t count = engine_.Reap(done_);
  if (count != 0) Publish({done_.data(), count});
  return 1;
}

void CopyActor::StoreHead(uint32_t lane, uint64_t sequence) {
  lanes_[lane].mapping->PublishHead(sequence);
  RAILHOP_FAULT_POINT("sender.head_stored");
}

// A relay that sleeps does not see a device ring: told of the piece, it looks often enough.
void CopyActor::Announce(uint32_t lane, uint64_t sequence) {
  lanes_[lane].announced = true;
  StoreHead(lane, sequence);
  if (!lanes_[lane].mapping->WakeRelay()) unwoken_ |= 1u << lane;
}

// The engine has rung the doorbells: the pieces are the relays', their sources the callers'.
void CopyActor::Publish(std::span<const CopyDone> done) {
  uint32_t rung = 0;
  bool closed = false;
  for (const CopyDone& piece : done) {
    if (piece.status != CopyStatus::kOk) continue;
    const uint32_t lane = LaneOf(piece);
    if (!lanes_[lane].announced) StoreHead(lane, SequenceOf(piece));
    lanes_[lane].rung = SequenceOf(piece);
    rung_out.Send({SequenceOf(piece), lane});
    rung |= 1u << lane;
    closed = closed || lanes_[lane].closed;
  }
  for (; rung != 0; rung &= rung - 1) {
    const int lane = std::countr_zero(rung);
    if (!lanes_[lane].mapping->WakeRelay()) unwoken_ |= 1u << lane;
  }
  // Once its last piece is reported, the mapping of a closed lane is no longer ours to look at.
  if (closed) WakeRelays();
  for (const CopyDone& piece : done) Report(piece);
  in_flight_ -= static_cast<uint32_t>(done.size());
}

// A relay that seemed awake may have been about to park: that shows after a full fence. At once the
// fence would wait until the doorbell has reached the other core, some 200 ns; by the next piece,
// or the next pass, it has.
void CopyActor::WakeRelays() {
  FullFence();
  for (; unwoken_ != 0; unwoken_ &= unwoken_ - 1) {
    lanes_[std::countr_zero(unwoken_)].mapping->WakeRelay();
  }
}

void CopyActor::Report(const CopyDone& done) {
  Lane& lane = lanes_[LaneOf(done)];
  CopyOutcome outcome = CopyOutcome::kRung;
  if (done.status != CopyStatus::kOk) {
    // Its doorbell was not rung, but that of a later piece would tell the relay to send it.
    lane.mapping->Revoke(SequenceOf(done));
    // The relay would look for the doorbell for ever, and the lane would never count as drained.
    if (lane.announced && !lane.failed) lane.mapping->PublishHead(lane.rung);
    lane.failed = true;
    outcome = CopyOutcome::kRefused;
  }
  copied_out.Send({SequenceOf(done), LaneOf(done), outcome});
}

}  // namespace railhop
