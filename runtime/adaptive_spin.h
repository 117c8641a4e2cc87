// AdaptiveSpin: whether a thread that waits for its next piece of work looks for it, giving its
// core away between two looks, or sleeps at once.
//
// To be woken costs the waker a system call, and the sleeper from 3 us on its waker's core to 30 us
// on a virtual core that was halted. So a thread looks around for a while if that is likely to be
// rewarded: if its last wait was short, and so was the work that it waited for; beside long work a
// wake costs little. A wait that was long is followed by sleep, so work that comes now and then
// costs no spinning, and an idle thread spins once. A yield that took long shows that somebody else
// has use for the core: then it sleeps at once for a while, as who sleeps is preferred over who has
// spent his time when there is work again. If the next such yield comes soon after, the while is
// twice as long: a hypervisor takes a core away now and then, a program that computes each time.
//
// The kernel likes to put a woken thread on its waker's core, and leaves two threads there that
// yield to each other though other cores have nothing to do: each wait then lasts until the other
// side's turn is over, always. ShouldMove() says when that has happened for long enough.
//
//   spin.Begin(now);
//   while (spin.GoOn(now)) { if (look()) break; sched_yield(); now = ...; }
//   ... else sleep ...
//   spin.End(now);
//   if (spin.ShouldMove(now)) LeaveThisCore();
//
// One thread's own.
#pragma once

#include <algorithm>
#include <chrono>

namespace railhop {

class AdaptiveSpin {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A yield of so long, and for how long that stops the spinning. A core that nobody else wants is
  // back in 1 us, one that the answering side shares in some 10, and 25 or 75 us now and then on a
  // virtual machine; anybody else may have it for 3 ms.
  static constexpr std::chrono::microseconds kOthersTurn{200};
  static constexpr std::chrono::milliseconds kShortestRest{5};
  static constexpr std::chrono::milliseconds kLongestRest{160};
  // A yield of so long has let somebody else run. He is there to stay after so many waits with one;
  // a wait without it takes back some of them.
  static constexpr std::chrono::microseconds kSharedYield{3};
  static constexpr int kSharedWaits = 64;
  static constexpr int kAloneOutweighs = 4;

  // Worth spinning for: a wait that is over within `longest`, after work of at most `longest_work`.
  AdaptiveSpin(std::chrono::nanoseconds longest, std::chrono::nanoseconds longest_work)
      : longest_(longest), longest_work_(longest_work) {}

  void Begin(TimePoint now) {
    worth_ = worth_ && now - ended_ <= longest_work_;
    began_ = last_ = now;
    shared_ = false;
  }
  // `now`: after the yield since the last call. False: sleep.
  bool GoOn(TimePoint now) {
    if (now - last_ >= kOthersTurn) Rest(now);
    shared_ = shared_ || now - last_ >= kSharedYield;
    last_ = now;
    return worth_ && now - began_ < longest_ && now >= rest_until_;
  }
  void End(TimePoint now) {
    shared_waits_ = std::max(0, shared_waits_ + (shared_ ? 1 : -kAloneOutweighs));
    worth_ = now - began_ < longest_;
    ended_ = now;
  }
  // Once for each time that it has become so, and at most once in kLongestRest: the next core may
  // be somebody's, too.
  bool ShouldMove(TimePoint now) {
    if (shared_waits_ < kSharedWaits || now < move_after_) return false;
    shared_waits_ = 0;
    move_after_ = now + kLongestRest;
    return true;
  }

 private:
  void Rest(TimePoint now) {
    const bool soon = now - rest_until_ < 4 * rest_;
    rest_ = soon ? std::min(2 * rest_, kLongestRest) : kShortestRest;
    rest_until_ = now + rest_;
  }

  const std::chrono::nanoseconds longest_;
  const std::chrono::nanoseconds longest_work_;
  TimePoint began_{};
  TimePoint last_{};
  TimePoint ended_{};
  std::chrono::milliseconds rest_ = kShortestRest;  // the last one
  TimePoint rest_until_{};
  TimePoint move_after_{};
  int shared_waits_ = 0;
  bool shared_ = false;  // this wait
  bool worth_ = false;
};

}  // namespace railhop
