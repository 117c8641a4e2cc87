#include "tools/demo/child_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iostream>
#include <utility>

#include "tools/demo/interrupt.h"

namespace railhop {
namespace {

std::string HowItEnded(int status) {
  if (WIFEXITED(status)) return fmt::format("exited with code {}", WEXITSTATUS(status));
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return "ended";
}

// In the child: becomes this program anew. Only async-signal-safe calls.
[[noreturn]] void Become(int input, int output, pid_t parent, char* const* arguments) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // the parent died before the line above
  dup2(input, STDIN_FILENO);
  dup2(output, STDOUT_FILENO);
  execv("/proc/self/exe", arguments);
  _exit(127);
}

}  // namespace

absl::StatusOr<ChildProcess> ChildProcess::Spawn(std::string name,
                                                 std::vector<std::string> arguments) {
  int to_child[2];
  int from_child[2];
  if (pipe2(to_child, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe to " + name);
  if (pipe2(from_child, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe from " + name);
  arguments.insert(arguments.begin(), "railhop");
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) Become(to_child[0], from_child[1], parent, argv.data());
  const int error = errno;
  close(to_child[0]);
  close(from_child[1]);
  if (pid < 0) return absl::ErrnoToStatus(error, "the process " + name + " cannot be started");
  return ChildProcess(std::move(name), pid, to_child[1], from_child[0]);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept {
  *this = std::move(other);
}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(pid_, other.pid_);
  std::swap(to_child_, other.to_child_);
  std::swap(from_child_, other.from_child_);
  std::swap(buffer_, other.buffer_);
  return *this;
}

ChildProcess::~ChildProcess() {
  Kill();
}

void ChildProcess::Kill() {
  if (to_child_ >= 0) close(std::exchange(to_child_, -1));
  if (from_child_ >= 0) close(std::exchange(from_child_, -1));
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(std::exchange(pid_, -1), nullptr, 0);
}

absl::Status ChildProcess::Died() {
  int status = 0;
  if (pid_ > 0) waitpid(std::exchange(pid_, -1), &status, 0);
  return absl::UnavailableError(fmt::format("the process {} {}", name_, HowItEnded(status)));
}

std::string ChildProcess::HowItDied() const {
  if (pid_ <= 0) return "";
  siginfo_t info{};
  // Looked at, not taken: Died() or Finish() still find it.
  const int looked = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT);
  if (looked != 0 || info.si_pid == 0) return "";
  if (info.si_code == CLD_EXITED) {
    return fmt::format("the process {} exited with code {}", name_, info.si_status);
  }
  return fmt::format("the process {} was killed by signal {}", name_, info.si_status);
}

absl::Status ChildProcess::Send(const nlohmann::json& request) {
  const std::string line = request.dump() + "\n";
  size_t sent = 0;
  while (sent < line.size()) {
    const ssize_t put = write(to_child_, line.data() + sent, line.size() - sent);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return Died();
    sent += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

absl::StatusOr<nlohmann::json> ChildProcess::Receive(std::chrono::milliseconds timeout) {
  const auto until = std::chrono::steady_clock::now() + timeout;
  size_t end;
  while ((end = buffer_.find('\n')) == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        until - std::chrono::steady_clock::now());
    pollfd watched{from_child_, POLLIN, 0};
    const int ready = PollUnlessInterrupted(&watched, std::max(left, std::chrono::milliseconds(0)));
    if (InterruptedBy() != 0) return absl::CancelledError("interrupted");
    if (ready < 0 && errno == EINTR) continue;
    if (ready == 0) {
      return absl::DeadlineExceededError(
          fmt::format("the process {} did not answer within {} s; if this machine is busy, try "
                      "again, with fewer --ranks or smaller --batches",
                      name_, std::chrono::duration_cast<std::chrono::seconds>(timeout).count()));
    }
    char bytes[65536];
    const ssize_t got = read(from_child_, bytes, sizeof(bytes));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Died();
    buffer_.append(bytes, static_cast<size_t>(got));
  }
  const nlohmann::json reply = nlohmann::json::parse(buffer_.substr(0, end), nullptr, false);
  buffer_.erase(0, end + 1);
  if (!reply.is_object()) {
    return absl::InternalError(fmt::format("the process {} answered with something odd", name_));
  }
  if (reply.contains("error")) {
    return absl::InternalError(fmt::format("{}: {}", name_, reply["error"].get<std::string>()));
  }
  return reply;
}

absl::StatusOr<nlohmann::json> ChildProcess::Ask(const nlohmann::json& request,
                                                 std::chrono::milliseconds timeout) {
  if (absl::Status sent = Send(request); !sent.ok()) return sent;
  return Receive(timeout);
}

absl::Status ChildProcess::Finish(std::chrono::milliseconds timeout) {
  close(std::exchange(to_child_, -1));
  // Its standard output closes when it ends; nothing else is to come.
  pollfd watched{from_child_, POLLIN, 0};
  if (poll(&watched, 1, static_cast<int>(timeout.count())) == 0) {
    Kill();
    return absl::DeadlineExceededError(fmt::format(
        "the process {} did not end within {} ms and was killed", name_, timeout.count()));
  }
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("the process {} {}", name_, HowItEnded(status)));
}

int ServeRequests(const std::function<nlohmann::json(const nlohmann::json&)>& handle) {
  for (std::string line; std::getline(std::cin, line);) {
    const nlohmann::json request = nlohmann::json::parse(line, nullptr, false);
    std::cout << handle(request).dump() << std::endl;
  }
  return 0;
}

}  // namespace railhop
