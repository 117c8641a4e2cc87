// transfers whose sender or relay is stopped or killed at each protocol point: none hangs or lies
//
// Needs the build that has the named points (./dev bench faults makes it). The trials are those of
// tests/faults; a figure that is not 0 makes the exit code 1.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "tests/bench/harness.h"
#include "tests/faults/fault_points.h"
#include "tests/faults/fault_rank.h"
#include "tests/faults/fault_trials.h"
#include "tools/demo/interrupt.h"

namespace railhop {
namespace {

struct FaultsOptions {
  BenchOptions bench;
  uint32_t times = 20;
  uint32_t first = 0;
  std::vector<std::string> points;
  std::vector<std::string> actions{"kill", "stop"};
};

struct Trial {
  const NamedPoint* point;
  FaultAction action;
};

// What is wrong with a part of a name, or "".
std::string CheckPoint(const std::string& part) {
  std::string names;
  for (const NamedPoint& point : kNamedPoints) {
    if (point.name.find(part) != std::string_view::npos) return "";
    names += fmt::format("{}{}", names.empty() ? "" : ", ", point.name);
  }
  return fmt::format("no point's name contains \"{}\"; there are: {}", part, names);
}

std::vector<Trial> ChooseTrials(const FaultsOptions& options) {
  std::vector<Trial> trials;
  for (const NamedPoint& point : kNamedPoints) {
    const bool chosen =
        options.points.empty() ||
        std::any_of(options.points.begin(), options.points.end(), [&](const std::string& part) {
          return point.name.find(part) != std::string_view::npos;
        });
    for (const std::string& action : options.actions) {
      if (chosen) {
        trials.push_back({&point, action == "kill" ? FaultAction::kKill : FaultAction::kStop});
      }
    }
  }
  return trials;
}

class Progress {
 public:
  void Show(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (terminal_) {
      std::cerr << "\r\033[K" << text << std::flush;
    } else if (now - shown_ > std::chrono::seconds(10)) {
      std::cerr << text << std::endl;
      shown_ = now;
    }
  }
  void Clear() const {
    if (terminal_) std::cerr << "\r\033[K" << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_;
};

absl::Status RunTrials(const FaultsOptions& options, FaultTrials* trials) {
  const std::vector<Trial> chosen = ChooseTrials(options);
  Progress progress;
  size_t done = 0;
  for (uint32_t i = options.first; i - options.first < options.times; ++i) {
    for (const auto& [point, action] : chosen) {
      progress.Show(fmt::format("trial {} of {}: {} at {} ...", ++done,
                                chosen.size() * options.times, ToString(action), point->name));
      const size_t known = trials->findings().texts.size();
      absl::Status status = trials->Run(*point, action, i);
      const auto& texts = trials->findings().texts;
      if (texts.size() != known) {
        progress.Clear();
        for (size_t text = known; text < texts.size(); ++text) {
          std::cerr << fmt::format("{} at {}: {}\n", ToString(action), point->name, texts[text]);
        }
        std::cerr << fmt::format(
            "  to repeat it: ./dev bench faults --points {} --actions {} --first {} --times 1\n",
            point->name, ToString(action), i);
      }
      if (!status.ok()) return status;
    }
  }
  progress.Clear();
  return absl::OkStatus();
}

int Report(const FaultsOptions& options, uint64_t trials, const Findings& findings) {
  Bench bench(options.bench, {.relation = "not pinned"}, std::cout);
  const auto row = [&](const std::string& name, const std::string& unit, const std::string& what,
                       uint64_t count) {
    bench.Run({.name = name,
               .unit = unit,
               .subject_is = fmt::format("{}; {} trials", what, trials),
               .goal = "== 0",
               .includes = {"set-up", "fault", "recovery"},
               .subject = [count] { return static_cast<double>(count); }});
  };
  row("faults.stuck", "batches",
      "neither terminal nor TIMEOUT at the deadline, or not terminal 5 s after the signal",
      findings.stuck);
  row("faults.wrong_or_late", "batches",
      "wrong bytes of a COMPLETED batch, or bytes after a terminal state", findings.wrong_or_late);
  row("faults.unhealthy", "cases",
      "a rank or batch that the fault did not concern fails, or no "
      "lane comes back",
      findings.unhealthy);
  const uint64_t all = findings.stuck + findings.wrong_or_late + findings.unhealthy;
  return all == 0 ? bench.Finish() : 1;
}

int RunBench(const FaultsOptions& options) {
#ifndef RAILHOP_FAULT_POINTS
  std::cerr << "this build has no fault points; ./dev bench faults makes one that has\n";
  return kExitCannotMeasure;
#endif
  signal(SIGPIPE, SIG_IGN);  // a child that died is an error of the write
  HoldInterrupts();
  Findings findings;
  absl::Status status;
  {
    FaultTrials trials;
    status = trials.SetUp();
    if (status.ok()) status = RunTrials(options, &trials);
    if (!trials.findings().texts.empty()) std::cerr << trials.Logs();
    findings = trials.findings();
  }
  // Nothing is left to be cleaned up, and results may go to a pipe that nobody reads.
  LetInterruptsEnd();
  if (!status.ok()) {
    std::cerr << "faults: " << status.message() << "\n";
    return InterruptedBy() != 0 ? 128 + InterruptedBy() : 1;
  }
  return Report(options, ChooseTrials(options).size() * options.times, findings);
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  railhop::FaultsOptions options;
  options.bench.pairs = 1;
  options.bench.sample = std::chrono::milliseconds(0);
  railhop::FaultRankOptions rank;
  CLI::App app("Stops and kills sender and relay at every named protocol point");
  railhop::AddOutputOptions(app, &options.bench);
  app.add_option("--times", options.times, "trials of each point and action")
      ->check(CLI::Range(1, 100000))
      ->capture_default_str();
  app.add_option("--first", options.first, "number of the first trial: it chooses the pass")
      ->check(CLI::Range(0, 1'000'000'000))
      ->capture_default_str();
  app.add_option("--points", options.points, "only points whose name contains one of: A,B")
      ->delimiter(',')
      ->check(railhop::CheckPoint);
  app.add_option("--actions", options.actions, "what happens at the point: kill,stop")
      ->delimiter(',')
      ->check(CLI::IsMember({"kill", "stop"}));
  CLI::App* role = app.add_subcommand("rank", "")->group("");
  role->add_option("--number", rank.number)->required();
  role->add_option("--folder", rank.folder)->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (role->parsed()) return railhop::RunFaultRank(rank);
  return railhop::RunBench(options);
}
