// the Transfer Engine over TCP: beside Mooncake's own engine, and a plain blocking socket
//
// Each subject is two processes on this host that load the engine's Python module, so that all pay
// the same for Python. Mooncake is the package that ./dev installs for the interop tests, as it is
// by default (a connection per request) and with its connection pool. Railhop is as it is by
// default, which within a host is a local socket, and in the rows named "inet" kept to TCP. The
// stream is one blocking socket and a byte back when all has arrived: what TCP gives on this host.
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "fmt/format.h"
#include "tests/bench/harness.h"
#include "tests/bench/sides/side.h"

namespace railhop {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;
constexpr uint64_t kLargestBatch = 128 * kMiB;  // of the sweep; more takes longer than a sample

// What is moved at a time, and how.
struct Load {
  const char* opcode = "write";
  uint64_t length = 0;  // bytes of each request
  int count = 1;        // requests of a batch
  int threads = 1;

  std::string Name() const {
    const std::string size =
        length >= kMiB ? fmt::format("{}m", length / kMiB) : fmt::format("{}k", length / kKiB);
    return fmt::format("{}_{}_b{}{}", opcode, size, count,
                       threads == 1 ? "" : fmt::format("_t{}", threads));
  }
};

class TcpBench {
 public:
  explicit TcpBench(Bench* bench) : bench_(*bench) {}

  // False: it was said what is missing.
  bool Start() {
    const std::string script = RAILHOP_SOURCE_DIR "/tests/bench/sides/side.py";
    const std::string peers = RAILHOP_SOURCE_DIR "/build/peers/bin/python3";
    return Add("railhop",
               {"/usr/bin/python3", script, "railhop", {"PYTHONPATH=" RAILHOP_PYTHON}}) &&
           Add("railhop-inet", {"/usr/bin/python3",
                                script,
                                "railhop",
                                {"PYTHONPATH=" RAILHOP_PYTHON, "RAILHOP_TCP_LOCAL=0"}}) &&
           Add("stream", {"/usr/bin/python3", script, "stream", {}}) &&
           Add("mooncake", {peers, script, "mooncake", {"MC_FORCE_TCP=1", "MC_LOG_LEVEL=ERROR"}}) &&
           Add("mooncake-pool",
               {peers,
                script,
                "mooncake",
                {"MC_FORCE_TCP=1", "MC_LOG_LEVEL=ERROR", "MC_TCP_ENABLE_CONNECTION_POOL=1"}});
  }

  void RunAll() {
    const Load many{.length = 64 * kKiB, .count = 128};
    Rate("tcp.write_64k_b128", many, "mooncake", ">= 3");
    Rate("tcp.write_64k_b128_pool", many, "mooncake-pool", ">= 2");
    Rate("tcp.write_64k_b128_inet", many, "mooncake", "", "railhop-inet");
    const Load large{.length = kMiB, .count = 16};
    Rate("tcp.write_1m_b16", large, "mooncake", ">= 1.1");
    Rate("tcp.write_1m_b16_pool", large, "mooncake-pool", ">= 1.1");
    Rate("tcp.write_8m", {.length = 8 * kMiB}, "stream", ">= 0.9");
    Latency("tcp.latency_4k", "mooncake", ">= 4");
    Latency("tcp.latency_4k_pool", "mooncake-pool", ">= 2");
    Latency("tcp.latency_4k_inet", "mooncake", "", "railhop-inet");
    Threads();
    Tiny();
    for (const char* opcode : {"write", "read"}) {
      for (const uint64_t length : {4 * kKiB, 64 * kKiB, kMiB, 8 * kMiB}) {
        for (const int count : {1, 16, 128}) {
          if (length * static_cast<uint64_t>(count) > kLargestBatch) continue;
          for (const int threads : {1, 4}) {
            const Load load{opcode, length, count, threads};
            Rate("tcp.sweep." + load.Name(), load, "mooncake", "");
          }
        }
      }
    }
  }

 private:
  struct Pair {
    std::unique_ptr<Side> initiator;
    std::unique_ptr<Side> target;
  };

