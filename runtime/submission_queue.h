// SubmissionQueue: the door through which application threads hand work to an actor,
// io_uring-shaped.
//
//   if (!queue.Prepare(request)) return kTryAgain;   // full: the caller's answer, never a spin
//   queue.Submit();                                  // one fence and at most one wake for all
//   prepared
//
// Threads: any number of producers; a Prepare is visible at once, Submit only makes sure that a
// parked consumer looks. The consumer is the actor that ActorSystem::Connect names.
#pragma once

#include "runtime/fence.h"
#include "runtime/mpsc_ring.h"
#include "runtime/parker.h"

namespace railhop {

template <Message T>
class SubmissionQueue {
 public:
  explicit SubmissionQueue(size_t capacity, size_t stamp_every = 64)
      : ring_(capacity, stamp_every) {}

  bool Prepare(const T& entry) { return ring_.TryPush(entry); }
  void Submit() {
    if (consumer_ == nullptr) return;
    FullFence();
    consumer_->WakeIfParked();
  }

  MpscRing<T>& ring() { return ring_; }
  // Set-up: nullptr for a consumer that never parks.
  void Connect(Parker* consumer) { consumer_ = consumer; }

 private:
  MpscRing<T> ring_;
  Parker* consumer_ = nullptr;
};

}  // namespace railhop
