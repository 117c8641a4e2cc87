// ActorSystem: builds reactors, actors and edges, starts them, and stops them in order.
//
//   ActorSystem system;
//   Reactor& core = *system.AddReactor({.name = "data", .core = 3});
//   auto& producer = system.AddActor<Producer>(core);
//   auto& consumer = system.AddActor<Consumer>(core);
//   system.Connect<&Consumer::OnItem>(producer.items, consumer, {.capacity = 256});
//   absl::Status status = system.Start();
//
// Threads: set-up and Start from one thread; Stop from any, a reactor's own included; tests that
// never call Start drive the reactors with RunAll() instead. Stop: actors are stopped one after
// another in the order in which they were added, so add producers before their consumers: each
// refuses new work, drains, and only then is the next one told. What has not drained at the
// deadline is flushed. The reactors' threads are joined after the last. The destructor stops and
// joins, so it must not run on a reactor's thread.
//
// fork: a child has the memory but not the threads, and shares the epoll and event descriptors with
// its parent. There Start is an error, Stop does nothing, and the destructor destroys no actor,
// reactor or edge.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "runtime/actor.h"
#include "runtime/reactor.h"
#include "runtime/submission_queue.h"

namespace railhop {

struct EdgeOptions {
  size_t capacity = 256;
  bool control = false;  // drained before data
  // Both ends on one reactor: handled by a call where possible (edge.h). For handlers that may run
  // in the middle of the producer's turn: those that do not wait for another edge's message.
  bool direct = false;
};

namespace internal {
template <class>
struct HandlerTraits;
template <class A, class T>
struct HandlerTraits<bool (A::*)(const T&)> {
  using ActorType = A;
  using MessageType = T;
};
}  // namespace internal

class ActorSystem {
 public:
  struct Options {
    size_t stamp_every = 64;  // one message in so many carries its send time
    bool histograms = true;   // queue waits, service times, busy shares
    CycleClock clock = {};    // manual in deterministic tests
  };

  ActorSystem() : ActorSystem(Options{}) {}
  explicit ActorSystem(Options options);
  ~ActorSystem();
  ActorSystem(const ActorSystem&) = delete;
  ActorSystem& operator=(const ActorSystem&) = delete;

  Reactor* AddReactor(ReactorOptions options);

  template <class ActorType, class... Args>
  ActorType& AddActor(Reactor& reactor, Args&&... args) {
    auto actor = std::make_unique<ActorType>(std::forward<Args>(args)...);
    ActorType& added = *actor;
    reactor.AddActor(&added);
    actors_.push_back({std::move(actor), &reactor});
    return added;
  }

  // Set-up: the order in which actors of one reactor run in a pass; those not named come after, in
  // the order in which they were added. What an actor sends to one that runs after it is handled in
  // the same pass.
  void SetRunOrder(const std::vector<const Actor*>& order) {
    for (const auto& reactor : reactors_) reactor->SetRunOrder(order);
  }

  // Connects `port`, a member of the producing actor `from`, to `Handler` of `to`.
  template <auto Handler>
  void Connect(const Actor& from,
               OutPort<typename internal::HandlerTraits<decltype(Handler)>::MessageType>& port,
               typename internal::HandlerTraits<decltype(Handler)>::ActorType& to,
               EdgeOptions options = {}) {
    using T = typename internal::HandlerTraits<decltype(Handler)>::MessageType;
    using A = typename internal::HandlerTraits<decltype(Handler)>::ActorType;
    auto ring =
        std::make_shared<SpscRing<T>>(options.capacity, options_.stamp_every, options_.clock);
    Reactor& producer = ReactorOf(from);
    Reactor& consumer = ReactorOf(to);
    const bool same = &producer == &consumer;
    const uint64_t wake_bit = producer.wakes().Add(same ? nullptr : consumer.wake_target());
    const uint64_t room_bit = consumer.wakes().Add(same ? nullptr : producer.wake_target());
    const auto add = [&](auto in_port) {
      auto* const added = in_port.get();
      to.AddPort(std::move(in_port), options.control);
      return added;
    };
    using Ring = SpscRing<T>;
    DirectEnd<T>* direct = nullptr;
    if (options.direct && same) {
      direct = add(std::make_unique<DirectInPort<Handler, A, Ring>>(&to, ring.get(),
                                                                    &consumer.wakes(), room_bit));
    } else {
      add(std::make_unique<TypedInPort<Handler, A, Ring>>(&to, ring.get(), &consumer.wakes(),
                                                          room_bit));
    }
    port.Connect(ring.get(), &producer.wakes(), wake_bit, direct);
    rings_.push_back(std::move(ring));
  }

  // The door for foreign threads: `queue` leads to `Handler` of `to`.
  template <auto Handler>
  void Connect(
      SubmissionQueue<typename internal::HandlerTraits<decltype(Handler)>::MessageType>& queue,
      typename internal::HandlerTraits<decltype(Handler)>::ActorType& to) {
    using T = typename internal::HandlerTraits<decltype(Handler)>::MessageType;
    using A = typename internal::HandlerTraits<decltype(Handler)>::ActorType;
    queue.Connect(ReactorOf(to).wake_target());
    to.AddPort(std::make_unique<TypedInPort<Handler, A, MpscRing<T>>>(&to, &queue.ring()), false);
  }

  // Starts a thread per reactor and waits until all are pinned; only then does any actor start. On
  // an error (a core that may not be used, no thread to be had) no actor has run and no thread is
  // left. Possible once.
  absl::Status Start();
  // Drains for at most `deadline`, flushes the rest, joins. In any state, any number of times. From
  // a reactor's own thread it returns at once and the stop goes on beside it; the destructor waits.
  void Stop(std::chrono::nanoseconds deadline);
  // By hand: one pass of each reactor, in the order they were added; returns the work done.
  size_t RunAll();

  struct Placed {
    std::unique_ptr<Actor> actor;
    Reactor* reactor;
  };
  const std::vector<Placed>& actors() const { return actors_; }
  const std::vector<std::unique_ptr<Reactor>>& reactors() const { return reactors_; }

 private:
  enum class State { kBuilt, kRunning, kStopped };
  struct StartGate;

  Reactor& ReactorOf(const Actor& actor) const;
  absl::Status StartThreads(const std::shared_ptr<StartGate>& gate);
  void StopNow(std::chrono::nanoseconds deadline);
  void StopActor(const Placed& placed, std::chrono::steady_clock::time_point deadline);
  void AwaitStopped(const Placed& placed, std::chrono::steady_clock::time_point until);
  void Join();
  bool InForkedChild() const;
  bool OnReactorThread() const;

  const Options options_;
  const pid_t pid_;  // of the process that built it
  Parker stop_waiter_;
  std::vector<std::unique_ptr<Reactor>> reactors_;
  std::vector<std::shared_ptr<void>> rings_;
  std::vector<Placed> actors_;
  std::vector<std::thread> threads_;

  std::mutex state_mutex_;  // held while starting and while stopping
  State state_ = State::kBuilt;
  std::mutex stopper_mutex_;  // guards stopper_
  std::thread stopper_;       // a stop that was asked for on a reactor's own thread
};

}  // namespace railhop
