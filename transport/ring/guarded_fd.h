// A file descriptor that a forked child does not keep.
//
// All descriptors are close-on-exec; but a child that never executes anything would keep its dead
// parent looking alive: locks of an open file description last until its last copy is closed. So a
// pthread_atfork handler closes every GuardedFd in the child, where the object then owns nothing.
// Control path only. Thread-safe as an int is: one owner at a time.
#pragma once

#include <utility>

namespace railhop {

class GuardedFd {
 public:
  GuardedFd() = default;
  // Takes over `fd`; -1 gives an empty one.
  explicit GuardedFd(int fd);
  GuardedFd(GuardedFd&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)), index_(std::exchange(other.index_, -1)) {}
  GuardedFd& operator=(GuardedFd&& other) noexcept;
  ~GuardedFd() { Reset(); }

  // -1 when empty, and in a forked child.
  int get() const;
  bool valid() const { return get() >= 0; }
  void Reset();

 private:
  int fd_ = -1;
  int index_ = -1;  // into the process-wide table; -1: not in it
};

}  // namespace railhop
