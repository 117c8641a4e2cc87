#include "actors/watchdog_actor.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace railhop {

WatchdogActor::WatchdogActor(std::string name, uint32_t slots)
    : Actor(std::move(name)), deadlines_(slots, kNever) {
  AddPoller(this);
}

bool WatchdogActor::OnArm(const ArmDeadline& message) {
  assert(message.slot < deadlines_.size());
  deadlines_[message.slot] = message.deadline;
  earliest_ = std::min(earliest_, message.deadline);
  return true;
}

size_t WatchdogActor::Poll(uint64_t now) {
  if (now < earliest_ && !blocked_) return 0;
  size_t expired = 0;
  blocked_ = false;
  earliest_ = kNever;
  for (uint32_t slot = 0; slot < deadlines_.size(); ++slot) {
    uint64_t& deadline = deadlines_[slot];
    if (deadline > now) {
      earliest_ = std::min(earliest_, deadline);
    } else if (to_submit.TrySend({.slot = slot})) {
      deadline = kNever;
      ++expired;
    } else {
      blocked_ = true;
    }
  }
  return expired;
}

uint64_t WatchdogActor::NextPoll(uint64_t) {
  return earliest_;
}

}  // namespace railhop
