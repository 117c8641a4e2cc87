// share of a core that an idle process takes while it is attached to a peer
//
// Two ranks on this host, each attached to the other, nothing to send. What one of them takes is
// looked at after one sample's length of idling and over a second one.
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <iostream>
#include <memory>
#include <string>
#include <thread>

#include "actors/bootstrap.h"
#include "fmt/format.h"
#include "tests/bench/cpu_time.h"
#include "tests/bench/harness.h"
#include "tests/bench/in_workplace.h"

namespace railhop {
namespace {

std::unique_ptr<Rank> MakeRank(int number, const std::string& folder) {
  const std::string config = fmt::format(
      "name: \"idle-{0}\" sim_directory: \"{1}\" registry_root: \"{1}\"\n"
      "ranks_on_host: 2 local_rank: {0}\n"
      "nics {{ name: \"sim{0}\" sim {{ line_rate_bytes_per_s: 1000000000 }} }}\n"
      "pxn {{ enable: true group_id: \"idle\" preattach: true }}\n",
      number, folder);
  std::string error;
  std::unique_ptr<Rank> rank = Rank::Create(config, "idle_bench", &error);
  if (rank == nullptr) std::cerr << "rank " << number << ": " << error << "\n";
  return rank;
}

// The peer: idles until the other process closes its end of the pipe, or dies.
int RunPeer(const std::string& folder, int pipe_end) {
  const std::unique_ptr<Rank> rank = MakeRank(1, folder);
  if (rank == nullptr) return 1;
  char byte;
  while (read(pipe_end, &byte, 1) < 0 && errno == EINTR) {
  }
  return 0;
}

int Measure(Bench& bench, const std::string& folder) {
  const std::unique_ptr<Rank> rank = MakeRank(0, folder);
  if (rank == nullptr) return 1;
  if (!rank->WaitForRelay("sim1", std::chrono::seconds(60))) {
    std::cerr << "the two ranks did not attach to each other within 60 s\n"
              << rank->pxn_off_reason() << "\n";
    return 1;
  }
  const std::chrono::milliseconds sample = bench.options().sample;
  bench.Run({.name = "idle.cpu",
             .unit = "of a core",
             .subject_is = "an attached rank with nothing to do, ADAPTIVE reactors",
             .goal = "< 0.01",
             .includes = {"all threads of the process", "heartbeat", "timers"},
             .subject = [&] {
               std::this_thread::sleep_for(sample);
               const absl::StatusOr<double> share = CpuShareOf(getpid(), sample);
               return share.ok() ? *share : -1;
             }});
  return bench.Finish();
}

int RunBoth(Bench& bench, const std::string& folder) {
  int ends[2];
  if (pipe(ends) != 0) {
    std::cerr << "cannot make a pipe: " << std::strerror(errno) << "\n";
    return 1;
  }
  // Before there is any thread.
  const pid_t peer = fork();
  if (peer == 0) {
    close(ends[1]);
    const int code = RunPeer(folder, ends[0]);
    std::cerr.flush();
    _exit(code);
  }
  close(ends[0]);
  int code = peer < 0 ? 1 : Measure(bench, folder);
  close(ends[1]);
  int status = 0;
  if (peer > 0 && (waitpid(peer, &status, 0) != peer || status != 0)) code = 1;
  return code;
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  railhop::BenchOptions defaults;
  defaults.pairs = 1;
  defaults.sample = std::chrono::seconds(10);
  auto bench = railhop::Bench::FromArguments(
      argc, argv, "What an idle process takes while it is attached to a peer.", defaults);
  return railhop::RunInWorkplace(
      "idle", [&](const std::string& folder) { return railhop::RunBoth(bench, folder); });
}
