#include "actors/bootstrap.h"

#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "actors/bootstrap_config.h"
#include "actors/bootstrap_graph.h"
#include "actors/bootstrap_layout.h"
#include "actors/bootstrap_rank.h"
#include "actors/bootstrap_settings.h"
#include "actors/moving_rate.h"
#include "actors/rank_memory.h"
#include "actors/rank_stats.h"
#include "runtime/cycle_clock.h"
#include "runtime/leave_alone.h"
#include "runtime/log.h"
#include "transport/fabric/sim/sim_target.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kDestructorDrain{5};
constexpr std::chrono::milliseconds kLongestTimeout = std::chrono::hours(24 * 365);  // of a batch

bool Fail(const absl::Status& status, std::string* error) {
  if (!status.ok()) *error = std::string(status.message());
  return status.ok();
}

absl::Status ForkedChildError() {
  return absl::FailedPreconditionError(
      "this process was forked from the one that made the rank, whose threads did not come along: "
      "make a rank, or an engine, of its own");
}

// Of this process and those before it, since the first rank was made. A submission asks: it must
// not cost a call of the kernel, as the process id does.
int ForksSoFar() {
  static std::atomic<int> forks{0};
  [[maybe_unused]] static const int registered =
      pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
  return forks.load(std::memory_order_relaxed);
}

class RankImpl final : public Rank {
 public:
  explicit RankImpl(std::unique_ptr<ActorGraph> graph)
      : graph_(std::move(graph)),
        memory_(graph_->nics(), &graph_->submissions(), graph_->staging(), graph_->read_flush()),
        rates_(graph_->nics().size()) {}
  // In a forked child, which has neither the threads nor the shared memory, everything is left
  // alone: it is the parent's.
  ~RankImpl() override {
    if (InForkedChild()) {
      LeaveAlone(std::move(graph_));
    } else {
      Stop(kDestructorDrain);
    }
  }

  absl::Status Start() {
    clocks_at_start_ = ReadBothClocks();
    return graph_->system().Start();
  }

  // One line when relaying was asked for and cannot be had.
  void WarnIfPxnFailed() const {
    const PxnConfig& pxn = graph_->config().pxn;
    if (!pxn.enable || pxn.off_reason.empty()) return;
    Log(LogLevel::kWarning, "PXN is off, everything goes direct: " + pxn.off_reason);
  }

  bool RegisterMemory(void* address, size_t length, std::string_view location,
                      std::string* error) override {
    if (InForkedChild()) return Fail(ForkedChildError(), error);
    return Fail(memory_.Register(static_cast<std::byte*>(address), length, location), error);
  }

  bool UnregisterMemory(void* address, std::string* error) override {
    if (InForkedChild()) return Fail(ForkedChildError(), error);
    return Fail(memory_.Unregister(static_cast<std::byte*>(address)), error);
  }

  SegmentId OpenSegment(std::string_view name, std::string* error) override {
    if (InForkedChild()) {
      Fail(ForkedChildError(), error);
      return 0;
    }
    const absl::StatusOr<uint32_t> index = graph_->endpoint().Open(std::string(name));
    return Fail(index.status(), error) ? *index + 1 : 0;
  }

  SubmitResult SubmitWith(std::span<const TransferRequest> requests, const SubmitOptions& options,
                          BatchId* id) override {
    if (options.timeout < std::chrono::milliseconds(0)) return SubmitResult::kInvalid;
    if (InForkedChild() || graph_->submissions().closed()) return SubmitResult::kStopping;
    RequestTable& table = graph_->requests();
    const BatchId batch = table.Allocate();
    if (!batch.valid()) return SubmitResult::kTryAgain;
    Fill(*table.Find(batch), requests, options);
    table.Find(batch)->fence = Record(batch, options.fence);
    if (!graph_->submissions().Prepare({BatchCommand::kSubmit, batch})) {
      table.Discard(batch);
      return graph_->submissions().closed() ? SubmitResult::kStopping : SubmitResult::kTryAgain;
    }
    if (!options.wait_follows || graph_->driven() == nullptr) graph_->submissions().Submit();
    *id = batch;
    return SubmitResult::kOk;
  }

