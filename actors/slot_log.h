// The slot log: now and then a line per outbound lane that says how its 18 slots are used.
//
//   lane 0 to process 4711 (rail1): 3 free, 5 copying, 8 rung, 2 posted, 0 completed
//
// Part of PeerActor, on the control reactor. At most one line per lane in an interval, at level
// "info"; a lane that has nothing under way, and said so, is quiet until it has.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <span>

#include "actors/bootstrap.h"
#include "runtime/poller.h"
#include "transport/ring/control_block.h"

namespace railhop {

class SlotLog {
 public:
  // `every`: the interval; 0: never.
  explicit SlotLog(std::chrono::milliseconds every);

  uint64_t due() const { return due_; }  // cycles; Poller::kNever: never
  // When it is due: writes the lines. What was missed is not made up for.
  void Run(uint64_t now, std::span<const LaneSlots> lanes);

 private:
  const uint64_t every_;  // cycles
  uint64_t due_;
  std::array<bool, kLaneCount> quiet_{};  // by lane: idle, and its line said so
};

}  // namespace railhop
