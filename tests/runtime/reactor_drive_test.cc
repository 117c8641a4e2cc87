// Guests that make a reactor's passes: by hand on one thread, then beside a thread of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/reactor.h"
#include "runtime/submission_queue.h"
#include "tests/support/flag.h"
#include "tests/support/hand_driven_system.h"
#include "tests/support/test_actors.h"
#include "tests/support/wait_until.h"

namespace railhop {
namespace {

constexpr auto kForever = std::chrono::steady_clock::time_point::max();

class DriveTest : public testing::Test {
 protected:
  DriveTest()
      : reactor_(hand_.AddReactor("reactor")),
        sink_(hand_.system().AddActor<Sink>(reactor_, &journal_)) {
    hand_.system().Connect<&Sink::OnItem>(queue_, sink_);
    hand_.Start();
    hand_.RunAll();
    journal_.clear();
  }

  // As a thread that submits and then waits.
  void SubmitAndDrive() {
    ASSERT_TRUE(queue_.Prepare({1}));
    const size_t before = Taken();
    reactor_.Drive([&] { return Taken() != before; }, kForever);
  }
  size_t Taken() const { return CountOf("sink item", journal_); }
  // Whether the thread, were it resting, would be woken: its parker's eventfd has been written.
  bool ThreadIsWoken() { return reactor_.wake_target()->woken(); }

  Journal journal_;
  HandDrivenSystem hand_;
  SubmissionQueue<Item> queue_{64};
  Reactor& reactor_;
  Sink& sink_;
};

TEST_F(DriveTest, AGuestMakesThePassesAndLeavesTheSeatFree) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  for (size_t i = 1; i <= 3; ++i) {
    SubmitAndDrive();
    EXPECT_EQ(Taken(), i);
    EXPECT_FALSE(ThreadIsWoken());
  }
  EXPECT_TRUE(reactor_.TakeSeat());
}

TEST_F(DriveTest, ASeatThatIsTakenIsNotHad) {
  ASSERT_TRUE(queue_.Prepare({1}));
  reactor_.Drive([] { return false; }, kForever);
  EXPECT_EQ(Taken(), 0U);
  EXPECT_FALSE(reactor_.TakeSeat()) << "nobody has left it";
}

TEST_F(DriveTest, WhoCannotHaveTheSeatWakesTheParkedThread) {
  reactor_.wake_target()->PreparePark();
  ASSERT_TRUE(queue_.Prepare({1}));
  reactor_.Drive([] { return false; }, kForever);
  EXPECT_TRUE(ThreadIsWoken());
}

// Nobody would make passes until the thread has rested.
TEST_F(DriveTest, TheThreadThatLeftItsSeatForAGuestThatGaveUpIsWoken) {
  bool left = false;
  reactor_.Drive([&] { return left = reactor_.LeaveSeat(); }, kForever);
  EXPECT_TRUE(left);
  EXPECT_TRUE(ThreadIsWoken());
  EXPECT_TRUE(reactor_.TakeSeat());
}

TEST_F(DriveTest, TheSeatIsNotLeftWhileThereIsWork) {
  ASSERT_TRUE(queue_.Prepare({1}));
  EXPECT_FALSE(reactor_.LeaveSeat());
  EXPECT_EQ(Taken(), 1U);
  EXPECT_TRUE(reactor_.LeaveSeat());
}

TEST_F(DriveTest, WhatASubmissionWakesWhileTheSeatIsFreeIsTheThread) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  SubmitAndDrive();
  ASSERT_TRUE(queue_.Prepare({2}));
  queue_.Submit();
  EXPECT_TRUE(ThreadIsWoken());
}

// A poller that submits something in the look before a park, to an edge that was looked at already.
class LateSubmitter : public Poller {
 public:
  explicit LateSubmitter(SubmissionQueue<Item>* queue) : queue_(*queue) {}
  size_t Poll(uint64_t) override {
    if (!std::exchange(armed_, false)) return 0;
    EXPECT_TRUE(queue_.Prepare({1}));
    queue_.Submit();
    return 0;
  }
  void OnPark() override { armed_ = true; }

 private:
  SubmissionQueue<Item>& queue_;
  bool armed_ = false;
};

// The wake comes between a guest's last look and its leaving: the thread finds the seat taken.
TEST_F(DriveTest, AWakeAtTheLastMomentIsPassedOn) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  LateSubmitter late(&queue_);
  Polling& polling = hand_.system().AddActor<Polling>(reactor_, &late);
  hand_.system().SetRunOrder({&sink_, &polling});
  const uint64_t wakes = reactor_.wake_target()->wakes();
  reactor_.Drive([] { return true; }, kForever);
  EXPECT_EQ(Taken(), 0U);
  EXPECT_EQ(reactor_.wake_target()->wakes(), wakes + 2) << "that of the submitter, and one more";
}

