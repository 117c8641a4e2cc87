// what handing a message from one core to another costs: edge, actors, inbox
//
// Every loop checks what it receives: a message lost or out of order ends the benchmark. Threads
// are pinned and live for one sample; their start is not timed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "fmt/format.h"
#include "runtime/actor_system.h"
#include "runtime/fence.h"
#include "runtime/mpsc_ring.h"
#include "runtime/spsc_ring.h"
#include "tests/bench/harness.h"
#include "tests/bench/references.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;

constexpr size_t kCapacity = 256;     // an edge's default
constexpr size_t kBudget = 16;        // what a reactor drains of an edge in one pass
constexpr uint64_t kRoundTrips = 64;  // between two looks at the clock: some 10 us
constexpr uint64_t kMessages = 2048;  // the same, one way: some 20 us

struct EdgeMessage {
  uint64_t value = 0;
  uint64_t rest[6] = {};
};
static_assert(sizeof(EdgeMessage) == kMaxMessageBytes);

// The runtime's rings, with the interface of the references.
template <class Ring>
class Drained {
 public:
  using Value = EdgeMessage;

  explicit Drained(size_t capacity) : ring_(capacity) {}
  bool TryPush(const Value& message) { return ring_.TryPush(message); }
  template <class Handler>
  size_t Drain(Handler&& handler) {
    return ring_.Drain(kBudget, [&](const Value& message) {
      handler(message);
      return true;
    });
  }

 private:
  Ring ring_;
};
using Edge = Drained<SpscRing<EdgeMessage>>;
using Inbox = Drained<MpscRing<EdgeMessage>>;

[[noreturn]] void Fail(const std::string& what) {
  std::cerr << what << "\n";
  std::exit(1);
}

void Expect(uint64_t value, uint64_t expected) {
  if (value != expected) {
    Fail(fmt::format("received message {} where {} was due", value, expected));
  }
}

template <class Body>
std::thread Pinned(int core, Body body) {
  return std::thread([core, body] {
    const absl::Status pinned = PinThisThread(core, PinPolicy::kRequired);
    if (!pinned.ok()) Fail(pinned.ToString());
    body();
  });
}

// Runs `chunk`, which does `operations` of something, for about `duration`, and returns the median
// nanoseconds of one. The median over chunks and not the mean: a chunk in which the kernel took
// a core away says nothing about the structure.
template <class Chunk>
double MedianNs(nanoseconds duration, uint64_t operations, Chunk chunk) {
  chunk();  // warm-up
  std::vector<double> cycles;
  const uint64_t start = ReadCycles();
  const uint64_t end = start + ToCycles(duration);
  for (uint64_t before = start; before < end;) {
    chunk();
    const uint64_t after = ReadCycles();
    cycles.push_back(static_cast<double>(after - before));
    before = after;
  }
  return Median(cycles) / CyclesPerNanosecond() / static_cast<double>(operations);
}

// ---- round trips -------------------------------------------------------------------------------

// What the round trips are compared with: a word each way, as a mailbox in each direction needs.
double SpinFlagNs(const CorePair& cores, nanoseconds duration) {
  SpinFlag there, back;
  std::atomic<bool> stop{false};
  std::thread echo = Pinned(cores.second, [&] {
    uint64_t seen = 0;
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t word = there.word.load(std::memory_order_acquire);
      if (word == seen) continue;
      seen = word;
      back.word.store(word, std::memory_order_release);
    }
  });
  double result = 0;
  std::thread caller = Pinned(cores.first, [&] {
    uint64_t next = 0;
    result = MedianNs(duration, kRoundTrips, [&] {
      for (uint64_t i = 0; i < kRoundTrips; ++i) {
        there.word.store(++next, std::memory_order_release);
        while (back.word.load(std::memory_order_acquire) != next) {
        }
      }
    });
  });
  caller.join();
  stop.store(true);
  echo.join();
  return result;
}

// One word that both threads write in turn. Each finds the line in its own cache already when it
// answers, so this is far below what two separate directions can reach; shown to know the machine.
double SharedWordNs(const CorePair& cores, nanoseconds duration) {
  SpinFlag shared;
  std::atomic<bool> stop{false};
  std::thread echo = Pinned(cores.second, [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      const uint64_t word = shared.word.load(std::memory_order_acquire);
      if (word % 2 == 1) shared.word.store(word + 1, std::memory_order_release);
    }
  });
  double result = 0;
  std::thread caller = Pinned(cores.first, [&] {
    uint64_t next = 0;
    result = MedianNs(duration, kRoundTrips, [&] {
      for (uint64_t i = 0; i < kRoundTrips; ++i) {
        shared.word.store(next + 1, std::memory_order_release);
        next += 2;
        while (shared.word.load(std::memory_order_acquire) != next) {
        }
      }
    });
  });
  caller.join();
  stop.store(true);
  echo.join();
  return result;
}

