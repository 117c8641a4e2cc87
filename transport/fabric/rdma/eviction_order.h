// Which endpoint of a full store goes: SIEVE, or the oldest.
//
//   newest <- Add ... [visited] ... hand -> ... oldest
//
// SIEVE (Zhang et al., NSDI 2024): a hand walks from the oldest to the newest and round again;
// what was visited since it last came by stays and is asked again next time round, the first that
// was not goes. Nothing moves when an endpoint is used: that costs its user one bit, which is kept
// where its user has it at hand. FIFO ignores the bits.
// Pure; one thread at a time. No allocation after construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/functional/function_ref.h"

namespace railhop {

enum class EvictionPolicy : uint8_t { kSieve, kFifo };

class EvictionOrder {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  // Of things numbered 0..places - 1.
  EvictionOrder(uint32_t places, EvictionPolicy policy);

  size_t size() const { return size_; }
  bool Holds(uint32_t place) const { return links_[place].held; }
  // The newest. Only what is not held.
  void Add(uint32_t place);
  // Only what is held.
  void Remove(uint32_t place);
  // Takes out the one that has to go; kNone: nothing is held. `take_visited` tells whether a place
  // was visited, and makes it unvisited. It ends even if all are visited again and again.
  uint32_t Evict(absl::FunctionRef<bool(uint32_t)> take_visited);

 private:
  struct Links {
    uint32_t older = kNone;
    uint32_t newer = kNone;
    bool held = false;
  };

  const EvictionPolicy policy_;
  std::vector<Links> links_;
  uint32_t oldest_ = kNone;
  uint32_t newest_ = kNone;
  uint32_t hand_ = kNone;  // whom to ask next; kNone: the oldest
  size_t size_ = 0;
};

}  // namespace railhop
