// SpscRing: the ring of an edge. One producer thread and one consumer thread for life. Memory
// order, lazy credit and stamps: see cell_ring.h.
#pragma once

#include "runtime/cell_ring.h"

namespace railhop {

template <Message T>
class SpscRing : public CellRing<T> {
 public:
  // `capacity` is rounded up to a power of two; `stamp_every` must be one.
  explicit SpscRing(size_t capacity, size_t stamp_every = 64, CycleClock clock = {})
      : CellRing<T>(capacity, stamp_every, clock), limit_(this->capacity()) {}

  // Producer. How many TryPush will succeed at least; as much as the consumer has published when it
  // is less than `wanted`. Wanting more than half of the capacity may wait for ever.
  size_t Room(size_t wanted = 1) {
    if (limit_ - tail_ < wanted) limit_ = this->Credit() + this->capacity();
    return limit_ - tail_;
  }

  // Producer. False when the ring is full: the caller keeps the work.
  bool TryPush(const T& value) {
    if (Room() == 0) return false;
    this->Write(tail_++, value);
    return true;
  }

  // Consumer. No message is left.
  bool AllTaken() const { return this->Empty(); }

 private:
  alignas(kNoFalseSharing) uint64_t tail_ = 0;  // next position to write
  uint64_t limit_;                              // first position that may not be written yet
};

}  // namespace railhop
