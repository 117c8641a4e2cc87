#include "tools/demo/demo.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <sstream>

#include "tools/demo/child_process.h"
#include "tools/demo/device_memory.h"
#include "tools/demo/interrupt.h"
#include "tools/demo/rank_config.h"
#include "tools/demo/report.h"
#include "tools/demo/trace_file.h"
#include "tools/demo/user_files.h"
#include "tools/demo/workplace.h"

namespace railhop {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kTargetName = "decode-0";
constexpr seconds kSetUp{180};  // of a process, which touches all of its memory
constexpr seconds kAttach{60};
constexpr seconds kReply{60};
constexpr double kGpuLineRate = 25;  // GB/s: a NIC of 200 Gb/s, as each GPU of such machines has
constexpr size_t kTracedPieces = 20'000;  // a file of some 30 MB

// What the files hold that a user named. Read once: a pipe has it once only.
struct DemoInputs {
  std::vector<KvBatch> batches;
  std::string config;
};

absl::StatusOr<DemoInputs> ReadInputs(const DemoOptions& options) {
  DemoInputs inputs;
  absl::StatusOr<std::vector<KvBatch>> batches = ReadBatches(options.batches);
  if (!batches.ok()) return batches.status();
  inputs.batches = *std::move(batches);
  if (options.config.empty()) return inputs;
  absl::StatusOr<std::string> config = ReadBaseConfig(options.config);
  if (!config.ok()) return config.status();
  inputs.config = *std::move(config);
  return inputs;
}

// GB/s of memcpy by one thread, over buffers too large for a cache.
double MeasureMemcpy() {
  constexpr size_t kBytes = 256 << 20;
  std::vector<char> from(kBytes, 1);
  std::vector<char> to(kBytes, 2);
  double best = 0;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), kBytes);
    asm volatile("" : : "r"(to.data()) : "memory");
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kBytes) / took.count() / 1e9);
  }
  return best;
}

// The line that shows on a terminal what is going on; elsewhere one line now and then.
class Progress {
 public:
  void Show(const std::string& text) {
    const auto now = std::chrono::steady_clock::now();
    if (terminal_) {
      std::cerr << "\r\x1b[K" << text << std::flush;
    } else if (now - shown_ > seconds(2)) {
      std::cerr << text << std::endl;
      shown_ = now;
    }
  }
  ~Progress() {
    if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  std::chrono::steady_clock::time_point shown_;
};

class Demo {
 public:
  Demo(const DemoOptions& options, DemoInputs inputs)
      : options_(options), inputs_(std::move(inputs)) {}

  absl::Status Run() {
    absl::Status status = Replay();
    // Whatever failed: a target that is gone is the reason, and ranks do not know how it ended.
    const std::string ended = status.ok() || target_.empty() ? "" : target_[0].HowItDied();
    if (ended.empty()) return status;
    return absl::Status(status.code(), fmt::format("{}; {}", std::string(status.message()), ended));
  }

  DemoReport TakeReport() { return std::move(report_); }

 private:
  absl::Status Replay() {
    if (absl::Status status = Prepare(); !status.ok()) return status;
    if (absl::Status status = StartTarget(); !status.ok()) return status;
    if (absl::Status status = StartRanks(); !status.ok()) return status;
    started_ = std::chrono::steady_clock::now();
    if (OnGpus()) {
      if (absl::Status status = CheckOnce(); !status.ok()) return status;
    }
    int round = 0;
    do {
      if (absl::Status status = RunRound(round++); !status.ok()) return status;
    } while (Elapsed() < options_.duration);
    return Finish();
  }

  bool OnGpus() const { return options_.staging == "cuda"; }
  const std::string& GpuOf(uint32_t rank) const { return report_.gpus[rank % report_.gpus.size()]; }

  absl::Status FindGpus() {
    absl::StatusOr<std::vector<std::string>> gpus = VisibleGpus();
    if (!gpus.ok()) {
      return absl::Status(
          gpus.status().code(),
          fmt::format("--staging cuda needs a GPU of NVIDIA and its driver: {}; without one leave "
                      "the option out: pieces are then staged in host memory",
                      std::string(gpus.status().message())));
    }
    report_.gpus = *std::move(gpus);
    return absl::OkStatus();
  }

