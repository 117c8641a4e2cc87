#include "transport/ring/file_lock.h"

#include <fmt/format.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

namespace railhop {

absl::StatusOr<FileLock> FileLock::Acquire(int fd, const std::string& path,
                                           std::chrono::milliseconds timeout) {
  using Clock = std::chrono::steady_clock;
  const Clock::time_point deadline = Clock::now() + timeout;
  Clock::duration pause = std::chrono::microseconds(50);
  for (;;) {
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return FileLock(fd);
    if (errno != EWOULDBLOCK && errno != EINTR) {
      return absl::FailedPreconditionError(
          fmt::format("cannot lock {}: {}", path, strerror(errno)));
    }
    const Clock::time_point now = Clock::now();
    if (now >= deadline) {
      return absl::DeadlineExceededError(fmt::format(
          "another process still holds the lock on {}; it may be stopped: find it with `fuser {}` "
          "and continue or kill it",
          path, path));
    }
    std::this_thread::sleep_for(std::min(pause, deadline - now));
    pause = std::min<Clock::duration>(2 * pause, std::chrono::milliseconds(2));
  }
}

FileLock::~FileLock() {
  if (fd_ >= 0) flock(fd_, LOCK_UN);
}

}  // namespace railhop
