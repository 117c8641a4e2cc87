// CellRing: what the two rings have in common - the cells, and the one consumer that reads them.
// SpscRing and MpscRing add the producing side.
//
// Memory order: a producer stores the value, then the cell's sequence with release; the consumer
// loads that sequence with acquire. What a producer did before TryPush is therefore visible in the
// handler of that message. The consumer's position goes back as `credit_` (release / acquire), so a
// cell is overwritten only after its handler has returned.
//
// Lazy credit: the consumer publishes its position every CreditInterval() cells, in the middle of a
// drain too, and before it parks (PublishCredit). An emptied ring can hold back fewer than
// CreditInterval() cells of room, at most half of it, so a producer that wants no more than half of
// the ring at once never waits for credit that nobody will send. An edge that must never be found
// full needs that much more than what can be in flight: CapacityForWindow().
//
// Stamps: every `stamp_every`-th position carries its producer's cycle counter beside the ring,
// from which the consumer takes the queue wait. Stamping each message would cost 3.5 % (measured).
#pragma once

#include <algorithm>
#include <cassert>
#include <memory>

#include "runtime/cycle_clock.h"
#include "runtime/message.h"

namespace railhop {

inline constexpr size_t kNoStamps = size_t{1} << 62;  // as `stamp_every`: none but the first

template <Message T>
class CellRing {
 public:
  CellRing(const CellRing&) = delete;
  CellRing& operator=(const CellRing&) = delete;

  using Value = T;

  size_t capacity() const { return mask_ + 1; }

  // Consumer. Whether no message is there.
  bool Empty() const {
    return cells_[head_ & mask_].sequence.load(std::memory_order_acquire) != head_ + 1;
  }

  // Consumer. The message at the head is there once this word holds head() + 1.
  const std::atomic<uint64_t>& head_word() const { return cells_[head_ & mask_].sequence; }
  // Consumer. The next position to read.
  uint64_t head() const { return head_; }

  // Consumer. The oldest message, or nullptr; Pop() ends it. For consumers without a handler.
  const T* Front() const { return Empty() ? nullptr : &cells_[head_ & mask_].template Load<T>(); }
  void Pop() {
    ++head_;
    if (head_ - published_ >= credit_interval_) PublishCredit();
  }

  // Consumer. Calls `handler(value)` in place for at most `budget` messages, oldest first, and
  // returns how many were taken. A handler that returns false leaves its message where it is and
  // ends the drain. `on_wait(cycles)` gets the time from the send of each stamped message taken
  // until its handler began.
  template <class Handler, class OnWait>
  size_t Drain(size_t budget, Handler&& handler, OnWait&& on_wait) {
    size_t taken = 0;
    while (taken < budget && !Empty()) {
      const bool stamped = (head_ & stamp_mask_) == 0;
      const uint64_t began = stamped ? clock_.Now() : 0;
      if (!handler(cells_[head_ & mask_].template Load<T>())) break;
      // Counters of two cores may be some cycles apart.
      if (stamped) on_wait(began - std::min(began, stamps_[StampIndex(head_)]));
      Pop();
      ++taken;
    }
    return taken;
  }
  template <class Handler>
  size_t Drain(size_t budget, Handler&& handler) {
    return Drain(budget, handler, [](uint64_t) {});
  }

  // Consumer. How far the producers know it has read.
  uint64_t published() const { return published_; }

  // Consumer. Tells the producers of all room there is.
  void PublishCredit() {
    if (published_ == head_) return;
    published_ = head_;
    credit_.store(head_, std::memory_order_release);
  }

 protected:
  CellRing(size_t capacity, size_t stamp_every, CycleClock clock)
      : mask_(RingCapacity(capacity) - 1),
        stamp_mask_(stamp_every - 1),
        credit_interval_(CreditInterval(mask_ + 1)),
        clock_(clock),
        cells_(std::make_unique<MessageCell[]>(mask_ + 1)),
        stamps_(std::make_unique<uint64_t[]>(mask_ / stamp_every + 1)) {
    assert(stamp_every > 0 && (stamp_every & stamp_mask_) == 0);
  }
  ~CellRing() = default;

  // Producer that owns `position`.
  void Write(uint64_t position, const T& value) {
    MessageCell& cell = cells_[position & mask_];
    cell.Store(value);
    if ((position & stamp_mask_) == 0) stamps_[StampIndex(position)] = clock_.Now();
    cell.sequence.store(position + 1, std::memory_order_release);
  }
  // Producers. Every position below is read and its handler has returned.
  uint64_t Credit() const { return credit_.load(std::memory_order_acquire); }
  uint64_t mask() const { return mask_; }

 private:
  size_t StampIndex(uint64_t position) const { return (position & mask_) / (stamp_mask_ + 1); }

  // Set-up; read by both sides.
  const uint64_t mask_;
  const uint64_t stamp_mask_;
  const uint64_t credit_interval_;
  const CycleClock clock_;
  const std::unique_ptr<MessageCell[]> cells_;
  const std::unique_ptr<uint64_t[]> stamps_;

  alignas(kNoFalseSharing) uint64_t head_ = 0;  // consumer: next position to read
  uint64_t published_ = 0;                      // consumer: the position it last published

  alignas(kNoFalseSharing) std::atomic<uint64_t> credit_{0};  // consumer -> producers
};

}  // namespace railhop
