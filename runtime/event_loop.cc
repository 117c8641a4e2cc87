#include "runtime/event_loop.h"

#include <event2/event.h>
#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

namespace railhop {
namespace {

struct FreeConfig {
  void operator()(event_config* config) const { event_config_free(config); }
};
struct FreeBase {
  void operator()(event_base* base) const { event_base_free(base); }
};
struct FreeEvent {
  void operator()(event* ev) const { event_free(ev); }  // also takes it out of the loop
};
using Base = std::unique_ptr<event_base, FreeBase>;
using Event = std::unique_ptr<event, FreeEvent>;

// Rounded up: a wait must not end before its time. A year bounds the arithmetic of libevent.
timeval ToTimeval(std::chrono::nanoseconds duration) {
  constexpr std::chrono::microseconds kLongest = std::chrono::hours(24 * 365);
  const auto us = std::min(kLongest, std::chrono::ceil<std::chrono::microseconds>(
                                         std::min<std::chrono::nanoseconds>(duration, kLongest)));
  return {.tv_sec = us.count() / 1000000, .tv_usec = us.count() % 1000000};
}

// libevent 2.1 ends the process when it can have some of its descriptors (an epoll, a timer, a pair
// for signals) and not all. Another thread may still take one between this look and that.
bool AreDescriptorsLeft() {
  std::array<int, 4> taken;
  for (int& fd : taken) fd = eventfd(0, EFD_CLOEXEC);
  const bool all = taken.back() >= 0;
  for (const int fd : taken) {
    if (fd >= 0) close(fd);
  }
  return all;
}

}  // namespace

struct EventLoop::Impl {
  struct Watch {
    Impl* loop = nullptr;
    int fd = -1;  // -1: a timer
    Callback callback;
    Event ev;
  };

  static void OnEvent(evutil_socket_t, short, void* argument) {
    auto* const watch = static_cast<Watch*>(argument);
    ++watch->loop->callbacks_run;
    watch->callback();
  }
  // RunOnce's own timer: it ends the wait and counts as nothing.
  static void OnDeadline(evutil_socket_t, short, void*) {}

  absl::StatusOr<WatchId> Add(int fd, short what, const timeval* period, Callback callback);
  absl::StatusOr<WatchId> AddFd(int fd, int what, Callback callback);
  int Run(int flags);

  Base base;
  Event deadline;
  std::map<WatchId, std::unique_ptr<Watch>> watches;
  std::vector<std::unique_ptr<Watch>> removed;  // during a run: one may be the callback running
  WatchId last_id = 0;
  int callbacks_run = 0;
  bool running = false;
};

absl::StatusOr<EventLoop::WatchId> EventLoop::Impl::Add(int fd, short what, const timeval* period,
                                                        Callback callback) {
  auto watch = std::make_unique<Watch>();
  watch->loop = this;
  watch->fd = fd;
  watch->callback = std::move(callback);
  watch->ev.reset(
      event_new(base.get(), fd, static_cast<short>(what | EV_PERSIST), OnEvent, watch.get()));
  if (watch->ev == nullptr || event_add(watch->ev.get(), period) != 0) {
    return absl::InvalidArgumentError(
        fd < 0 ? std::string("event loop: cannot add a timer")
               : fmt::format("event loop: descriptor {} cannot be watched: it must be open, and of "
                             "a kind that epoll takes (no regular file)",
                             fd));
  }
  const WatchId id = ++last_id;
  watches.emplace(id, std::move(watch));
  return id;
}

absl::StatusOr<EventLoop::WatchId> EventLoop::Impl::AddFd(int fd, int what, Callback callback) {
  if (fd < 0) {
    return absl::InvalidArgumentError(fmt::format("event loop: {} is not a descriptor", fd));
  }
  for (const auto& [id, watch] : watches) {
    if (watch->fd == fd) {
      return absl::AlreadyExistsError(
          fmt::format("event loop: descriptor {} is watched already", fd));
    }
  }
  return Add(fd, static_cast<short>(what), nullptr, std::move(callback));
}

int EventLoop::Impl::Run(int flags) {
  callbacks_run = 0;
  running = true;
  const int result = event_base_loop(base.get(), flags);
  running = false;
  removed.clear();
  return result < 0 ? -1 : callbacks_run;
}

EventLoop::EventLoop(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EventLoop::~EventLoop() = default;

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  const std::unique_ptr<event_config, FreeConfig> config(event_config_new());
  auto impl = std::make_unique<Impl>();
  if (config != nullptr && AreDescriptorsLeft()) {
    // Without the precise timer libevent's epoll rounds waits up to a millisecond.
    event_config_set_flag(config.get(), EVENT_BASE_FLAG_PRECISE_TIMER | EVENT_BASE_FLAG_NOLOCK |
                                            EVENT_BASE_FLAG_IGNORE_ENV);
    event_config_require_features(config.get(), EV_FEATURE_ET);
    impl->base.reset(event_base_new_with_config(config.get()));
  }
  if (impl->base != nullptr) {
    impl->deadline.reset(event_new(impl->base.get(), -1, 0, Impl::OnDeadline, nullptr));
  }
  if (impl->deadline == nullptr) {
    return absl::ResourceExhaustedError(
        "event loop: libevent cannot make an epoll base; is the limit of open files reached "
        "(ulimit -n)?");
  }
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(impl)));
}

absl::StatusOr<EventLoop::WatchId> EventLoop::WatchFd(int fd, Trigger trigger, Callback callback) {
  return impl_->AddFd(fd, EV_READ | (trigger == Trigger::kEdge ? EV_ET : 0), std::move(callback));
}

absl::StatusOr<EventLoop::WatchId> EventLoop::WatchWritable(int fd, Callback callback) {
  return impl_->AddFd(fd, EV_WRITE, std::move(callback));
}

absl::StatusOr<EventLoop::WatchId> EventLoop::AddTimer(std::chrono::nanoseconds period,
                                                       Callback callback) {
  if (period <= std::chrono::nanoseconds::zero()) {
    return absl::InvalidArgumentError(
        fmt::format("event loop: a timer's period must be positive, not {} ns", period.count()));
  }
  const timeval interval = ToTimeval(period);
  return impl_->Add(-1, 0, &interval, std::move(callback));
}

bool EventLoop::Unwatch(WatchId id) {
  const auto found = impl_->watches.find(id);
  if (found == impl_->watches.end()) return false;
  event_del(found->second->ev.get());
  if (impl_->running) impl_->removed.push_back(std::move(found->second));
  impl_->watches.erase(found);
  return true;
}

int EventLoop::RunOnce(std::chrono::nanoseconds max_wait) {
  if (max_wait <= std::chrono::nanoseconds::zero()) return RunReady();
  const timeval wait = ToTimeval(max_wait);
  if (event_add(impl_->deadline.get(), &wait) != 0) return -1;
  const int result = impl_->Run(EVLOOP_ONCE);
  event_del(impl_->deadline.get());
  return result;
}

int EventLoop::RunReady() {
  // EVLOOP_NONBLOCK alone goes on until nothing is active: for ever, with a level-triggered
  // descriptor that its callback does not read.
  return impl_->Run(EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

bool SetTimerSlack(std::chrono::nanoseconds slack) {
  return prctl(PR_SET_TIMERSLACK, static_cast<unsigned long>(slack.count()), 0, 0, 0) == 0;
}

}  // namespace railhop
