// Reactor: one thread, one event loop, the actors that live on it.
//
// A pass: control lane, then each actor (control edges, data edges, pollers; at most 16 messages an
// edge), then one fence and the wakes of parked consumers. A pass that found nothing follows the
// idle policy. Run() is the thread's body; tests call RunPass() by hand instead, on one thread and
// with a clock of their own, and so see every interleaving they want.
//
// The seat. Passes are made by whoever has the seat: the reactor's thread, or a guest in its place.
// A guest is an application thread with nothing to do but to wait for what a pass will bring; if it
// makes the passes itself, nobody has to be woken to do so, nor to wake it.
//
//   thread   kHost -> kFree    no work, and a guest has come;  back: woken, or none for kHostRest
//   guest    kFree -> kGuest   the only one;                   back: it has what it waits for
//
// While the seat is free everything is as when a reactor is parked, but that the thread hears of
// its parker's wakes only: descriptors wait for kHostRest at most. So who leaves with something in
// flight wakes it, and as that shows that there is work of others, no guest is let in for
// kHostRest.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/actor.h"
#include "runtime/adaptive_spin.h"
#include "runtime/cpu_placement.h"
#include "runtime/cycle_clock.h"
#include "runtime/event_loop.h"
#include "runtime/parker.h"

namespace railhop {

enum class IdlePolicy {
  kBusy,      // never parks: lowest latency, a whole core
  kAdaptive,  // spins for `spin` after the last work, then parks
  kEvent,     // parks at once
};

struct ReactorOptions {
  std::string name;
  int core = -1;  // -1: wherever the kernel puts it
  PinPolicy pin = PinPolicy::kRequired;
  IdlePolicy idle = IdlePolicy::kAdaptive;
  std::chrono::nanoseconds spin = std::chrono::microseconds(50);
  // Parked, it looks around at least this often, in case a wake of a foreign process got lost.
  std::chrono::nanoseconds safety_tick = std::chrono::milliseconds(250);
  CycleClock clock = {};          // manual in deterministic tests
  bool histograms = true;         // service times and busy shares, from some of the passes
  Parker* stop_waiter = nullptr;  // woken each time an actor has stopped
};

class Reactor {
 public:
  // Awake, it looks at its descriptors and timers this often.
  static constexpr std::chrono::milliseconds kEventInterval{1};

  // Passes with work that begin so soon after a timed one, in cycles, may go untimed; it stands for
  // them, too. A timed pass reads the clock once for each actor, 20 ns that others would wait for.
  static constexpr int kTimingGapBits = 17;
  static constexpr uint64_t kTimingGap = uint64_t{1} << kTimingGapBits;

  // So long no guest has come: the thread takes its seat again.
  static constexpr std::chrono::milliseconds kHostRest{10};
  // So long a guest waits for a thread that has been woken, or is about to run out of work.
  static constexpr std::chrono::microseconds kGuestPatience{100};

  explicit Reactor(ReactorOptions options);
  ~Reactor();
  Reactor(const Reactor&) = delete;
  Reactor& operator=(const Reactor&) = delete;

  // Set-up, before Run.
  void AddActor(Actor* actor);
  // Set-up: see ActorSystem::SetRunOrder.
  void SetRunOrder(const std::vector<const Actor*>& order);
  // Whether its descriptors could be had. If not, it must not run.
  absl::Status status() const;

  // The thread's body: pins, starts the actors, runs until Exit(). `started` gets the outcome of
  // pinning. When that is an error, or Exit() was called before `started` returned, no actor is
  // started and Run returns.
  void Run(const std::function<void(absl::Status)>& started);
  // What Run does before its first pass; for tests by hand.
  void StartActors();
  // One pass; returns how much was handled.
  size_t RunPass();

  // Any thread that is no reactor's, while the reactor runs: until `done` or `until` it makes the
  // passes, if it is the only guest and the thread has nothing to do; else it returns. Either way
  // what was published before is looked at by somebody. `done` is called between passes.
  void Drive(const std::function<bool()>& done, std::chrono::steady_clock::time_point until);

  // The thread, and tests by hand: leaves the seat, unless there is work. Takes it, if it is free.
  bool LeaveSeat();
  bool TakeSeat() { return Sit(Seat::kHost); }

  // Any thread.
  bool PostControl(const ControlMessage& message);
  void Exit();

  const ReactorOptions& options() const { return options_; }
  const std::vector<Actor*>& actors() const { return actors_; }
  bool on_this_thread() const;
  // nullptr for a BUSY reactor: nobody needs to wake it.
  Parker* wake_target() { return options_.idle == IdlePolicy::kBusy ? nullptr : &parker_; }
  // The core the thread is pinned to, or -1.
  int pinned_core() const { return pinned_core_.load(std::memory_order_relaxed); }

  // The reactor's own thread.
  WakeList& wakes() { return wakes_; }
  EventLoop& loop() { return **loop_; }
  // Cycles, as of this pass. A callback of loop() may run long after it: read clock() there.
  uint64_t now() const { return now_; }
  const CycleClock& clock() const { return options_.clock; }
  uint64_t parks() const { return parks_.load(std::memory_order_relaxed); }

 private:
  absl::Status Named(const absl::Status& status) const;
  void NoteWorked(uint64_t now, bool timed);
  size_t RunControl();
  void OnControl(const ControlMessage& message);
  void CheckStopped(Actor& actor);
  void Park(uint64_t until);
  bool PreparePark();
  void FinishPark();
  bool AnnouncedAndIdle();
  void Block(uint64_t until);

  enum class Seat : uint32_t { kHost, kFree, kGuest };
  bool Sit(Seat who);
  void Host();
  bool AwaitSeat(const std::function<bool()>& done);
  void RunAsGuest(const std::function<bool()>& done, std::chrono::steady_clock::time_point until);
  bool NothingInFlight() const;

  const ReactorOptions options_;
  std::vector<Actor*> actors_;
  Parker parker_;
  absl::StatusOr<std::unique_ptr<EventLoop>>
      loop_;  // watches parker_: made after it and destroyed before it
  absl::StatusOr<std::unique_ptr<EventLoop>> rest_loop_;  // so does it, and nothing else
  WakeList wakes_;
  MpscRing<ControlMessage> control_{256};
  std::atomic<bool> exit_{false};
  std::atomic<int> pinned_core_{-1};
  std::atomic<uint64_t> parks_{0};
  uint64_t now_ = 0;
  uint64_t last_work_ = 0;
  uint64_t next_events_ = 0;
  uint64_t next_timed_ = 0;
  uint64_t untimed_passes_ = 0;  // with work, since the last timed one
  uint64_t random_ = 0;
  size_t stopping_ = 0;  // actors that were told to stop and have not

  std::atomic<Seat> seat_{Seat::kHost};
  std::atomic<uint32_t> guests_{0};           // in Drive
  std::atomic<uint64_t> visits_{0};           // of guests that had the seat
  std::atomic<uint64_t> no_guests_until_{0};  // cycles
  AdaptiveSpin guest_spin_;                   // for as long as the thread would
};

}  // namespace railhop
