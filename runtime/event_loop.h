// The event loop of one thread: descriptors and periodic timers, over libevent.
//
// Threads: everything from one thread, that of the owner. There is no wake-up of its own: another
// thread wakes it through a descriptor that the owner watches.
// Callbacks run inside RunOnce and RunReady. They may add and remove watches, their own included,
// and must not run the loop.
// Units: timers and waits are rounded up to microseconds. Errors: set-up returns a Status.
// Signals do not end a wait. All descriptors of the loop are close-on-exec; a forked child must
// not use the loop.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

// kEdge: called once each time the descriptor becomes readable; kLevel: as long as it is.
enum class Trigger { kLevel, kEdge };

class EventLoop {
 public:
  using WatchId = uint64_t;  // of a descriptor or a timer; 0 is never valid, none is used twice
  using Callback = std::function<void()>;

  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Calls back when `fd` is readable, hung up or in error. The fd stays the caller's, who calls
  // Unwatch before closing it. A descriptor can be watched once at a time.
  absl::StatusOr<WatchId> WatchFd(int fd, Trigger trigger, Callback callback);
  // The same for an `fd` that can take bytes, level-triggered.
  absl::StatusOr<WatchId> WatchWritable(int fd, Callback callback);
  // Calls back every `period`; a late one is not made up for.
  absl::StatusOr<WatchId> AddTimer(std::chrono::nanoseconds period, Callback callback);
  // After it the callback is not called again, not even if its event was already pending. False
  // for an id that is not watched (any more).
  bool Unwatch(WatchId id);

  // Blocks until something happened or `max_wait` passed; returns the number of callbacks run,
  // -1 when the kernel's poll fails. Without a positive wait it is RunReady.
  int RunOnce(std::chrono::nanoseconds max_wait);
  // Runs what is ready, without blocking (0.3 us when nothing is).
  int RunReady();

 private:
  struct Impl;
  explicit EventLoop(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// How late the kernel may wake the calling thread, to batch its timers; its default is 50 us.
bool SetTimerSlack(std::chrono::nanoseconds slack);

}  // namespace railhop
