// A budget of something (slots, work requests, bytes): taken before the work, returned after it.
//
// A plain integer with one owner: others give credit back by message, and the owner calls Return.
// Giving back more than was taken is a bug of the caller: it asserts, and without assertions the
// window stays within its capacity rather than growing.
#pragma once

#include <algorithm>
#include <cassert>
#include <cstdint>

namespace railhop {

class CreditWindow {
 public:
  explicit CreditWindow(uint64_t capacity) : capacity_(capacity), available_(capacity) {}

  // All of n or nothing.
  bool TryTake(uint64_t n = 1) {
    if (n > available_) return false;
    available_ -= n;
    return true;
  }

  void Return(uint64_t n = 1) {
    assert(n <= in_flight() && "more credit returned than was taken");
    available_ += std::min(n, in_flight());
  }

  uint64_t capacity() const { return capacity_; }
  uint64_t available() const { return available_; }
  uint64_t in_flight() const { return capacity_ - available_; }
  bool idle() const { return available_ == capacity_; }

 private:
  uint64_t capacity_;
  uint64_t available_;
};

}  // namespace railhop
