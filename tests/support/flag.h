// Flag: set once by one thread, awaited by others, and no wait is for ever - a lost wake-up in the
// code under test becomes a red test, not a hung one.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace railhop {

// Far beyond what any of the waits takes, sanitizers and a loaded machine included.
inline constexpr std::chrono::seconds kTestPatience{120};

class Flag {
 public:
  void Set() {
    const std::lock_guard lock(mutex_);
    set_ = true;
    changed_.notify_all();
  }
  bool IsSet() const {
    const std::lock_guard lock(mutex_);
    return set_;
  }
  // False when patience ended first.
  [[nodiscard]] bool Wait(std::chrono::nanoseconds patience = kTestPatience) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return set_; });
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool set_ = false;
};

}  // namespace railhop
