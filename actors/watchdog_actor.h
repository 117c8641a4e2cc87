// WatchdogActor: one deadline per slot, and a message to SubmitActor when one has passed.
//
// Lives on a data reactor, that of SubmitActor as a rule: the control reactor may be held up, by a
// peer or a device that does not answer, for longer than a deadline may be late. Nothing ticks: the
// reactor sleeps until the earliest deadline, and for ever while none is armed. DeadlineExpired
// leaves in the pass that follows the deadline, so it is late by what the kernel's timer and one
// pass take. A slot whose message is on its way may be
// armed anew meanwhile: the receiver looks at everything that the slot stands for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "actors/messages.h"
#include "runtime/actor.h"
#include "runtime/edge.h"

namespace railhop {

class WatchdogActor : public Actor, public Poller {
 public:
  WatchdogActor(std::string name, uint32_t slots);

  bool OnArm(const ArmDeadline& message);

  OutPort<DeadlineExpired> to_submit;

  size_t Poll(uint64_t now) override;
  uint64_t NextPoll(uint64_t now) override;

 private:
  std::vector<uint64_t> deadlines_;  // by slot; kNever: not armed
  // No armed deadline is earlier, passed ones apart. It may be too early itself (that slot was put
  // off): then one look at all slots finds nothing and corrects it.
  uint64_t earliest_ = kNever;
  // A deadline has passed and the edge was full: it is tried again on every pass. The reactor is
  // woken when there is room.
  bool blocked_ = false;
};

}  // namespace railhop
