// A single-pump engine over the transport objects that the actors use: what they replace.
//
// Four steps, each looking once at everything it is for: take pieces from inbound lanes and post
// them, poll the NIC and complete them, reap completions of one's own pieces, send what is queued.
// A request is a piece. One thread drives a step at a time.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

#include "actors/group_member.h"
#include "actors/target_route.h"
#include "tests/bench/pipeline/load.h"
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
  Pump(const PipelineSite& site, size_t per_lane)
      : site_(site), per_lane_(per_lane), engine_(MakeCopyEngine(site.copies, 1)) {}

  struct InboundLane {
    std::unique_ptr<RelayLaneReader> reader;
    std::unique_ptr<RelayLaneWriter> writer;
    std::array<LanePiece, kSlotsPerLane> pieces;  // posted
  };
  struct OutboundLane {
    std::shared_ptr<PeerMapping> relay;
    LaneClaim claim;
    std::unique_ptr<ImportedHostArena> arena;
    std::unique_ptr<LaneMapping> mapping;
    DescriptorWriter writer;
    std::unique_ptr<RingCredit> credit;
    std::unique_ptr<CompletionReader> completions;
    std::array<uint32_t, kSlotsPerLane> request{};  // by ring slot
    std::array<CopySpan, kSlotsPerLane> span;
  };

  absl::Status Connect();
  bool TakePiece(uint32_t lane);
  bool TakeQueued(uint32_t* request);
  void Post(uint32_t lane, const LanePiece& piece);

  const PipelineSite site_;
  const size_t per_lane_;
  std::unique_ptr<SimNic> nic_;
  std::unique_ptr<GroupMember> member_;
  TargetRoute route_;
  std::array<InboundLane, kLaneCount> inbound_;
  std::unique_ptr<DescriptorCopy> descriptor_ = std::make_unique<DescriptorCopy>();

  PipelineSource source_;
  const std::unique_ptr<CopyEngine> engine_;
  OutboundLane outbound_;
  // Applications submit from threads of their own.
  std::mutex queue_mutex_;
  std::condition_variable submitted_;
  std::deque<uint32_t> queue_;
  std::array<std::atomic<bool>, kMaxOutstanding> done_{};
  uint64_t astray_ = 0;
};

}  // namespace railhop
