#include "transport/ring/process_identity.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace railhop {
namespace {

// What could be read of /proc/PID/stat: the text, or the reason why not.
struct StatText {
  std::string text;
  int error = 0;
};

StatText ReadStat(const std::string& path) {
  StatText result;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) {
    result.error = errno;
    return result;
  }
  std::array<char, 4096> buffer;
  ssize_t count;
  do {
    count = read(fd, buffer.data(), buffer.size());
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    result.error = errno;
  } else {
    result.text.assign(buffer.data(), static_cast<size_t>(count));
  }
  close(fd);
  return result;
}

struct Observation {
  Liveness liveness = Liveness::kUnknown;
  bool same_process = false;  // the start ticks agree
};

Observation Observe(const ProcessIdentity& identity) {
  if (identity.pid <= 0 || identity.start_ticks == 0) return {.liveness = Liveness::kDead};
  const StatText read = ReadStat(fmt::format("/proc/{}/stat", identity.pid));
  if (read.error == ENOENT || read.error == ESRCH) return {.liveness = Liveness::kDead};
  if (read.error != 0) return {};
  const std::optional<ProcessStat> stat = ParseProcessStat(read.text);
  if (!stat.has_value()) return {};
  if (stat->start_ticks != identity.start_ticks) return {.liveness = Liveness::kDead};
  const bool gone = stat->state == 'Z' || stat->state == 'X' || stat->state == 'x';
  if (!gone) return {Liveness::kAlive, true};
  return {stat->threads > 1 ? Liveness::kEnding : Liveness::kDead, true};
}

template <typename T>
bool ParseNumber(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::optional<ProcessStat> ParseProcessStat(std::string_view text) {
  constexpr int kStateField = 3, kThreadsField = 20, kStartField = 22;
  const size_t close = text.rfind(')');
  if (close == std::string_view::npos) return std::nullopt;
  text.remove_prefix(close + 1);
  ProcessStat stat;
  for (int field = kStateField; field <= kStartField; ++field) {
    const size_t begin = text.find_first_not_of(" \n");
    if (begin == std::string_view::npos) return std::nullopt;
    text.remove_prefix(begin);
    const size_t size = std::min(text.find_first_of(" \n"), text.size());
    const std::string_view value = text.substr(0, size);
    text.remove_prefix(size);
    if (field == kStateField) {
      if (value.size() != 1) return std::nullopt;
      stat.state = value[0];
    }
    const bool sound = (field != kThreadsField || ParseNumber(value, &stat.threads)) &&
                       (field != kStartField || ParseNumber(value, &stat.start_ticks));
    if (!sound) return std::nullopt;
  }
  if (stat.start_ticks == 0) return std::nullopt;
  return stat;
}

absl::StatusOr<ProcessIdentity> SelfIdentity() {
  const StatText read = ReadStat("/proc/self/stat");
  if (read.error != 0) {
    return absl::FailedPreconditionError(
        fmt::format("cannot read /proc/self/stat ({}): processes of a PXN group recognise each "
                    "other by it; mount /proc",
                    strerror(read.error)));
  }
  const std::optional<ProcessStat> stat = ParseProcessStat(read.text);
  if (!stat.has_value()) {
    return absl::InternalError(
        fmt::format("/proc/self/stat has no start time in field 22: \"{}\"", read.text));
  }
  return ProcessIdentity{geteuid(), getpid(), stat->start_ticks};
}

Liveness ProbeLiveness(const ProcessIdentity& identity) {
  return Observe(identity).liveness;
}

std::string ToString(const ProcessIdentity& identity) {
  return fmt::format("process {} (start ticks {}, uid {})", identity.pid, identity.start_ticks,
                     identity.uid);
}

ProcessWatch::ProcessWatch(const ProcessIdentity& identity, Method method) : identity_(identity) {
  if (method == Method::kPidfd && identity.pid > 0) {
    pidfd_ = GuardedFd(static_cast<int>(syscall(SYS_pidfd_open, identity.pid, 0)));
  }
  // Looked at after pidfd_open: only now is it sure whether the pidfd stands for this process or
  // for a later one with the same id.
  const Observation seen = Observe(identity_);
  if (!seen.same_process) {
    pidfd_.Reset();
    ended_ = seen.liveness == Liveness::kDead;
  }
}

bool ProcessWatch::Ended() {
  if (ended_) return true;
  if (pidfd_.valid()) {
    pollfd entry{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
    ended_ = poll(&entry, 1, 0) > 0;
    return ended_;
  }
  ended_ = IsDead(identity_);
  return ended_;
}

}  // namespace railhop
