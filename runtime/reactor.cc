#include "runtime/reactor.h"

#include <fmt/format.h>
#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/fence.h"

namespace railhop {
namespace {

constexpr int kLastPasses = 4;  // of a guest
// A guest spins only beside work as short as this: a wake costs little beside longer ones, and what
// it yields to may keep the core for milliseconds.
constexpr std::chrono::microseconds kGuestSpinAfter{25};

thread_local const Reactor* current_reactor = nullptr;

std::chrono::nanoseconds SpinOf(const ReactorOptions& options) {
  return options.idle == IdlePolicy::kEvent ? std::chrono::nanoseconds(0) : options.spin;
}

absl::StatusOr<std::unique_ptr<EventLoop>> MakeLoop(const Parker& parker) {
  if (parker.fd() < 0) {
    return absl::ResourceExhaustedError(
        "no descriptor is left for an eventfd; raise `ulimit -n` or use fewer reactors");
  }
  auto loop = EventLoop::Create();
  if (!loop.ok()) return loop;
  // Being woken is all it needs: the pass after the wait finds the work.
  const auto watch = (*loop)->WatchFd(parker.fd(), Trigger::kEdge, [] {});
  if (!watch.ok()) return watch.status();
  return loop;
}

}  // namespace

Reactor::Reactor(ReactorOptions options)
    : options_(std::move(options)),
      loop_(MakeLoop(parker_)),
      rest_loop_(MakeLoop(parker_)),
      now_(options_.clock.Now()),
      guest_spin_(SpinOf(options_), kGuestSpinAfter) {}

absl::Status Reactor::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("reactor \"{}\": {}", options_.name,
                                                 std::string(status.message())));
}

absl::Status Reactor::status() const {
  absl::Status status = loop_.status();
  status.Update(rest_loop_.status());
  return Named(status);
}

Reactor::~Reactor() = default;

void Reactor::AddActor(Actor* actor) {
  actor->reactor_ = this;
  actor->index_ = static_cast<uint32_t>(actors_.size());
  actors_.push_back(actor);
}

void Reactor::SetRunOrder(const std::vector<const Actor*>& order) {
  const auto position = [&](const Actor* actor) {
    return std::find(order.begin(), order.end(), actor) - order.begin();
  };
  std::stable_sort(actors_.begin(), actors_.end(),
                   [&](const Actor* a, const Actor* b) { return position(a) < position(b); });
  for (size_t i = 0; i < actors_.size(); ++i) actors_[i]->index_ = static_cast<uint32_t>(i);
}

bool Reactor::on_this_thread() const {
  return current_reactor == this;
}

void Reactor::StartActors() {
  now_ = last_work_ = options_.clock.Now();
  for (Actor* actor : actors_) actor->OnStart();
}

void Reactor::Run(const std::function<void(absl::Status)>& started) {
  current_reactor = this;
  pthread_setname_np(pthread_self(), options_.name.substr(0, 15).c_str());
  SetTimerSlack(std::chrono::microseconds(1));
  if (options_.core >= 0) {
    const absl::Status pinned = PinThisThread(options_.core, options_.pin);
    if (!pinned.ok()) return started(Named(pinned));
    pinned_core_.store(PinnedCore(), std::memory_order_relaxed);
  }
  started(absl::OkStatus());
  if (exit_.load(std::memory_order_acquire)) return;
  StartActors();
  const bool busy = options_.idle == IdlePolicy::kBusy;
  const uint64_t spin = busy ? UINT64_MAX : ToCycles(SpinOf(options_));
  while (!exit_.load(std::memory_order_acquire)) {
    if (RunPass() != 0) {
      last_work_ = now_;
    } else if (guests_.load(std::memory_order_relaxed) != 0 &&
               now_ >= no_guests_until_.load(std::memory_order_relaxed)) {
      Host();
    } else if (now_ - last_work_ >= spin) {
      Park(now_ + ToCycles(options_.safety_tick));
    } else {
      CpuRelax();  // the other thread of a physical core, often the sender's memcpy, runs the
                   // faster
    }
  }
  wakes_.Flush();
}

