// SubmitActor: takes batches, finds each request its way, and knows when a batch is over.
//
// It owns the request table's private part, the span queues, the sender's book of every outbound
// lane and the window of direct slices. Everything else it asks of other actors:
//   CopyPiece -> CopyActor -> PieceCopied     a piece into a ring slot; the source is free again
//   PostSlice -> RelayPostActor            a direct slice ...
//   SliceDone <- CqPollActor               ... or a relayed piece has ended
// What goes wrong on a lane is sent direct once. A direct slice that ends with a transport error is
// sent again on another path, until slice_attempts are used up or its batch's deadline has passed;
// any other error, as of an address outside its registration, fails the batch at once.
//
// A batch ends (docs/ring.md, "batch"): COMPLETED, FAILED or CANCELED when its last byte has ended
// one way or the other; TIMEOUT at its deadline while something can still land.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/batch_list.h"
#include "actors/fence_gate.h"
#include "actors/messages.h"
#include "actors/outbound_lane.h"
#include "actors/outlet.h"
#include "actors/piece_record.h"
#include "actors/region_table.h"
#include "actors/request_table.h"
#include "actors/route_planner.h"
#include "actors/slice_paths.h"
#include "actors/slice_size.h"
#include "runtime/actor.h"
#include "runtime/poller.h"
#include "runtime/slab.h"

namespace railhop {

// What a rank sent as a sender. One writer; readable from any thread.
struct SubmitStats {
  std::atomic<uint64_t> bytes_direct{0};
  std::atomic<uint64_t> bytes_relayed{0};
  std::atomic<uint64_t> pieces_relayed{0};
  std::atomic<uint64_t> slices_direct{0};
  std::atomic<uint64_t> slices_again{0};  // of these, sent once more after a failure
  // Spans that went direct, by reason.
  std::array<std::atomic<uint64_t>, static_cast<size_t>(DirectReason::kCount)> direct{};
};

class SubmitActor : public Actor, private Poller {
 public:
  static constexpr uint32_t kSpanPool = 32768;
  static constexpr uint32_t kDirectWindow = 256;  // direct slices under way

  struct Options {
    RoutePlanner::Options routes;
    uint32_t nic_count = 1;
    SliceSize slice = {};         // what a request is dealt out in over several paths
    uint32_t slice_attempts = 1;  // of a direct slice, the first one included
    JobSizes job_sizes = {.idle = 128 * 1024, .backlog = 128 * 1024};  // CopyEngine::job_sizes
    Fences* fences = nullptr;  // of batches that have to wait; outlives the actor
    uint64_t max_piece_bytes = kSlotBytes;
    uint64_t credit_timeout = 0;  // cycles
    uint64_t piece_timeout = 0;   // cycles
  };

  SubmitActor(std::string name, RequestTable* table, Options options);

  const SubmitStats& stats() const { return stats_; }
  // Any thread.
  const SlotWords& slots(uint32_t lane) const { return lanes_[lane].slots(); }

  bool OnBatchCommand(const BatchCommand& command);
  bool OnPieceCopied(const PieceCopied& done);
  bool OnSliceDone(const SliceDone& done);
  bool OnTargetReady(const TargetReady& ready);
  bool OnTargetFailed(const TargetFailed& failed);
  bool OnLaneReady(const LaneReady& ready);
  bool OnCloseLane(const CloseLane& close);
  bool OnDeadlineExpired(const DeadlineExpired& expired);

  void OnStop() override { stopping_ = true; }
  bool Drained() const override { return unwoken_.empty() && (batches_ == 0 || flushed_); }
  void OnFlush() override;

  OutPort<CopyPiece> copy_out;
  OutPort<PostSlice> post_out;
  OutPort<ArmDeadline> deadline_out;
  OutPort<WantRail> want_out;
  OutPort<LaneClosed> lane_closed_out;

  PieceTracer trace;  // kSubmitted, kSliced, kReaped

 private:
  friend class SubmitActorPeer;  // of the tests: looks whether every pool is full again

  struct DirectSlice {
    Span span;
    uint32_t target = 0;
    PathId path = kNoPath;    // that it was posted to last
    EndpointId endpoint = 0;  // of `path`, as its route had it
    uint32_t attempts = 0;
  };
  struct Target {
    const TargetRoute* route = nullptr;
    // What ended its routes up to `failed_version`; a later one is not affected.
    TransferError failure = TransferError::kUnknownTarget;
    uint32_t failed_version = 0;
    bool suspect = false;

    // != kNone: it cannot be reached now.
    TransferError failed() const {
      return route != nullptr && route->version > failed_version ? TransferError::kNone : failure;
    }
    uint64_t lane_turn = 0;  // alternates over lanes
    uint64_t path_turn = 0;  // alternates over the paths of a buffer
    uint64_t wanted_at = 0;  // cycles: when a peer was last asked for
  };

  // Poller: routes, then fills the ring slots and the direct window.
  size_t Poll(uint64_t now) override;
  uint64_t NextPoll(uint64_t now) override {
    return std::min(next_credit_check_, gate_.NextPoll(now));
  }

