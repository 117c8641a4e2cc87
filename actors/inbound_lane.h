// InboundLane: the pieces of one inbound lane, from the doorbell until each has been answered or
// its sender is gone.
//
//   ReadNext -> waiting, in the order of sequence -> Take (it is posted now) -> Free
//                                                 -> Drop (refused, or its sender is gone)
//
// Pure logic on the mapped block, one owner (RelayPostActor); nothing is allocated after
// construction. A record holds one piece with its own copy of the descriptor. There is one more
// than slots: when a lane changes hands, its new sender's first piece is read before the old
// sender's are dropped.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "actors/post_job.h"
#include "actors/target_route.h"
#include "transport/ring/descriptor.h"
#include "transport/ring/relay_lane.h"
#include "transport/ring/side_file.h"

namespace railhop {

struct InboundPiece {
  static constexpr uint32_t kNoName = UINT32_MAX;

  LanePiece id;
  const TargetRoute* route = nullptr;      // nullptr: its session is not resolved
  uint32_t name = kNoName;                 // the question about its session that it waits for
  bool was_asked = false;                  // about it, for this piece
  PathId path = 0;                         // if `route`
  RelayStatus verdict = RelayStatus::kOk;  // another: it is to be refused
  uint64_t deadline = 0;                   // cycles; while it waits
  DescriptorCopy descriptor;

  // While it waits: nobody was asked for its session.
  bool unasked() const {
    return route == nullptr && name == kNoName && verdict == RelayStatus::kOk;
  }
};

class InboundLane {
 public:
  enum class Result : uint8_t {
    kNothing,
    kPiece,          // *record waits
    kBadPiece,       // *bad is to be refused
    kUnknownSender,  // of sender_epoch(): ask PeerActor
    kQuarantined,    // said once per claim
  };

  // `side` is this rank's own side file.
  InboundLane(const ControlBlock& block, SideFile& side, uint64_t relay_epoch, uint32_t number);

  // Whether ReadNext would have something to say: never, unless the lane is in state kReady or
  // held.
  bool HasWork() { return reader_.HasWork(); }
  // A claim of the lane was seen, and not yet its end.
  bool held() const { return reader_.held(); }
  // `*changed_hands`: the pieces that waited are the former sender's and must be dropped now.
  Result ReadNext(uint32_t* record, LanePiece* bad, bool* changed_hands);

  void Admit(uint64_t sender_epoch);
  // The sender died: nothing more is read from it, or taken.
  void Lose(uint64_t sender_epoch);

  InboundPiece& piece(uint32_t record) { return pieces_[record]; }
  uint32_t waiting() const { return waiting_count_; }
  uint32_t WaitingRecord(uint32_t position) const { return waiting_[position]; }
  bool IsOfThisClaim(const InboundPiece& piece) const { return piece.id.generation == generation_; }

  // The claim on a waiting piece (ABI page, rule 8). kTaken and kForeign: it no longer waits and
  // may be posted.
  TakeResult Take(uint32_t position);
  // Its last request has completed.
  void Free(uint32_t record);
  // A waiting piece ends without having been posted.
  void Drop(uint32_t position);

  // Whether pieces of the sender are posted.
  bool IsPosted(uint64_t sender_epoch) const;

  uint64_t sender_epoch() const { return reader_.sender_epoch(); }
  bool HasAnnounced() const { return reader_.HasAnnounced(); }
  // Held by a sender of version 1, which wakes nobody.
  bool IsVersionOne() const;

 private:
  bool IsHeldBy(uint64_t sender_epoch) const;
  void RemoveWaiting(uint32_t position);
  void Release(uint32_t record);

  const LaneHeader& header_;
  SideLane& side_;
  RelayLaneReader reader_;
  std::unique_ptr<InboundPiece[]> pieces_;          // by record
  std::array<uint8_t, kRecordsPerLane> waiting_{};  // records, by sequence
  uint32_t waiting_count_ = 0;
  uint32_t free_ = (1u << kRecordsPerLane) - 1;  // records, as bits
  uint32_t posted_ = 0;                          // records, as bits
  uint32_t busy_slots_ = 0;  // bits: a piece of this claim that has not ended was read from it
  uint32_t generation_ = 0;
  uint64_t admitted_epoch_ = 0;
  uint64_t lost_epoch_ = 0;
  bool quarantined_ = false;
};

}  // namespace railhop