size_t Reactor::RunPass() {
  uint64_t now = options_.clock.Now();
  now_ = now;
  wakes_.ForgetFull();
  size_t work = RunControl();
  const bool timed = options_.histograms && now >= next_timed_;
  wakes_.AllowCalls(!timed);  // so that each actor's time is its own
  for (Actor* actor : actors_) {
    const size_t handled = actor->Run(now);
    if (handled != 0 && timed) {
      const uint64_t end = options_.clock.Now();
      actor->metrics_.AddService(end - now, handled, untimed_passes_ + 1);
      now = end;
    }
    work += handled;
    if (stopping_ != 0) CheckStopped(*actor);
  }
  wakes_.AllowCalls(false);
  work += wakes_.TakeCalls();
  if (work != 0) NoteWorked(now, timed);
  if (now >= next_events_) {
    // A callback is work: it may have sent something, and the one of our own eventfd tells of a
    // wake that a thread about to park must not sleep through.
    work += static_cast<size_t>(std::max(0, loop().RunReady()));
    next_events_ = now + ToCycles(kEventInterval);
  }
  wakes_.Flush();
  return work;
}

// The next pass to be timed is the first one with work after a random while: passes that take turns
// in a fixed pattern are all met.
void Reactor::NoteWorked(uint64_t now, bool timed) {
  if (!timed) {
    ++untimed_passes_;
    return;
  }
  untimed_passes_ = 0;
  random_ = random_ * 6364136223846793005 + 1442695040888963407;
  next_timed_ = now + (random_ >> (64 - kTimingGapBits));
}

size_t Reactor::RunControl() {
  return control_.Drain(InPort::kBudget, [this](const ControlMessage& message) {
    OnControl(message);
    return true;
  });
}

void Reactor::OnControl(const ControlMessage& message) {
  assert(message.actor < actors_.size());
  Actor& actor = *actors_[message.actor];
  switch (message.kind) {
    case ControlMessage::kStop:
      if (!actor.stopping_) {
        actor.stopping_ = true;
        ++stopping_;
        actor.CloseInboxes();
        actor.OnStop();
      }
      break;
    case ControlMessage::kFlush:
      actor.OnFlush();
      break;
    default:
      actor.OnControl(message);
  }
}

void Reactor::CheckStopped(Actor& actor) {
  if (!actor.stopping_ || actor.stopped_.load(std::memory_order_relaxed)) return;
  if (!actor.MailboxEmpty() || !actor.Drained()) return;
  --stopping_;
  actor.stopped_.store(true, std::memory_order_release);
  if (options_.stop_waiter == nullptr) return;
  FullFence();
  options_.stop_waiter->WakeIfParked();
}

bool Reactor::PostControl(const ControlMessage& message) {
  if (!control_.TryPush(message)) return false;
  FullFence();
  parker_.WakeIfParked();
  return true;
}

void Reactor::Exit() {
  exit_.store(true, std::memory_order_release);
  FullFence();
  parker_.WakeIfParked();
}

// Announces and looks. An edge that is found full only by that look was not announced: once more.
bool Reactor::AnnouncedAndIdle() {
  bool for_room;
  do {
    for_room = wakes_.saw_full();
    parker_.PreparePark(for_room);
    if (RunPass() != 0) return false;
  } while (wakes_.saw_full() && !for_room);
  return !exit_.load(std::memory_order_acquire);
}

