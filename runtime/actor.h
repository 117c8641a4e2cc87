// Actor: state that one thread touches, with messages as the only way in.
//
// An actor lives on one reactor for life. Every method below except the accessors runs on that
// reactor's thread; none may allocate, lock, throw, log or block while data flows. Its mailbox is
// the set of its in-edges, its outgoing edges are OutPort members.
//
// Life: constructed and connected by set-up -> OnStart -> messages, polls -> OnStop (no new work
// will be taken) -> Drained() turns true, or OnFlush() makes it so -> destroyed after its reactor
// joined. reactor() is there from OnStart on, not in the constructor.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/edge.h"
#include "runtime/histogram.h"
#include "runtime/poller.h"

namespace railhop {

class Reactor;

// Control lane: handled before any data of the same pass, and never behind it.
struct ControlMessage {
  enum Kind : uint32_t { kStop, kFlush, kFirstUserKind = 16 };

  uint32_t kind = 0;
  uint32_t actor = 0;  // index on the reactor it is posted to; Actor::Post fills it in
  uint64_t arguments[6] = {};
};
static_assert(Message<ControlMessage>);

// What an actor did; one writer (its reactor), readable from any thread while it runs. In cycles.
struct ActorMetrics {
  Histogram queue_wait;  // sent -> handled, of the stamped messages
  Histogram service;     // per message, the mean of its drained batch; from timed passes
  std::atomic<uint64_t> messages{0};
  std::atomic<uint64_t> busy_cycles{0};  // of all passes, reckoned from the timed ones

  // Writer: `handled` messages, or other units of work, took so long together, in a pass that
  // stands for `passes`.
  void AddService(uint64_t cycles, size_t handled, uint64_t passes) {
    service.AddMany(cycles / handled, handled * passes);
    busy_cycles.store(busy_cycles.load(std::memory_order_relaxed) + cycles * passes,
                      std::memory_order_relaxed);
  }
};

class Actor {
 public:
  explicit Actor(std::string name) : name_(std::move(name)) {}
  virtual ~Actor() = default;
  Actor(const Actor&) = delete;
  Actor& operator=(const Actor&) = delete;

  const std::string& name() const { return name_; }
  const ActorMetrics& metrics() const { return metrics_; }
  // Any thread: drained after OnStop.
  bool stopped() const { return stopped_.load(std::memory_order_acquire); }

  // Any thread, between Start and the end of Stop: a message for OnControl. False: the lane is
  // full.
  bool Post(ControlMessage message);

  virtual void OnStart() {}
  virtual void OnControl(const ControlMessage& message) { (void)message; }
  // From now on refuse new work; what is in flight goes on. The submission queues that lead here
  // are closed already; what they had accepted still arrives.
  virtual void OnStop() {}
  // Whether nothing is in flight. Asked each pass after OnStop.
  virtual bool Drained() const { return true; }
  // The deadline of the drain passed: end what is in flight at once, so that Drained() is true.
  // From now on no handler may refuse its message either: a message that stays counts as in flight.
  virtual void OnFlush() {}

  // Set-up, by ActorSystem::Connect. Control ports are drained before data ports.
  void AddPort(std::unique_ptr<InPort> port, bool control);

  // For direct edges, on the reactor's thread: whether code of this actor is under way, and a
  // message that is handled within another actor's turn. `handle()` says whether it was taken.
  bool is_running() const { return running_; }
  template <class Handle>
  bool RunCall(Handle handle) {
    running_ = true;
    const bool taken = handle();
    running_ = false;
    if (taken) CountMessages(1);
    return taken;
  }

 protected:
  // Set-up: `poller` is asked on every pass. It must outlive the actor (often it is the actor).
  void AddPoller(Poller* poller) { pollers_.push_back(poller); }
  Reactor& reactor() const { return *reactor_; }

 private:
  friend class Reactor;

  // One pass: control ports, data ports, pollers. Returns the number of things handled.
  size_t Run(uint64_t now);
  uint64_t ReadyPorts() const;
  size_t DrainReady(uint64_t ready);
  size_t DrainPorts(uint64_t ports);
  void CountMessages(size_t count) {
    metrics_.messages.store(metrics_.messages.load(std::memory_order_relaxed) + count,
                            std::memory_order_relaxed);
  }
  bool MailboxEmpty() const;
  void PublishCredit();
  void CloseInboxes();

  const std::string name_;
  Reactor* reactor_ = nullptr;
  uint32_t index_ = 0;                     // on its reactor
  static constexpr size_t kMaxPorts = 63;  // a bit each

  std::vector<std::unique_ptr<InPort>> ports_;
  std::vector<InPort::Signal> awaited_;  // by port
  size_t control_ports_ = 0;             // they are the first of ports_
  // The data port that is drained first. It moves on after each pass that took data, so that a
  // handler that can take only a few messages a pass serves its ports in turn.
  size_t first_data_port_ = 0;
  std::vector<Poller*> pollers_;
  ActorMetrics metrics_;
  bool running_ = false;
  bool stopping_ = false;
  std::atomic<bool> stopped_{false};
};

}  // namespace railhop
