#include "actors/copy_actor.h"

#include <array>
#include <cassert>
#include <utility>

#include "actors/slicer.h"
#include "runtime/fence.h"

namespace railhop {
namespace {

constexpr int kLaneShift = 56;

uint64_t Pack(uint32_t lane, uint64_t sequence) {
  return uint64_t{lane} << kLaneShift | sequence;
}

}  // namespace

CopyActor::CopyActor(std::string name, CopyEngine* engine)
    : Actor(std::move(name)), engine_(*engine) {
  AddPoller(this);
}

bool CopyActor::OnLaneReady(const LaneReady& ready) {
  lanes_[ready.lane] = {.mapping = ready.mapping, .writer = {}};
  return true;
}

// SubmitActor answers only when every copy of the lane is done, so there is nothing to wait for
// here. The mapping is kept for pieces that are still in the edge.
bool CopyActor::OnCloseLane(const CloseLane& close) {
  lane_closed_out.Send({close.lane});
  return true;
}

bool CopyActor::OnCopyPiece(const CopyPiece& piece) {
  Lane& lane = lanes_[piece.lane];
  const LaneMapping& mapping = *lane.mapping;
  Descriptor& descriptor = mapping.descriptor(piece.sequence);
  const DescriptorError error =
      lane.writer.Prepare(descriptor, SlotIndex(piece.sequence), mapping.relay_epoch(),
                          piece.target->name, piece.content->plans);
  if (error != DescriptorError::kNone) {
    copied_out.Send({piece.sequence, piece.lane, CopyOutcome::kRefused});
    return true;
  }
  mapping.Offer(piece.sequence);
  DescriptorWriter::Commit(descriptor, piece.sequence);
  [[maybe_unused]] const bool issued =
      engine_.Issue({.stream = piece.lane,
                     .spans = piece.content->copies,
                     .destination = mapping.slot(piece.sequence),
                     .doorbell = &mapping.control().header.doorbell,
                     .sequence = piece.sequence,
                     .user_data = Pack(piece.lane, piece.sequence)});
  assert(issued);  // a stream takes as many jobs as the ring has slots
  ++in_flight_;
  return true;
}

size_t CopyActor::Poll(uint64_t) {
  if (in_flight_ == 0) return 0;
  engine_.Progress(kCopyBudget);
  std::array<CopyDone, 16> done;
  const size_t count = engine_.Reap(done);
  for (size_t i = 0; i < count; ++i) {
    const auto lane = static_cast<uint32_t>(done[i].user_data >> kLaneShift);
    Publish(lane, done[i].user_data & ((uint64_t{1} << kLaneShift) - 1));
  }
  if (count != 0) {
    FullFence();
    for (size_t i = 0; i < count; ++i) {
      lanes_[done[i].user_data >> kLaneShift].mapping->WakeRelay();
    }
  }
  return 1;
}

// The engine has rung the doorbell: the piece is the relay's, the source the caller's.
void CopyActor::Publish(uint32_t lane, uint64_t sequence) {
  lanes_[lane].mapping->PublishHead(sequence);
  rung_out.Send({sequence, lane});
  copied_out.Send({sequence, lane, CopyOutcome::kRung});
  --in_flight_;
}

}  // namespace railhop
