// RelayPostActor: posts everything that leaves by this rank's NICs - the pieces that other ranks
// put into its inbound lanes, and its own direct slices.
//
//   doorbell -> read, validate -> wait for a share of the budget -> claim -> cut into requests,
//   post
//
// A piece that is refused before its claim (bad, revoked, no such target, too late) is completed
// with an error and its lane goes on. Lanes and direct slices get equal numbers of bytes; one
// target may hold half of the budget, and a piece beyond that is set aside, still revocable, while
// later ones of its lane go on.
//
// Thread: the one that posts to the NICs, and the only one that may disconnect endpoints in use.
// Edges: posted_out needs room for kJobEdgeCapacity messages (post_job.h); the others may be full.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/deficit_round_robin.h"
#include "actors/inbound_lane.h"
#include "actors/job_poster.h"
#include "actors/messages.h"
#include "actors/piece_record.h"
#include "actors/target_table.h"
#include "runtime/actor.h"
#include "runtime/poller.h"
#include "transport/ring/side_directory.h"

namespace railhop {

// One writer; readable from any thread.
struct RelayPostStats {
  std::atomic<uint64_t> pieces_read{0};
  std::atomic<uint64_t> pieces_dropped{0};  // without an answer: their sender is gone
  std::atomic<uint64_t> lanes_quarantined{0};
  std::atomic<uint64_t> requests_posted{0};
};

class RelayPostActor : public Actor, public Poller {
 public:
  struct Options {
    ControlBlock* control = nullptr;  // this rank's own; nullptr: it relays for nobody
    LocalSide* side = nullptr;        // with `control`
    uint64_t epoch = 0;               // of the registration
    std::byte* arena = nullptr;
    std::vector<uint32_t> arena_lkeys;  // per NIC
    std::vector<Nic*> nics;             // with send queues of 2 requests or more
    SliceSize slice = {};
    uint64_t inflight_bytes = 4 * kSlotBytes;
    // A piece that waits longer is refused; an endpoint on which nothing ends for so long is
    // reported.
    std::chrono::nanoseconds piece_timeout = std::chrono::seconds(5);
    std::chrono::nanoseconds doorbell_poll = std::chrono::microseconds(50);
  };

  RelayPostActor(std::string name, Options options);

  const RelayPostStats& stats() const { return stats_; }

  bool OnPostSlice(const PostSlice& slice);
  bool OnJobDone(const JobDone& done);
  bool OnRoomReturned(const RoomReturned&);
  bool OnTargetReady(const TargetReady& ready);
  bool OnTargetFailed(const TargetFailed& failed);
  bool OnCloseEndpoint(const CloseEndpoint& close);
  bool OnSenderAdmitted(const SenderAdmitted& admitted);
  bool OnSenderLost(const SenderLost& lost);

  void OnStart() override;
  void OnStop() override;
  bool Drained() const override;
  void OnFlush() override;

  // Poller
  size_t Poll(uint64_t now) override;
  void OnPark() override;
  void OnUnpark() override;
  uint64_t NextPoll(uint64_t now) override;

  OutPort<JobPosted> posted_out;
  OutPort<PieceRefused> refused_out;
  OutPort<ResolveTarget> resolve_out;
  OutPort<EndpointError> error_out;
  OutPort<SenderSeen> seen_out;
  OutPort<SenderDrained> drained_out;

  PieceTracer trace;  // kDoorbellSeen, kPosted

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kNames = 16;  // asked for at once

  // What lanes and NICs do not know of a job.
  struct Job {
    uint32_t target = 0;
    uint64_t length = 0;
  };
  struct Slice {
    PostSlice request{};
    PlanEntry plan{};
    uint32_t next = kNone;  // free, or waiting
  };
  struct SliceList {
    uint32_t head = kNone;
    uint32_t tail = kNone;
  };
  // A session name that EndpointActor is asked for.
  struct Name {
    bool asked = false;
    uint32_t length = 0;
    std::array<char, kMaxSessionBytes> bytes;
    std::string_view view() const { return {bytes.data(), length}; }
  };
  // What PeerActor is still to be told of a lane.
  struct PeerNews {
    uint64_t seen_epoch = 0;  // 0: nothing
    uint64_t lost_epoch = 0;  // SenderDrained is due once nothing of it is posted; 0: nothing
  };

