#include "tests/bench/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <thread>
#include <utility>

#include "fmt/format.h"

namespace railhop {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::seconds kTermGrace{2};

absl::Status ErrnoError(const std::string& what, int error) {
  return absl::ErrnoToStatus(error, what);
}

// Between fork and exec: only async-signal-safe calls.
[[noreturn]] void BecomeChild(char* const* arguments, int output, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(127);  // it died before the line above
  const int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (input < 0 || dup2(input, STDIN_FILENO) < 0 || dup2(output, STDOUT_FILENO) < 0) _exit(127);
  execv(arguments[0], arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Start(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError("a pipe for a child's output", errno);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) BecomeChild(arguments.data(), ends[1], parent);
  const int error = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return ErrnoError(fmt::format("starting {}", command[0]), error);
  }
  return ChildProcess(pid, ends[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      output_(std::exchange(other.output_, -1)),
      unread_(std::move(other.unread_)) {}

ChildProcess::~ChildProcess() {
  if (pid_ < 0) return;
  close(output_);
  kill(pid_, SIGTERM);
  const auto deadline = steady_clock::now() + kTermGrace;
  while (waitpid(pid_, nullptr, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) kill(pid_, SIGKILL);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

absl::StatusOr<std::string> ChildProcess::ReadLine(std::chrono::milliseconds timeout) {
  const auto deadline = steady_clock::now() + timeout;
  for (;;) {
    const size_t end = unread_.find('\n');
    if (end != std::string::npos) {
      std::string line = unread_.substr(0, end);
      unread_.erase(0, end + 1);
      return line;
    }
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - steady_clock::now()).count();
    pollfd waited = {.fd = output_, .events = POLLIN, .revents = 0};
    const int ready = left <= 0 ? 0 : poll(&waited, 1, static_cast<int>(left));
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      return absl::DeadlineExceededError(
          fmt::format("process {} printed no line within {} ms", pid_, timeout.count()));
    }
    char buffer[4096];
    const ssize_t got = read(output_, buffer, sizeof(buffer));
    if (got <= 0) return absl::OutOfRangeError(fmt::format("process {} ended its output", pid_));
    unread_.append(buffer, static_cast<size_t>(got));
  }
}

absl::StatusOr<std::chrono::nanoseconds> CpuTimeOf(pid_t pid) {
  clockid_t clock;
  timespec used;
  int error = clock_getcpuclockid(pid, &clock);
  if (error == 0 && clock_gettime(clock, &used) != 0) error = errno;
  if (error != 0) return ErrnoError(fmt::format("CPU time of process {}", pid), error);
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

absl::StatusOr<double> CpuShareOf(pid_t pid, std::chrono::nanoseconds period) {
  const auto start = steady_clock::now();
  const absl::StatusOr<std::chrono::nanoseconds> before = CpuTimeOf(pid);
  if (!before.ok()) return before.status();
  std::this_thread::sleep_for(period);
  const absl::StatusOr<std::chrono::nanoseconds> after = CpuTimeOf(pid);
  if (!after.ok()) return after.status();
  return std::chrono::duration<double>(*after - *before) /
         std::chrono::duration<double>(steady_clock::now() - start);
}

}  // namespace railhop
