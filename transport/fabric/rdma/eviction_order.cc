#include "transport/fabric/rdma/eviction_order.h"

namespace railhop {

EvictionOrder::EvictionOrder(uint32_t places, EvictionPolicy policy)
    : policy_(policy), links_(places) {}

void EvictionOrder::Add(uint32_t place) {
  links_[place] = {.older = newest_, .newer = kNone, .held = true};
  (newest_ == kNone ? oldest_ : links_[newest_].newer) = place;
  newest_ = place;
  ++size_;
}

void EvictionOrder::Remove(uint32_t place) {
  const Links links = links_[place];
  (links.older == kNone ? oldest_ : links_[links.older].newer) = links.newer;
  (links.newer == kNone ? newest_ : links_[links.newer].older) = links.older;
  if (hand_ == place) hand_ = links.newer;
  links_[place] = {};
  --size_;
}

uint32_t EvictionOrder::Evict(absl::FunctionRef<bool(uint32_t)> take_visited) {
  if (size_ == 0) return kNone;
  uint32_t place = hand_ == kNone || policy_ == EvictionPolicy::kFifo ? oldest_ : hand_;
  // A whole round makes all of them unvisited, unless they are in use this very moment.
  for (size_t asked = 0; policy_ == EvictionPolicy::kSieve && asked <= size_; ++asked) {
    if (!take_visited(place)) break;
    place = links_[place].newer == kNone ? oldest_ : links_[place].newer;
  }
  hand_ = links_[place].newer;
  Remove(place);
  return place;
}

}  // namespace railhop
