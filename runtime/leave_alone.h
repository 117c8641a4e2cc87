// LeaveAlone: what a forked child does with objects that are its parent's.
//
// Threads do not come along with a fork, so they cannot be joined, nor detached (their descriptors
// are gone); descriptors, files and mappings are shared, so to give them back would take them from
// the parent. In the child such objects stay as they are for as long as it lives.
#pragma once

#include <memory>
#include <mutex>
#include <type_traits>
#include <utility>
#include <vector>

namespace railhop {

template <class... Ts>
void LeaveAlone(Ts&&... objects) {
  // Reachable, so no leak to report.
  static auto& mutex = *new std::mutex;
  static auto& kept = *new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  (kept.push_back(std::make_shared<std::remove_cvref_t<Ts>>(std::forward<Ts>(objects))), ...);
}

}  // namespace railhop
