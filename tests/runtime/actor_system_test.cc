// Reactors on threads of their own: start, placement, and every way to stop.
#include "runtime/actor_system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <iterator>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "runtime/log.h"
#include "tests/support/flag.h"
#include "tests/support/no_more_descriptors.h"
#include "tests/support/wait_until.h"

namespace railhop {
namespace {

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using testing::ElementsAre;
using testing::HasSubstr;

// Lines from several threads, in the order in which they were written.
class Journal {
 public:
  void Note(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
  }
  std::vector<std::string> Lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

struct Number {
  uint64_t value = 0;
};

// Sends 0, 1, 2, ... up to `count`, as fast as the edge takes them.
class Producer : public Actor, private Poller {
 public:
  explicit Producer(uint64_t count) : Actor("producer"), count_(count) {
    AddPoller(static_cast<Poller*>(this));
  }
  bool Drained() const override { return next_ == count_; }
  void OnFlush() override { count_ = next_; }

  OutPort<Number> numbers;

 private:
  size_t Poll(uint64_t) override {
    size_t sent = 0;
    while (next_ < count_ && numbers.TrySend({next_})) {
      ++next_;
      ++sent;
    }
    return sent;
  }

  uint64_t count_;
  uint64_t next_ = 0;
};

class Consumer : public Actor {
 public:
  Consumer() : Actor("consumer") {}
  bool OnNumber(const Number& number) {
    in_order = in_order && number.value == received;
    ++received;
    on_number(number.value);
    return true;
  }
  // Read them once the system has stopped.
  uint64_t received = 0;
  bool in_order = true;
  std::function<void(uint64_t)> on_number = [](uint64_t) {};
};

// Notes what happens to it. It takes `passes_to_drain` passes to drain, and for ever if that is
// negative.
class Noting : public Actor, private Poller {
 public:
  Noting(std::string name, Journal* journal, int passes_to_drain = 0)
      : Actor(std::move(name)), journal_(journal), left_(passes_to_drain) {
    AddPoller(static_cast<Poller*>(this));
  }
  void OnStart() override { Note("start"); }
  void OnStop() override {
    Note("stop");
    stopping_ = true;
  }
  void OnFlush() override {
    Note("flush");
    left_ = 0;
  }
  bool Drained() const override { return left_ == 0; }

 private:
  void Note(const char* what) { journal_->Note(name() + " " + what); }
  size_t Poll(uint64_t) override {
    if (!stopping_ || left_ <= 0) return 0;
    if (--left_ == 0) Note("drained");
    return 1;
  }

  Journal* const journal_;
  int left_;
  bool stopping_ = false;
};

// Runs what the test hands it, on its reactor's thread.
class Callback : public Actor {
 public:
  explicit Callback(std::function<void(Reactor&)> on_start)
      : Actor("callback"), on_start_(std::move(on_start)) {}
  void OnStart() override { on_start_(reactor()); }
  void OnStop() override { on_stop(); }
  void OnControl(const ControlMessage& message) override { on_control(message); }

  std::function<void(const ControlMessage&)> on_control = [](const ControlMessage&) {};
  std::function<void()> on_stop = [] {};

