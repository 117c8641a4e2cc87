#include "transport/fabric/tcp/tcp_shard.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "runtime/cpu_placement.h"
#include "runtime/leave_alone.h"

namespace railhop {
namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::nanoseconds kLongestSweepInterval = std::chrono::milliseconds(500);
constexpr int kEvents = 64;

// The next request of a client that waits for one answer at a time comes within the time that it
// takes to wake both sides; a wake costs up to 30 us, and matters beside small requests only.
constexpr std::chrono::microseconds kSpin{100};
constexpr std::chrono::microseconds kSpinAfter{25};
constexpr std::chrono::milliseconds kEager{1};

}  // namespace

TcpShard::TcpShard(TcpSession::Shared* shared, std::atomic<size_t>* connections)
    : shared_(*shared),
      connections_(*connections),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      sweep_interval_(std::min(kLongestSweepInterval, shared->request_timeout / 4)),
      owner_pid_(getpid()),
      spin_(kSpin, kSpinAfter) {}

absl::StatusOr<std::unique_ptr<TcpShard>> TcpShard::Start(TcpSession::Shared* shared,
                                                          std::atomic<size_t>* connections) {
  std::unique_ptr<TcpShard> shard(new TcpShard(shared, connections));
  epoll_event event{.events = EPOLLIN, .data = {.fd = shard->wake_.get()}};
  if (!shard->epoll_.valid() || !shard->wake_.valid() ||
      epoll_ctl(shard->epoll_.get(), EPOLL_CTL_ADD, shard->wake_.get(), &event) != 0) {
    return absl::ResourceExhaustedError(
        fmt::format("TCP server: no descriptor for a thread: {}", strerror(errno)));
  }
  try {
    shard->thread_ = std::thread(&TcpShard::Run, shard.get());
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(fmt::format("TCP server: no thread: {}", error.what()));
  }
  return shard;
}

TcpShard::~TcpShard() {
  if (getpid() != owner_pid_) {
    LeaveAlone(std::move(thread_));  // a forked child: the thread did not come along
    return;
  }
  stop_.store(true, std::memory_order_release);
  Wake();
  if (thread_.joinable()) thread_.join();
  for (const int fd : adopted_) close(fd);
}

void TcpShard::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));
}

void TcpShard::Listen(std::vector<int> listeners, Accept accept) {
  accept_ = std::move(accept);
  listeners_ = std::move(listeners);
  WatchListeners(true);
}

void TcpShard::Adopt(int fd) {
  {
    const std::lock_guard lock(mutex_);
    adopted_.push_back(fd);
  }
  Wake();
}

// --- The thread

void TcpShard::Run() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the application's
  pthread_setname_np(pthread_self(), "tcp-server");
  std::array<epoll_event, kEvents> events;
  while (!stop_.load(std::memory_order_acquire)) {
    TimePoint now;
    const int count = Wait(events, &now);
    for (int i = 0; i < count; ++i) {
      const int fd = events[i].data.fd;
      if (fd == wake_.get()) {
        TakeAdopted();
      } else if (static_cast<size_t>(fd) < places_.size() && places_[fd].session != nullptr) {
        Serve(fd, now);
      } else if (std::find(listeners_.begin(), listeners_.end(), fd) != listeners_.end()) {
        AcceptSome(now);
      }
    }
    if (!waiting_.empty()) ServeWaiting(now);
    if (now >= accept_again_) AcceptSome(now);
    if (pending_ != 0 && now >= sweep_at_) Sweep(now);
  }
}

// `*now`: when it was over.
int TcpShard::Wait(std::span<epoll_event> events, TimePoint* now) {
  const auto wait = [&](int milliseconds) {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), milliseconds);
  };
  int count = 0;
  *now = std::chrono::steady_clock::now();
  if (!waiting_.empty()) {
    count = wait(*now < eager_until_ ? 0 : 1);
    if (count == 0) sched_yield();
    *now = std::chrono::steady_clock::now();
    return count;
  }
  spin_.Begin(*now);
  while (spin_.GoOn(*now) && (count = wait(0)) == 0) {
    sched_yield();
    *now = std::chrono::steady_clock::now();
  }
  if (count == 0) count = wait(WaitMilliseconds(*now));
  *now = std::chrono::steady_clock::now();
  spin_.End(*now);
  if (spin_.ShouldMove(*now)) LeaveThisCore();
  return count;
}

