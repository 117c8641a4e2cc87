// Outlet: what waits to leave by one way - an outbound lane, or the rank's own NICs - one flow per
// target, served in turn, so that a target that does not move holds up nobody but itself.
//
// Pure logic, one owner (SubmitActor), no allocation after construction.
#pragma once

#include <cstdint>
#include <vector>

#include "actors/slicer.h"
#include "actors/target_route.h"

namespace railhop {

struct Flow {
  SpanQueue queue;
  uint32_t in_flight = 0;      // pieces (lane) or slices (direct) of this target under way
  uint32_t copying = 0;        // of the pieces, those whose copy is not over
  uint64_t piece_bytes = 0;    // of the pieces
  uint64_t blocked_since = 0;  // cycles: since when it waits, for room or for more; 0 = it does not
  bool gathers = false;        // of the two, for more: there is room, and copies are under way
  uint32_t next = UINT32_MAX;  // target of the next listed flow
  bool listed = false;         // in the outlet's list of flows with something to send
};

class Outlet {
 public:
  Outlet() : flows_(kMaxTargets) {}

  Flow& flow(uint32_t target) { return flows_[target]; }
  bool empty() const { return head_ == kNone; }

  // False when the pool is used up.
  bool Push(SpanPool& pool, uint32_t target, const Span& span) {
    if (!pool.Push(flows_[target].queue, span)) return false;
    if (!flows_[target].listed) Append(target);
    return true;
  }

  // Visits every flow with something to send once, oldest turn first. `visit(target, flow)` may
  // take spans; a flow that still has some goes to the end of the line, an emptied one leaves it.
  template <class Visit>
  void EachFlow(Visit visit) {
    const uint32_t last = tail_;
    for (uint32_t target = head_; target != kNone;) {
      const bool was_last = target == last;
      Flow& flow = flows_[target];
      head_ = flow.next;
      if (head_ == kNone) tail_ = kNone;
      flow.listed = false;
      visit(target, flow);
      if (!flow.queue.empty() && !flow.listed) Append(target);
      if (was_last) break;
      target = head_;
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  void Append(uint32_t target) {
    Flow& flow = flows_[target];
    flow.listed = true;
    flow.next = kNone;
    (head_ == kNone ? head_ : flows_[tail_].next) = target;
    tail_ = target;
  }

  std::vector<Flow> flows_;  // by target index
  uint32_t head_ = kNone;
  uint32_t tail_ = kNone;
};

}  // namespace railhop
