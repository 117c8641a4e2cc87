#include "tests/bench/pipeline/subject.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <iostream>

#include "fmt/format.h"
#include "tests/bench/cpu_time.h"

namespace railhop {
namespace {

struct Command {
  enum Kind : uint32_t { kPrepare, kRun, kServe, kPause, kEnd };
  Kind kind = kPrepare;
  LoadOrder order;
};
struct Reply {
  bool ok = false;
  LoadResult result;
  char error[256] = {};
};

// Packets of one size over a socket pair: a whole one or nothing.
template <class T>
bool SendAll(int socket, const T& value) {
  return send(socket, &value, sizeof(value), MSG_NOSIGNAL) == ssize_t{sizeof(value)};
}
template <class T>
bool ReceiveAll(int socket, T* value) {
  ssize_t got;
  do {
    got = recv(socket, value, sizeof(*value), 0);
  } while (got < 0 && errno == EINTR);
  return got == ssize_t{sizeof(*value)};
}

Reply Obey(PipelineSide& side, const PipelineSite& site, const Command& command) {
  Reply reply;
  reply.ok = true;
  switch (command.kind) {
    case Command::kPrepare: {
      const absl::Status status = side.Prepare(site);
      reply.ok = status.ok();
      std::strncpy(reply.error, std::string(status.message()).c_str(), sizeof(reply.error) - 1);
      break;
    }
    case Command::kRun:
      reply.result = side.Run(command.order);
      break;
    case Command::kServe:
      side.Serve();
      break;
    case Command::kPause:
      side.Pause();
      break;
    case Command::kEnd:
      break;
  }
  return reply;
}

// A hang, not slowness: the longest sample is a minute.
constexpr std::chrono::seconds kPatience{120};

// `needed`: the socket of a process that the answer depends on, or -1.
absl::StatusOr<Reply> Ask(const std::string& who, int socket, const Command& command,
                          int needed = -1) {
  Reply reply;
  if (!SendAll(socket, command)) return absl::UnavailableError(who + " is gone");
  pollfd watched[] = {{socket, POLLIN, 0}, {needed, 0, 0}};
  const int milliseconds = static_cast<int>(std::chrono::milliseconds(kPatience).count());
  const int ready = poll(watched, 2, milliseconds);
  if (watched[1].revents != 0) return absl::UnavailableError("what " + who + " needs is gone");
  if (ready == 0) {
    return absl::DeadlineExceededError(
        fmt::format("{} did not answer within {} s", who, kPatience.count()));
  }
  if (!ReceiveAll(socket, &reply)) return absl::UnavailableError(who + " is gone");
  if (!reply.ok) return absl::InternalError(who + ": " + reply.error);
  return reply;
}

}  // namespace

absl::StatusOr<Subject::Process> Subject::Fork(
    const std::function<std::unique_ptr<PipelineSide>()>& make, const PipelineSite& site,
    int close_too) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return absl::ErrnoToStatus(errno, "no socket pair can be had");
  }
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return absl::ErrnoToStatus(errno, "no process can be started");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    close(ends[0]);
    if (close_too >= 0) close(close_too);
    {
      const std::unique_ptr<PipelineSide> side = make();
      Command command;
      // The other end may be open in processes that were forked later: its closing is no signal.
      while (ReceiveAll(ends[1], &command) && command.kind != Command::kEnd &&
             SendAll(ends[1], Obey(*side, site, command))) {
      }
    }
    _exit(0);
  }
  close(ends[1]);
  return Process{pid, ends[0]};
}

absl::StatusOr<std::unique_ptr<Subject>> Subject::Start(const PipelineSides& sides,
                                                        const PipelineSite& site) {
  std::unique_ptr<Subject> subject(new Subject);
  subject->name_ = site.name;
  absl::StatusOr<Process> relay = Fork(sides.relay, site, -1);
  if (!relay.ok()) return relay.status();
  subject->relay_ = *relay;
  absl::StatusOr<Process> sender = Fork(sides.sender, site, relay->socket);
  if (!sender.ok()) return sender.status();
  subject->sender_ = *sender;
  for (const auto& [role, process] :
       {std::pair{"relay", subject->relay_}, std::pair{"sender", subject->sender_}}) {
    const auto ready =
        Ask(fmt::format("the {} of {}", role, site.name), process.socket, {Command::kPrepare, {}});
    if (!ready.ok()) return ready.status();
  }
  return subject;
}

Subject::~Subject() {
  // The sender gives its lane back while its relay still lives.
  for (Process* process : {&sender_, &relay_}) {
    if (process->pid < 0) continue;
    SendAll(process->socket, Command{Command::kEnd, {}});
    close(process->socket);
    waitpid(process->pid, nullptr, 0);
  }
}

absl::StatusOr<Subject::Measured> Subject::Run(const LoadOrder& order) {
  const std::string relay = "the relay of " + name_;
  const auto serving = Ask(relay, relay_.socket, {Command::kServe, {}});
  if (!serving.ok()) return serving.status();
  const auto cpu = [this] {
    return CpuTimeOf(relay_.pid).value_or(std::chrono::nanoseconds(0)) +
           CpuTimeOf(sender_.pid).value_or(std::chrono::nanoseconds(0));
  };
  const std::chrono::nanoseconds before = cpu();
  const auto reply =
      Ask("the sender of " + name_, sender_.socket, {Command::kRun, order}, relay_.socket);
  if (!reply.ok()) return reply.status();
  const std::chrono::duration<double> used = cpu() - before;
  const auto paused = Ask(relay, relay_.socket, {Command::kPause, {}});
  if (!paused.ok()) return paused.status();
  if (reply->result.requests == 0) return absl::InternalError(name_ + " moved nothing");
  return Measured{reply->result, used.count()};
}

}  // namespace railhop