  BatchStatus Status(BatchId id) const override { return graph_->requests().Read(id); }

  RequestProgress Progress(BatchId id, size_t request) const override {
    return graph_->requests().Progress(id, request);
  }

  TransferRequest Request(BatchId id, size_t request) const override {
    return graph_->requests().Request(id, request);
  }

  // The thread does the work that it waits for, if it can.
  bool Wait(BatchId id, std::chrono::milliseconds timeout) const override {
    const RequestTable& table = graph_->requests();
    Reactor* const reactor = graph_->driven();
    if (reactor == nullptr || !table.IsPending(id)) return table.Wait(id, timeout);
    const auto until = DeadlineAfter(timeout);
    reactor->Drive([&] { return !table.IsPending(id); }, until);
    const auto left = until - std::chrono::steady_clock::now();
    return table.Wait(id, std::max(std::chrono::milliseconds(0),
                                   std::chrono::ceil<std::chrono::milliseconds>(left)));
  }

  void Cancel(BatchId id) override {
    while (!graph_->submissions().Prepare({BatchCommand::kCancel, id})) {
      if (graph_->submissions().closed()) return;  // a stopping rank ends its batches by itself
      std::this_thread::yield();
    }
    graph_->submissions().Submit();
  }

  FreeResult Free(BatchId id) override { return graph_->requests().Free(id); }

  std::vector<NicLoad> NicLoads() const override {
    std::vector<NicLoad> loads;
    const CqPollStats& stats = graph_->cq_poll().stats();
    const std::lock_guard lock(rates_mutex_);
    const auto now = std::chrono::steady_clock::now();
    for (size_t i = 0; i < graph_->nics().size(); ++i) {
      const uint64_t ended = stats.nics[i].ended.load(std::memory_order_relaxed);
      const uint64_t posted = stats.nics[i].posted.load(std::memory_order_relaxed);
      loads.push_back({.name = std::string(graph_->nics()[i]->name()),
                       .inflight_bytes = posted > ended ? posted - ended : 0,
                       .bytes_per_second = rates_[i].Update(ended, now),
                       .bytes = ended});
    }
    return loads;
  }

  std::string pxn_off_reason() const override { return graph_->config().pxn.off_reason; }

  bool WaitForRelay(std::string_view rail, std::chrono::milliseconds timeout) override {
    return graph_->peer() != nullptr && graph_->peer()->WaitForRail(std::string(rail), timeout);
  }

  RankStats Stats() const override {
    RankStats stats;
    stats.actors =
        SummariseActors(graph_->system(), std::chrono::steady_clock::now() - clocks_at_start_.time);
    stats.lanes = graph_->ReadSlots();
    const SubmitStats& sent = graph_->submit().stats();
    stats.bytes_direct = sent.bytes_direct.load(std::memory_order_relaxed);
    stats.bytes_relayed = sent.bytes_relayed.load(std::memory_order_relaxed);
    stats.pieces_relayed = sent.pieces_relayed.load(std::memory_order_relaxed);
    stats.slices_direct = sent.slices_direct.load(std::memory_order_relaxed);
    stats.bytes_relayed_for_others =
        graph_->cq_poll().stats().bytes_relayed.load(std::memory_order_relaxed);
    for (size_t i = 1; i < sent.direct.size(); ++i) {
      const uint64_t spans = sent.direct[i].load(std::memory_order_relaxed);
      if (spans != 0) {
        stats.fallbacks.emplace_back(DirectReasonName(static_cast<DirectReason>(i)), spans);
      }
    }
    return stats;
  }

  PieceTrace TakePieceTrace() override {
    PieceTrace trace = graph_->TakeTrace();
    const ClockPair now = ReadBothClocks();
    const auto convert = [&](uint64_t& cycles) {
      const auto time = ToSteadyTime(cycles, clocks_at_start_, now).time_since_epoch();
      cycles = static_cast<uint64_t>(std::chrono::nanoseconds(time).count());
    };
    for (PieceRecord& record : trace.records) {
      convert(record.at);
      if (record.stage == PieceStage::kSliced) convert(record.submitted);
    }
    return trace;
  }

