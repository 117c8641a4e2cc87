#include "runtime/actor_system.h"

#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <system_error>

#include "runtime/leave_alone.h"
#include "runtime/log.h"

namespace railhop {
namespace {

using SteadyTime = std::chrono::steady_clock::time_point;

}  // namespace

// Where the reactors' threads wait until all are pinned. Shared with them: it may end after Start.
struct ActorSystem::StartGate {
  std::mutex mutex;
  std::condition_variable changed;
  size_t reported = 0;
  bool open = false;
  absl::Status outcome;

  void ReportAndWait(const absl::Status& status) {
    std::unique_lock lock(mutex);
    outcome.Update(status);
    ++reported;
    changed.notify_all();
    changed.wait(lock, [this] { return open; });
  }
  absl::Status Await(size_t threads) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reported == threads; });
    return outcome;
  }
  void Open() {
    const std::lock_guard lock(mutex);
    open = true;
    changed.notify_all();
  }
};

ActorSystem::ActorSystem(Options options) : options_(options), pid_(getpid()) {}

ActorSystem::~ActorSystem() {
  if (InForkedChild()) {
    // Destroying a libevent base would take the parent's descriptors out of the epoll set that both
    // share, and destroying an actor could unlink what the parent still uses.
    LeaveAlone(std::move(reactors_), std::move(rings_), std::move(actors_), std::move(threads_),
               std::move(stopper_));
    return;
  }
  if (OnReactorThread()) {
    std::fputs("railhop: an actor system is destroyed on the thread of one of its own reactors\n",
               stderr);
    std::abort();  // the alternative is to wait for itself
  }
  Stop(std::chrono::nanoseconds(0));
  std::thread stopper;
  {
    std::lock_guard lock(stopper_mutex_);
    stopper.swap(stopper_);
  }
  if (stopper.joinable()) stopper.join();
}

bool ActorSystem::InForkedChild() const {
  return getpid() != pid_;
}

bool ActorSystem::OnReactorThread() const {
  return std::any_of(reactors_.begin(), reactors_.end(),
                     [](const auto& reactor) { return reactor->on_this_thread(); });
}

Reactor* ActorSystem::AddReactor(ReactorOptions options) {
  options.stop_waiter = &stop_waiter_;
  options.clock = options_.clock;
  options.histograms = options_.histograms;
  reactors_.push_back(std::make_unique<Reactor>(std::move(options)));
  return reactors_.back().get();
}

Reactor& ActorSystem::ReactorOf(const Actor& actor) const {
  const auto placed = std::find_if(actors_.begin(), actors_.end(),
                                   [&](const Placed& p) { return p.actor.get() == &actor; });
  assert(placed != actors_.end());
  return *placed->reactor;
}

absl::Status ActorSystem::Start() {
  if (InForkedChild()) {
    return absl::FailedPreconditionError(
        "actor system: it was built before a fork; build it in the process that runs it");
  }
  const std::lock_guard lock(state_mutex_);
  if (state_ != State::kBuilt) {
    return absl::FailedPreconditionError(
        "actor system: it was started or stopped before; build a new one");
  }
  for (const auto& reactor : reactors_) {
    if (absl::Status status = reactor->status(); !status.ok()) return status;
  }
  const auto gate = std::make_shared<StartGate>();
  absl::Status status = StartThreads(gate);
  status.Update(gate->Await(threads_.size()));
  if (status.ok()) {
    state_ = State::kRunning;
    gate->Open();
    return status;
  }
  state_ = State::kStopped;
  for (const auto& reactor : reactors_) reactor->Exit();
  gate->Open();
  Join();
  return status;
}

absl::Status ActorSystem::StartThreads(const std::shared_ptr<StartGate>& gate) {
  threads_.reserve(reactors_.size());
  for (const auto& reactor : reactors_) {
    try {
      threads_.emplace_back([gate, reactor = reactor.get()] {
        reactor->Run([&](const absl::Status& status) { gate->ReportAndWait(status); });
      });
    } catch (const std::system_error& error) {
      return absl::ResourceExhaustedError(
          "actor system: no thread for reactor \"" + reactor->options().name +
          "\": " + error.what() + "; raise `ulimit -u` or the memory limit, or use fewer reactors");
    }
  }
  return absl::OkStatus();
}

size_t ActorSystem::RunAll() {
  size_t work = 0;
  for (const auto& reactor : reactors_) work += reactor->RunPass();
  return work;
}

void ActorSystem::Stop(std::chrono::nanoseconds deadline) {
  if (InForkedChild()) return;
  if (!OnReactorThread()) return StopNow(deadline);
  std::lock_guard lock(stopper_mutex_);
  if (!stopper_.joinable()) stopper_ = std::thread([this, deadline] { StopNow(deadline); });
}

void ActorSystem::StopNow(std::chrono::nanoseconds deadline) {
  std::lock_guard lock(state_mutex_);
  // Never started: nothing is in flight that could be drained.
  if (std::exchange(state_, State::kStopped) != State::kRunning) return;
  const SteadyTime until = DeadlineAfter(deadline);
  for (const Placed& placed : actors_) StopActor(placed, until);
  Join();
}

void ActorSystem::StopActor(const Placed& placed, SteadyTime deadline) {
  while (!placed.actor->Post({.kind = ControlMessage::kStop})) std::this_thread::yield();
  AwaitStopped(placed, deadline);
  if (placed.actor->stopped()) return;
  while (!placed.actor->Post({.kind = ControlMessage::kFlush})) std::this_thread::yield();
  // A flush ends within a pass or two. An actor whose Drained() stays false after it is a defect,
  // and a process that hangs in its destructor is worse than one that says so and leaves.
  AwaitStopped(placed, std::chrono::steady_clock::now() + std::chrono::seconds(10));
  if (!placed.actor->stopped()) {
    Log(LogLevel::kError,
        "actor " + placed.actor->name() + " did not drain although it was flushed");
  }
}

void ActorSystem::AwaitStopped(const Placed& placed, SteadyTime until) {
  while (!placed.actor->stopped()) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return;
    stop_waiter_.PreparePark();
    if (!placed.actor->stopped()) stop_waiter_.Block(left);
    stop_waiter_.FinishPark();
  }
}

void ActorSystem::Join() {
  for (const auto& reactor : reactors_) reactor->Exit();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace railhop
