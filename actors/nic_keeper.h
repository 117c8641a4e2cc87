// NicKeeper: calls Nic::Tend of NICs that change by themselves, when they ask for it and about once
// a second, and Nic::Settle, on a thread beside the reactor.
//
// Lives on the control reactor. No edges: what it finds out shows at the NIC, in failed requests
// and in the answer of Connect.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "runtime/actor.h"
#include "runtime/background_worker.h"
#include "transport/fabric/fabric.h"

namespace railhop {

class NicKeeper : public Actor {
 public:
  static constexpr std::chrono::seconds kPeriod{1};

  // Those with an event_fd; they outlive the actor.
  NicKeeper(std::string name, std::vector<Nic*> nics);

  void OnStart() override;

 private:
  void LookAtAll();

  const std::vector<Nic*> nics_;
  std::shared_ptr<BackgroundWorker::Job> settling_;
  BackgroundWorker worker_;  // last: its thread uses the others
};

}  // namespace railhop
