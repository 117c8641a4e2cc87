// The two ends of an edge: OutPort with the producing actor, InPort with the consuming one.
//
// An edge has one producer and one consumer actor for life. ActorSystem::Connect makes both ends.
// A send is visible at once; the wake of a parked consumer waits for the end of the producer's
// pass, where one fence serves all edges it sent on (WakeList).
#pragma once

#include <cassert>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/fence.h"
#include "runtime/histogram.h"
#include "runtime/mpsc_ring.h"
#include "runtime/parker.h"
#include "runtime/spsc_ring.h"

namespace railhop {

// The parkers that a reactor has published work for in the current pass. Owner: that reactor.
class WakeList {
 public:
  // Set-up: a bit for this parker, or 0 for nullptr (a consumer that never parks, or the same
  // reactor).
  uint64_t Add(Parker* parker) {
    if (parker == nullptr) return 0;
    for (size_t i = 0; i < parkers_.size(); ++i) {
      if (parkers_[i] == parker) return uint64_t{1} << i;
    }
    assert(parkers_.size() < 64);
    parkers_.push_back(parker);
    return uint64_t{1} << (parkers_.size() - 1);
  }
  void Touch(uint64_t bit) { touched_ |= bit; }
  void Flush() {
    if (touched_ == 0) return;
    FullFence();
    for (size_t i = 0; i < parkers_.size(); ++i) {
      if ((touched_ >> i & 1) != 0) parkers_[i]->WakeIfParked();
    }
    touched_ = 0;
  }

 private:
  std::vector<Parker*> parkers_;
  uint64_t touched_ = 0;
};

template <Message T>
class OutPort {
 public:
  // How many sends will succeed at least; exact when it is 0.
  size_t Room() { return ring_->Room(); }
  // False when the edge is full: the caller keeps the work.
  bool TrySend(const T& message) {
    if (!ring_->TryPush(message)) return false;
    wakes_->Touch(wake_bit_);
    return true;
  }
  // For edges whose capacity rules out that they fill.
  void Send(const T& message) {
    [[maybe_unused]] const bool sent = TrySend(message);
    assert(sent);
  }
  bool connected() const { return ring_ != nullptr; }
  // Set-up, by ActorSystem or by a test that drives an actor alone.
  void Connect(SpscRing<T>* ring, WakeList* wakes, uint64_t wake_bit) {
    ring_ = ring;
    wakes_ = wakes;
    wake_bit_ = wake_bit;
  }

 private:
  SpscRing<T>* ring_ = nullptr;
  WakeList* wakes_ = nullptr;
  uint64_t wake_bit_ = 0;
};

// The consumer's end, without the message type. The reactor of the consumer calls it.
class InPort {
 public:
  static constexpr size_t kBudget = 16;  // messages an edge may have handled in one pass

  virtual ~InPort() = default;
  // Handles at most kBudget messages; `now` is the time for their queue wait.
  virtual size_t Drain(uint64_t now, Histogram* queue_wait) = 0;
  virtual bool Empty() const = 0;
  virtual void PublishCredit() = 0;
};

// `Handler` is a member function `bool ActorType::OnX(const T&)`; false keeps the message in the
// edge until a later pass (the consumer lacks what it needs to take it).
template <auto Handler, class ActorType, class Ring>
class TypedInPort final : public InPort {
 public:
  TypedInPort(ActorType* actor, Ring* ring) : actor_(actor), ring_(ring) {}

  size_t Drain(uint64_t now, Histogram* queue_wait) override {
    return ring_->Drain(
        kBudget, [this](const auto& message) { return (actor_->*Handler)(message); },
        [now, queue_wait](uint64_t sent) { queue_wait->Add(now > sent ? now - sent : 0); });
  }
  bool Empty() const override { return ring_->Empty(); }
  void PublishCredit() override { ring_->PublishCredit(); }

 private:
  ActorType* const actor_;
  Ring* const ring_;
};

}  // namespace railhop
