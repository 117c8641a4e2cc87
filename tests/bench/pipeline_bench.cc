// 64 KiB requests from submission to observed end: actors beside the pumps they replace
//
// Each subject is a sender and a relay process on two pinned threads, over one lane of shared
// memory and a simulated NIC without delay that keeps the clock only. Before anything is measured,
// each subject moves the same requests over a NIC that moves bytes, and they are checked.
//   pump1: one thread, four steps in order, one slot per lane per sweep, sleeps 50 us when idle
//   null: no byte is copied; what is left is the control path
//   quiet: without histograms; untraced: without the stage times of pieces
//   pump2: sender and relay on threads of their own, batched polling, spins all the time
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "tests/bench/harness.h"
#include "tests/bench/in_workplace.h"
#include "tests/bench/pipeline/site.h"
#include "tests/bench/pipeline/subject.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

constexpr const char* kTarget = "pipeline-target";
constexpr uint32_t kSamplesPerStart = 3;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << "pipeline: " << what << "\n";
  std::exit(1);
}
template <class T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(std::string(value.status().message()));
  return *std::move(value);
}

struct Kind {
  const char* name;
  PipelineSides sides;
  bool copies = true;
  bool histograms = true;
  bool pieces = true;
};

class PipelineBench {
 public:
  PipelineBench(Bench* bench, const std::string& folder)
      : bench_(*bench),
        folder_(folder),
        target_(Must(SimTarget::Create(folder_, kTarget))),
        memory_(Must(target_->AllocateMemory(kPipelineBytes))) {
    Must(target_->Register(memory_.data(), memory_.size(), {kRelayNic}));
    const absl::Status published = target_->Publish();
    if (!published.ok()) Fail(std::string(published.message()));
    kinds_ = {{"actors", ActorSides()},
              {"pump1", PumpSides(PumpKind::kOneThread)},
              {"pump2", PumpSides(PumpKind::kTwoThreads)},
              {"actors-null", ActorSides(), false},
              {"actors-null-quiet", ActorSides(), false, false},
              {"actors-null-untraced", ActorSides(), false, true, false},
              {"pump2-null", PumpSides(PumpKind::kTwoThreads), false}};
  }

  void RunAll() {
    for (const Kind& kind : kinds_) {
      if (kind.copies) CheckBytes(kind);
    }
    Latency("pipeline.latency_p50", "pump1", ">= 5");
    Latency("pipeline.latency_pump2", "pump2", ">= 1.0");
    Latency("pipeline.latency_control", "pump2-null", "", "actors-null");
    Rate("pipeline.rate_control", "actors-null", "pump2-null", ">= 1.5");
    Rate("pipeline.rate_64k", "actors", "pump2", ">= 1.0", "<= 1.02");
    Rate("pipeline.rate_64k_pump1", "actors", "pump1", "");
    Rate("trace.histograms", "actors-null", "actors-null-quiet", ">= 0.98");
    Rate("trace.pieces", "actors-null", "actors-null-untraced", "");
  }

 private:
  PipelineSite SiteOf(const Kind& kind, bool move) const {
    return {.directory = folder_,
            .target = kTarget,
            .name = fmt::format("{}-{}", kind.name, move ? "move" : "model"),
            .cores = bench_.cores(),
            .copies = kind.copies,
            .move = move,
            .histograms = kind.histograms,
            .pieces = kind.pieces};
  }

  void CheckBytes(const Kind& kind) {
    std::fill(memory_.begin(), memory_.end(), std::byte{0});
    {
      const auto subject = Must(Subject::Start(kind.sides, SiteOf(kind, true)));
      Must(subject->Run({.outstanding = kMaxOutstanding, .duration_ns = 10'000'000}));
    }
    std::vector<std::byte> expected(kPipelineBytes);
    FillPipelinePattern(expected.data());
    if (!std::equal(memory_.begin(), memory_.end(), expected.begin())) {
      Fail(fmt::format("{}: wrong bytes at the target", kind.name));
    }
  }

  // Which pages a process got decides some percent of what it does, for as long as it lives: a
  // figure is of several.
  Subject::Measured Run(const std::string& name, LoadOrder order) {
    Running& running = running_[name];
    if (running.samples++ % kSamplesPerStart == 0) {
      running.subject.reset();
      const auto kind = std::find_if(kinds_.begin(), kinds_.end(),
                                     [&](const Kind& each) { return each.name == name; });
      running.subject = Must(Subject::Start(kind->sides, SiteOf(*kind, false)));
    }
    order.duration_ns =
        static_cast<uint64_t>(std::chrono::nanoseconds(bench_.options().sample).count());
    return Must(running.subject->Run(order));
  }

  // The pump's median over the actors'.
  void Latency(const std::string& figure, const std::string& pump, const std::string& goal,
               const std::string& actors = "actors") {
    const auto sample = [this](const std::string& name) {
      const Subject::Measured run = Run(name, {.outstanding = 1});
      return Sample(run.load.p50_us, {run.load.p99_us, CpuPerGb(run)});
    };
    bench_.Run({.name = figure,
                .unit = "us",
                .subject_is = pump + ", one request outstanding, median",
                .reference_is = actors,
                .goal = goal,
                .includes = {"submission", "copy", "relay", "completion"},
                .beside = {"p99_us", "cpu_s_per_gb"},
                .subject = [=] { return sample(pump); },
                .reference = [=] { return sample(actors); }});
  }

  void Rate(const std::string& figure, const std::string& subject, const std::string& reference,
            const std::string& goal, const char* cpu_goal = "") {
    const auto sample = [this](const std::string& name) {
      const Subject::Measured run = Run(name, {.outstanding = kMaxOutstanding});
      return Sample(static_cast<double>(run.load.requests) / run.load.seconds / 1e3,
                    {run.load.p99_us, CpuPerGb(run)});
    };
    bench_.Run({.name = figure,
                .unit = "k/s",
                .subject_is = fmt::format("{}, {} requests outstanding", subject, kMaxOutstanding),
                .reference_is = reference,
                .goal = goal,
                .includes = {"submission", "copy, but for null subjects", "relay", "completion"},
                .beside = {"p99_us", {"cpu_s_per_gb", cpu_goal}},
                .subject = [=] { return sample(subject); },
                .reference = [=] { return sample(reference); }});
  }

  // Of requests that were sent, whether their bytes were copied or not.
  static double CpuPerGb(const Subject::Measured& run) {
    return run.cpu_seconds / (static_cast<double>(run.load.requests * kRequestBytes) / 1e9);
  }

  Bench& bench_;
  const std::string folder_;
  const std::unique_ptr<SimTarget> target_;
  const std::span<std::byte> memory_;
  std::vector<Kind> kinds_;
  struct Running {
    std::unique_ptr<Subject> subject;
    uint32_t samples = 0;
  };
  std::map<std::string, Running> running_;
};

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  auto bench = railhop::Bench::FromArguments(
      argc, argv, "64 KiB requests through the whole pipeline, beside single-pump engines.");
  return railhop::RunInWorkplace("pipeline", [&](const std::string& folder) {
    railhop::PipelineBench(&bench, folder).RunAll();
    return bench.Finish();
  });
}
