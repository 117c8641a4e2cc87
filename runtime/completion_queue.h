// CompletionQueue: how an actor hands results to one application thread, io_uring-shaped.
//
//   while (queue.Wait(1s)) {                  // sleeps without spinning; true: something is there
//     while (const Result* r = queue.Peek()) { use(*r); queue.Advance(); }
//   }
//
// Threads: one producing actor, one consuming thread. The producer's side is an OutPort, so that
// its wake joins the reactor's other wakes at the end of the pass. Sized by whoever admits work so
// that it cannot fill.
#pragma once

#include <chrono>

#include "runtime/edge.h"
#include "runtime/reactor.h"

namespace railhop {

template <Message T>
class CompletionQueue {
 public:
  explicit CompletionQueue(size_t capacity) : ring_(capacity) {}

  // Set-up: results sent on `port` of an actor on `reactor` arrive here.
  void Connect(Reactor& reactor, OutPort<T>& port) {
    port.Connect(&ring_, &reactor.wakes(), reactor.wakes().Add(&consumer_));
  }

  // The oldest result or nullptr; it stays valid until Advance.
  const T* Peek() const { return ring_.Front(); }
  void Advance() { ring_.Pop(); }

  // True as soon as there is a result, false when `timeout` passed without one.
  bool Wait(std::chrono::nanoseconds timeout) {
    const auto until = DeadlineAfter(timeout);
    while (ring_.Empty()) {
      const auto left = until - std::chrono::steady_clock::now();
      if (left <= std::chrono::nanoseconds(0)) return false;
      ring_.PublishCredit();
      consumer_.PreparePark();
      if (ring_.Empty()) consumer_.Block(left);
      consumer_.FinishPark();
    }
    return true;
  }

 private:
  SpscRing<T> ring_;
  Parker consumer_;
};

}  // namespace railhop