template <class Channel>
double RoundTripNs(const CorePair& cores, nanoseconds duration) {
  using Value = typename Channel::Value;
  Channel there(kCapacity), back(kCapacity);
  std::atomic<bool> stop{false};
  std::thread echo = Pinned(cores.second, [&] {
    while (!stop.load(std::memory_order_relaxed)) {
      there.Drain([&](const Value& message) { back.TryPush(message); });
    }
  });
  double result = 0;
  std::thread caller = Pinned(cores.first, [&] {
    Value message;
    result = MedianNs(duration, kRoundTrips, [&] {
      for (uint64_t i = 0; i < kRoundTrips; ++i) {
        ++message.value;
        there.TryPush(message);
        while (back.Drain([&](const Value& m) { Expect(m.value, message.value); }) == 0) {
        }
      }
    });
  });
  caller.join();
  stop.store(true);
  echo.join();
  return result;
}

// A poller as the data path has them: it looks at a word that another core may write.
class WordPoller : public Poller {
 public:
  size_t Poll(uint64_t) override { return word_.load(std::memory_order_acquire) == 0 ? 0 : 1; }

 private:
  alignas(kNoFalseSharing) std::atomic<uint64_t> word_{0};
};

class PingActor : public Actor {
 public:
  PingActor() : Actor("ping") {
    AddPoller(&poller_);
    cycles_.reserve(size_t{1} << 16);
  }

  OutPort<EdgeMessage> pings;

  void OnStart() override {
    before_ = ReadCycles();
    Ping();
  }
  bool OnPong(const EdgeMessage& message) {
    Expect(message.value, next_);
    waiting_ = false;
    if (next_ % kRoundTrips == 0 && cycles_.size() < cycles_.capacity()) {
      const uint64_t now = ReadCycles();
      cycles_.push_back(static_cast<double>(now - before_));
      before_ = now;
      chunks_.store(cycles_.size(), std::memory_order_relaxed);
    }
    if (!stopping_) Ping();
    return true;
  }
  void OnStop() override { stopping_ = true; }
  bool Drained() const override { return !waiting_; }

  // Any thread: how many chunks have been timed.
  size_t chunks() const { return chunks_.load(std::memory_order_relaxed); }
  // After the reactor has joined.
  double RoundTripNs() const {
    return Median(cycles_) / CyclesPerNanosecond() / static_cast<double>(kRoundTrips);
  }

 private:
  void Ping() {
    pings.Send({.value = ++next_});
    waiting_ = true;
  }

  WordPoller poller_;
  uint64_t next_ = 0;
  uint64_t before_ = 0;
  bool waiting_ = false;
  bool stopping_ = false;
  std::vector<double> cycles_;
  std::atomic<size_t> chunks_{0};
};

class EchoActor : public Actor {
 public:
  EchoActor() : Actor("echo") { AddPoller(&poller_); }
  OutPort<EdgeMessage> pongs;
  bool OnPing(const EdgeMessage& message) { return pongs.TrySend(message); }

 private:
  WordPoller poller_;
};

double ActorRoundTripNs(const CorePair& cores, nanoseconds duration) {
  ActorSystem system;
  Reactor& near =
      *system.AddReactor({.name = "near", .core = cores.first, .idle = IdlePolicy::kBusy});
  Reactor& far =
      *system.AddReactor({.name = "far", .core = cores.second, .idle = IdlePolicy::kBusy});
  auto& ping = system.AddActor<PingActor>(near);
  auto& echo = system.AddActor<EchoActor>(far);
  system.Connect<&EchoActor::OnPing>(ping, ping.pings, echo, {.capacity = kCapacity});
  system.Connect<&PingActor::OnPong>(echo, echo.pongs, ping, {.capacity = kCapacity});
  const absl::Status started = system.Start();
  if (!started.ok()) Fail(started.ToString());
  do {
    std::this_thread::sleep_for(duration);
  } while (ping.chunks() < 2);  // the first one holds the start of the other reactor
  system.Stop(std::chrono::seconds(10));
  return ping.RoundTripNs();
}

// ---- one way -----------------------------------------------------------------------------------