  bool Add(const std::string& name, const SideProgram& program) {
    Pair& pair = pairs_[name];
    for (std::unique_ptr<Side>* side : {&pair.target, &pair.initiator}) {
      absl::StatusOr<std::unique_ptr<Side>> started = Side::Start(program);
      if (!started.ok()) {
        std::cerr << "tcp: " << name << ": " << std::string(started.status().message()) << "\n";
        return false;
      }
      *side = *std::move(started);
    }
    return true;
  }

  std::vector<double> Ask(const std::string& subject, const std::string& order) {
    absl::StatusOr<std::vector<double>> answer = pairs_.at(subject).initiator->Ask(order);
    if (answer.ok()) return *std::move(answer);
    std::cerr << "tcp: " << subject << ": " << std::string(answer.status().message()) << "\n";
    std::exit(1);
  }
  std::vector<double> Run(const std::string& subject, const Load& load) {
    const Side& target = *pairs_.at(subject).target;
    return Ask(subject,
               fmt::format("{} {} {} {} {} {} {}", load.opcode, target.name(), target.address(),
                           load.count, load.length, load.threads, bench_.options().sample.count()));
  }

  void Rate(const std::string& figure, const Load& load, const std::string& reference,
            const std::string& goal, const std::string& subject = "railhop") {
    const auto sample = [this, load](const std::string& name) {
      const std::vector<double> run = Run(name, load);
      return Sample(run[0], {run[2], run[3]});
    };
    bench_.Run({.name = figure,
                .unit = "GB/s",
                .subject_is = subject + ", " + load.Name(),
                .reference_is = reference,
                .goal = goal,
                .includes = {"submission", "copy through sockets", "completion"},
                .beside = {"p99_us", "initiator_cpu_s_per_gb"},
                .subject = [=] { return sample(subject); },
                .reference = [=] { return sample(reference); }});
  }

  // The other engine's median over Railhop's.
  void Latency(const std::string& figure, const std::string& other, const std::string& goal,
               const std::string& railhop = "railhop") {
    const auto sample = [this](const std::string& subject) {
      const std::vector<double> run = Run(subject, {.length = 4 * kKiB});
      return Sample(run[1], {run[2], run[3]});
    };
    bench_.Run({.name = figure,
                .unit = "us",
                .subject_is = other + ", one write of 4 KiB, median",
                .reference_is = railhop,
                .goal = goal,
                .includes = {"submission", "copy through sockets", "completion"},
                .beside = {"p99_us", "initiator_cpu_s_per_gb"},
                .subject = [=] { return sample(other); },
                .reference = [=] { return sample(railhop); }});
  }

  void Threads() {
    const auto sample = [this](int threads) {
      return Sample(Run("railhop", {.length = 64 * kKiB, .count = 16, .threads = threads})[0]);
    };
    bench_.Run({.name = "tcp.threads",
                .unit = "GB/s",
                .subject_is = "railhop, write_64k_b16 from 4 application threads",
                .reference_is = "from one",
                .goal = ">= 1.0",
                .includes = {"submission", "copy through sockets", "completion"},
                .subject = [=] { return sample(4); },
                .reference = [=] { return sample(1); }});
  }

  // Peak memory grows once: later samples of one process would see nothing.
  void Tiny() {
    const Side& target = *pairs_.at("railhop").target;
    const std::string order = fmt::format("tiny {} {} 500000", target.name(), target.address());
    double bytes = -1;
    bench_.Run({.name = "tcp.tiny_500k",
                .unit = "bytes an entry",
                .subject_is = "railhop, 500,000 writes of 64 bytes in one batch: peak memory",
                .includes = {"submission", "copy through sockets", "completion"},
                .subject = [&] {
                  if (bytes < 0) bytes = Ask("railhop", order)[0];
                  return Sample(bytes);
                }});
  }

  Bench& bench_;
  std::map<std::string, Pair> pairs_;
};

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  auto bench = railhop::Bench::FromArguments(
      argc, argv, "The Transfer Engine over TCP, beside Mooncake's and a plain socket.");
  railhop::TcpBench tcp(&bench);
  if (!tcp.Start()) return railhop::kExitCannotMeasure;
  tcp.RunAll();
  return bench.Finish();
}