void Reactor::Block(uint64_t until) {
  for (const Actor* actor : actors_) {
    for (Poller* poller : actor->pollers_) until = std::min(until, poller->NextPoll(now_));
  }
  parks_.store(parks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const uint64_t now = options_.clock.Now();
  if (until > now) loop().RunOnce(ToNanoseconds(until - now));
}

// Two phases (parker.h): announce, look once more, block.
void Reactor::Park(uint64_t until) {
  if (PreparePark()) {
    Block(until);
  } else {
    last_work_ = now_;
  }
  FinishPark();
}

// Whether the look found nothing to do. FinishPark in any case.
bool Reactor::PreparePark() {
  for (Actor* actor : actors_) {
    actor->PublishCredit();
    for (Poller* poller : actor->pollers_) poller->OnPark();
  }
  return AnnouncedAndIdle();
}

void Reactor::FinishPark() {
  parker_.FinishPark();
  for (Actor* actor : actors_) {
    for (Poller* poller : actor->pollers_) poller->OnUnpark();
  }
}

// --- The seat. Whoever sits down takes over what the one before him did to the actors; it was left
// as a parked reactor is.

bool Reactor::Sit(Seat who) {
  Seat free = Seat::kFree;
  if (!seat_.compare_exchange_strong(free, who, std::memory_order_acquire,
                                     std::memory_order_relaxed)) {
    return false;
  }
  FinishPark();
  return true;
}

bool Reactor::LeaveSeat() {
  if (!PreparePark()) {
    last_work_ = now_;
    FinishPark();
    return false;
  }
  seat_.store(Seat::kFree, std::memory_order_release);
  return true;
}

// The thread, while there are guests.
void Reactor::Host() {
  if (!LeaveSeat()) return;
  // A guest that gave up just before waits for what would be done by nobody.
  FullFence();
  if (guests_.load(std::memory_order_relaxed) == 0 && TakeSeat()) return;
  bool rested;
  do {
    const uint64_t visits = visits_.load(std::memory_order_relaxed);
    const bool woken = (*rest_loop_)->RunOnce(kHostRest) != 0;
    rested = woken || visits_.load(std::memory_order_relaxed) == visits;
  } while (!(rested && TakeSeat()));
}

void Reactor::Drive(const std::function<bool()>& done,
                    std::chrono::steady_clock::time_point until) {
  if (options_.idle == IdlePolicy::kBusy) return;  // the thread is awake, and looks
  const bool alone = guests_.fetch_add(1, std::memory_order_relaxed) == 0 &&
                     options_.clock.Now() >= no_guests_until_.load(std::memory_order_relaxed);
  const bool seated = alone && AwaitSeat(done);
  if (seated) {
    const Reactor* const outer = std::exchange(current_reactor, this);
    RunAsGuest(done, until);
    current_reactor = outer;
  }
  guests_.fetch_sub(1, std::memory_order_relaxed);
  if (seated) return;
  // Whoever has the seat may be parked; or the thread has left it for this guest by now, and rests
  // (see Host).
  FullFence();
  parker_.WakeIfParked();
}

bool Reactor::AwaitSeat(const std::function<bool()>& done) {
  if (Sit(Seat::kGuest)) return true;
  FullFence();
  parker_.WakeIfParked();
  const auto until = std::chrono::steady_clock::now() + kGuestPatience;
  while (!done() && std::chrono::steady_clock::now() < until) {
    if (Sit(Seat::kGuest)) return true;
    sched_yield();
  }
  return false;
}

void Reactor::RunAsGuest(const std::function<bool()>& done,
                         std::chrono::steady_clock::time_point until) {
  visits_.fetch_add(1, std::memory_order_relaxed);
  bool waiting = false;  // since a pass that found nothing
  while (!exit_.load(std::memory_order_acquire)) {
    const size_t work = RunPass();
    const auto now = std::chrono::steady_clock::now();
    if (work != 0 && std::exchange(waiting, false)) guest_spin_.End(now);
    if (done() || now >= until) break;
    if (work != 0) continue;
    if (!std::exchange(waiting, true)) guest_spin_.Begin(now);
    if (guest_spin_.GoOn(now)) {
      sched_yield();  // who is to answer may be on this core
    } else {
      Park(now_ + ToCycles(std::min<std::chrono::nanoseconds>(until - now, options_.safety_tick)));
    }
  }
  // What ends a wait leaves messages behind, which are not worth waking anybody for.
  for (int i = 0; i < kLastPasses && RunPass() != 0; ++i) {
  }
  const bool idle = PreparePark();
  const bool quiet = idle && NothingInFlight() && !exit_.load(std::memory_order_relaxed);
  if (!quiet) no_guests_until_.store(now_ + ToCycles(kHostRest), std::memory_order_relaxed);
  seat_.store(Seat::kFree, std::memory_order_release);
  // A wake since the last look has found the seat taken.
  FullFence();
  if (!quiet || parker_.woken()) parker_.Ring();
}

bool Reactor::NothingInFlight() const {
  return std::all_of(actors_.begin(), actors_.end(),
                     [](const Actor* actor) { return actor->Drained() && actor->MailboxEmpty(); });
}

}  // namespace railhop
