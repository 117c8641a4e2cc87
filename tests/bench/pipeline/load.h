// The load of the pipeline benchmark: 64 KiB requests, so many outstanding, each submitted anew the
// moment its end was seen. The same generator drives the actors and the pumps.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include "runtime/cycle_clock.h"

namespace railhop {

inline constexpr uint64_t kRequestBytes = 64 * 1024;
inline constexpr uint32_t kMaxOutstanding = 64;

struct LoadOrder {
  uint32_t outstanding = 1;
  uint64_t duration_ns = 0;  // of submitting
};

struct LoadResult {
  uint64_t requests = 0;  // 0: the run failed
  double seconds = 0;     // first submission to last end
  double p50_us = 0;      // of submission to observed end
  double p99_us = 0;
};

// What a generator submits to. Request `slot` moves the slot's own 64 KiB; `slot` is free again
// once IsDone said so.
class LoadTarget {
 public:
  virtual ~LoadTarget() = default;
  // False: not now. `now`: cycles, as of this moment.
  virtual bool Submit(uint32_t slot, uint64_t now) = 0;
  virtual bool IsDone(uint32_t slot) = 0;
};

// One thread: the one that also drives the subject's sending side.
class LoadGenerator {
 public:
  explicit LoadGenerator(LoadTarget* target) : target_(*target) { latencies_.reserve(1 << 20); }

  void Start(const LoadOrder& order) {
    latencies_.clear();
    requests_ = 0;
    started_ = ReadCycles();
    stop_at_ = started_ + ToCycles(std::chrono::nanoseconds(order.duration_ns));
    for (uint32_t slot = 0; slot < order.outstanding; ++slot) free_.push_back(slot);
    running_ = true;
  }
  bool running() const { return running_; }

  // Takes what has ended, oldest first and up to one that has not, and submits as many anew. What
  // is seen or sent in one step carries one time: reading the clock costs as much as a submission.
  // Returns how many ended or began.
  size_t Step() {
    if (!running_) return 0;
    bool ended_one = OldestHasEnded();
    if (!ended_one && free_.empty()) return 0;
    const uint64_t now = ReadCycles();
    size_t work = 0;
    for (; ended_one; ended_one = OldestHasEnded(), ++work) {
      const Request& ended = under_way_.front();
      ended_ = now;
      if (latencies_.size() < latencies_.capacity()) latencies_.push_back(now - ended.sent);
      free_.push_back(ended.slot);
      under_way_.pop_front();
      ++requests_;
    }
    for (; now < stop_at_ && !free_.empty() && target_.Submit(free_.back(), now); ++work) {
      under_way_.push_back({free_.back(), now});
      free_.pop_back();
    }
    if (under_way_.empty() && now >= stop_at_) {
      running_ = false;
      free_.clear();
    }
    return work;
  }

  // After the run.
  LoadResult Result() {
    LoadResult result;
    result.requests = requests_;
    result.seconds = Microseconds(ended_ - started_) / 1e6;
    std::sort(latencies_.begin(), latencies_.end());
    if (latencies_.empty()) return result;
    result.p50_us = Microseconds(latencies_[latencies_.size() / 2]);
    result.p99_us = Microseconds(latencies_[latencies_.size() * 99 / 100]);
    return result;
  }

 private:
  bool OldestHasEnded() { return !under_way_.empty() && target_.IsDone(under_way_.front().slot); }
  static double Microseconds(uint64_t cycles) {
    return static_cast<double>(cycles) / CyclesPerNanosecond() / 1e3;
  }

  struct Request {
    uint32_t slot;
    uint64_t sent;  // cycles
  };

  LoadTarget& target_;
  bool running_ = false;
  uint64_t requests_ = 0;
  uint64_t started_ = 0;
  uint64_t stop_at_ = 0;
  uint64_t ended_ = 0;
  std::deque<Request> under_way_;  // oldest first
  std::vector<uint32_t> free_;
  std::vector<uint64_t> latencies_;  // cycles; of the first million
};

}  // namespace railhop
