#include "actors/bootstrap.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "actors/bootstrap_config.h"
#include "actors/bootstrap_graph.h"
#include "actors/bootstrap_layout.h"
#include "actors/rank_memory.h"
#include "actors/rank_stats.h"
#include "runtime/cycle_clock.h"
#include "runtime/log.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/engine/environment.h"
#include "transport/engine/local_host.h"
#include "transport/engine/metadata_store.h"
#include "transport/engine/p2p_metadata.h"
#include "transport/engine/segment_directory.h"
#include "transport/engine/stored_metadata.h"
#include "transport/engine/tcp_segment.h"
#include "transport/fabric/sim/sim_target.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kDestructorDrain{5};

// TCP has no work requests to spread: a slice is what one connection carries at a time.
constexpr uint64_t kTcpSliceBytes = 1 << 20;
constexpr uint32_t kEngineBatches = 4096;
constexpr std::string_view kP2pHandshake = "P2PHANDSHAKE";

bool Fail(const absl::Status& status, std::string* error) {
  if (!status.ok()) *error = std::string(status.message());
  return status.ok();
}

class RankImpl final : public Rank {
 public:
  explicit RankImpl(std::unique_ptr<ActorGraph> graph)
      : graph_(std::move(graph)),
        memory_(graph_->nics(), &graph_->submissions(), graph_->config().host_staging) {}
  // In a forked child, which has neither the threads nor the shared memory, everything is left
  // alone: it is the parent's.
  ~RankImpl() override {
    if (InForkedChild()) {
      (void)graph_.release();
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
    return Fail(memory_.Register(static_cast<std::byte*>(address), length, location), error);
  }

  bool UnregisterMemory(void* address, std::string* error) override {
    return Fail(memory_.Unregister(static_cast<std::byte*>(address)), error);
  }

  SegmentId OpenSegment(std::string_view name, std::string* error) override {
    const absl::StatusOr<uint32_t> index = graph_->endpoint().Open(std::string(name));
    return Fail(index.status(), error) ? *index + 1 : 0;
  }

  SubmitResult Submit(std::span<const TransferRequest> requests, std::chrono::milliseconds timeout,
                      BatchId* id) override {
    if (timeout < std::chrono::milliseconds(0)) return SubmitResult::kInvalid;
    if (graph_->submissions().closed()) return SubmitResult::kStopping;
    RequestTable& table = graph_->requests();
    const BatchId batch = table.Allocate();
    if (!batch.valid()) return SubmitResult::kTryAgain;
    Fill(*table.Find(batch), requests, timeout);
    if (!graph_->submissions().Prepare({BatchCommand::kSubmit, batch})) {
      table.Discard(batch);
      return graph_->submissions().closed() ? SubmitResult::kStopping : SubmitResult::kTryAgain;
    }
    graph_->submissions().Submit();
    *id = batch;
    return SubmitResult::kOk;
  }

  BatchStatus Status(BatchId id) const override { return graph_->requests().Read(id); }

  RequestProgress Progress(BatchId id, size_t request) const override {
    return graph_->requests().Progress(id, request);
  }

  bool Wait(BatchId id, std::chrono::milliseconds timeout) const override {
    return graph_->requests().Wait(id, timeout);
  }

  void Cancel(BatchId id) override {
    while (!graph_->submissions().Prepare({BatchCommand::kCancel, id})) {
      if (graph_->submissions().closed()) return;  // a stopping rank ends its batches by itself
      std::this_thread::yield();
    }
    graph_->submissions().Submit();
  }

  FreeResult Free(BatchId id) override { return graph_->requests().Free(id); }

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
  bool InForkedChild() const { return getpid() != pid_; }
  void Fill(Batch& batch, std::span<const TransferRequest> requests,
            std::chrono::milliseconds timeout) const {
    batch.SetRequests(requests);
    uint64_t bytes = 0;
    for (const TransferRequest& request : requests)
      bytes += std::min(request.length, uint64_t{1} << 50);
    // 1 ns for each byte on top: what a NIC of 1 GB/s needs.
    const auto allowed = timeout.count() != 0
                             ? std::chrono::nanoseconds(timeout)
                             : std::chrono::milliseconds(graph_->config().batch_timeout_ms) +
                                   std::chrono::nanoseconds(bytes);
    batch.submitted = ReadCycles();
    batch.deadline = batch.submitted + ToCycles(allowed);
  }

  const pid_t pid_ = getpid();
  std::unique_ptr<ActorGraph> graph_;
  RankMemory memory_;
  ClockPair clocks_at_start_;
};

}  // namespace

