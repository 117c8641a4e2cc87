#include "actors/watchdog_actor.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace railhop {

WatchdogActor::WatchdogActor(std::string name, uint32_t slots)
    : Actor(std::move(name)), slots_(slots) {
  AddPoller(this);
}

bool WatchdogActor::OnArm(const ArmDeadline& message) {
  assert(message.slot < slots_.size());
  slots_[message.slot] = {.deadline = message.deadline, .token = message.token};
  earliest_ = std::min(earliest_, message.deadline);
  return true;
}

size_t WatchdogActor::Poll(uint64_t now) {
  if (now < earliest_ && !blocked_) return 0;
  size_t expired = 0;
  blocked_ = false;
  earliest_ = ArmDeadline::kDisarmed;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.deadline <= now) {
      if (to_submit.TrySend({.token = slot.token, .slot = i})) {
        slot.deadline = ArmDeadline::kDisarmed;
        ++expired;
      } else {
        blocked_ = true;
      }
    } else {
      earliest_ = std::min(earliest_, slot.deadline);
    }
  }
  return expired;
}

uint64_t WatchdogActor::NextPoll(uint64_t now) {
  (void)now;
  static_assert(Poller::kNever == ArmDeadline::kDisarmed);
  return earliest_;
}

}  // namespace railhop
