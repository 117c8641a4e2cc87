// CopyActor: publishes pieces. It writes the descriptor, has the bytes copied into the peer's slot,
// and tells the peer: offered -> descriptor committed -> bytes copied -> doorbell -> head (ABI
// page, "Ring rules"). Where a device rings, head comes when the copy is issued: it announces the
// doorbell, and goes back to the last one that was rung if that will not come. SubmitActor has
// taken the ring slot before.
//
// Once a piece is reported copied nothing here touches its lane for it any more, so a lane whose
// pieces have all been reported may be unmapped.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>

#include "actors/messages.h"
#include "actors/piece_record.h"
#include "runtime/actor.h"
#include "runtime/poller.h"
#include "transport/copy/copy_engine.h"
#include "transport/ring/descriptor.h"

namespace railhop {

class CopyActor : public Actor, private Poller {
 public:
  // Bytes copied in one pass: 10 to 50 us of memcpy, after which the reactor's other actors are
  // due.
  static constexpr uint64_t kCopyBudget = 256 * 1024;

  // `engine` has one stream per outbound lane and room for a ring of jobs in each.
  CopyActor(std::string name, CopyEngine* engine);

  bool OnCopyPiece(const CopyPiece& piece);
  bool OnLaneReady(const LaneReady& ready);
  bool OnCloseLane(const CloseLane& close);

  bool Drained() const override { return in_flight_ == 0 && unwoken_ == 0; }
  // Copies read the source and end by themselves, within milliseconds.
  void OnFlush() override {}

  OutPort<PieceCopied> copied_out;
  OutPort<PieceRung> rung_out;
  OutPort<LaneClosed> lane_closed_out;

  PieceTracer trace;  // kCopyIssued

 private:
  struct Lane {
    const LaneMapping* mapping = nullptr;
    DescriptorWriter writer;
    uint32_t generation = 0;  // how many LaneReady there were
    bool closed = true;       // CloseLane was answered
    bool failed = false;      // a copy failed: publish nothing more
    bool announced = false;   // pieces are announced when they are issued: a device rings
    uint64_t rung = 0;        // sequence of the last piece whose doorbell was rung
  };

  size_t Poll(uint64_t now) override;
  void StoreHead(uint32_t lane, uint64_t sequence);
  void Announce(uint32_t lane, uint64_t sequence);
  void Publish(std::span<const CopyDone> done);
  void WakeRelays();
  void Report(const CopyDone& done);

  CopyEngine& engine_;
  std::array<Lane, kLaneCount> lanes_;
  std::array<CopyDone, 16> done_;
  uint32_t in_flight_ = 0;
  uint32_t unwoken_ = 0;  // lanes, as bits, whose relay seemed awake when a doorbell was rung
};

}  // namespace railhop
