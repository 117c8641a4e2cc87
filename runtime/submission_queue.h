// SubmissionQueue: the door through which application threads hand work to an actor,
// io_uring-shaped.
//
//   if (!queue.Prepare(request)) return kTryAgain;  // full: the caller's answer, never a spin
//   queue.Submit();  // one fence and at most one wake for all that was prepared
//
// Threads: any number of producers; a Prepare is visible at once, Submit only makes sure that a
// parked consumer looks. The consumer is the actor that ActorSystem::Connect names. When that actor
// is told to stop, the queue is closed: each entry whose Prepare returned true is still handled.
// Lifetime: the queue outlives the ActorSystem, and nobody calls Submit once that is gone.
#pragma once

#include "runtime/fence.h"
#include "runtime/mpsc_ring.h"
#include "runtime/parker.h"

namespace railhop {

template <Message T>
class SubmissionQueue {
 public:
  explicit SubmissionQueue(size_t capacity, size_t stamp_every = 64, CycleClock clock = {})
      : ring_(capacity, stamp_every, clock) {}

  // False: full, or closed.
  bool Prepare(const T& entry) { return ring_.TryPush(entry); }
  void Submit() {
    if (consumer_ == nullptr) return;
    FullFence();
    consumer_->WakeIfParked();
  }

  // No Prepare will succeed any more.
  bool closed() const { return ring_.closed(); }

  MpscRing<T>& ring() { return ring_; }
  // Set-up: nullptr for a consumer that never parks.
  void Connect(Parker* consumer) { consumer_ = consumer; }

 private:
  MpscRing<T> ring_;
  Parker* consumer_ = nullptr;
};

}  // namespace railhop
