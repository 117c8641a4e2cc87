// The subject: two ranks as `railhop demo` makes them, all data actors of each on one pinned
// reactor. The load generator is an actor beside those of the sender.
#include <atomic>
#include <chrono>
#include <string>
#include <utility>

#include "actors/bootstrap_graph.h"
#include "actors/rank_memory.h"
#include "fmt/format.h"
#include "tests/bench/pipeline/site.h"
#include "tests/bench/pipeline/subject.h"
#include "transport/fabric/sim/sim_target.h"
#include "transport/ring/control_block.h"
#include "transport/staging/host_staging.h"

namespace railhop {
namespace {

constexpr std::chrono::seconds kSetUp{30};
constexpr std::chrono::seconds kDeadline{30};

std::string ConfigText(const PipelineSite& site, const char* nic, int core) {
  return fmt::format(
      "name: \"{0}-{1}\" sim_directory: \"{2}\" registry_root: \"{2}\"\n"
      "nics {{ name: \"{1}\" sim {{ line_rate_bytes_per_s: 1000000000000000 base_delay_ns: 0"
      " mode: {3} }} }}\n"
      "pxn {{ enable: true group_id: \"{0}\" preattach: true }}\n"
      "reactors {{ name: \"data\" core: {4} spin_us: 2000 }}\n"
      "placement {{ actor: SUBMIT reactor: \"data\" }} placement {{ actor: COPY reactor: \"data\" "
      "}}\n"
      "placement {{ actor: RELAY_POST reactor: \"data\" }}\n"
      "placement {{ actor: CQ_POLL reactor: \"data\" }}\n"
      "tracing {{ histograms: {5} pieces: {6} }}\n",
      site.name, nic, site.directory, site.move ? "MOVE" : "MODEL", core, site.histograms,
      site.pieces);
}

absl::StatusOr<std::unique_ptr<ActorGraph>> MakeGraph(const PipelineSite& site, const char* nic,
                                                      int core) {
  RankConfig config;
  ResolvedLayout layout;
  std::string error;
  const auto no_environment = [](const char*) -> const char* { return nullptr; };
  if (!LoadRankConfig(ConfigText(site, nic, core), "pipeline", no_environment, &config, &error) ||
      !ResolveLayout(config, DetectHostCores(), &layout, &error)) {
    return absl::InvalidArgumentError(error);
  }
  auto graph = ActorGraph::Build(
      std::move(config), layout,
      {.staging = std::make_shared<HostStaging>(),
       .copy_engine = MakeCopyEngine(site.copies, kLaneCount)},
      [directory = site.directory](const std::string& name, const std::stop_token&) {
        return LoadSimTarget(directory, name);
      });
  if (graph.ok() && (*graph)->peer() == nullptr) {
    return absl::FailedPreconditionError((*graph)->config().pxn.off_reason);
  }
  return graph;
}

// Each request is a batch of its own.
class BatchTarget final : public LoadTarget {
 public:
  BatchTarget(ActorGraph* graph, SegmentId target, uint64_t address, PipelineSource* source)
      : graph_(*graph), target_(target), address_(address), source_(*source) {}

  bool Submit(uint32_t slot, uint64_t now) override {
    const BatchId id = graph_.requests().Allocate();
    Batch& batch = *graph_.requests().Find(id);
    const TransferRequest request{.opcode = Opcode::kWrite,
                                  .source = source_.of_slot(slot),
                                  .target = target_,
                                  .target_address = address_ + slot * kRequestBytes,
                                  .length = kRequestBytes};
    batch.SetRequests({&request, 1});
    batch.deadline = now + deadline_;
    if (!graph_.submissions().Prepare({BatchCommand::kSubmit, id})) {
      graph_.requests().Discard(id);
      return false;
    }
    ids_[slot] = id;
    return true;
  }

  bool IsDone(uint32_t slot) override {
    const BatchStatus status = graph_.requests().Read(ids_[slot]);
    if (!IsQuiescent(status.state)) return false;
    if (status.state != BatchState::kCompleted || status.relayed_bytes != kRequestBytes) ++astray_;
    graph_.requests().Free(ids_[slot]);
    return true;
  }