TEST_F(DriveTest, WorkThatIsLeftInFlightWakesTheThreadAndKeepsGuestsOutForAWhile) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  const uint64_t wakes = reactor_.wake_target()->wakes();
  sink_.in_flight = 1;
  SubmitAndDrive();
  EXPECT_EQ(Taken(), 1U);
  EXPECT_EQ(reactor_.wake_target()->wakes(), wakes + 1);
  sink_.in_flight = 0;
  ASSERT_TRUE(queue_.Prepare({2}));
  reactor_.Drive([] { return false; }, kForever);
  EXPECT_EQ(Taken(), 1U);
  hand_.clock().Advance(ToCycles(Reactor::kHostRest));
  reactor_.Drive([&] { return Taken() == 2; }, kForever);
  EXPECT_EQ(Taken(), 2U);
}

TEST_F(DriveTest, AGuestBesideAnotherLeavesAtOnce) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  ASSERT_TRUE(queue_.Prepare({1}));
  int asked = 0;
  reactor_.Drive(
      [&] {
        if (asked++ == 0) reactor_.Drive([] { return false; }, kForever);
        return Taken() != 0;
      },
      kForever);
  EXPECT_EQ(Taken(), 1U);
}

TEST_F(DriveTest, AGuestWaitsNoLongerThanItSaid) {
  ASSERT_TRUE(reactor_.LeaveSeat());
  reactor_.Drive([] { return false; }, std::chrono::steady_clock::now());
  EXPECT_TRUE(reactor_.TakeSeat());
}

// --- Beside the reactor's own thread

// Counts what it handled, and how much of it on which kind of thread.
class Counting : public Actor {
 public:
  Counting() : Actor("counting") {}
  bool OnItem(const Item& item) {
    ++plain;  // no atomic: one thread at a time, each after the other
    if (is_guest) by_guests.fetch_add(1, std::memory_order_relaxed);
    (*answered)[item.value].fetch_add(1, std::memory_order_release);
    return true;
  }

  static thread_local bool is_guest;
  uint64_t plain = 0;
  std::atomic<uint64_t> by_guests{0};
  std::vector<std::atomic<uint64_t>>* answered = nullptr;
};
thread_local bool Counting::is_guest = false;

class DriveThreadsTest : public testing::Test {
 protected:
  DriveThreadsTest() : actor_(system_.AddActor<Counting>(*Add())) {
    system_.Connect<&Counting::OnItem>(queue_, actor_);
    actor_.answered = &answered_;
  }
  Reactor* Add() { return reactor_ = system_.AddReactor({.name = "driven", .safety_tick = kTick}); }

  // Submits for `who` and waits for the answer, as a guest as far as possible.
  void RoundTrip(size_t who, bool wake) {
    const uint64_t before = answered_[who].load(std::memory_order_acquire);
    while (!queue_.Prepare({who})) std::this_thread::yield();
    if (wake) queue_.Submit();
    const auto done = [&] { return answered_[who].load(std::memory_order_acquire) != before; };
    reactor_->Drive(done, std::chrono::steady_clock::now() + kTestPatience);
    ASSERT_TRUE(WaitUntil(done));
  }

  static constexpr std::chrono::hours kTick{1};  // a wake that is lost is a test that fails
  std::vector<std::atomic<uint64_t>> answered_ = std::vector<std::atomic<uint64_t>>(8);
  SubmissionQueue<Item> queue_{64};
  ActorSystem system_;
  Reactor* reactor_ = nullptr;
  Counting& actor_;
};

TEST_F(DriveThreadsTest, ALoneGuestSoonMakesThePassesItself) {
  ASSERT_TRUE(system_.Start().ok());
  Counting::is_guest = true;
  ASSERT_TRUE(WaitUntil([&] {
    RoundTrip(0, false);
    return actor_.by_guests.load(std::memory_order_relaxed) >= 100;
  }));
  Counting::is_guest = false;
  system_.Stop(std::chrono::seconds(10));
  EXPECT_EQ(actor_.plain, answered_[0].load());
}

TEST_F(DriveThreadsTest, ManyThreadsLoseNothing) {
  ASSERT_TRUE(system_.Start().ok());
  constexpr int kTrips = 2000;
  std::vector<std::thread> threads;
  for (size_t who = 0; who < answered_.size(); ++who) {
    threads.emplace_back([this, who] {
      Counting::is_guest = true;
      for (int i = 0; i < kTrips; ++i) RoundTrip(who, i % 3 == 0);
    });
  }
  for (std::thread& thread : threads) thread.join();
  system_.Stop(std::chrono::seconds(10));
  EXPECT_EQ(actor_.plain, kTrips * answered_.size());
}

TEST_F(DriveThreadsTest, AStopEndsAGuest) {
  ASSERT_TRUE(system_.Start().ok());
  Flag asked;
  std::thread guest([&] {
    while (!queue_.closed()) {
      reactor_->Drive([&] { return asked.Set(), false; },
                      std::chrono::steady_clock::now() + kTestPatience);
    }
  });
  ASSERT_TRUE(asked.Wait());
  system_.Stop(std::chrono::seconds(10));
  guest.join();
}

}  // namespace
}  // namespace railhop
