// A NIC for machines without one: real bytes (or only their clock), checked, paced and scriptable.
//
//   poster -- Prepare -> endpoint's send queue -- Submit: start and completion time, fault --+
//                                                                                           v
//   poller <- Peek: moved, and its time has come <- endpoint's send queue <- worker: checks, moves
//
// Who carries requests out depends on the mode: in kMove a worker thread that moves the bytes up to
// a millisecond ahead of the line (so that it wakes once for many requests) and sleeps otherwise,
// or whoever calls Step; in kModel the poller, which checks but moves nothing. When a request
// completes is a matter of the clock alone, and of its bytes having moved.
//
// Sharing: a request's fields belong to whom its `state` says: the poster until Submit, then the
// one that takes it by compare-and-swap, then the poller. Nothing is locked. Never a stand-in for
// hardware in a report: kind() is "sim".
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cycle_clock.h"
#include "runtime/parker.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/key_table.h"
#include "transport/fabric/sim/line_model.h"
#include "transport/fabric/sim/sim_mover.h"
#include "transport/fabric/sim/sim_remote.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

enum class SimMode : uint8_t {
  kMove,    // bytes arrive at the target
  kModel,   // no bytes move: the clock, keys and bounds only
  kManual,  // as kMove, by Step instead of a worker thread: for tests
};

struct SimNicOptions {
  std::string name = "sim0";
  SimMode mode = SimMode::kMove;
  double line_rate = 25e9;  // bytes per second, at least 1e6
  std::chrono::nanoseconds base_delay{3000};
  uint32_t send_queue_depth = 256;  // per endpoint, 1..65536
  uint32_t max_endpoints = 64;      // 1..4000
  // How long after its time a request to a dead target or over a dead link is reported: the retries
  // of a real NIC.
  std::chrono::nanoseconds error_delay{10'000'000};
  std::vector<SimFault> faults;
  std::shared_ptr<SimMover> mover = {};  // for memory of GPUs; nullptr: there is none
  CycleClock clock;
  double cycles_per_nanosecond = 0;  // of `clock`; 0: the machine's
};

class SimNic : public Nic {
 public:
  // InvalidArgument: an option out of its range, named.
  static absl::StatusOr<std::unique_ptr<SimNic>> Create(SimNicOptions options);
  // Waits for the request being moved; the rest is forgotten.
  ~SimNic() override;

  std::string_view kind() const override { return kSimFabricKind; }
  std::string_view name() const override { return options_.name; }
  uint32_t send_queue_depth() const override { return options_.send_queue_depth; }

  absl::StatusOr<MemoryKey> Register(void* address, size_t length) override;
  absl::Status Deregister(const MemoryKey& key) override;
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override;
  void Disconnect(EndpointId endpoint) override;

  bool Prepare(const WorkRequest& request) override;
  void Submit() override;
  size_t SendRoom(EndpointId endpoint) const override;

  size_t Peek(std::span<NicCompletion> completions) override;
  void Advance(size_t count) override;
  uint64_t PrepareToPark() override;
  void FinishPark() override;
  int fd() const override { return event_fd_.get(); }

  // kManual: carries out at most `count` of the submitted requests, oldest first, whenever they are
  // due. Returns how many it looked at.
  size_t Step(size_t count);

  // Pulls the cable or puts it back, for requests submitted from then on. Any thread.
  void SetLinkUp(bool up) { link_up_.store(up, std::memory_order_relaxed); }

  // Processor time of the worker thread so far; 0 without one. Any thread.
  std::chrono::nanoseconds WorkerCpuTime() const;

 private:
  // Low bits of Request::state; the rest is the request's sequence on its endpoint, so that an
  // entry of the line that outlived its request matches nothing.
  enum Phase : uint64_t { kPosted, kTaken, kStalled, kDone };
  static constexpr int kPhaseBits = 2;
  static uint64_t State(uint64_t sequence, Phase phase) { return sequence << kPhaseBits | phase; }

  struct Request {
    WorkRequest work;
    LineModel::Slot slot;
    // Of whoever carried it out, once kDone.
    FabricStatus status = FabricStatus::kOk;
    uint64_t ended = 0;  // cycles: when the poller may learn of it
    std::atomic<uint64_t> state{0};
  };

