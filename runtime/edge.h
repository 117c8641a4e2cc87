// The two ends of an edge: OutPort with the producing actor, InPort with the consuming one.
//
// An edge has one producer and one consumer actor for life. ActorSystem::Connect makes both ends.
// A send is visible at once; the wake of a parked consumer waits for the end of the producer's
// pass, where one fence serves all edges it sent on (WakeList). The same fence serves the other
// direction: room that the consumer published wakes a producer that parked on a full edge.
//
// A direct edge (EdgeOptions::direct), if both ends live on one reactor, hands a message over by a
// call of the consumer's handler, without the ring: while that is empty, and the consumer is not
// itself in the middle of something. The ring has the others, so the order of an edge stays.
#pragma once

#include <atomic>
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

// The parkers that a reactor has published work or room for in the current pass. Owner: that
// reactor.
class WakeList {
 public:
  // Set-up: a bit for this parker, or 0 for nullptr (a peer that never parks, or the same reactor).
  uint64_t Add(Parker* parker) {
    if (parker == nullptr) return 0;
    size_t i = 0;
    while (i < parkers_.size() && parkers_[i] != parker) ++i;
    if (i == parkers_.size()) parkers_.push_back(parker);
    return Bit(i);
  }
  void Touch(uint64_t bit) { work_ |= bit; }
  void TouchRoom(uint64_t bit) { room_ |= bit; }
  void Flush() {
    if ((work_ | room_) == 0) return;
    FullFence();
    for (size_t i = 0; i < parkers_.size(); ++i) {
      if ((work_ & Bit(i)) != 0) {
        parkers_[i]->WakeIfParked();
      } else if ((room_ & Bit(i)) != 0) {
        parkers_[i]->WakeIfParkedForRoom();
      }
    }
    work_ = room_ = 0;
  }

  // Whether a send of this pass found its edge full: the reactor must be woken when there is room.
  void NoteFull() { full_ = true; }
  void ForgetFull() { full_ = false; }
  bool saw_full() const { return full_; }

  // Whether direct edges call just now, and how many messages they have handed over since the last
  // time: work of the pass, perhaps for an actor whose turn is over.
  void AllowCalls(bool allowed) { calls_allowed_ = allowed; }
  bool calls_allowed() const { return calls_allowed_; }
  void NoteCall() { ++calls_; }
  size_t TakeCalls() { return std::exchange(calls_, 0); }

 private:
  // Peers beyond the 63rd share a bit and are looked at together.
  static uint64_t Bit(size_t i) { return uint64_t{1} << (i < 63 ? i : 63); }

  std::vector<Parker*> parkers_;
  uint64_t work_ = 0;
  uint64_t room_ = 0;
  bool full_ = false;
  bool calls_allowed_ = false;
  size_t calls_ = 0;
};

// The consumer's end of a direct edge, as its producer on the same reactor sees it.
template <Message T>
class DirectEnd {
 public:
  // False: not now; the message goes into the ring.
  virtual bool Call(const T& message) = 0;

 protected:
  ~DirectEnd() = default;
};

template <Message T>
class OutPort {
 public:
  // How many sends will succeed at least; as much as the consumer has published when it is less
  // than `wanted` (at most half of the capacity).
  size_t Room(size_t wanted = 1) {
    const size_t room = ring_->Room(wanted);
    if (room < wanted) wakes_->NoteFull();
    return room;
  }
  // False when the edge is full: the caller keeps the work and tries again on each pass, from a
  // poller or by refusing the message that it comes from. It needs not stay awake for that.
  bool TrySend(const T& message) {
    if (direct_ != nullptr && wakes_->calls_allowed() && direct_->Call(message)) {
      wakes_->NoteCall();
      return true;
    }
    if (!ring_->TryPush(message)) {
      wakes_->NoteFull();
      return false;
    }
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
  void Connect(SpscRing<T>* ring, WakeList* wakes, uint64_t wake_bit,
               DirectEnd<T>* direct = nullptr) {
    ring_ = ring;
    wakes_ = wakes;
    wake_bit_ = wake_bit;
    direct_ = direct;
  }

 private:
  SpscRing<T>* ring_ = nullptr;
  WakeList* wakes_ = nullptr;
  uint64_t wake_bit_ = 0;
  DirectEnd<T>* direct_ = nullptr;
};

// The consumer's end, without the message type. The reactor of the consumer calls it.
class InPort {
 public:
  static constexpr size_t kBudget = 16;  // messages an edge may have handled in one pass

  // A message is there once `word` holds `value`. Its actor keeps this in an array of its own: it
  // asks all its ports on every pass, and nearly always for nothing.
  struct Signal {
    const std::atomic<uint64_t>* word;
    uint64_t value;
    bool IsSet() const { return word->load(std::memory_order_acquire) == value; }
  };

  virtual ~InPort() = default;
  // Of the next message; another one after each Drain.
  virtual Signal Awaited() const = 0;
  // Handles at most kBudget messages, and counts how long the stamped ones had waited.
  virtual size_t Drain(Histogram* queue_wait) = 0;
  // Whether no message is left, one that a foreign thread is still writing included.
  virtual bool AllTaken() const = 0;
  virtual void PublishCredit() = 0;
  // Takes no more from foreign threads; edges between actors stay open.
  virtual void Close() = 0;
};

// `Handler` is a member function `bool ActorType::OnX(const T&)`; false keeps the message in the
// edge until a later pass (the consumer lacks what it needs to take it).
template <auto Handler, class ActorType, class Ring>
class TypedInPort : public InPort {
 public:
  // `room_bit`: of the producer's parker in `wakes`, the list of the consumer's reactor; 0 for a
  // producer that needs no wake when there is room.
  TypedInPort(ActorType* actor, Ring* ring, WakeList* wakes = nullptr, uint64_t room_bit = 0)
      : actor_(actor), ring_(ring), wakes_(wakes), room_bit_(room_bit) {}

  Signal Awaited() const override { return {&ring_->head_word(), ring_->head() + 1}; }
  size_t Drain(Histogram* queue_wait) override {
    const uint64_t published = ring_->published();
    const size_t taken = ring_->Drain(
        kBudget, [this](const auto& message) { return (actor_->*Handler)(message); },
        [queue_wait](uint64_t waited) { queue_wait->Add(waited); });
    TellRoomSince(published);
    return taken;
  }
  bool AllTaken() const override { return ring_->AllTaken(); }
  void PublishCredit() override {
    const uint64_t published = ring_->published();
    ring_->PublishCredit();
    TellRoomSince(published);
  }
  void Close() override {
    if constexpr (requires { ring_->Close(); }) ring_->Close();
  }

 protected:
  ActorType* const actor_;
  Ring* const ring_;

 private:
  void TellRoomSince(uint64_t published) {
    if (room_bit_ != 0 && ring_->published() != published) wakes_->TouchRoom(room_bit_);
  }

  WakeList* const wakes_;
  const uint64_t room_bit_;
};

// That of a direct edge, both of whose ends live on one reactor. `ActorType` is an Actor.
template <auto Handler, class ActorType, class Ring>
class DirectInPort final : public TypedInPort<Handler, ActorType, Ring>,
                           public DirectEnd<typename Ring::Value> {
 public:
  using TypedInPort<Handler, ActorType, Ring>::TypedInPort;

  bool Call(const typename Ring::Value& message) override {
    if (this->actor_->is_running() || !this->ring_->Empty()) return false;
    return this->actor_->RunCall([&] { return (this->actor_->*Handler)(message); });
  }
};

}  // namespace railhop
