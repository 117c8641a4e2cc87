// What the runtime's structures are measured against. Same message, same capacity, same loops
// around them; all spin.
#pragma once

#include <atomic>
#include <boost/lockfree/spsc_queue.hpp>
#include <cstdint>
#include <mutex>
#include <vector>

#include "runtime/message.h"

namespace railhop {

// A cache line, as the runtime's cells are: 56 bytes of value beside 8 of sequence there, 64 here.
struct LineMessage {
  uint64_t value = 0;
  uint64_t rest[7] = {};
};
static_assert(sizeof(LineMessage) == kCacheLine);

// The bound of what two cores can do: each waits for the other's word.
struct alignas(kNoFalseSharing) SpinFlag {
  std::atomic<uint64_t> word{0};
};

// Any number of producers and consumers under one lock.
class MutexRing {
 public:
  using Value = LineMessage;

  explicit MutexRing(size_t capacity) : cells_(RingCapacity(capacity)) {}

  bool TryPush(const LineMessage& message) {
    std::lock_guard lock(mutex_);
    if (tail_ - head_ == cells_.size()) return false;
    cells_[tail_++ & (cells_.size() - 1)] = message;
    return true;
  }
  template <class Handler>
  size_t Drain(Handler&& handler) {
    LineMessage message;
    {
      std::lock_guard lock(mutex_);
      if (tail_ == head_) return 0;
      message = cells_[head_++ & (cells_.size() - 1)];
    }
    handler(message);
    return 1;
  }

 private:
  std::mutex mutex_;
  uint64_t head_ = 0, tail_ = 0;
  std::vector<LineMessage> cells_;
};

class BoostRing {
 public:
  using Value = LineMessage;

  explicit BoostRing(size_t capacity) : queue_(capacity) {}

  bool TryPush(const LineMessage& message) { return queue_.push(message); }
  template <class Handler>
  size_t Drain(Handler&& handler) {
    return queue_.consume_all(handler);
  }

 private:
  boost::lockfree::spsc_queue<LineMessage> queue_;
};

}  // namespace railhop