  // Who may change an endpoint's place: kUnused the control thread; kLive poster, poller and mover
  // use it; kDrained it is closing and nothing is left. The poller takes it back from kDrained if a
  // late request comes; the control thread takes it only while no chain is being prepared.
  enum class Stage : uint8_t { kUnused, kLive, kDrained };

  struct Endpoint {
    std::atomic<Stage> stage{Stage::kUnused};
    std::atomic<EndpointId> id{0};
    std::atomic<bool> closing{false};
    std::vector<Request> queue;  // ring by sequence; made by the first Connect of this place
    std::unique_ptr<SimRemote> remote;
    // Poster.
    alignas(64) std::atomic<uint64_t> prepared{0};
    std::atomic<uint64_t> posted{0};
    // Whoever carries out. `broken`: a request failed, later ones are left for the poller to flush.
    alignas(64) std::atomic<bool> broken{false};
    std::atomic<bool> stalled{false};  // a dropped request blocks its successors
    // Poller.
    alignas(64) uint64_t harvested = 0;  // requests whose end the poller has noted
    uint64_t shown = 0;                  // of its completions, those not yet consumed
    bool failed = false;
    std::atomic<uint64_t> retired{0};  // room: requests below are free to be prepared anew
    std::atomic<bool> drained{
        true};  // closing, and nothing is left: the control thread may reuse it
  };

  struct LineEntry {
    Endpoint* endpoint = nullptr;
    uint64_t sequence = 0;
    uint64_t start = 0;  // cycles
  };

  struct ReadyEntry {
    NicCompletion completion;
    Endpoint* endpoint = nullptr;
    uint64_t sequence = 0;
  };

  explicit SimNic(SimNicOptions options);

  static Request& RequestAt(Endpoint& endpoint, uint64_t sequence) {
    return endpoint.queue[sequence & (endpoint.queue.size() - 1)];
  }
  Endpoint& Find(EndpointId id);
  bool TakeUnused(Endpoint& endpoint);  // control
  uint64_t Cycles(std::chrono::nanoseconds time) const;
  size_t LineRoom() const;  // poster

  // Carrying out: worker, Step or (kModel) poller.
  void RunWorker();
  bool TakePosted(Request& request, uint64_t sequence) const;
  void CarryOut(Endpoint& endpoint, uint64_t sequence);
  FabricStatus Access(Endpoint& endpoint, const Request& request);

  // Poller.
  void Harvest();
  void HarvestEndpoint(Endpoint& endpoint, uint64_t now);
  bool HasEnded(Endpoint& endpoint, uint64_t sequence, uint64_t now, FabricStatus* status);
  uint64_t NextTime(Endpoint& endpoint, uint64_t now);
  static void MarkIfDrained(Endpoint& endpoint);
  static bool Live(Endpoint& endpoint);
  // Any thread, after its publication and a FullFence().
  void WakePoller(uint64_t event_time);

  const SimNicOptions options_;
  const double cycles_per_nanosecond_;
  const uint64_t error_delay_;        // cycles
  const uint64_t liveness_interval_;  // cycles
  const pid_t owner_pid_;
  const GuardedFd event_fd_;
  const std::unique_ptr<KeyTable> local_keys_;

  // [0] belongs to no target: requests with an unknown endpoint end there, flushed.
  std::vector<Endpoint> endpoints_;
  std::atomic<uint32_t> endpoint_count_{1};  // made so far, [0] included

  // Upper bound of the rings below; an endpoint's own queue may be full before.
  const size_t ring_size_;

  // Poster.
  LineModel line_model_;
  std::vector<LineEntry> chain_;        // prepared since the last Submit
  std::atomic<bool> preparing_{false};  // there are some: no endpoint may change hands
  std::atomic<bool> link_up_{true};

  // The line: SPSC ring from the poster to whoever carries out; unused in kModel.
  std::vector<LineEntry> line_;
  alignas(64) std::atomic<uint64_t> line_tail_{0};
  alignas(64) std::atomic<uint64_t> line_head_{0};

  // Poller.
  std::vector<ReadyEntry> ready_;  // ring
  uint64_t ready_head_ = 0;
  uint64_t ready_tail_ = 0;
  // 0: the poller is awake. Else it sleeps until fd() or this time (cycles).
  alignas(64) std::atomic<uint64_t> parked_until_{0};

  Parker parker_;  // the worker's
  std::atomic<bool> stop_{false};
  clockid_t worker_clock_{};
  std::thread worker_;
};

}  // namespace railhop
