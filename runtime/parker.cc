#include "runtime/parker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "runtime/fence.h"

namespace railhop {
namespace {

int MakeEventFd() {
  const int fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    std::perror("railhop: eventfd for a parking thread cannot be made; raise `ulimit -n`");
    std::abort();
  }
  return fd;
}

}  // namespace

Parker::Parker() : fd_(MakeEventFd()) {}

Parker::~Parker() {
  close(fd_);
}

void Parker::PreparePark(bool for_room) {
  parked_.store(for_room ? kParkedForRoom : kParked, std::memory_order_relaxed);
  FullFence();
}

void Parker::FinishPark() {
  parked_.store(kAwake, std::memory_order_relaxed);
}

void Parker::Block(std::chrono::nanoseconds timeout) {
  pollfd watched{fd_, POLLIN, 0};
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  if (ppoll(&watched, 1, &limit, nullptr) <= 0) return;  // a signal counts as a wake
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

void Parker::Wake() {
  // Only the first of several wakers makes the call.
  if (parked_.exchange(kAwake, std::memory_order_relaxed) == kAwake) return;
  const uint64_t one = 1;
  // Cannot overflow in practice.
  [[maybe_unused]] const ssize_t put = write(fd_, &one, sizeof(one));
  wakes_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace railhop
