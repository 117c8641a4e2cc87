// flock on a file, for the length of a scope, with a deadline: a process that was stopped while it
// held the lock must not freeze the others of its group.
//
// Control path only. Acquire asks again after 50 us, then ever more rarely up to 2 ms, until
// `timeout` has passed; 0 asks once. No lock is held over a CUDA or network call.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace railhop {

class FileLock {
 public:
  // DEADLINE_EXCEEDED if somebody else kept it. The descriptor must outlive the lock.
  static absl::StatusOr<FileLock> Acquire(int fd, const std::string& path,
                                          std::chrono::milliseconds timeout);

  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace railhop
