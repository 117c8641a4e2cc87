// MpscRing: the inbox through which foreign threads enter. Any number of producers, one consumer.
//
// A producer takes a position with one compare-and-swap, writes its cell and publishes it with a
// release store of that cell's own sequence. A producer that is preempted between the two stops no
// other producer from publishing; only the consumer, which reads in order, waits for that one cell.
// (Rings that publish by moving a shared tail make every other producer spin meanwhile: 130
// messages a second with three producers on one core.) Bounded: a full ring is the caller's answer.
//
// Closing: the consumer may close the ring. Each message that was accepted before is still read,
// and AllTaken() tells when that is done, so that no producer is left with a yes and no reader.
#pragma once

#include <optional>

#include "runtime/cell_ring.h"

namespace railhop {

template <Message T>
class MpscRing : public CellRing<T> {
 public:
  explicit MpscRing(size_t capacity, size_t stamp_every = 64, CycleClock clock = {})
      : CellRing<T>(capacity, stamp_every, clock) {}

  // Any thread. False when the ring is full or closed.
  bool TryPush(const T& value) {
    const std::optional<uint64_t> position = TryClaim();
    if (!position) return false;
    this->Write(*position, value);
    return true;
  }
  // Any thread.
  bool closed() const { return (tail_.load(std::memory_order_relaxed) & kClosed) != 0; }

  // Consumer. From now on TryPush fails.
  void Close() { tail_.fetch_or(kClosed, std::memory_order_relaxed); }
  // Consumer. No message is left, not even one whose producer has its position and was preempted
  // before it wrote.
  bool AllTaken() const {
    return this->head() == (tail_.load(std::memory_order_relaxed) & ~kClosed);
  }

 protected:
  // Any thread. A position of its own, to Write next, or nothing.
  std::optional<uint64_t> TryClaim() {
    uint64_t position = tail_.load(std::memory_order_relaxed);
    do {
      if ((position & kClosed) != 0) return std::nullopt;
      if (!HasRoom(position)) return std::nullopt;
    } while (!tail_.compare_exchange_weak(position, position + 1, std::memory_order_relaxed));
    return position;
  }

 private:
  // Looks at the consumer's line only when the room that was last seen there is used up.
  bool HasRoom(uint64_t position) {
    if (position < limit_.load(std::memory_order_acquire)) return true;
    const uint64_t limit = this->Credit() + this->capacity();
    limit_.store(limit, std::memory_order_release);  // an older value over a newer one does no harm
    return position < limit;
  }

  // Beside the position, so that closing and taking a position are in one order.
  static constexpr uint64_t kClosed = uint64_t{1} << 63;

  alignas(kNoFalseSharing) std::atomic<uint64_t> tail_{0};  // next free position, and kClosed
  std::atomic<uint64_t> limit_{0};  // positions below it are free, as some producer has seen
};

}  // namespace railhop