  // The ranks begin anew, with NICs that keep the clock alone: moving the bytes takes a NIC no time
  // of a GPU.
  absl::Status CheckOnce() {
    if (absl::Status status = RunRound(0); !status.ok()) return status;
    if (absl::Status relayed = CheckRelayed(); !relayed.ok()) return relayed;
    if (absl::Status status = StopRanks(); !status.ok()) return status;
    for (DemoKind& kind : report_.kinds) {
      kind.relayed.clear();
      kind.direct.clear();
    }
    moves_ = false;
    if (absl::Status status = StartRanks(); !status.ok()) return status;
    started_ = std::chrono::steady_clock::now();
    return absl::OkStatus();
  }

  absl::Status Prepare() {
    for (KvBatch& batch : inputs_.batches) {
      area_bytes_ = std::max(area_bytes_, batch.total);
      report_.kinds.push_back({.batch = std::move(batch), .relayed = {}, .direct = {}});
    }
    if (OnGpus()) {
      if (absl::Status found = FindGpus(); !found.ok()) return found;
      report_.line_gb_per_s = kGpuLineRate;
    } else {
      progress_.Show("measuring memcpy ...");
      report_.memcpy_gb_per_s = MeasureMemcpy();
      const uint32_t nics = options_.ranks * options_.rails_per_rank;
      report_.line_gb_per_s = report_.memcpy_gb_per_s / 4 / nics;
    }
    if (options_.line_rate > 0) report_.line_gb_per_s = options_.line_rate;
    report_.ranks = options_.ranks;
    report_.rails_per_rank = options_.rails_per_rank;
    report_.layout = options_.layout;
    report_.target = OnGpus() ? options_.target : "host";
    return workplace_.Create();
  }

  absl::Status StartTarget() {
    progress_.Show("starting the target ...");
    std::vector<std::string> arguments{
        "demo-target", "--directory",  workplace_.path(),          "--name",
        kTargetName,   "--area-bytes", std::to_string(area_bytes_)};
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      arguments.push_back("--preferred");
      arguments.push_back(RailsOf((rank + 1) % options_.ranks));
      if (!OnGpus() || options_.target != "cuda") continue;
      arguments.push_back("--gpus");
      arguments.push_back(GpuOf((rank + 1) % options_.ranks));
    }
    absl::StatusOr<ChildProcess> target = ChildProcess::Spawn("target", arguments);
    if (!target.ok()) return target.status();
    target_.push_back(*std::move(target));
    absl::StatusOr<json> areas = target_[0].Ask({{"command", "areas"}}, kSetUp);
    if (!areas.ok()) return areas.status();
    addresses_ = (*areas)["addresses"].get<std::vector<uint64_t>>();
    return absl::OkStatus();
  }

