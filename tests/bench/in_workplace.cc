#include "tests/bench/in_workplace.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "tools/demo/interrupt.h"
#include "tools/demo/workplace.h"

namespace railhop {
namespace {

constexpr std::chrono::hours kLong{24};
constexpr std::chrono::seconds kLastWords{10};  // of processes whose parent was killed

int CodeOf(int status) {
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  std::cerr << "the benchmark was killed by signal " << WTERMSIG(status) << "\n";
  return 128 + WTERMSIG(status);
}

// `open_while_used` reads end of file when the benchmark and what it has forked have ended.
int Await(pid_t benchmark, int open_while_used) {
  pollfd watched{open_while_used, POLLIN, 0};
  while (InterruptedBy() == 0 && PollUnlessInterrupted(&watched, kLong) <= 0) {
  }
  const int signal = InterruptedBy();
  if (signal != 0) {
    kill(benchmark, SIGKILL);
    poll(&watched, 1, static_cast<int>(std::chrono::milliseconds(kLastWords).count()));
  }
  int status = 0;
  waitpid(benchmark, &status, 0);
  return signal != 0 ? 128 + signal : CodeOf(status);
}

}  // namespace

int RunInWorkplace(const std::string& kind, const std::function<int(const std::string&)>& body) {
  HoldInterrupts();
  Workplace workplace(kind);
  int ends[2];
  absl::Status status = workplace.Create();
  if (status.ok() && pipe2(ends, O_CLOEXEC) != 0)
    status = absl::ErrnoToStatus(errno, "no pipe can be made");
  if (!status.ok()) {
    std::cerr << kind << ": " << status.message() << "\n";
    return 1;
  }
  const pid_t parent = getpid();
  const pid_t benchmark = fork();
  if (benchmark < 0) {
    std::cerr << kind << ": no process can be started: " << strerror(errno) << "\n";
    return 1;
  }
  if (benchmark == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    LetInterruptsEnd();
    close(ends[0]);
    std::exit(body(workplace.path()));
  }
  close(ends[1]);
  const int code = Await(benchmark, ends[0]);
  close(ends[0]);
  return code;
}

}  // namespace railhop
