// Reactors that park on a thread of their own, with a safety tick too far away to help: a wake-up
// that is lost is a test that fails.
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "runtime/reactor.h"
#include "tests/support/flag.h"
#include "tests/support/manual_clock.h"
#include "tests/support/test_actors.h"
#include "tests/support/wait_until.h"

namespace railhop {
namespace {

class RunningReactor {
 public:
  explicit RunningReactor(ReactorOptions options) : reactor_(WithoutTick(std::move(options))) {}
  ~RunningReactor() { Join(); }
  Reactor* operator->() { return &reactor_; }

  void Run() {
    thread_ = std::thread([this] { reactor_.Run([](const absl::Status&) {}); });
  }
  void Join() {
    reactor_.Exit();
    if (thread_.joinable()) thread_.join();
  }

 private:
  static ReactorOptions WithoutTick(ReactorOptions options) {
    options.safety_tick = std::chrono::hours(1);
    return options;
  }

  Reactor reactor_;
  std::thread thread_;
};

// Writes down what the reactor asks of it: (P)oll, (A)rm, (N)ext poll, (D)isarm.
class RecordingPoller : public Poller {
 public:
  size_t Poll(uint64_t now) override {
    calls += 'P';
    return poll(now);
  }
  void OnPark() override {
    calls += 'A';
    armed = true;
  }
  void OnUnpark() override {
    calls += 'D';
    armed = false;
  }
  uint64_t NextPoll(uint64_t now) override {
    calls += 'N';
    return next_poll(now);
  }

  std::function<size_t(uint64_t)> poll = [](uint64_t) { return 0; };
  std::function<uint64_t(uint64_t)> next_poll = [](uint64_t) { return kNever; };
  std::string calls;
  bool armed = false;
};

class ParkTest : public testing::Test {
 protected:
  RecordingPoller poller_;
  Polling actor_{&poller_};
  Flag done_;
};

TEST_F(ParkTest, APollerIsArmedThenAskedOnceMoreAndDisarmed) {
  RunningReactor reactor({.name = "event", .idle = IdlePolicy::kEvent});
  reactor->AddActor(&actor_);
  poller_.next_poll = [&](uint64_t now) {
    if (poller_.calls.size() > 20) done_.Set();
    return now;  // so it parks, and does not block
  };
  reactor.Run();
  ASSERT_TRUE(done_.Wait());
  reactor.Join();
  EXPECT_EQ(poller_.calls.substr(0, 16), "PAPNDPAPNDPAPNDP");
}

TEST_F(ParkTest, WorkFoundByTheSecondLookIsNotSleptOn) {
  RunningReactor reactor({.name = "event", .idle = IdlePolicy::kEvent});
  reactor->AddActor(&actor_);
  bool found = false;
  poller_.poll = [&](uint64_t) {
    if (found) done_.Set();
    if (!poller_.armed || found) return 0;
    found = true;
    return 1;
  };
  reactor.Run();
  EXPECT_TRUE(done_.Wait());
  reactor.Join();
  EXPECT_EQ(poller_.calls.substr(0, 4), "PAPD") << "nothing asked when to wake up";
}

TEST_F(ParkTest, ItWakesForItsPollersTime) {
  RunningReactor reactor({.name = "event", .idle = IdlePolicy::kEvent});
  reactor->AddActor(&actor_);
  poller_.next_poll = [&](uint64_t now) {
    if (poller_.calls.size() > 50) done_.Set();
    return now + ToCycles(std::chrono::microseconds(20));
  };
  reactor.Run();
  EXPECT_TRUE(done_.Wait());
  EXPECT_GE(reactor->parks(), 2U);
}

TEST_F(ParkTest, AnAdaptiveReactorSpinsForItsTimeAndThenParks) {
  ManualClock clock;
  constexpr std::chrono::microseconds kSpin(50);
  RunningReactor reactor(
      {.name = "adaptive", .idle = IdlePolicy::kAdaptive, .spin = kSpin, .clock = clock.clock()});
  reactor->AddActor(&actor_);
  bool early = false;
  int polls = 0;
  poller_.poll = [&](uint64_t) {
    ++polls;
    if (polls == 1000) clock.Advance(ToCycles(kSpin) - 1);
    if (polls == 2000) clock.Advance(1);
    early = early || (polls <= 2000 && poller_.armed);
    if (poller_.armed) done_.Set();
    return 0;
  };
  reactor.Run();
  EXPECT_TRUE(done_.Wait());
  reactor.Join();
  EXPECT_FALSE(early);
}

TEST_F(ParkTest, WorkStartsTheSpinTimeAnew) {
  ManualClock clock;
  constexpr std::chrono::microseconds kSpin(50);
  RunningReactor reactor(
      {.name = "adaptive", .idle = IdlePolicy::kAdaptive, .spin = kSpin, .clock = clock.clock()});
  reactor->AddActor(&actor_);
  bool early = false;
  int polls = 0;
  poller_.poll = [&](uint64_t) {
    ++polls;
    early = early || (polls <= 1000 && poller_.armed);
    if (poller_.armed) done_.Set();
    // Up to the 1000th it has work each time just before it would park.
    clock.Advance(polls <= 1000 ? ToCycles(kSpin) - 1 : ToCycles(kSpin));
    return polls <= 1000 ? 1 : 0;
  };
  reactor.Run();
  EXPECT_TRUE(done_.Wait());
  reactor.Join();
  EXPECT_FALSE(early);
}

TEST_F(ParkTest, ABusyReactorNeverParks) {
  RunningReactor reactor({.name = "busy", .idle = IdlePolicy::kBusy});
  reactor->AddActor(&actor_);
  poller_.poll = [&](uint64_t) {
    if (poller_.calls.size() == 1000) done_.Set();
    return 0;
  };
  reactor.Run();
  EXPECT_TRUE(done_.Wait());
  reactor.Join();
  EXPECT_EQ(poller_.calls.substr(0, 1000), std::string(1000, 'P'));
  EXPECT_EQ(reactor->parks(), 0U);
}

// An edge whose producer is the test: the actor's reactor runs beside it.
class ParkedConsumerTest : public testing::Test {
 protected:
  ParkedConsumerTest() {
    sink_.AddPort(
        std::make_unique<TypedInPort<&Sink::OnItem, Sink, SpscRing<Item>>>(&sink_, &ring_), false);
    reactor_->AddActor(&sink_);
    items_.Connect(&ring_, &wakes_, wakes_.Add(reactor_->wake_target()));
  }
  bool Parked(uint64_t times = 1) {
    return WaitUntil([&] { return reactor_->parks() >= times; });
  }