  absl::Status StartRanks() {
    progress_.Show("starting the ranks ...");
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      absl::StatusOr<std::string> relayed = WriteConfig(rank, true);
      if (!relayed.ok()) return relayed.status();
      absl::StatusOr<std::string> direct = WriteConfig(rank, false);
      if (!direct.ok()) return direct.status();
      std::vector<std::string> arguments{"demo-rank",
                                         "--config-file",
                                         *relayed,
                                         "--direct-config-file",
                                         *direct,
                                         "--target",
                                         kTargetName,
                                         "--wanted-rails",
                                         RailsOf((rank + 1) % options_.ranks),
                                         "--source-bytes",
                                         std::to_string(area_bytes_)};
      if (OnGpus()) arguments.insert(arguments.end(), {"--gpu", GpuOf(rank)});
      absl::StatusOr<ChildProcess> child =
          ChildProcess::Spawn(fmt::format("rank {}", rank), arguments);
      if (!child.ok()) return child.status();
      ranks_.push_back(*std::move(child));
    }
    std::vector<int32_t> pids;
    for (const ChildProcess& rank : ranks_) pids.push_back(rank.pid());
    report_.pieces =
        std::make_unique<PieceReport>(std::move(pids), options_.trace.empty() ? 0 : kTracedPieces);
    // A rank waits for lanes to the others: it is told to once they all are there.
    if (absl::Status ready = AskAll({{"command", "ready"}}, kSetUp).status(); !ready.ok()) {
      return ready;
    }
    progress_.Show("attaching the lanes ...");
    return AskAll({{"command", "attach"}, {"timeout_s", kAttach.count()}}, 2 * kAttach).status();
  }

  // Each batch kind in turn: relayed and direct, the order changing from round to round.
  absl::Status RunRound(int round) {
    for (size_t kind = 0; kind < report_.kinds.size(); ++kind) {
      for (const bool relayed : {round % 2 == 0, round % 2 != 0}) {
        progress_.Show(
            fmt::format("{:.0f} s of at least {:.0f}; round {}, batch {} of {}: {} {} ...",
                        Elapsed(), options_.duration, round + 1, kind + 1, report_.kinds.size(),
                        report_.kinds[kind].batch.name, relayed ? "relayed" : "direct"));
        absl::StatusOr<DemoRun> run = RunOnce(report_.kinds[kind].batch, relayed);
        if (!run.ok()) return run.status();
        (relayed ? report_.kinds[kind].relayed : report_.kinds[kind].direct).push_back(*run);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<DemoRun> RunOnce(const KvBatch& batch, bool relayed) {
    if (absl::Status filled = moves_ ? FillAll(batch) : absl::OkStatus(); !filled.ok()) {
      return filled;
    }
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const json run{{"command", "run"},
                     {"relayed", relayed},
                     {"address", addresses_[rank]},
                     {"timeout_ms", RunTimeout(batch).count()},
                     {"lengths", batch.lengths}};
      if (absl::Status sent = ranks_[rank].Send(run); !sent.ok()) return sent;
    }
    absl::StatusOr<std::vector<json>> replies = ReceiveAll(2 * RunTimeout(batch));
    if (!replies.ok()) return replies.status();
    if (absl::Status checked = CheckAll(batch, relayed, *replies); !checked.ok()) return checked;
    if (relayed) {
      if (absl::Status traced = TakeTraces(); !traced.ok()) return traced;
    }
    return Summarise(batch, *replies);
  }

  absl::Status FillAll(const KvBatch& batch) {
    ++seed_;
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const json fill{{"command", "fill"}, {"bytes", batch.total}, {"seed", SeedOf(rank)}};
      if (absl::Status sent = ranks_[rank].Send(fill); !sent.ok()) return sent;
    }
    return ReceiveAll(kReply).status();
  }

  DemoRun Summarise(const KvBatch& batch, const std::vector<json>& replies) const {
    DemoRun run;
    double cpu = 0;
    uint64_t relayed_bytes = 0;
    for (const json& reply : replies) {
      run.gb_per_s += static_cast<double>(batch.total) / reply["seconds"].get<double>() / 1e9;
      cpu += reply["cpu_seconds"].get<double>();
      relayed_bytes += reply["relayed_bytes"].get<uint64_t>();
    }
    const auto all = static_cast<double>(batch.total) * options_.ranks;
    run.cpu_s_per_gb = cpu / (all / 1e9);
    run.relayed_share = static_cast<double>(relayed_bytes) / all;
    return run;
  }

  absl::Status CheckAll(const KvBatch& batch, bool relayed, const std::vector<json>& replies) {
    for (uint32_t rank = 0; rank < options_.ranks; ++rank) {
      const std::string what =
          fmt::format("batch {} of rank {}, {}", batch.name, rank, relayed ? "relayed" : "direct");
      if (replies[rank]["state"] != "COMPLETED") {
        return absl::InternalError(fmt::format(
            "{}: {} ({}), {} of {} bytes arrived", what, replies[rank]["state"].get<std::string>(),
            replies[rank]["reason"].get<std::string>(), replies[rank]["bytes"].get<uint64_t>(),
            batch.total));
      }
      if (!moves_) continue;
      absl::StatusOr<json> checked = target_[0].Ask(
          {{"command", "check"}, {"area", rank}, {"bytes", batch.total}, {"seed", SeedOf(rank)}},
          kReply);
      if (!checked.ok()) return checked.status();
      if (const auto at = (*checked)["mismatch"].get<int64_t>(); at >= 0) {
        return absl::DataLossError(
            fmt::format("{}: wrong byte at the target, offset {} of {}", what, at, batch.total));
      }
      report_.checked_bytes += batch.total;
    }
    return absl::OkStatus();
  }

  absl::Status TakeTraces() {
    const absl::StatusOr<std::vector<json>> replies = AskAll({{"command", "trace"}}, kReply);
    if (!replies.ok()) return replies.status();
    std::vector<RankTrace> traces;
    for (const json& reply : *replies) traces.push_back(ReadRankTrace(reply));
    report_.pieces->AddRun(std::move(traces));
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (absl::Status relayed = CheckRelayed(); !relayed.ok()) return relayed;
    progress_.Show("stopping ...");
    absl::Status status = StopRanks();
    status.Update(target_[0].Finish(kSetUp));
    return status;
  }

  absl::Status StopRanks() {
    absl::Status status;
    for (ChildProcess& rank : ranks_) status.Update(rank.Finish(kSetUp));
    ranks_.clear();
    return status;
  }

  // A demo of relaying that relayed nothing has failed, whatever else went well.
  absl::Status CheckRelayed() {
    absl::StatusOr<std::vector<json>> asked = AskAll({{"command", "stats"}}, kReply);
    if (!asked.ok()) return asked.status();
    report_.rank_stats = *std::move(asked);
    std::string reasons;
    for (const json& stats : report_.rank_stats) {
      if (stats["bytes_relayed"] != 0) return absl::OkStatus();
      for (const auto& [reason, count] : stats["fallbacks"].items()) {
        if (reasons.find(reason) == std::string::npos) {
          reasons += (reasons.empty() ? "" : ", ") + reason;
        }
      }
    }
    return absl::FailedPreconditionError(
        fmt::format("nothing was relayed, everything went direct: {}; see docs/degrade.md, and "
                    "`staging` and `pxn` in the config",
                    reasons));
  }

  absl::StatusOr<std::vector<json>> AskAll(const json& request, std::chrono::milliseconds timeout) {
    for (ChildProcess& rank : ranks_) {
      if (absl::Status sent = rank.Send(request); !sent.ok()) return sent;
    }
    return ReceiveAll(timeout);
  }

  absl::StatusOr<std::vector<json>> ReceiveAll(std::chrono::milliseconds timeout) {
    std::vector<json> replies;
    for (ChildProcess& rank : ranks_) {
      absl::StatusOr<json> reply = rank.Receive(timeout);
      if (!reply.ok()) return reply.status();
      replies.push_back(*std::move(reply));
    }
    return replies;
  }

  std::string RailsOf(uint32_t rank) const {
    std::vector<std::string> names;
    for (uint32_t i = 0; i < options_.rails_per_rank; ++i) {
      names.push_back(NicName(rank * options_.rails_per_rank + i));
    }
    return fmt::format("{}", fmt::join(names, ","));
  }

  absl::StatusOr<std::string> WriteConfig(uint32_t rank, bool relays) const {
    RankConfigFacts facts{.rank = rank,
                          .ranks = options_.ranks,
                          .rails_per_rank = options_.rails_per_rank,
                          .line_gb_per_s = report_.line_gb_per_s,
                          .layout = options_.layout,
                          .directory = workplace_.path(),
                          .relays = relays,
                          .gpu = OnGpus() ? GpuOf(rank) : "",
                          .moves = moves_,
                          .trace_all = !options_.trace.empty(),
                          .base_config = options_.config,
                          .base_text = inputs_.config};
    absl::StatusOr<std::string> text = MakeRankConfig(facts);
    if (!text.ok()) return text.status();
    return workplace_.Write(fmt::format("rank{}{}.textproto", rank, relays ? "" : "-direct"),
                            *text);
  }

  // Four times what the line needs, and half a minute for a busy machine. Twice that, and a rank
  // that does not answer is taken for stuck.
  std::chrono::milliseconds RunTimeout(const KvBatch& batch) const {
    const double rate = report_.line_gb_per_s * options_.rails_per_rank * 1e6;  // bytes per ms
    return std::chrono::milliseconds(
        static_cast<int64_t>(4 * static_cast<double>(batch.total) / rate) + 30'000);
  }

  double Elapsed() const {  // seconds of replaying
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - started_).count();
  }

  uint64_t SeedOf(uint32_t rank) const { return seed_ * 64 + rank; }

  const DemoOptions options_;
  DemoInputs inputs_;
  DemoReport report_;
  Progress progress_;
  Workplace workplace_;
  std::chrono::steady_clock::time_point started_;
  uint64_t area_bytes_ = 0;
  uint64_t seed_ = 0;
  bool moves_ = true;  // the NICs move the bytes
  std::vector<uint64_t> addresses_;
  std::vector<ChildProcess> target_;  // one
  std::vector<ChildProcess> ranks_;
};