 private:
  const std::function<void(Reactor&)> on_start_;
};

size_t Threads() {
  // A sanitizer starts a thread of its own beside the first one.
  static std::once_flag first;
  std::call_once(first, [] { std::thread([] {}).join(); });
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

ReactorOptions Parking(std::string name) {
  // A lost wake-up would show: the safety tick does not come to help.
  return {.name = std::move(name), .idle = IdlePolicy::kEvent, .safety_tick = hours(1)};
}

// ---- start ----

TEST(ActorSystemTest, EachActorRunsOnItsReactorsThread) {
  ActorSystem system;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  std::atomic<int> elsewhere{0};
  std::atomic<int> started{0};
  for (int i = 0; i < 2; ++i) {
    Reactor& core = *system.AddReactor(Parking(fmt::format("core{}", i)));
    for (int j = 0; j < 2; ++j) {
      system.AddActor<Callback>(core, [&, expected = &core](Reactor& reactor) {
        elsewhere += &reactor == expected && reactor.on_this_thread() ? 0 : 1;
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
        ++started;
      });
    }
  }
  ASSERT_TRUE(system.Start().ok());
  ASSERT_TRUE(WaitUntil([&] { return started.load() == 4; }));
  system.Stop(hours(1));
  EXPECT_EQ(elsewhere.load(), 0);
  EXPECT_EQ(threads.size(), 2U);
  EXPECT_EQ(threads.count(std::this_thread::get_id()), 0U);
  EXPECT_FALSE(system.reactors()[0]->on_this_thread());
}

TEST(ActorSystemTest, AReactorIsPinnedAndTheCallerIsNot) {
  const std::vector<int> allowed = AllowedCores();
  ASSERT_FALSE(allowed.empty());
  ActorSystem system;
  Reactor& core = *system.AddReactor({.name = "pinned", .core = allowed.back()});
  std::atomic<int> seen{-2};
  system.AddActor<Callback>(core, [&](Reactor&) { seen = PinnedCore(); });
  ASSERT_TRUE(system.Start().ok());
  EXPECT_EQ(core.pinned_core(), allowed.back());
  ASSERT_TRUE(WaitUntil([&] { return seen.load() != -2; }));
  EXPECT_EQ(seen.load(), allowed.back());
  EXPECT_EQ(AllowedCores(), allowed);
}

TEST(ActorSystemTest, ACoreThatMayNotBeUsedIsAnErrorThatNamesItAndNothingIsLeftRunning) {
  const size_t before = Threads();
  Journal journal;
  ActorSystem system;
  Reactor& good = *system.AddReactor({.name = "good"});
  Reactor& bad = *system.AddReactor({.name = "bad", .core = 9999});
  system.AddActor<Noting>(good, "a", &journal);
  system.AddActor<Noting>(bad, "b", &journal);
  const absl::Status status = system.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("reactor \"bad\""), HasSubstr("core 9999"),
                             HasSubstr(FormatCoreList(AllowedCores()))));
  EXPECT_TRUE(journal.Lines().empty()) << "no actor runs unless all can";
  EXPECT_TRUE(WaitUntil([&] { return Threads() <= before; }));
  system.Stop(hours(1));
  EXPECT_EQ(system.Start().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ActorSystemTest, APreferredCoreThatMayNotBeUsedIsAWarning) {
  std::vector<std::string> warnings;
  const LogSink previous =
      SetLogSink([&](LogLevel, std::string_view message) { warnings.emplace_back(message); });
  ActorSystem system;
  Reactor& core =
      *system.AddReactor({.name = "anywhere", .core = 9999, .pin = PinPolicy::kPreferred});
  Flag started;
  system.AddActor<Callback>(core, [&](Reactor&) { started.Set(); });
  EXPECT_TRUE(system.Start().ok());
  EXPECT_TRUE(started.Wait());
  SetLogSink(previous);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_THAT(warnings[0], HasSubstr("core 9999"));
}

TEST(ActorSystemTest, ItStartsOnce) {
  ActorSystem system;
  system.AddReactor(Parking("core"));
  ASSERT_TRUE(system.Start().ok());
  EXPECT_EQ(system.Start().code(), absl::StatusCode::kFailedPrecondition);
  system.Stop(hours(1));
  EXPECT_EQ(system.Start().code(), absl::StatusCode::kFailedPrecondition);
}

// In a child that is a user of its own with room for one thread beside the main one: the second
// reactor gets none.
int ExitCodeOfStartWithoutASecondThread() {
  Journal journal;
  ActorSystem system;
  Reactor& one = *system.AddReactor({.name = "one"});
  system.AddReactor({.name = "two"});
  system.AddActor<Noting>(one, "a", &journal);
  const size_t before = Threads();
  const rlimit limit{2, 2};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(54321) != 0) return 2;
  const absl::Status status = system.Start();
  if (status.code() != absl::StatusCode::kResourceExhausted) return 3;
  if (std::string(status.message()).find("reactor \"two\"") == std::string::npos) return 4;
  if (!journal.Lines().empty()) return 5;
  return WaitUntil([&] { return Threads() <= before; }) ? 0 : 6;
}

TEST(ActorSystemTest, WithoutAThreadToBeHadStartSaysSoAndNothingIsLeftRunning) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user that has no other process";
  if (kThreadSanitizer) GTEST_SKIP() << "its own thread counts towards the limit";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang is a failure, not a stuck test
    _exit(ExitCodeOfStartWithoutASecondThread());
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(ActorSystemTest, WithoutADescriptorStartSaysSo) {
  Journal journal;
  ActorSystem system;
  Reactor& one = *system.AddReactor(Parking("one"));
  Reactor* two = nullptr;
  {
    const NoMoreDescriptors limit;
    two = system.AddReactor(Parking("two"));
  }
  system.AddActor<Noting>(one, "a", &journal);
  system.AddActor<Noting>(*two, "b", &journal);
  const absl::Status status = system.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              testing::AllOf(HasSubstr("reactor \"two\""), HasSubstr("ulimit -n")));
  EXPECT_TRUE(journal.Lines().empty());
}

TEST(ActorSystemTest, AConstructorThatThrowsLeavesTheSystemAsItWas) {
  struct Throwing : Actor {
    Throwing() : Actor("throwing") { throw std::runtime_error("no"); }
  };
  Journal journal;
  ActorSystem system;
  Reactor& core = *system.AddReactor(Parking("core"));
  EXPECT_THROW(system.AddActor<Throwing>(core), std::runtime_error);
  EXPECT_TRUE(system.actors().empty());
  EXPECT_TRUE(core.actors().empty());
  system.AddActor<Noting>(core, "a", &journal);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop"));
}

// ---- messages between threads ----

class EdgeBetweenReactorsTest
    : public testing::TestWithParam<std::tuple<IdlePolicy, IdlePolicy, size_t>> {};

TEST_P(EdgeBetweenReactorsTest, EveryMessageArrivesInOrder) {
  const auto [producer_idle, consumer_idle, capacity] = GetParam();
  // A producer that finds its edge full parks. With two cells that is nearly each time. Two BUSY
  // threads that share a core hand over once per time slice, so those get fewer.
  const bool both_busy = producer_idle == IdlePolicy::kBusy && consumer_idle == IdlePolicy::kBusy;
  const uint64_t count = both_busy ? 100 : 2'000;
  ActorSystem system;
  Reactor& front =
      *system.AddReactor({.name = "front", .idle = producer_idle, .safety_tick = hours(1)});
  Reactor& back =
      *system.AddReactor({.name = "back", .idle = consumer_idle, .safety_tick = hours(1)});
  Producer& producer = system.AddActor<Producer>(front, count);
  Consumer& consumer = system.AddActor<Consumer>(back);
  system.Connect<&Consumer::OnNumber>(producer, producer.numbers, consumer, {.capacity = capacity});
  Flag all;
  consumer.on_number = [&](uint64_t value) {
    if (value + 1 == count) all.Set();
  };
  ASSERT_TRUE(system.Start().ok());
  EXPECT_TRUE(all.Wait()) << "a wake-up was lost";
  system.Stop(all.IsSet() ? nanoseconds(hours(1)) : nanoseconds(0));
  EXPECT_EQ(consumer.received, count);
  EXPECT_TRUE(consumer.in_order);
  EXPECT_EQ(consumer.metrics().messages.load(), count);
}

std::string NameOf(IdlePolicy idle) {
  switch (idle) {
    case IdlePolicy::kBusy:
      return "Busy";
    case IdlePolicy::kAdaptive:
      return "Adaptive";
    case IdlePolicy::kEvent:
      return "Event";
  }
  return "";
}

std::string NameOfCase(const testing::TestParamInfo<EdgeBetweenReactorsTest::ParamType>& tested) {
  const auto [producer, consumer, capacity] = tested.param;
  return fmt::format("{}To{}Over{}", NameOf(producer), NameOf(consumer), capacity);
}

constexpr auto kAllPolicies = {IdlePolicy::kBusy, IdlePolicy::kAdaptive, IdlePolicy::kEvent};
INSTANTIATE_TEST_SUITE_P(Idle, EdgeBetweenReactorsTest,
                         testing::Combine(testing::ValuesIn(kAllPolicies),
                                          testing::ValuesIn(kAllPolicies), testing::Values(2, 64)),
                         NameOfCase);

// ---- stop ----

TEST(ActorSystemStopTest, ActorsStopInOrderEachAfterTheOneBeforeHasDrained) {
  Journal journal;
  ActorSystem system;
  Reactor& one = *system.AddReactor(Parking("one"));
  Reactor& two = *system.AddReactor(Parking("two"));
  system.AddActor<Noting>(two, "a", &journal, 50);
  system.AddActor<Noting>(one, "b", &journal, 3);
  system.AddActor<Noting>(two, "c", &journal);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  std::vector<std::string> lines = journal.Lines();
  std::erase_if(lines, [](const std::string& line) { return line.ends_with(" start"); });
  EXPECT_THAT(lines, ElementsAre("a stop", "a drained", "b stop", "b drained", "c stop"));
}

TEST(ActorSystemStopTest, MessagesInFlightAreDelivered) {
  constexpr uint64_t kNumbers = 5'000;
  ActorSystem system;
  Reactor& front = *system.AddReactor(Parking("front"));
  Reactor& back = *system.AddReactor(Parking("back"));
  Producer& producer = system.AddActor<Producer>(front, kNumbers);
  Consumer& consumer = system.AddActor<Consumer>(back);
  system.Connect<&Consumer::OnNumber>(producer, producer.numbers, consumer, {.capacity = 16});
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  EXPECT_EQ(consumer.received, kNumbers);
  EXPECT_TRUE(consumer.in_order);
}

TEST(ActorSystemStopTest, WhatIsSentUntilTheFlushIsDeliveredToo) {
  ActorSystem system;
  Reactor& front = *system.AddReactor(Parking("front"));
  Reactor& back = *system.AddReactor(Parking("back"));
  Producer& producer = system.AddActor<Producer>(front, UINT64_MAX);  // never done by itself
  Consumer& consumer = system.AddActor<Consumer>(back);
  system.Connect<&Consumer::OnNumber>(producer, producer.numbers, consumer, {.capacity = 16});
  ASSERT_TRUE(system.Start().ok());
  system.Stop(milliseconds(1));
  EXPECT_TRUE(consumer.in_order);
  EXPECT_EQ(consumer.received, consumer.metrics().messages.load());
}

TEST(ActorSystemStopTest, WhatHasNotDrainedAtTheDeadlineIsFlushed) {
  Journal journal;
  ActorSystem system;
  Reactor& core = *system.AddReactor(Parking("core"));
  system.AddActor<Noting>(core, "a", &journal, -1);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(milliseconds(1));
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop", "a flush"));
  EXPECT_TRUE(system.actors()[0].actor->stopped());
}

TEST(ActorSystemStopTest, ADeadlineOfForeverIsNotOneOfNever) {
  Journal journal;
  ActorSystem system;
  Reactor& core = *system.AddReactor(Parking("core"));
  system.AddActor<Noting>(core, "a", &journal, 1000);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(nanoseconds::max());
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop", "a drained"));
}

TEST(ActorSystemStopTest, TwiceIsOnce) {
  Journal journal;
  ActorSystem system;
  Reactor& core = *system.AddReactor(Parking("core"));
  system.AddActor<Noting>(core, "a", &journal);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  system.Stop(hours(1));
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop"));
}

TEST(ActorSystemStopTest, FromSeveralThreadsAtOnce) {
  Journal journal;
  ActorSystem system;
  Reactor& core = *system.AddReactor(Parking("core"));
  system.AddActor<Noting>(core, "a", &journal, 10);
  ASSERT_TRUE(system.Start().ok());
  std::vector<std::thread> threads(4);
  std::atomic<int> stopped{0};
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      system.Stop(hours(1));
      stopped += system.actors()[0].actor->stopped() ? 1 : 0;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stopped.load(), 4) << "none returns before it is done";
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop", "a drained"));
}