  // submit_actor.cc: batches
  bool IsLive(BatchId id) const;
  void ChangeRegions(const BatchCommand& command);
  bool IsStillToRoute(const Region& region) const;
  void StartBatch(uint32_t index);
  void HoldBack(uint32_t index);
  size_t LetThrough(uint64_t now);
  size_t RouteBatches();
  bool RouteSome(uint32_t index, size_t* budget);
  bool RoutePart(uint32_t index, const TransferRequest& request);
  bool Push(uint32_t outlet, uint32_t target, const Span& span);
  bool PushRelayed(const RoutePlanner::Route& route, Target& target, const Span& span);
  bool PushDirect(Target& target, const Span& span, DirectReason reason);
  bool IsOver(const Batch& batch) const;
  void NoteError(uint32_t index, TransferError error);
  void EndSpan(const Span& span, TransferError error, bool relayed);
  void FinishBatch(uint32_t index);
  void Publish(Batch& batch, BatchState state);
  void WakeWaiters();
  void Abandon(uint32_t index, TransferError error);
  void GiveUp(uint32_t index, TransferError error);
  void DropUnrouted(uint32_t index, TransferError error);
  uint64_t CountBytes(const Batch& batch) const;
  void Arm(uint32_t slot, uint64_t deadline);
  void CheckBatchDeadlines(uint64_t now);

  // submit_lanes.cc: lanes and direct slices
  void OpenLanes();
  size_t PumpLane(uint32_t lane, uint64_t now);
  bool OfferPiece(uint32_t lane, uint32_t target, Flow& flow, uint64_t now);
  void RecordSliced(const LaneMapping& mapping, const RingPiece& piece);
  void RecordReaped(const LaneMapping& mapping, const SliceDone& done);
  void CheckPieceDeadlines(uint32_t lane, uint64_t now);
  void CheckPieceDeadline(uint32_t lane, RingPiece& piece, uint64_t now);
  bool CarriesAbandoned(const RingPiece& piece) const;
  void TryRevoke(uint32_t lane, RingPiece& piece, DirectReason reason);
  void SettlePiece(uint32_t lane, RingPiece& piece);
  void SettleWaiting(uint32_t lane);
  bool EndContent(RingPiece& piece);
  bool SendAnotherWay(RingPiece& piece);
  void MoveFlowToDirect(uint32_t target, Flow& flow, DirectReason reason);
  void MoveLaneToDirect(uint32_t lane, DirectReason reason);
  void FailFlow(Flow& flow, TransferError error);
  void TryForgetLane(uint32_t lane);
  bool IsDirectIdle() const { return outlets_[kDirectLane].empty() && again_.empty(); }
  size_t PumpDirect();
  bool PostDirect(uint32_t target, Flow& flow);
  bool PostAgain(SlabHandle handle);
  void EndAgain(uint32_t batch, TransferError error);
  void Post(SlabHandle handle, DirectSlice& slice, PathId path);
  void EndDirect(SlabHandle handle, TransferError error);
  bool MayGoAgain(const DirectSlice& slice, TransferError error) const;
  void OnDirectDone(const SliceDone& done);

  const Options options_;
  RequestTable& table_;
  RoutePlanner planner_;
  RegionTable regions_;
  SpanPool pool_{kSpanPool};
  std::array<Target, kMaxTargets> targets_;

  // A lane number can be used again while completions of its last use are still in the edge from
  // CqPollActor: it is opened once that edge was empty.
  struct Opening {
    LaneReady ready{};
    uint32_t generation = 0;  // how many LaneReady there were
    bool waits = false;
  };
  std::array<Opening, kLaneCount> openings_;
  bool any_opening_ = false;
  size_t slices_taken_ = 0;  // SliceDone in this pass
  std::array<OutboundLane, kLaneCount> lanes_;
  std::array<Outlet, kLaneCount + 1> outlets_;  // the last one is the direct one
  std::array<bool, kLaneCount> closing_{};      // PeerActor waits for LaneClosed
  // By slot of ArmDeadline: what the watchdog has, and what has to go there and found no room.
  std::array<uint64_t, kDeadlineSlots> armed_;
  std::array<uint64_t, kDeadlineSlots> to_arm_;
  bool unarmed_ = false;  // one of the latter
  Slab<DirectSlice> direct_{kDirectWindow};
  SlicePaths paths_;
  std::vector<SlabHandle> again_;  // slices of the window that have failed and wait for a path

  std::vector<bool> live_;       // by batch: started and not over
  uint32_t batches_ = 0;         // how many of them
  uint32_t abandoned_ = 0;       // of these, how many were given up
  std::vector<Batch*> unwoken_;  // published, and not looked at since for late waiters
  FenceGate gate_;               // batches whose source is not ready yet
  BatchList active_{&table_};    // batches with something left to route
  uint32_t waiting_pieces_ = 0;  // RingPiece::waiting
  uint64_t next_credit_check_ = kNever;
  bool stopping_ = false;
  bool flushed_ = false;
  SubmitStats stats_;
};

}  // namespace railhop
