// Parker: how a thread that found nothing to do sleeps without losing a wake-up.
//
//   owner                                   waker (any thread)
//   PreparePark(): parked = 1; full fence   publish work (release store)
//   look at every source of work again      FullFence()          once for many publications
//   nothing: block on fd()                  WakeIfParked(): parked ? eventfd write : nothing
//   FinishPark(): parked = 0
//
// A waker that published room instead of work (credit of an edge) wakes only an owner that parked
// because an edge of its own was full: PreparePark(true) and WakeIfParkedForRoom().
//
// Guarantee: of the two full fences one is first, so either the owner's second look sees the work
// or the waker sees parked = 1. While the owner is awake a waker makes no system call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "runtime/message.h"

namespace railhop {

// `timeout` from now, or the end of time when that comes first: a wait for ever is not one for
// never.
inline std::chrono::steady_clock::time_point DeadlineAfter(std::chrono::nanoseconds timeout) {
  using TimePoint = std::chrono::steady_clock::time_point;
  const TimePoint now = std::chrono::steady_clock::now();
  return timeout > TimePoint::max() - now ? TimePoint::max() : now + timeout;
}

class Parker {
 public:
  // Makes the eventfd. When the process has no descriptor left, fd() is -1 and Block looks around
  // every millisecond instead of being woken.
  Parker();
  ~Parker();
  Parker(const Parker&) = delete;
  Parker& operator=(const Parker&) = delete;

  // Owner. After PreparePark every source of work must be looked at once more, and, `for_room`, the
  // edges that were full.
  void PreparePark(bool for_room = false);
  void FinishPark();
  // Owner, after PreparePark: whether a waker has come, and its wake may be seen by another thread
  // that watches fd(); and makes fd() tell all of them once more.
  bool woken() const { return parked_.load(std::memory_order_relaxed) == kAwake; }
  void Ring();
  // Owner, for threads without an event loop: blocks until woken or `timeout` passed.
  void Block(std::chrono::nanoseconds timeout);
  // Readable after a wake; for an event loop that watches it edge-triggered (never read then).
  int fd() const { return fd_; }

  // Any thread, after its publication and a FullFence().
  void WakeIfParked() {
    if (parked_.load(std::memory_order_relaxed) != kAwake) Wake();
  }
  void WakeIfParkedForRoom() {
    if (parked_.load(std::memory_order_relaxed) == kParkedForRoom) Wake();
  }
  uint64_t wakes() const { return wakes_.load(std::memory_order_relaxed); }

 private:
  enum State : uint32_t { kAwake, kParked, kParkedForRoom };

  void Wake();

  const int fd_;
  alignas(kNoFalseSharing) std::atomic<uint32_t> parked_{kAwake};
  std::atomic<uint64_t> wakes_{0};  // system calls made, for the counters
};

}  // namespace railhop