namespace {

std::unique_ptr<RankImpl> MakeRank(RankConfig config, EndpointActor::Resolve resolve,
                                   std::string* error) {
  ResolvedLayout layout;
  if (!ResolveLayout(config, DetectHostCores(), &layout, error)) return nullptr;
  for (const std::string& warning : config.warnings) Log(LogLevel::kWarning, warning);
  absl::StatusOr<std::unique_ptr<ActorGraph>> graph = ActorGraph::Build(
      std::move(config), layout, std::make_unique<HostCopyEngine>(kLaneCount, kSlotsPerLane),
      std::move(resolve));
  if (!Fail(graph.status(), error)) return nullptr;
  auto rank = std::make_unique<RankImpl>(*std::move(graph));
  if (!Fail(rank->Start(), error)) return nullptr;
  rank->WarnIfPxnFailed();
  return rank;
}

struct SegmentAndMetadata {
  std::unique_ptr<TcpSegment> segment;
  std::unique_ptr<Metadata> metadata;  // must not outlive the segment
};

absl::StatusOr<SegmentAndMetadata> StartSegment(const EngineOptions& options,
                                                const EngineEnvironment& environment) {
  SegmentAndMetadata started;
  const auto start = [&](const std::string& host, const std::string& name) -> absl::Status {
    auto segment = TcpSegment::Start(host, name, environment);
    if (!segment.ok()) return segment.status();
    started.segment = *std::move(segment);
    return absl::OkStatus();
  };
  const auto encoded = [&started] {
    return [own = started.segment.get()] { return own->Encoded(); };
  };
  if (options.metadata == kP2pHandshake) {
    // The port in a host's name is the caller's guess: peers get the one that was drawn.
    const absl::StatusOr<HostPort> host = ParseHostPort(options.host);
    if (!host.ok()) return host.status();
    if (absl::Status status = start(host->host, ""); !status.ok()) return status;
    started.metadata = std::make_unique<P2pMetadata>(environment, encoded());
    return started;
  }
  auto store = OpenMetadataStore(options.metadata, environment.handshake_max_length);
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::string> host =
      FindLocalHost(options.host, environment.tcp_bind_address, environment.use_ipv6);
  if (!host.ok()) return host.status();
  if (absl::Status status = start(*host, options.host); !status.ok()) return status;
  started.metadata = std::make_unique<StoredMetadata>(
      *std::move(store), environment,
      OwnSegment{
          .name = options.host, .listener = started.segment->listener(), .descriptor = encoded()});
  return started;
}

}  // namespace

std::unique_ptr<Rank> Rank::Create(std::string_view config_text, std::string_view config_name,
                                   std::string* error) {
  RankConfig config;
  if (!LoadRankConfig(config_text, config_name, std::getenv, &config, error)) return nullptr;
  const auto resolve = [directory = config.sim_directory](const std::string& target) {
    return LoadSimTarget(directory, target);
  };
  return MakeRank(std::move(config), resolve, error);
}

namespace {

// MC_LOG_LEVEL.
void SetLevel(const std::string& level) {
  if (level == "TRACE" || level == "INFO") SetDefaultLogLevel(LogLevel::kInfo);
  if (level == "WARNING") SetDefaultLogLevel(LogLevel::kWarning);
  if (level == "ERROR") SetDefaultLogLevel(LogLevel::kError);
}

}  // namespace

// Over TCP: the segment and its listener first, since its name is how everybody knows the rank.
std::unique_ptr<TransferEngine> MakeTransferEngine(const EngineOptions& options,
                                                   std::string* error) {
  if (options.protocol != "tcp" && options.protocol != "rdma") {
    *error = fmt::format("protocol \"{}\" is not known: use \"tcp\" or \"rdma\"", options.protocol);
    return nullptr;
  }
  RankConfig config;
  const std::string text = options.config_text + "\nname: \"engine\"";
  if (!LoadRankConfig(text, "engine", std::getenv, &config, error)) return nullptr;
  const EngineEnvironment environment = ReadEngineEnvironment(std::getenv);
  SetLevel(environment.log_level);
  for (const std::string& warning : environment.warnings) Log(LogLevel::kWarning, warning);
  // As in Mooncake the protocol is a hint: callers that say "rdma" run where there is none, too.
  if (options.protocol == "rdma" && !environment.force_tcp) {
    LogOnce(LogLevel::kWarning, "rdma",
            "RDMA is not supported yet: TCP is used (MC_FORCE_TCP=1 asks for that)");
  }
  auto found = StartSegment(options, environment);
  if (!Fail(found.status(), error)) return nullptr;

  config.name = found->segment->name();
  NicConfig& nic = config.nics.emplace_back();
  nic.name = nic.rail = "tcp0";
  nic.kind = NicKind::kTcp;
  nic.queue_depth = 1024;
  nic.connections = static_cast<uint32_t>(environment.tcp_lanes_per_peer);
  nic.status_timeout_s = environment.tcp_status_timeout_s;
  config.slice_size = kTcpSliceBytes;
  config.max_batches = kEngineBatches;
  auto directory =
      std::make_shared<SegmentDirectory>(found->segment->name(), std::move(found->metadata),
                                         static_cast<int>(environment.tcp_protocol_version));
  auto rank = MakeRank(
      std::move(config),
      [directory](const std::string& target) { return directory->Resolve(target); }, error);
  if (rank == nullptr) return nullptr;
  auto engine = std::make_unique<TransferEngine>(std::move(rank), std::move(directory),
                                                 std::move(found->segment));
  if (engine->Publish() == EngineError::kOk) return engine;
  *error = TransferEngine::last_error();
  return nullptr;
}

}  // namespace railhop
