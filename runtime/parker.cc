#include "runtime/parker.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>

#include "runtime/fence.h"

namespace railhop {
namespace {

constexpr std::chrono::milliseconds kLookWithoutEventFd{1};

}  // namespace

Parker::Parker() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

Parker::~Parker() {
  if (fd_ >= 0) close(fd_);
}

void Parker::PreparePark(bool for_room) {
  parked_.store(for_room ? kParkedForRoom : kParked, std::memory_order_relaxed);
  FullFence();
}

void Parker::FinishPark() {
  parked_.store(kAwake, std::memory_order_relaxed);
}

void Parker::Block(std::chrono::nanoseconds timeout) {
  if (fd_ < 0) timeout = std::min<std::chrono::nanoseconds>(timeout, kLookWithoutEventFd);
  pollfd watched{fd_, POLLIN, 0};  // one of -1 is passed over
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  if (ppoll(&watched, 1, &limit, nullptr) <= 0) return;  // a signal counts as a wake
  uint64_t count;
  [[maybe_unused]] const ssize_t got = read(fd_, &count, sizeof(count));
}

void Parker::Wake() {
  // Only the first of several wakers makes the call.
  if (parked_.exchange(kAwake, std::memory_order_relaxed) != kAwake) Ring();
}

void Parker::Ring() {
  const uint64_t one = 1;
  // Cannot overflow in practice.
  [[maybe_unused]] const ssize_t put = write(fd_, &one, sizeof(one));
  wakes_.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace railhop
