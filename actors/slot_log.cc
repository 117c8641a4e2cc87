#include "actors/slot_log.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/cycle_clock.h"
#include "runtime/log.h"

namespace railhop {

SlotLog::SlotLog(std::chrono::milliseconds every)
    : every_(ToCycles(every)), due_(every.count() == 0 ? Poller::kNever : 0) {}

void SlotLog::Run(uint64_t now, std::span<const LaneSlots> lanes) {
  due_ = now + every_;
  std::array<bool, kLaneCount> quiet{};
  for (const LaneSlots& lane : lanes) {
    quiet[lane.lane] = lane.free == kSlotsPerLane;
    if (quiet[lane.lane] && quiet_[lane.lane]) continue;
    Log(LogLevel::kInfo,
        fmt::format("lane {} to process {} ({}): {} free, {} copying, {} rung, {} posted, {} "
                    "completed",
                    lane.lane, lane.relay_pid, fmt::join(lane.rails, ", "), lane.free, lane.copying,
                    lane.rung, lane.posted, lane.completed));
  }
  quiet_ = quiet;
}

}  // namespace railhop