TEST(ActorSystemStopTest, BeforeItStarted) {
  Journal journal;
  ActorSystem system;
  system.AddActor<Noting>(*system.AddReactor(Parking("core")), "a", &journal);
  system.Stop(hours(1));
  system.Stop(hours(1));
  EXPECT_TRUE(journal.Lines().empty());
  EXPECT_EQ(system.Start().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ActorSystemStopTest, NeverAskedForItIsTheDestructors) {
  Journal journal;
  const size_t before = Threads();
  {
    ActorSystem system;
    system.AddActor<Noting>(*system.AddReactor(Parking("core")), "a", &journal, 1);
    ASSERT_TRUE(system.Start().ok());
  }
  const std::vector<std::string> lines = journal.Lines();
  ASSERT_GE(lines.size(), 2U);
  EXPECT_EQ(lines[1], "a stop");
  EXPECT_TRUE(WaitUntil([&] { return Threads() <= before; }));
}

TEST(ActorSystemStopTest, FromInsideEveryKindOfCallback) {
  // Stop in a message handler, twice; what is in flight is still delivered.
  constexpr uint64_t kNumbers = 1'000;
  ActorSystem system;
  Reactor& front = *system.AddReactor(Parking("front"));
  Reactor& back = *system.AddReactor(Parking("back"));
  Producer& producer = system.AddActor<Producer>(front, kNumbers);
  Consumer& consumer = system.AddActor<Consumer>(back);
  system.Connect<&Consumer::OnNumber>(producer, producer.numbers, consumer, {.capacity = 16});
  consumer.on_number = [&](uint64_t value) {
    if (value == 5 || value == 6) system.Stop(hours(1));
  };
  ASSERT_TRUE(system.Start().ok());
  ASSERT_TRUE(WaitUntil([&] { return consumer.stopped(); }));
  system.Stop(hours(1));
  EXPECT_EQ(consumer.received, kNumbers);
}

TEST(ActorSystemStopTest, FromOnStartWhileStartIsStillRunning) {
  for (int i = 0; i < 20; ++i) {
    Journal journal;
    ActorSystem system;
    Reactor& one = *system.AddReactor(Parking("one"));
    Reactor& two = *system.AddReactor(Parking("two"));
    system.AddActor<Callback>(one, [&](Reactor&) { system.Stop(hours(1)); });
    Noting& other = system.AddActor<Noting>(two, "a", &journal);
    ASSERT_TRUE(system.Start().ok());
    ASSERT_TRUE(WaitUntil([&] { return other.stopped(); }));
  }
}

TEST(ActorSystemStopTest, FromOnStop) {
  ActorSystem system;
  Callback& actor = system.AddActor<Callback>(*system.AddReactor(Parking("core")), [](Reactor&) {});
  std::atomic<int> stops{0};
  actor.on_stop = [&] {
    ++stops;
    system.Stop(hours(1));
  };
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  EXPECT_EQ(stops.load(), 1);
}

TEST(ActorSystemStopTest, FromATimerAndWithAnotherOnePending) {
  ActorSystem system;
  std::atomic<int> late{0};
  Callback& actor =
      system.AddActor<Callback>(*system.AddReactor(Parking("core")), [&](Reactor& reactor) {
        ASSERT_TRUE(reactor.loop().AddTimer(hours(1), [&] { ++late; }).ok());
        ASSERT_TRUE(reactor.loop().AddTimer(microseconds(1), [&] { system.Stop(hours(1)); }).ok());
      });
  ASSERT_TRUE(system.Start().ok());
  ASSERT_TRUE(WaitUntil([&] { return actor.stopped(); }));
  system.Stop(hours(1));
  EXPECT_EQ(late.load(), 0);
}

TEST(ActorSystemStopTest, FromAControlMessage) {
  ActorSystem system;
  Callback& actor = system.AddActor<Callback>(*system.AddReactor(Parking("core")), [](Reactor&) {});
  actor.on_control = [&](const ControlMessage& message) {
    if (message.kind == ControlMessage::kFirstUserKind) system.Stop(hours(1));
  };
  ASSERT_TRUE(system.Start().ok());
  ASSERT_TRUE(actor.Post({.kind = ControlMessage::kFirstUserKind}));
  ASSERT_TRUE(WaitUntil([&] { return actor.stopped(); }));
}

TEST(ActorSystemStopTest, ABusyReactorStopsLikeAnother) {
  Journal journal;
  ActorSystem system;
  Reactor& busy = *system.AddReactor({.name = "busy", .idle = IdlePolicy::kBusy});
  system.AddActor<Noting>(busy, "a", &journal, 10);
  ASSERT_TRUE(system.Start().ok());
  system.Stop(hours(1));
  EXPECT_THAT(journal.Lines(), ElementsAre("a start", "a stop", "a drained"));
  EXPECT_EQ(busy.parks(), 0U);
}

TEST(ActorSystemStopTest, EachEntryThatAQueueAcceptedIsHandledWhileThreadsKeepSubmitting) {
  struct Door : Actor {
    Door() : Actor("door") {}
    bool OnNumber(const Number&) {
      ++handled;
      return true;
    }
    uint64_t handled = 0;
  };
  SubmissionQueue<Number> queue(8);
  ActorSystem system;
  Door& door = system.AddActor<Door>(*system.AddReactor(Parking("core")));
  system.Connect<&Door::OnNumber>(queue, door);
  ASSERT_TRUE(system.Start().ok());
  std::atomic<uint64_t> accepted{0};
  std::vector<std::thread> threads(4);
  for (std::thread& thread : threads) {
    thread = std::thread([&] {
      while (!queue.closed()) {
        if (queue.Prepare({})) {
          ++accepted;
          queue.Submit();
        } else {
          std::this_thread::yield();
        }
      }
    });
  }
  EXPECT_TRUE(WaitUntil([&] { return accepted.load() > 1'000; }));
  system.Stop(hours(1));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(door.handled, accepted.load());
  EXPECT_FALSE(queue.Prepare({})) << "nobody would ever read it";
}

TEST(ActorSystemDeathTest, DestroyedOnAReactorsOwnThreadItSaysSoInsteadOfHanging) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        auto system = std::make_unique<ActorSystem>();
        Flag never;
        system->AddActor<Callback>(*system->AddReactor(Parking("core")),
                                   [&](Reactor&) { system.reset(); });
        [[maybe_unused]] const absl::Status status = system->Start();
        [[maybe_unused]] const bool set = never.Wait();
      },
      "destroyed on the thread of one of its own reactors");
}

// ---- fork ----

TEST(ActorSystemForkTest, AChildHarmsNeitherItsParentNorItself) {
  constexpr uint64_t kRounds = 200;
  // An actor whose destruction would be noticed outside.
  struct Noticed : Actor {
    explicit Noticed(int fd) : Actor("noticed"), descriptor(fd) {}
    ~Noticed() override { [[maybe_unused]] const ssize_t put = write(descriptor, "x", 1); }
    const int descriptor;
  };
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
  SubmissionQueue<Number> queue(8);
  auto system = std::make_unique<ActorSystem>();
  Consumer& consumer = system->AddActor<Consumer>(*system->AddReactor(Parking("core")));
  system->Connect<&Consumer::OnNumber>(queue, consumer);
  system->AddActor<Noticed>(*system->AddReactor(Parking("other")), pipe_fds[1]);
  std::atomic<uint64_t> handled{0};
  consumer.on_number = [&](uint64_t) { ++handled; };
  ASSERT_TRUE(system->Start().ok());

  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(60);  // a hang is a failure, not a stuck test
    const bool refused = system->Start().code() == absl::StatusCode::kFailedPrecondition;
    system->Stop(hours(1));
    system.reset();
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  char noticed;
  EXPECT_EQ(read(pipe_fds[0], &noticed, 1), -1) << "the child destroyed the parent's actor";

  // The parent's reactor still hears its wakes.
  for (uint64_t i = 0; i < kRounds; ++i) {
    ASSERT_TRUE(queue.Prepare({i}));
    queue.Submit();
    ASSERT_TRUE(WaitUntil([&] { return handled.load() == i + 1; })) << "after " << i;
  }
  system.reset();
  EXPECT_EQ(read(pipe_fds[0], &noticed, 1), 1);
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

}  // namespace
}  // namespace railhop
