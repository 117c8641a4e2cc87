#include "runtime/actor_system.h"

#include <algorithm>
#include <cassert>
#include <condition_variable>

#include "runtime/log.h"

namespace railhop {

ActorSystem::~ActorSystem() {
  Stop(std::chrono::nanoseconds(0));
  std::thread stopper;
  {
    std::lock_guard lock(stopper_mutex_);
    stopper.swap(stopper_);
  }
  if (stopper.joinable()) stopper.join();
}

Reactor* ActorSystem::AddReactor(ReactorOptions options) {
  options.stop_waiter = &stop_waiter_;
  options.clock = options_.clock;
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
  std::mutex mutex;
  std::condition_variable changed;
  size_t reported = 0;
  absl::Status outcome;
  for (const auto& reactor : reactors_) {
    threads_.emplace_back([&, reactor = reactor.get()] {
      reactor->Run([&](const absl::Status& status) {
        std::lock_guard lock(mutex);
        outcome.Update(status);
        ++reported;
        changed.notify_one();
      });
    });
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return reported == reactors_.size(); });
  lock.unlock();
  if (!outcome.ok()) Join();
  return outcome;
}

size_t ActorSystem::RunAll() {
  size_t work = 0;
  for (const auto& reactor : reactors_) work += reactor->RunPass();
  return work;
}

void ActorSystem::Stop(std::chrono::nanoseconds deadline) {
  const bool inside = std::any_of(reactors_.begin(), reactors_.end(),
                                  [](const auto& reactor) { return reactor->on_this_thread(); });
  if (!inside) return StopNow(deadline);
  std::lock_guard lock(stopper_mutex_);
  if (!stopper_.joinable()) stopper_ = std::thread([this, deadline] { StopNow(deadline); });
}

void ActorSystem::StopNow(std::chrono::nanoseconds deadline) {
  std::lock_guard lock(stop_mutex_);
  if (stopped_) return;
  stopped_ = true;
  if (threads_.empty()) return;  // never started: nothing is in flight that could be drained
  const auto until = std::chrono::steady_clock::now() + deadline;
  for (const Placed& placed : actors_) StopActor(placed, until);
  Join();
}

void ActorSystem::StopActor(const Placed& placed, std::chrono::steady_clock::time_point deadline) {
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

void ActorSystem::AwaitStopped(const Placed& placed, std::chrono::steady_clock::time_point until) {
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
