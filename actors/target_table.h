// The targets that the post side knows: by the session name in a descriptor, and by index.
//
// Fixed capacity, no allocation after construction, one owner. Routes live as long as the rank;
// names never change their index.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "actors/target_route.h"

namespace railhop {

class TargetTable {
 public:
  TargetTable() : by_index_(kMaxTargets), by_name_(kSlots) {}

  // The newest route of a target that can be reached; nullptr: unknown, or failed.
  const TargetRoute* Find(std::string_view name) {
    // Most pieces are for the target of the one before.
    if (latest_ != nullptr && latest_->route->name == name) return latest_->reachable();
    for (size_t slot = Home(name); by_name_[slot] != 0; slot = (slot + 1) % kSlots) {
      const Entry& entry = by_index_[by_name_[slot] - 1u];
      if (entry.route->name != name) continue;
      latest_ = &entry;
      return entry.reachable();
    }
    return nullptr;
  }
  // The newest route, failed or not; nullptr: unknown.
  const TargetRoute* Newest(uint32_t index) const { return by_index_[index].route; }

  // False: it, or a newer one, is known.
  bool Put(const TargetRoute& route) {
    Entry& entry = by_index_[route.index];
    if (entry.route != nullptr && entry.route->version >= route.version) return false;
    if (entry.route == nullptr) {
      size_t slot = Home(route.name);
      while (by_name_[slot] != 0) slot = (slot + 1) % kSlots;
      by_name_[slot] = static_cast<uint16_t>(route.index + 1);
    }
    entry = {.route = &route, .failed = false};
    return true;
  }
  // Ends the routes of a target up to and including `version`.
  void Fail(uint32_t index, uint32_t version) {
    Entry& entry = by_index_[index];
    if (entry.route != nullptr && entry.route->version <= version) entry.failed = true;
  }

 private:
  static constexpr size_t kSlots = 2 * kMaxTargets;

  struct Entry {
    const TargetRoute* route = nullptr;
    bool failed = false;
    const TargetRoute* reachable() const { return failed ? nullptr : route; }
  };
  static size_t Home(std::string_view name) { return std::hash<std::string_view>()(name) % kSlots; }

  std::vector<Entry> by_index_;
  const Entry* latest_ = nullptr;  // found; names keep their entry
  std::vector<uint16_t> by_name_;  // open addressing: index + 1; 0: free
};

}  // namespace railhop