absl::Status Replay(const DemoOptions& options, DemoReport* report) {
  absl::StatusOr<DemoInputs> inputs = ReadInputs(options);
  if (!inputs.ok()) return inputs.status();
  HoldInterrupts();
  Demo demo(options, *std::move(inputs));
  absl::Status status = demo.Run();
  *report = demo.TakeReport();
  return status;
}

absl::Status Tell(const DemoReport& report, const OutputFile& results, const OutputFile& trace,
                  const std::string& trace_path) {
  PrintTables(report, std::cout);
  if (!std::cout.flush()) {
    return absl::UnavailableError("the tables cannot be written to standard output");
  }
  absl::Status status;
  if (results.is_open()) {
    status = results.Write([&](std::ostream& out) { WriteJsonLines(report, out); });
  }
  if (!status.ok() || !trace.is_open()) return status;
  status = trace.Write([&](std::ostream& out) { WriteChromeTrace(report.pieces->kept(), out); });
  if (status.ok()) {
    std::cout << fmt::format("{} has {} of {} pieces; https://ui.perfetto.dev opens it\n",
                             trace_path, report.pieces->kept().size(), report.pieces->pieces());
  }
  return status;
}

}  // namespace

int RunDemo(const DemoOptions& options) {
  signal(SIGPIPE, SIG_IGN);  // a child that died is an error of the write
  const UserFile files[] = {{options.batches, "--batches"},
                            {options.config, "--config"},
                            {options.json, "--json", true},
                            {options.trace, "--trace", true}};
  if (absl::Status apart = CheckApart(files); !apart.ok()) {
    std::cerr << "railhop demo: " << apart.message() << "\n";
    return 2;
  }
  // A pipe may keep the opening, reading and writing of a file waiting.
  LetInterruptsEnd();
  OutputFile results("--json");
  OutputFile trace("--trace");
  absl::Status status = results.Open(options.json);
  status.Update(trace.Open(options.trace));
  DemoReport report;
  if (status.ok()) status = Replay(options, &report);
  if (!status.ok()) std::cerr << "railhop demo: " << status.message() << "\n";
  LetInterruptsEnd();
  if (!status.ok()) {
    if (results.is_open()) {
      const json line{{"name", "demo.error"}, {"error", std::string(status.message())}};
      results.Write([&](std::ostream& out) { out << line << "\n"; }).IgnoreError();
    }
    return InterruptedBy() != 0 ? 128 + InterruptedBy() : 1;
  }
  status = Tell(report, results, trace, options.trace);
  if (!status.ok()) std::cerr << "railhop demo: " << status.message() << "\n";
  return status.ok() ? 0 : 1;
}

