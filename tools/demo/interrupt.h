// Ctrl-C and its like, as a value to be asked for: the demo then ends its children and removes its
// files on the way out, as after any other error.
//
// For a process with one thread. Children inherit the hold: they end when their parent says so or
// dies. The signals are blocked but for the time a wait is under way.
#pragma once

#include <poll.h>

#include <chrono>

namespace railhop {

// From now on SIGINT, SIGTERM and SIGHUP end the process at once: for calls that may block, while
// there is nothing to be cleaned up. A signal that was held back ends it here.
void LetInterruptsEnd();
// From now on they are held back.
void HoldInterrupts();
// poll() for one descriptor, which an interruption ends. As poll; -1 with EINTR if there was one.
int PollUnlessInterrupted(pollfd* watched, std::chrono::milliseconds timeout);
// The signal that interrupted, or 0.
int InterruptedBy();

}  // namespace railhop
