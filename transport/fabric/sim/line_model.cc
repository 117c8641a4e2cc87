#include "transport/fabric/sim/line_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace railhop {

LineModel::LineModel(double bytes_per_second, std::chrono::nanoseconds base_delay,
                     double cycles_per_nanosecond, std::vector<SimFault> faults)
    : cycles_per_nanosecond_(cycles_per_nanosecond),
      cycles_per_byte_(cycles_per_nanosecond * 1e9 / bytes_per_second),
      base_delay_(Cycles(base_delay)),
      faults_(std::move(faults)) {}

uint64_t LineModel::Cycles(std::chrono::nanoseconds time) const {
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(time.count()) * cycles_per_nanosecond_));
}

LineModel::Slot LineModel::Schedule(uint64_t now, uint32_t length, bool link_up) {
  ++number_;
  Slot slot;
  slot.start = std::max(now, line_free_);
  uint64_t delay = 0;
  for (const SimFault& fault : faults_) {
    if (fault.kind == SimFault::Kind::kLinkDown) {
      if (number_ == fault.first) down_until_ = slot.start + Cycles(fault.time);
    } else if (number_ >= fault.first && number_ - fault.first < fault.count) {
      slot.fault = fault.kind;
      slot.status = fault.status;
      if (fault.kind == SimFault::Kind::kDelay) delay = Cycles(fault.time);
    }
  }
  if (!link_up || slot.start < down_until_) {
    slot.fault = SimFault::Kind::kLinkDown;
    slot.status = FabricStatus::kTransport;
    slot.complete = slot.start;  // it never gets onto the line
    return slot;
  }
  line_free_ = slot.start +
               static_cast<uint64_t>(std::llround(static_cast<double>(length) * cycles_per_byte_));
  slot.complete = line_free_ + base_delay_ + delay;
  return slot;
}

}  // namespace railhop