namespace {

const CLI::Validator is_file_name(
    [](const std::string& text) { return text.empty() ? "a file name is missing" : std::string(); },
    "FILE");

// "nan" passes every comparison of a range.
const CLI::Validator is_number(
    [](const std::string& text) {
      return std::isnan(std::strtod(text.c_str(), nullptr)) ? "\"" + text + "\" is not a number"
                                                            : std::string();
    },
    "NUMBER");

}  // namespace

void AddDemoCommands(CLI::App& app, std::function<int()>* run) {
  auto options = std::make_shared<DemoOptions>();
  CLI::App* demo =
      app.add_subcommand("demo", "Replays KV batches between processes of this machine");
  demo->option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  demo->add_option("--ranks", options->ranks, "Rank processes")
      ->check(CLI::Range(2, 8))
      ->capture_default_str();
  demo->add_option("--rails-per-rank", options->rails_per_rank, "NICs of each rank")
      ->check(CLI::Range(1, 4))
      ->capture_default_str();
  demo->add_option("--layout", options->layout, "How each rank's actors are spread over cores")
      ->check(CLI::IsMember({"auto", "one_core", "two_core", "four_core", "per_nic"}))
      ->capture_default_str();
  CLI::Option* const staging = demo->add_option(
      "--staging", options->staging,
      "Where sources lie and pieces are staged: host memory, or the GPUs that there\n"
      "are, in turn. On GPUs the bytes are moved and checked once, and after that the\n"
      "simulated NICs keep the clock alone");
  staging->check(CLI::IsMember({"host", "cuda"}))->capture_default_str();
  demo->add_option("--target-memory", options->target,
                   "With --staging cuda: whether the NICs write to GPUs or to host memory")
      ->needs(staging)
      ->check(CLI::IsMember({"cuda", "host"}))
      ->capture_default_str();
  demo->add_option("--line-rate", options->line_rate,
                   "GB/s of one simulated NIC (default: memcpy's rate / 4 / NICs; on GPUs 25)")
      ->check(CLI::Range(0.001, 1000.0))
      ->check(is_number);
  demo->add_option("--batches", options->batches,
                   "File of batches to replay (default: an inference server's, see tests/data/)")
      ->check(is_file_name);
  demo->add_option("--config", options->config,
                   "Text config that every rank starts from; its name, NICs, directories\n"
                   "and group are replaced by the demo's own")
      ->check(CLI::ExistingFile);
  demo->add_option("--duration", options->duration, "Seconds of replaying; at least one round")
      ->check(CLI::Range(0.0, 86400.0))
      ->check(is_number)
      ->capture_default_str();
  demo->add_option("--json", options->json, "File for the results as JSON lines")
      ->check(is_file_name);
  demo->add_option(
          "--trace", options->trace,
          fmt::format("File for a trace in Chrome's format, for ui.perfetto.dev: the stages "
                      "of the first\n{} relayed pieces. Every piece and message is then "
                      "recorded, which costs some time",
                      kTracedPieces))
      ->check(is_file_name);
  demo->callback([=] { *run = [options] { return RunDemo(*options); }; });

  auto target_options = std::make_shared<TargetOptions>();
  CLI::App* target = app.add_subcommand("demo-target", "")->group("");
  target->add_option("--directory", target_options->directory)->required();
  target->add_option("--name", target_options->name)->required();
  target->add_option("--area-bytes", target_options->area_bytes)->required();
  target->add_option("--preferred", target_options->preferred)->required();
  target->add_option("--gpus", target_options->gpus);
  target->callback([=] { *run = [target_options] { return RunTargetProcess(*target_options); }; });

  auto rank_options = std::make_shared<RankProcessOptions>();
  CLI::App* rank = app.add_subcommand("demo-rank", "")->group("");
  rank->add_option("--config-file", rank_options->config_file)->required();
  rank->add_option("--direct-config-file", rank_options->direct_config_file)->required();
  rank->add_option("--target", rank_options->target)->required();
  rank->add_option("--wanted-rails", rank_options->wanted_rails);
  rank->add_option("--source-bytes", rank_options->source_bytes)->required();
  rank->add_option("--gpu", rank_options->gpu);
  rank->callback([=] { *run = [rank_options] { return RunRankProcess(*rank_options); }; });
}

}  // namespace railhop