// Millions of messages a second through one queue, from `producers` threads that share the second
// core to a consumer on the first. One producer spins when the queue is full; several give the core
// to each other.
template <class Queue>
double OneWayRate(const CorePair& cores, nanoseconds duration, uint64_t producers) {
  using Value = typename Queue::Value;
  constexpr int kProducerShift = 56;  // the value's top byte says whose it is
  Queue queue(kCapacity);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (uint64_t producer = 0; producer < producers; ++producer) {
    threads.push_back(Pinned(cores.second, [&, producer] {
      Value message;
      message.value = producer << kProducerShift;
      while (!stop.load(std::memory_order_relaxed)) {
        if (queue.TryPush(message)) {
          ++message.value;
        } else if (producers == 1) {
          CpuRelax();
        } else {
          std::this_thread::yield();
        }
      }
    }));
  }
  double rate = 0;
  threads.push_back(Pinned(cores.first, [&] {
    std::vector<uint64_t> next(producers);
    for (uint64_t i = 0; i < producers; ++i) next[i] = i << kProducerShift;
    const auto receive = [&](const Value& message) {
      Expect(message.value, next[message.value >> kProducerShift]++);
    };
    uint64_t total = 0;
    const auto chunk = [&] {
      for (uint64_t received = 0; received < kMessages;) {
        const size_t drained = queue.Drain(receive);
        if (drained == 0) CpuRelax();
        received += drained;
        total += drained;
      }
    };
    if (producers == 1) {
      rate = 1e3 / MedianNs(duration, kMessages, chunk);
    } else {
      // The mean, since what happens when a producer loses its core is the point.
      const uint64_t start = ReadCycles();
      const uint64_t end = start + ToCycles(duration);
      while (ReadCycles() < end) chunk();
      rate = 1e3 * static_cast<double>(total) /
             static_cast<double>(ToNanoseconds(ReadCycles() - start).count());
    }
    stop.store(true);
  }));
  for (std::thread& thread : threads) thread.join();
  return rate;
}

void RunAll(Bench& bench) {
  const CorePair& cores = bench.cores();
  const nanoseconds sample = bench.options().sample;
  const std::vector<std::string> hand_over = {"hand-over between two running threads"};
  const auto spin_flag = [&] { return SpinFlagNs(cores, sample); };
  const auto edge_round_trip = [&] { return RoundTripNs<Edge>(cores, sample); };
  const auto edge_one_way = [&] { return OneWayRate<Edge>(cores, sample, 1); };

  bench.Run({.name = "hop.round_trip",
             .unit = "ns",
             .subject_is = "edge, 56-byte message there and back",
             .reference_is = "spin flag, a word each way",
             .goal = "<= 1.3",
             .includes = hand_over,
             .subject = edge_round_trip,
             .reference = spin_flag});
  bench.Run({.name = "hop.actor_round_trip",
             .unit = "ns",
             .subject_is = "two BUSY reactors, each with a poller and histograms",
             .reference_is = "spin flag, a word each way",
             .goal = "<= 2.5",
             .includes = {"hand-over", "reactor passes", "pollers", "histograms", "sampled stamps"},
             .subject = [&] { return ActorRoundTripNs(cores, sample); },
             .reference = spin_flag});
  bench.Run({.name = "hop.spin_flag",
             .unit = "ns",
             .subject_is = "spin flag, a word each way",
             .reference_is = "one word that both write",
             .includes = hand_over,
             .subject = spin_flag,
             .reference = [&] { return SharedWordNs(cores, sample); }});
  bench.Run({.name = "hop.boost_round_trip",
             .unit = "ns",
             .subject_is = "edge, there and back",
             .reference_is = "boost::lockfree::spsc_queue",
             .includes = hand_over,
             .subject = edge_round_trip,
             .reference = [&] { return RoundTripNs<BoostRing>(cores, sample); }});
  bench.Run({.name = "hop.mutex_round_trip",
             .unit = "ns",
             .subject_is = "edge, there and back",
             .reference_is = "ring under a mutex",
             .includes = hand_over,
             .subject = edge_round_trip,
             .reference = [&] { return RoundTripNs<MutexRing>(cores, sample); }});
  bench.Run({.name = "hop.one_way",
             .unit = "M/s",
             .subject_is = "edge, drained in place by up to 16",
             .reference_is = "boost::lockfree::spsc_queue with consume_all",
             .goal = ">= 2",
             .includes = hand_over,
             .subject = edge_one_way,
             .reference = [&] { return OneWayRate<BoostRing>(cores, sample, 1); }});
  bench.Run({.name = "hop.mutex",
             .unit = "M/s",
             .subject_is = "edge, drained in place by up to 16",
             .reference_is = "ring under a mutex",
             .includes = hand_over,
             .subject = edge_one_way,
             .reference = [&] { return OneWayRate<MutexRing>(cores, sample, 1); }});
  bench.Run({.name = "hop.inbox1",
             .unit = "M/s",
             .subject_is = "inbox, one producer",
             .reference_is = "ring under a mutex",
             .includes = hand_over,
             .subject = [&] { return OneWayRate<Inbox>(cores, sample, 1); },
             .reference = [&] { return OneWayRate<MutexRing>(cores, sample, 1); }});
  bench.Run({.name = "hop.inbox3",
             .unit = "M/s",
             .subject_is = "inbox, three producers that share one core",
             .reference_is = "ring under a mutex, the same producers",
             .goal = ">= 5",
             .includes = {"hand-over", "producers losing their core to each other"},
             .subject = [&] { return OneWayRate<Inbox>(cores, sample, 3); },
             .reference = [&] { return OneWayRate<MutexRing>(cores, sample, 3); }});
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  auto bench = railhop::Bench::FromArguments(
      argc, argv, "What handing a message from one core to another costs.");
  railhop::RunAll(bench);
  return bench.Finish();
}
