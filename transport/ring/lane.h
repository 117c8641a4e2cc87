// The sender's side of one lane: the mapping its actors write through, and the probe of a lane
// fresh from its claim.
//
// A LaneMapping is made by the control thread and does not change; the pointers it gives are for
// data actors, which make no system call through it but a wake.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "runtime/cache_line.h"
#include "transport/ring/control_block.h"
#include "transport/ring/descriptor.h"
#include "transport/ring/lane_claim.h"
#include "transport/ring/registry.h"
#include "transport/ring/sent_window.h"
#include "transport/ring/side_file.h"

namespace railhop {

class LaneMapping {
 public:
  // `arena_base` is the relay's arena as mapped here; it outlives this object.
  LaneMapping(std::shared_ptr<const PeerMapping> relay, const LaneClaim& claim,
              std::byte* arena_base)
      : relay_(std::move(relay)),
        claim_(claim),
        control_(&relay_->block().lanes[claim.lane]),
        side_(relay_->side() == nullptr ? nullptr : &relay_->side()->file().lanes[claim.lane]),
        slots_(arena_base + SlotOffset(claim.lane, 0)) {}

  const PeerMapping& relay() const { return *relay_; }
  // For whoever looks at the relay's block from another thread: it stays mapped meanwhile.
  std::shared_ptr<const PeerMapping> KeepRelay() const { return relay_; }
  const LaneClaim& claim() const { return claim_; }
  uint64_t relay_epoch() const { return relay_->epoch(); }

  LaneControl& control() const { return *control_; }
  Descriptor& descriptor(uint64_t sequence) const {
    return control_->descriptors[SlotIndex(sequence)];
  }
  std::byte* slot(uint64_t sequence) const { return slots_ + SlotIndex(sequence) * kSlotBytes; }

  // Before the descriptor is committed. A version-1 relay has no claim words: nothing to offer.
  void Offer(uint64_t sequence) const {
    if (side_ != nullptr) OfferPiece(*side_, sequence);
  }
  // True: the piece is the sender's again. False: it counts as taken.
  bool Revoke(uint64_t sequence) const { return side_ != nullptr && RevokePiece(*side_, sequence); }

  // The CPU doorbell; the bytes of every sequence up to this one lie in their slots.
  void RingDoorbell(uint64_t sequence) const { StoreRelease(control_->header.doorbell, sequence); }
  // After the doorbell was rung or issued.
  void PublishHead(uint64_t sequence) const { StoreRelease(control_->header.head, sequence); }
  // See PeerSide::Wake.
  bool WakeRelay() const {
    return relay_->side() != nullptr && relay_->side()->Wake(WakeRole::kRelay);
  }

  // Asks for the cache lines that the piece `sequence` will be announced by: the relay's core has
  // them, and without this the copy of its bytes waits behind the stores to them.
  void PrefetchForOffer(uint64_t sequence) const {
    const Descriptor& next = descriptor(sequence);
    __builtin_prefetch(&next.commit_sequence, 1);
    __builtin_prefetch(&next.plans[0], 1);
    if (side_ != nullptr) __builtin_prefetch(&side_->claims[SlotIndex(sequence)], 1);
  }
  // After the commit: while the bytes are copied the first lines of the descriptor go where the
  // relay's core finds them soon.
  void DemoteDescriptor(uint64_t sequence) const {
    const Descriptor& offered = descriptor(sequence);
    DemoteLine(&offered.commit_sequence);
    DemoteLine(&offered.plans[0]);
  }

 private:
  std::shared_ptr<const PeerMapping> relay_;
  LaneClaim claim_;
  LaneControl* control_;
  SideLane* side_;  // nullptr: a version-1 relay
  std::byte* slots_;
};

// Sends the probe, sequence 1 of a fresh claim: a piece of one byte for no registration the relay
// ever had. Nothing is copied and nothing offered; any relay that reads the lane from its start
// answers with an error. The answer comes by the completion ring as sequence 1.
inline void SendProbe(const LaneMapping& lane, DescriptorWriter& writer, RingCredit& credit) {
  const uint64_t sequence = credit.Take();
  const uint64_t wrong_epoch = lane.relay_epoch() == 1 ? 2 : lane.relay_epoch() - 1;
  const PlanEntry plan{.final_destination = 1, .length = 1};
  Descriptor& descriptor = lane.descriptor(sequence);
  writer.Prepare(descriptor, SlotIndex(sequence), wrong_epoch, "probe", {&plan, 1});
  DescriptorWriter::Commit(descriptor, sequence);
  lane.RingDoorbell(sequence);
  lane.PublishHead(sequence);
}

// Whether the completion of sequence 1 is the answer to a probe: an error. A success would mean
// that the relay took the probe for a piece; such a lane is left alone.
inline bool IsProbeAnswer(const SentCompletion& completion) {
  return completion.state == CompletionState::kReady && completion.sequence == 1 &&
         completion.status < 0;
}

}  // namespace railhop
