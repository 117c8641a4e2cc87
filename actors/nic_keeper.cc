#include "actors/nic_keeper.h"

#include <utility>

#include "runtime/log.h"
#include "runtime/reactor.h"

namespace railhop {

NicKeeper::NicKeeper(std::string name, std::vector<Nic*> nics)
    : Actor(std::move(name)),
      nics_(std::move(nics)),
      worker_([] { /* the next second sees that it is done */ }) {}

void NicKeeper::OnStart() {
  EventLoop& loop = reactor().loop();
  absl::Status status = loop.AddTimer(kPeriod, [this] { LookAtAll(); }).status();
  for (Nic* nic : nics_) {
    const auto tend = [nic] { nic->Tend(std::chrono::steady_clock::now()); };
    status.Update(loop.WatchFd(nic->event_fd(), Trigger::kLevel, tend).status());
  }
  if (!status.ok()) {
    Log(LogLevel::kWarning, "a port that goes down or comes back will be noticed late: " +
                                std::string(status.message()));
  }
}

void NicKeeper::LookAtAll() {
  for (Nic* nic : nics_) nic->Tend(std::chrono::steady_clock::now());
  if (settling_ != nullptr && !settling_->done()) return;
  settling_ = worker_.Start([this] {
    for (Nic* nic : nics_) nic->Settle();
    return absl::OkStatus();
  });
}

}  // namespace railhop
