// A process whose end the control reactor is told of: by its pidfd on the event loop, or, where
// there is none, when it asks.
#pragma once

#include <functional>

#include "runtime/event_loop.h"
#include "transport/ring/process_identity.h"

namespace railhop {

class WatchedProcess {
 public:
  // `wake` is called on the loop's thread when the process has ended; ask Ended() then.
  WatchedProcess(EventLoop& loop, const ProcessIdentity& identity, std::function<void()> wake)
      : loop_(loop), watch_(identity) {
    if (watch_.fd() < 0) return;
    auto watched = loop.WatchFd(watch_.fd(), Trigger::kEdge, [this, wake = std::move(wake)] {
      signalled_ = true;
      wake();
    });
    if (watched.ok()) id_ = *watched;
  }
  ~WatchedProcess() {
    if (id_ != 0) loop_.Unwatch(id_);
  }
  WatchedProcess(const WatchedProcess&) = delete;
  WatchedProcess& operator=(const WatchedProcess&) = delete;

  const ProcessIdentity& identity() const { return watch_.identity(); }
  // Makes a system call only where no event will tell, or one has.
  bool Ended() { return (signalled_ || id_ == 0) && watch_.Ended(); }
  // False: nobody wakes the reactor; ask now and then.
  bool has_event() const { return id_ != 0; }

 private:
  EventLoop& loop_;
  ProcessWatch watch_;
  EventLoop::WatchId id_ = 0;
  bool signalled_ = false;
};

}  // namespace railhop
