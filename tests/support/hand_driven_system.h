// HandDrivenSystem: an ActorSystem without threads. The test is every reactor in turn and decides
// which of them runs when, so each interleaving of passes is one it wrote down.
//
//   HandDrivenSystem hand;
//   Reactor& core = hand.AddReactor("core");
//   auto& actor = hand.system().AddActor<Something>(core);
//   hand.Start();                  // OnStart of all actors
//   EXPECT_EQ(core.RunPass(), 0);  // one pass of one reactor; hand.RunAll(): one of each
#pragma once

#include <string>
#include <utility>

#include "runtime/actor_system.h"
#include "tests/support/manual_clock.h"

namespace railhop {

class HandDrivenSystem {
 public:
  // Every message is stamped, so that queue waits are complete.
  explicit HandDrivenSystem(bool histograms = true)
      : system_({.stamp_every = 1, .histograms = histograms, .clock = clock_.clock()}) {}

  ActorSystem& system() { return system_; }
  ManualClock& clock() { return clock_; }

  Reactor& AddReactor(std::string name, IdlePolicy idle = IdlePolicy::kAdaptive) {
    return *system_.AddReactor({.name = std::move(name), .idle = idle});
  }
  void Start() {
    for (const auto& reactor : system_.reactors()) reactor->StartActors();
  }
  size_t RunAll() { return system_.RunAll(); }
  // Passes until one finds nothing; returns how many found something. The limit is for a defect
  // that would otherwise run for ever.
  size_t RunUntilIdle(size_t limit = 1'000'000) {
    size_t passes = 0;
    while (passes < limit && system_.RunAll() != 0) ++passes;
    return passes;
  }

 private:
  ManualClock clock_;
  ActorSystem system_;
};

}  // namespace railhop