  // Failed, or not relayed.
  uint64_t astray() const { return astray_; }

 private:
  ActorGraph& graph_;
  const SegmentId target_;
  const uint64_t address_;
  PipelineSource& source_;
  const uint64_t deadline_ = ToCycles(kDeadline);
  std::array<BatchId, kMaxOutstanding> ids_;
  uint64_t astray_ = 0;
};

class GeneratorActor final : public Actor, private Poller {
 public:
  GeneratorActor() : Actor("generator") { AddPoller(this); }

  // From another thread, once the target is known.
  LoadResult Run(LoadTarget* target, const LoadOrder& order) {
    LoadGenerator generator(target);
    generator_ = &generator;
    order_ = order;
    done_.store(false);
    Post({.kind = ControlMessage::kFirstUserKind});
    done_.wait(false);
    return generator.Result();
  }
  void OnControl(const ControlMessage&) override {
    generator_->Start(order_);
    running_ = true;
  }

 private:
  size_t Poll(uint64_t) override {
    if (!running_) return 0;
    const size_t work = generator_->Step();
    if (generator_->running()) return work;
    running_ = false;
    done_.store(true);
    done_.notify_all();
    return work;
  }

  bool running_ = false;
  LoadGenerator* generator_ = nullptr;
  LoadOrder order_;
  std::atomic<bool> done_{false};
};

class ActorSender final : public PipelineSide {
 public:
  ~ActorSender() override {
    if (graph_ == nullptr) return;
    memory_->Close();
    graph_->system().Stop(kSetUp);
  }

  absl::Status Prepare(const PipelineSite& site) override {
    auto graph = MakeGraph(site, kSenderNic, site.cores.first);
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
    for (const ActorSystem::Placed& placed : graph_->system().actors()) {
      if (placed.actor.get() != &graph_->submit()) continue;
      generator_ = &graph_->system().AddActor<GeneratorActor>(*placed.reactor);
      break;
    }
    memory_ = std::make_unique<RankMemory>(graph_->nics(), &graph_->submissions(),
                                           graph_->staging(), nullptr);
    if (absl::Status started = graph_->system().Start(); !started.ok()) return started;
    if (absl::Status kept = memory_->Register(source_.data(), kPipelineBytes, "cpu:0"); !kept.ok())
      return kept;
    const absl::StatusOr<uint32_t> index = graph_->endpoint().Open(site.target);
    if (!index.ok()) return index.status();
    const auto info = LoadSimTarget(site.directory, site.target);
    if (!info.ok()) return info.status();
    target_ =
        std::make_unique<BatchTarget>(graph_.get(), *index + 1, info->buffers[0].address, &source_);
    if (!graph_->peer()->WaitForRail(kRelayNic, kSetUp)) {
      return absl::DeadlineExceededError("no lane to the relay");
    }
    return absl::OkStatus();
  }

  LoadResult Run(const LoadOrder& order) override {
    const LoadResult result = generator_->Run(target_.get(), order);
    return target_->astray() == 0 ? result : LoadResult{};
  }

 private:
  PipelineSource source_;
  std::unique_ptr<ActorGraph> graph_;
  std::unique_ptr<RankMemory> memory_;
  std::unique_ptr<BatchTarget> target_;
  GeneratorActor* generator_ = nullptr;
};

// Its reactors park when nothing comes: nothing to do for Serve and Pause.
class ActorRelay final : public PipelineSide {
 public:
  ~ActorRelay() override {
    if (graph_ != nullptr) graph_->system().Stop(kSetUp);
  }
  absl::Status Prepare(const PipelineSite& site) override {
    auto graph = MakeGraph(site, kRelayNic, site.cores.second);
    if (!graph.ok()) return graph.status();
    graph_ = *std::move(graph);
    return graph_->system().Start();
  }

 private:
  std::unique_ptr<ActorGraph> graph_;
};

}  // namespace

PipelineSides ActorSides() {
  return {.sender = [] { return std::make_unique<ActorSender>(); },
          .relay = [] { return std::make_unique<ActorRelay>(); }};
}

}  // namespace railhop