  Journal journal_;
  Sink sink_{&journal_};
  SpscRing<Item> ring_{8};
  WakeList wakes_;
  OutPort<Item> items_;
  RunningReactor reactor_{{.name = "event", .idle = IdlePolicy::kEvent}};
};

TEST_F(ParkedConsumerTest, BeforeItParksAllRoomIsKnown) {
  items_.Send({1});
  reactor_.Run();
  ASSERT_TRUE(Parked());
  EXPECT_EQ(ring_.Room(8), 8U);
}

TEST_F(ParkedConsumerTest, ASendWakesIt) {
  reactor_.Run();
  for (uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(Parked(i));
    items_.Send({i});
    wakes_.Flush();
  }
  ASSERT_TRUE(Parked(101));
  reactor_.Join();
  EXPECT_EQ(CountOf("sink item", journal_), 100U);
}

TEST_F(ParkedConsumerTest, ItSleepsOnAMessageThatItRefusedUntilSomethingChanges) {
  sink_.allowance = 0;
  sink_.on_control = [this] { sink_.allowance = 1; };
  items_.Send({1});
  reactor_.Run();
  ASSERT_TRUE(Parked()) << "it spins on a message that it cannot take";
  ASSERT_TRUE(sink_.Post({.kind = 16}));
  ASSERT_TRUE(Parked(2));
  reactor_.Join();
  EXPECT_EQ(CountOf("sink item", journal_), 1U);
}

TEST_F(ParkedConsumerTest, ACallbackOfItsEventLoopMaySendToAnActorOfTheSameReactor) {
  Source neighbour;
  SpscRing<Item> ring(8);
  neighbour.items.Connect(&ring, &reactor_->wakes(), 0);
  sink_.AddPort(std::make_unique<TypedInPort<&Sink::OnOther, Sink, SpscRing<Item>>>(&sink_, &ring),
                false);
  Parker event;  // something with a descriptor
  ASSERT_TRUE(reactor_->loop()
                  .WatchFd(event.fd(), Trigger::kEdge, [&] { neighbour.items.Send({1}); })
                  .ok());
  Flag got;
  sink_.on_message = [&] { got.Set(); };
  reactor_.Run();
  ASSERT_TRUE(Parked());
  event.PreparePark();
  event.WakeIfParked();
  EXPECT_TRUE(got.Wait());
  reactor_.Join();
}

TEST_F(ParkTest, AnEdgeFoundFullOnlyByTheSecondLookIsNotSleptOn) {
  SpscRing<Item> ring(2);
  WakeList consumer_wakes;
  OutPort<Item> items;
  RunningReactor reactor({.name = "event", .idle = IdlePolicy::kEvent});
  items.Connect(&ring, &reactor->wakes(), 0);
  for (int i = 0; i < 2; ++i) items.Send({});
  reactor->AddActor(&actor_);
  poller_.poll = [&](uint64_t) {
    // It has something to send only while it is about to park.
    if (!poller_.armed || !items.TrySend({})) return 0;
    done_.Set();
    return 1;
  };
  const uint64_t room_bit = consumer_wakes.Add(reactor->wake_target());
  reactor.Run();
  ASSERT_TRUE(WaitUntil([&] { return reactor->parks() == 1; }));
  ring.Drain(2, [](const Item&) { return true; });
  consumer_wakes.TouchRoom(room_bit);
  consumer_wakes.Flush();
  EXPECT_TRUE(done_.Wait()) << "it sleeps without having said that it waits for room";
  reactor.Join();
}

}  // namespace
}  // namespace railhop
