// A single-pump engine over the transport objects that the actors use: what they replace.
//
// Four steps, each looking once at everything it is for: take pieces from inbound lanes and post
// them, poll the NIC and complete them, reap completions of one's own pieces, send what is queued.
// Around them is what such an engine does besides (pump_tasks.h); a relay finds the route of a
// piece by the session's name and posts it in slices of a pool. One thread drives a step at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "actors/cut_requests.h"
#include "actors/group_member.h"
#include "actors/target_route.h"
#include "tests/bench/pipeline/load.h"
#include "tests/bench/pipeline/pump_tasks.h"
#include "tests/bench/pipeline/site.h"
#include "tests/bench/pipeline/subject.h"
#include "transport/fabric/sim/sim_nic.h"
#include "transport/ring/lane.h"
#include "transport/ring/relay_lane.h"
#include "transport/staging/host_arena.h"

namespace railhop {

class Pump final : public LoadTarget {
 public:
  // `per_lane`: how many pieces a step takes from or puts into one lane.
  static absl::StatusOr<std::unique_ptr<Pump>> Create(const PipelineSite& site, const char* nic,
                                                      size_t per_lane);
  ~Pump() override;

  // Finds the relay, claims a lane of it and maps its arena.
  absl::Status AttachToRelay();

  // Until something is submitted, or the time is up.
  void Sleep(std::chrono::microseconds time);
  bool Submit(uint32_t slot, uint64_t now) override;
  bool IsDone(uint32_t slot) override;
  // Requests that failed.
  uint64_t astray() const { return astray_; }

  // The steps; each returns how much it found to do.
  size_t TakeInbound();
  size_t PollNic();
  size_t ReapCompletions();
  size_t SendQueued();

 private:
  Pump(const PipelineSite& site, const char* nic, size_t per_lane)
      : site_(site),
        per_lane_(per_lane),
        engine_(MakeCopyEngine(site.copies, 1)),
        tasks_(nic),
        relay_slices_(kRelaySlices) {
    for (RelaySlice& slice : relay_slices_) free_relay_slices_.push_back(&slice);
  }

  static constexpr size_t kRelaySlices = 1024;

  // A piece that a relay has posted, and each request that it was posted in.
  struct RelayTransfer {
    LanePiece piece;
    std::atomic<uint32_t> remaining{0};
    std::atomic<bool> failed{false};
  };
  struct RelaySlice {
    std::byte* source = nullptr;
    CutRequest request;
    RelayTransfer* transfer = nullptr;
  };
  struct InboundLane {
    std::unique_ptr<RelayLaneReader> reader;
    std::unique_ptr<RelayLaneWriter> writer;
    std::array<RelayTransfer, kSlotsPerLane> transfers;
    std::deque<RelayTransfer*> posted;  // the oldest first
  };
  struct Sent {
    uint64_t sequence;
    PumpSubmission submission;
  };
  struct OutboundLane {
    std::shared_ptr<PeerMapping> relay;
    LaneClaim claim;
    std::unique_ptr<ImportedHostArena> arena;
    std::unique_ptr<LaneMapping> mapping;
    DescriptorWriter writer;
    std::unique_ptr<RingCredit> credit;
    std::unique_ptr<CompletionReader> completions;
    std::array<std::vector<CopySpan>, kSlotsPerLane> copies;  // by ring slot
    std::deque<Sent> sent;                                    // the oldest first
  };

  absl::Status Connect();
  bool TakePiece(uint32_t lane);
  bool TakeQueued(PumpSubmission* submission);
  void Publish(PumpSubmission submission);
  const TargetRoute* ResolveRoute() const;
  bool Post(uint32_t lane, const LanePiece& piece);
  size_t CompleteInbound(InboundLane& inbound);

  const PipelineSite site_;
  const size_t per_lane_;
  std::unique_ptr<SimNic> nic_;
  std::unique_ptr<GroupMember> member_;
  std::unordered_map<std::string, TargetRoute> routes_;  // of a relay: by session
  std::array<InboundLane, kLaneCount> inbound_;
  std::unique_ptr<DescriptorCopy> descriptor_ = std::make_unique<DescriptorCopy>();

  PipelineSource source_;
  const std::unique_ptr<CopyEngine> engine_;
  OutboundLane outbound_;
  PumpTasks tasks_;
  SegmentId target_ = 0;
  uint64_t target_address_ = 0;
  std::array<std::unique_ptr<PumpBatch>, kMaxOutstanding> batches_;
  std::vector<RelaySlice> relay_slices_;
  std::vector<RelaySlice*> free_relay_slices_;
  // Applications submit from threads of their own.
  std::mutex queue_mutex_;
  std::condition_variable submitted_;
  std::deque<PumpSubmission> queue_;
  uint64_t astray_ = 0;
};

}  // namespace railhop
