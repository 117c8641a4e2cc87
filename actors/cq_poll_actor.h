// CqPollActor: the only one that polls this rank's NICs and that writes completions.
//
//   NIC completions -> jobs end -> completion ring of the sender (one fence and the wakes per
//   pass),
//                                  SliceDone for direct slices, JobDone for the poster
//   completion rings of outbound lanes -> SliceDone
//
// A job ends with the completion of its last request; until then nothing is written, whatever has
// failed, so a completion means that nothing of the piece can land any more. A completion whose job
// is not known yet stays with the NIC: its JobPosted is on the way.
//
// Thread: the one that polls the NICs. Edges: job_out needs room for kJobEdgeCapacity messages
// (post_job.h); the others may be full.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/messages.h"
#include "actors/piece_record.h"
#include "actors/post_job.h"
#include "runtime/actor.h"
#include "runtime/poller.h"
#include "transport/fabric/read_flush.h"
#include "transport/ring/relay_lane.h"
#include "transport/ring/side_directory.h"

namespace railhop {

inline constexpr size_t kRelayStatuses = 1 - static_cast<int32_t>(RelayStatus::kStopping);

// One writer; readable from any thread.
struct NicBytes {
  std::atomic<uint64_t> posted{0};  // of the jobs that were announced
  std::atomic<uint64_t> ended{0};   // of these, of those that have ended, one way or the other
};
struct CqPollStats {
  explicit CqPollStats(size_t nic_count) : nics(nic_count) {}

  std::atomic<uint64_t> bytes_relayed{0};  // for other ranks, at their targets
  std::atomic<uint64_t> pieces_relayed{0};
  std::atomic<uint64_t> bytes_direct{0};  // this rank's own, written or read
  std::atomic<uint64_t> slices_direct{0};
  std::atomic<uint64_t> jobs_failed{0};
  std::atomic<uint64_t> flushes{0};                                    // calls of ReadFlush
  std::array<std::atomic<uint64_t>, kRelayStatuses> pieces_refused{};  // by -RelayStatus
  std::vector<NicBytes> nics;
};

class CqPollActor : public Actor, public Poller {
 public:
  struct Options {
    ControlBlock* control = nullptr;  // this rank's own; nullptr: it relays for nobody
    LocalSide* side = nullptr;        // with `control`
    std::vector<Nic*> nics;
    ReadFlush* flush = nullptr;  // asked for by JobPosted::flush_gpu
  };

  CqPollActor(std::string name, Options options);

  const CqPollStats& stats() const { return stats_; }

  bool OnJobPosted(const JobPosted& posted);
  bool OnPieceRefused(const PieceRefused& refused);
  bool OnPieceRung(const PieceRung& rung);
  bool OnLaneReady(const LaneReady& ready);
  bool OnCloseLane(const CloseLane& close);
  bool OnSenderSide(const SenderSide& side);

  void OnStart() override;
  bool Drained() const override {
    return unwoken_ == 0 && (flushed_ || (active_jobs_ == 0 && rung_pieces_ == 0));
  }
  // Jobs are ended by their poster, which stops before; a rung piece may never be.
  void OnFlush() override { flushed_ = true; }

  // Poller
  size_t Poll(uint64_t now) override;
  void OnPark() override;
  void OnUnpark() override;
  uint64_t NextPoll(uint64_t now) override;

  OutPort<SliceDone> slice_out;
  OutPort<JobDone> job_out;
  OutPort<RoomReturned> room_out;
  OutPort<EndpointError> error_out;
  OutPort<LaneClosed> lane_closed_out;
  OutPort<SenderSideTaken> side_taken_out;

  PieceTracer trace;  // kCompleted

 private:
  static constexpr size_t kBatch = 64;              // completions of one NIC in one pass
  static constexpr uint32_t kIdleNicInterval = 64;  // passes; of NICs on which nothing is under way

  struct Job {
    JobPosted posted{};
    FabricStatus status = FabricStatus::kOk;  // the first error; kFlushed only if there is no other
    bool active = false;
  };
  struct InboundLane {
    explicit InboundLane(LaneControl& lane) : writer(lane) {}
    RelayLaneWriter writer;
    const PeerSide* sender = nullptr;  // nullptr: nobody to wake
  };
  struct OutboundLane {
    const LaneMapping* mapping = nullptr;
    uint32_t rung = 0;  // slots, as bits, whose completion is still to come
    std::array<uint64_t, kSlotsPerLane> sequences{};
  };

  size_t PollNic(uint32_t nic);
  bool TakeCompletion(const NicCompletion& completion, size_t* slices);
  void FlushReads(std::span<const NicCompletion> taken);
  bool NoteError(Job& job, FabricStatus status);
  void EndJob(Job& job);
  void Complete(uint32_t lane, const LanePiece& piece, RelayStatus status);
  void WakeSenders();
  void WakeUnwoken();
  size_t ScanLane(uint32_t lane);

  const Options options_;
  std::array<NicCompletion, kBatch> completions_;
  std::vector<Job> jobs_;             // by index
  std::vector<uint32_t> failed_;      // target x NIC: the latest version whose error was told
  std::vector<InboundLane> inbound_;  // none: it relays for nobody
  std::array<OutboundLane, kLaneCount> outbound_{};
  uint64_t to_flush_ = 0;  // as ReadFlush::Flush: of reads whose end is to be told
  uint32_t active_jobs_ = 0;
  uint32_t passes_without_jobs_ = 0;
  uint32_t rung_pieces_ = 0;
  uint32_t rung_lanes_ = 0;     // outbound lanes, as bits, that have some of them
  uint32_t wakes_ = 0;          // inbound lanes, as bits, whose sender has something to see
  uint32_t unwoken_ = 0;        // of these, those whose sender seemed awake
  uint64_t nic_deadline_ = 0;   // while parked: when a NIC wants to be polled
  uint64_t old_poll_interval_;  // cycles; for outbound lanes to version-1 relays
  uint64_t old_poll_at_ = 0;
  bool flushed_ = false;
  CqPollStats stats_;
};

}  // namespace railhop