// Without a session that waits for the rest of something, and while accepting, for ever.
int TcpShard::WaitMilliseconds(TimePoint now) const {
  const TimePoint until =
      std::min(accept_again_, pending_ == 0 ? TimePoint::max() : std::max(sweep_at_, now));
  if (until == TimePoint::max()) return -1;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(until - now);
  return static_cast<int>(std::max<int64_t>(0, wait.count()));
}

void TcpShard::TakeAdopted() {
  uint64_t drained;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &drained, sizeof(drained));
  std::vector<int> adopted;
  {
    const std::lock_guard lock(mutex_);
    adopted.swap(adopted_);
  }
  for (const int fd : adopted) {
    if (places_.size() <= static_cast<size_t>(fd)) places_.resize(static_cast<size_t>(fd) + 1);
    Place& place = places_[fd];
    place.session = std::make_unique<TcpSession>(fd, &shared_);
    place.interest = EPOLLIN;
    epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) End(fd);
  }
}

void TcpShard::AcceptSome(TimePoint now) {
  const bool was_watched = accept_again_ == TimePoint::max();
  bool watch = true;
  for (const int listener : listeners_) watch = accept_(listener) && watch;
  accept_again_ = watch ? TimePoint::max() : now + kAcceptPause;
  if (watch != was_watched) WatchListeners(watch);
}

void TcpShard::WatchListeners(bool on) {
  for (const int listener : listeners_) {
    epoll_event event{.events = EPOLLIN, .data = {.fd = listener}};
    epoll_ctl(epoll_.get(), on ? EPOLL_CTL_ADD : EPOLL_CTL_DEL, listener, &event);
  }
}

void TcpShard::Serve(size_t fd, TimePoint now) {
  Place& place = places_[fd];
  TcpSession& session = *place.session;
  const bool had_deadline = session.deadline() != TimePoint::max();
  const bool goes_on = session.Run(now);
  const bool has_deadline = session.deadline() != TimePoint::max();
  if (has_deadline && pending_ == 0) sweep_at_ = now + sweep_interval_;
  pending_ += static_cast<size_t>(has_deadline) - static_cast<size_t>(had_deadline);
  if (!goes_on) return End(fd);
  if (session.waits()) {
    eager_until_ = std::max(eager_until_, session.waits_since() + kEager);
    if (!std::exchange(place.listed, true)) waiting_.push_back(fd);
  }
  const uint32_t interest = session.interest();
  if (interest == place.interest) return;
  epoll_event event{.events = interest, .data = {.fd = session.fd()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, session.fd(), &event) != 0) return End(fd);
  place.interest = interest;
}

void TcpShard::ServeWaiting(TimePoint now) {
  served_.swap(waiting_);
  for (const size_t fd : served_) {
    places_[fd].listed = false;
    if (places_[fd].session != nullptr) Serve(fd, now);
  }
  served_.clear();
}

void TcpShard::End(size_t fd) {
  std::unique_ptr<TcpSession>& session = places_[fd].session;
  if (session->deadline() != TimePoint::max()) --pending_;
  // A forked child may hold a copy, which would keep the registration alive.
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, session->fd(), nullptr);
  session.reset();
  connections_.fetch_sub(1, std::memory_order_relaxed);
}

void TcpShard::Sweep(TimePoint now) {
  sweep_at_ = now + sweep_interval_;
  for (size_t fd = 0; fd < places_.size(); ++fd) {
    const TcpSession* const session = places_[fd].session.get();
    if (session != nullptr && session->deadline() <= now && !session->copying()) End(fd);
  }
}

}  // namespace railhop
