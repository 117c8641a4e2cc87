#include "runtime/reactor.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/fence.h"

namespace railhop {
namespace {

thread_local const Reactor* current_reactor = nullptr;

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
    : options_(std::move(options)), loop_(MakeLoop(parker_)), now_(options_.clock.Now()) {}

absl::Status Reactor::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::Status(status.code(), fmt::format("reactor \"{}\": {}", options_.name,
                                                 std::string(status.message())));
}

absl::Status Reactor::status() const {
  return Named(loop_.status());
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
  const uint64_t spin = options_.idle == IdlePolicy::kEvent ? 0 : ToCycles(options_.spin);
  while (!exit_.load(std::memory_order_acquire)) {
    if (RunPass() != 0) {
      last_work_ = now_;
    } else if (options_.idle == IdlePolicy::kBusy) {
      CpuRelax();
    } else if (now_ - last_work_ >= spin) {
      Park();
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

void Reactor::Block() {
  uint64_t until = now_ + ToCycles(options_.safety_tick);
  for (const Actor* actor : actors_) {
    for (Poller* poller : actor->pollers_) until = std::min(until, poller->NextPoll(now_));
  }
  parks_.store(parks_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  const uint64_t now = options_.clock.Now();
  if (until > now) loop().RunOnce(ToNanoseconds(until - now));
}

// Two phases (parker.h): announce, look once more, block.
void Reactor::Park() {
  for (Actor* actor : actors_) {
    actor->PublishCredit();
    for (Poller* poller : actor->pollers_) poller->OnPark();
  }
  if (AnnouncedAndIdle()) {
    Block();
  } else {
    last_work_ = now_;
  }
  parker_.FinishPark();
  for (Actor* actor : actors_) {
    for (Poller* poller : actor->pollers_) poller->OnUnpark();
  }
}

}  // namespace railhop