  void Stop(std::chrono::milliseconds deadline) override {
    if (InForkedChild()) return;
    memory_.Close();
    graph_->system().Stop(deadline);
  }

 private:
  bool InForkedChild() const { return ForksSoFar() != forks_; }
  // In the application's thread: its own stream, and what is on it by now.
  FenceTicket Record(BatchId batch, const SourceFence& fence) const {
    if (fence.kind == SourceFence::Kind::kReady) return {};
    if (Fences* fences = graph_->fences(); fences != nullptr) {
      return fences->Record(static_cast<uint32_t>(batch.value), fence);
    }
    if (fence.kind == SourceFence::Kind::kThreadStream) return {};
    LogOnce(LogLevel::kWarning, "fence",
            "a batch has failed: it waits for a stream or event, and the rank uses no GPU "
            "(staging: CUDA)");
    return {.state = FenceState::kFailed};
  }

  void Fill(Batch& batch, std::span<const TransferRequest> requests,
            const SubmitOptions& options) const {
    batch.SetRequests(requests);
    batch.listener = options.listener;
    batch.cookie = options.cookie;
    uint64_t bytes = 0;
    for (const TransferRequest& request : requests)
      bytes += std::min(request.length, uint64_t{1} << 50);
    // 1 ns for each byte on top: what a NIC of 1 GB/s needs.
    // Longer than a year is for ever, and in nanoseconds not more than the clock can add.
    const auto timeout = std::min<std::chrono::milliseconds>(options.timeout, kLongestTimeout);
    const auto allowed = timeout.count() != 0
                             ? std::chrono::nanoseconds(timeout)
                             : std::chrono::milliseconds(graph_->config().batch_timeout_ms) +
                                   std::chrono::nanoseconds(bytes);
    batch.submitted = ReadCycles();
    const auto waited = options.since == std::chrono::steady_clock::time_point()
                            ? std::chrono::nanoseconds(0)
                            : std::chrono::steady_clock::now() - options.since;
    batch.deadline = batch.submitted + ToCycles(std::max(allowed - waited, waited.zero()));
  }

  const int forks_ = ForksSoFar();
  std::unique_ptr<ActorGraph> graph_;
  RankMemory memory_;
  mutable std::mutex rates_mutex_;
  mutable std::vector<MovingRate> rates_;  // by NIC
  ClockPair clocks_at_start_;
};

}  // namespace

std::unique_ptr<Rank> MakeRank(RankConfig config, const ResolvedLayout& layout, RankStaging staging,
                               ReadTarget read, std::vector<std::unique_ptr<Nic>> nics,
                               std::string* error) {
  for (const std::string& warning : config.warnings) Log(LogLevel::kWarning, warning);
  for (const std::string& warning : UnknownPxnVariables(environ)) {
    LogOnce(LogLevel::kWarning, warning, warning);
  }
  for (const std::string& warning : config.environment_warnings) {
    LogOnce(LogLevel::kWarning, "environment/" + warning, warning);
  }
  absl::StatusOr<std::unique_ptr<ActorGraph>> graph = ActorGraph::Build(
      std::move(config), layout, std::move(staging), std::move(read), std::move(nics));
  if (!Fail(graph.status(), error)) return nullptr;
  auto rank = std::make_unique<RankImpl>(*std::move(graph));
  if (!Fail(rank->Start(), error)) return nullptr;
  rank->WarnIfPxnFailed();
  return rank;
}

std::unique_ptr<Rank> Rank::Create(std::string_view config_text, std::string_view config_name,
                                   std::string* error) {
  RankConfig config;
  if (!LoadRankConfig(config_text, config_name, std::getenv, &config, error)) return nullptr;
  ResolvedLayout layout;
  if (!ResolveLayout(config, DetectHostCores(), &layout, error)) return nullptr;
  const auto read = [directory = config.sim_directory](const std::string& target,
                                                       const std::stop_token&) {
    return LoadSimTarget(directory, target);
  };
  RankStaging staging = MakeStaging(&config);
  return MakeRank(std::move(config), layout, std::move(staging), read, {}, error);
}

}  // namespace railhop
