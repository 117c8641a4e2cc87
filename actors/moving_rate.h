// The rate at which a counter grows, as a moving average: what lies further back counts less, by a
// factor of e for each second. It is updated when it is asked for, so nothing runs meanwhile.
//
// Pure; one owner.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>

namespace railhop {

class MovingRate {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Per second, now that the counter stands at `count`. The first call only begins.
  double Update(uint64_t count, Time now) {
    const std::chrono::duration<double> passed = now - at_;
    if (at_ == Time()) {
      at_ = now;
      count_ = count;
    } else if (passed.count() > 0) {
      const double latest = static_cast<double>(count - count_) / passed.count();
      rate_ = latest + (rate_ - latest) * std::exp(-passed.count());
      at_ = now;
      count_ = count;
    }
    return rate_;
  }

 private:
  Time at_{};
  uint64_t count_ = 0;
  double rate_ = 0;
};

}  // namespace railhop
