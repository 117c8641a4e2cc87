// From the layout of a config to threads: which reactors there are, where each runs, and which
// actor lives on which.
//
// Threads: pure functions; DetectHostCores reads the machine.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "actors/bootstrap_config.h"

namespace railhop {

// What the machine offers to this process.
struct HostCores {
  struct Core {
    int core = 0;
    int numa_node = -1;  // -1: unknown
    int physical = -1;   // the first hyper-thread of the same physical core
  };
  std::vector<Core> allowed;  // sorted by `core`
  bool virtualised = false;
};
// Allowed for the calling thread, so called before anything is pinned.
HostCores DetectHostCores();

struct ResolvedLayout {
  LayoutPreset preset = LayoutPreset::kAuto;  // what kAuto became; kAuto for explicit reactors
  std::vector<ReactorConfig> reactors;        // each with an actor or more, and spin_us set
  std::array<int, kActorKinds> reactor_of{};  // by ActorKind: index into `reactors`

  const ReactorConfig& ReactorOf(ActorKind kind) const {
    return reactors[static_cast<size_t>(reactor_of[static_cast<size_t>(kind)])];
  }
  bool IsOneReactor(ActorKind a, ActorKind b) const {
    return reactor_of[static_cast<size_t>(a)] == reactor_of[static_cast<size_t>(b)];
  }
};

// Control actors (peer, endpoint) may block, for seconds where a peer or a device does not answer:
// they live on a reactor "control" of their own, EVENT and not pinned, unless explicit reactors
// place them elsewhere. The watchdog must not be held up by them: it lives with submit, which it
// tells, unless it is placed with other data actors.
// False, and `error` names both sides, for a core that is not allowed, a placement on a reactor
// that does not exist, a data actor without a place, or a control actor beside others.
bool ResolveLayout(const RankConfig& config, const HostCores& host, ResolvedLayout* layout,
                   std::string* error);

}  // namespace railhop
