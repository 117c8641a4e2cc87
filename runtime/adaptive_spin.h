// AdaptiveSpin: whether a thread that waits for its next piece of work looks for it, giving its
// core away between two looks, or sleeps at once.
//
// To be woken costs the waker a system call, and the sleeper from 3 us on its waker's core to 30 us
// on a virtual core that was halted. So a thread looks around for a while if that is likely to be
// rewarded: if its last wait was short, and so was the work that it waited for; beside long work a
// wake costs little. A wait that was long is followed by sleep, so work that comes now and then
// costs no spinning, and an idle thread spins once. A yield that took long shows that somebody else
// has use for the core: then it sleeps at once for a while, as who sleeps is preferred over who has
// spent his time when there is work again.
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

#include <chrono>

namespace railhop {

class AdaptiveSpin {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // A yield of so long, and for how long that stops the spinning. A core that nobody else wants is
  // back in 1 us, one that the answering side shares in some 10, and 25 or 75 us now and then on a
  // virtual machine; anybody else may have it for 3 ms.
  static constexpr std::chrono::microseconds kOthersTurn{200};
  static constexpr std::chrono::milliseconds kRest{100};
  // A yield of so long has let somebody else run; and so many waits in a row with one mean that he
  // is always there.
  static constexpr std::chrono::microseconds kSharedYield{3};
  static constexpr int kSharedWaits = 64;

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
    if (now - last_ >= kOthersTurn) rest_until_ = now + kRest;
    shared_ = shared_ || now - last_ >= kSharedYield;
    last_ = now;
    return worth_ && now - began_ < longest_ && now >= rest_until_;
  }
  void End(TimePoint now) {
    shared_waits_ = worth_ && shared_ ? shared_waits_ + 1 : 0;
    worth_ = now - began_ < longest_;
    ended_ = now;
  }
  // Once for each time that it has become so, and at most once in kRest: the next core may be
  // somebody's, too.
  bool ShouldMove(TimePoint now) {
    if (shared_waits_ < kSharedWaits || now < move_after_) return false;
    shared_waits_ = 0;
    move_after_ = now + kRest;
    return true;
  }

 private:
  const std::chrono::nanoseconds longest_;
  const std::chrono::nanoseconds longest_work_;
  TimePoint began_{};
  TimePoint last_{};
  TimePoint ended_{};
  TimePoint rest_until_{};
  TimePoint move_after_{};
  int shared_waits_ = 0;
  bool shared_ = false;  // this wait
  bool worth_ = false;
};

}  // namespace railhop
