#include "transport/ring/guarded_fd.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>

namespace railhop {
namespace {

// A rank holds about ten of these, and a handful for each of at most seven peers. One too many is
// merely not guarded.
constexpr int kCapacity = 1024;
constexpr int kUnused = -1;
constexpr int kClosedByFork = -2;  // not to be taken again before its object let go of it

// The table holds the descriptors themselves, so that an object in a forked child cannot close a
// number that the child has since got for something else. Constant-initialised to 0, hence the
// values are stored plus kBias.
constexpr int kBias = 3;
constinit std::array<std::atomic<int>, kCapacity> table{};
constexpr int kUnusedStored = 0;

int Encode(int fd) {
  return fd == kUnused ? kUnusedStored : fd + kBias;
}
int Decode(int stored) {
  return stored == kUnusedStored ? kUnused : stored - kBias;
}

void CloseAllInChild() {
  for (std::atomic<int>& entry : table) {
    const int fd = Decode(entry.load(std::memory_order_relaxed));
    if (fd < 0) continue;
    entry.store(Encode(kClosedByFork), std::memory_order_relaxed);
    close(fd);
  }
}

}  // namespace

GuardedFd::GuardedFd(int fd) : fd_(fd) {
  if (fd < 0) return;
  static const int handler_error = pthread_atfork(nullptr, nullptr, CloseAllInChild);
  for (int i = 0; handler_error == 0 && index_ < 0 && i < kCapacity; ++i) {
    int expected = kUnusedStored;
    if (table[i].compare_exchange_strong(expected, Encode(fd), std::memory_order_acq_rel)) {
      index_ = i;
    }
  }
}

GuardedFd& GuardedFd::operator=(GuardedFd&& other) noexcept {
  if (this != &other) {
    Reset();
    fd_ = std::exchange(other.fd_, -1);
    index_ = std::exchange(other.index_, -1);
  }
  return *this;
}

int GuardedFd::get() const {
  if (index_ < 0) return fd_;
  const int fd = Decode(table[index_].load(std::memory_order_acquire));
  return fd < 0 ? -1 : fd;
}

void GuardedFd::Reset() {
  int fd = std::exchange(fd_, -1);
  const int index = std::exchange(index_, -1);
  if (index >= 0) fd = Decode(table[index].exchange(kUnusedStored, std::memory_order_acq_rel));
  if (fd >= 0) close(fd);
}

}  // namespace railhop