  // relay_post_lanes.cc: from the doorbell to a piece that could be posted
  size_t ReadLane(uint32_t lane, uint64_t now);
  size_t AcceptPiece(uint32_t lane, uint32_t record, uint64_t now);
  void Refuse(uint32_t lane, const LanePiece& piece, RelayStatus status);
  void ExpireWaiting(uint32_t lane, uint64_t now);
  size_t RefuseCondemned(uint32_t lane);
  void Condemn(InboundPiece& piece, RelayStatus verdict);
  void DropPiece(uint32_t lane, uint32_t position);
  void DropSender(uint32_t lane, uint64_t sender_epoch);
  void AskForSession(InboundPiece& piece);
  size_t AskForSessions();
  void SetRoute(InboundPiece& piece, const TargetRoute& route);
  bool PickPath(InboundPiece& piece) const;
  size_t TellPeerActor();
  template <class Visit>
  void EachWaitingPiece(Visit visit) {
    for (InboundLane& lane : lanes_) {
      for (uint32_t i = 0; i < lane.waiting(); ++i) visit(lane.piece(lane.WaitingRecord(i)));
    }
  }

  // relay_post_actor.cc: from there to its end
  uint32_t ClaimedLanes() const;
  uint64_t NextItem(size_t source);
  uint64_t NextPiece(uint32_t lane);
  uint64_t NextSlice();
  Served ServePiece(uint32_t lane, uint64_t now);
  Served ServeSlice(uint64_t now);
  bool HasBudget(uint64_t bytes) const;
  bool HasShare(uint32_t target, uint64_t bytes) const;
  void StartPiece(uint32_t lane, uint32_t record, uint64_t now);
  void StartSlice(uint32_t slice, uint64_t now);
  void Start(uint32_t index, const JobPoster::Job& job, JobPosted message, uint64_t now);
  uint64_t StuckCheckInterval() const { return piece_timeout_ / 8; }
  void CheckStuck(uint64_t now);
  void Append(SliceList& list, uint32_t slice);
  void Record(uint32_t lane, const LanePiece& piece, PieceStage stage);

  static uint32_t PieceJob(uint32_t lane, uint32_t record) {
    return lane * kRecordsPerLane + record;
  }

  const Options options_;
  const uint64_t piece_timeout_;    // cycles
  const uint64_t doorbell_poll_;    // cycles
  std::vector<InboundLane> lanes_;  // none: it relays for nobody
  uint32_t used_lanes_ = 0;         // as bits: held, or with waiting pieces
  std::array<PeerNews, kLaneCount> news_{};
  bool has_news_ = false;  // some of it is still to be told
  std::array<Name, kNames> names_;
  TargetTable targets_;
  JobPoster poster_;

  DeficitRoundRobin<kLaneCount + 1> rounds_;
  std::array<uint32_t, kLaneCount> candidate_{};  // position of NextPiece's piece
  std::vector<Slice> slices_;
  SliceList free_slices_;
  SliceList waiting_slices_;
  uint32_t passed_slice_ = kNone;       // waiting; up to it, none has room or a share
  std::vector<Job> jobs_;               // by index
  std::vector<uint64_t> target_bytes_;  // in flight
  uint64_t inflight_bytes_ = 0;
  uint32_t inflight_jobs_ = 0;
  uint32_t unasked_ = 0;    // waiting pieces whose session is neither known nor asked for
  uint32_t condemned_ = 0;  // waiting pieces that are to be refused
  uint64_t next_stuck_check_ = 0;
  uint64_t old_poll_interval_;  // cycles; for lanes of version-1 senders
  uint64_t old_poll_at_ = 0;
  bool stopping_ = false;
  bool flushing_ = false;
  RelayPostStats stats_;
};

}  // namespace railhop
