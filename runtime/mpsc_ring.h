// MpscRing: the inbox through which foreign threads enter. Any number of producers, one consumer.
//
// A producer takes a position with one compare-and-swap, writes its cell and publishes it with a
// release store of that cell's own sequence. A producer that is preempted between the two stops no
// other producer from publishing; only the consumer, which reads in order, waits for that one cell.
// (Rings that publish by moving a shared tail make every other producer spin meanwhile: 130
// messages a second with three producers on one core.) Bounded: a full ring is the caller's answer.
#pragma once

#include "runtime/cell_ring.h"

namespace railhop {

template <Message T>
class MpscRing : public CellRing<T> {
 public:
  explicit MpscRing(size_t capacity, size_t stamp_every = 64, CycleClock clock = {})
      : CellRing<T>(capacity, stamp_every, clock) {}

  // Any thread. False when the ring is full.
  bool TryPush(const T& value) {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    do {
      // Signed: a stale `position` may lie behind the credit, and then the exchange fails.
      if (static_cast<int64_t>(position - this->Credit()) > static_cast<int64_t>(this->mask())) {
        return false;
      }
    } while (!tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed));
    this->Write(position, value);
    return true;
  }

 private:
  alignas(kCacheLine) std::atomic<uint64_t> tail_{0};  // next free position
};

}  // namespace railhop
