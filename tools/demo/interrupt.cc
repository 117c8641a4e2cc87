#include "tools/demo/interrupt.h"

#include <csignal>
#include <ctime>

namespace railhop {
namespace {

volatile sig_atomic_t interrupted_by = 0;

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

sigset_t Interrupts() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : kSignals) sigaddset(&set, signal);
  return set;
}

}  // namespace

void LetInterruptsEnd() {
  for (const int signal : kSignals) std::signal(signal, SIG_DFL);
  const sigset_t set = Interrupts();
  sigprocmask(SIG_UNBLOCK, &set, nullptr);
}

void HoldInterrupts() {
  struct sigaction action {};
  action.sa_handler = [](int signal) { interrupted_by = signal; };
  for (const int signal : kSignals) sigaction(signal, &action, nullptr);
  const sigset_t set = Interrupts();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

int PollUnlessInterrupted(pollfd* watched, std::chrono::milliseconds timeout) {
  sigset_t open;
  sigprocmask(SIG_SETMASK, nullptr, &open);
  for (const int signal : kSignals) sigdelset(&open, signal);
  const timespec limit{timeout.count() / 1000, timeout.count() % 1000 * 1'000'000};
  return ppoll(watched, 1, &limit, &open);
}

int InterruptedBy() {
  return interrupted_by;
}

}  // namespace railhop
