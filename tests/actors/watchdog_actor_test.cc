#include "actors/watchdog_actor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/actor_system.h"
#include "runtime/cycle_clock.h"

namespace railhop {
namespace {

constexpr uint32_t kSlots = 8;

// Stands in for SubmitActor: arms deadlines and notes what expires.
class Submitter : public Actor {
 public:
  Submitter() : Actor("submit") {}

  bool OnExpired(const DeadlineExpired& message) {
    if (!accept) return false;
    expired.push_back(message);
    ++count;
    return true;
  }
  void Arm(uint32_t slot, uint64_t deadline) { arm.Send({.deadline = deadline, .slot = slot}); }

  OutPort<ArmDeadline> arm;
  std::vector<DeadlineExpired> expired;
  std::atomic<size_t> count{0};
  bool accept = true;
};

class WatchdogTest : public testing::Test {
 protected:
  explicit WatchdogTest(size_t edge_capacity = 64)
      : system_({.stamp_every = 64, .clock = CycleClock(&now_)}),
        submit_reactor_(*system_.AddReactor({.name = "submit"})),
        control_reactor_(*system_.AddReactor({.name = "control", .idle = IdlePolicy::kEvent})),
        submit_(system_.AddActor<Submitter>(submit_reactor_)),
        watchdog_(system_.AddActor<WatchdogActor>(control_reactor_, "watchdog", kSlots)) {
    system_.Connect<&WatchdogActor::OnArm>(submit_, submit_.arm, watchdog_);
    system_.Connect<&Submitter::OnExpired>(watchdog_, watchdog_.to_submit, submit_,
                                           {.capacity = edge_capacity});
    submit_reactor_.StartActors();
    control_reactor_.StartActors();
  }

  // Two rounds: there and back.
  void Pass() {
    system_.RunAll();
    system_.RunAll();
  }
  std::vector<uint32_t> Expired() const {
    std::vector<uint32_t> slots;
    for (const DeadlineExpired& message : submit_.expired) slots.push_back(message.slot);
    return slots;
  }

  uint64_t now_ = 1'000'000;
  ActorSystem system_;
  Reactor& submit_reactor_;
  Reactor& control_reactor_;
  Submitter& submit_;
  WatchdogActor& watchdog_;
};

TEST_F(WatchdogTest, NothingArmedNeverWakes) {
  Pass();
  EXPECT_EQ(watchdog_.NextPoll(now_), Poller::kNever);
  now_ += 1'000'000'000'000;
  Pass();
  EXPECT_TRUE(submit_.expired.empty());
  EXPECT_EQ(watchdog_.NextPoll(now_), Poller::kNever);
}

TEST_F(WatchdogTest, ExpiresOnceAtItsTime) {
  submit_.Arm(3, now_ + 1000);
  Pass();
  EXPECT_EQ(watchdog_.NextPoll(now_), now_ + 1000);
  now_ += 999;
  Pass();
  EXPECT_TRUE(submit_.expired.empty());
  now_ += 1;
  Pass();
  ASSERT_EQ(submit_.expired.size(), 1u);
  EXPECT_EQ(submit_.expired[0].slot, 3u);
  EXPECT_EQ(watchdog_.NextPoll(now_), Poller::kNever);
  now_ += 1'000'000;
  Pass();
  EXPECT_EQ(submit_.expired.size(), 1u);
}

TEST_F(WatchdogTest, TheLastDeadlineOfASlotCounts) {
  submit_.Arm(0, now_ + 100);
  submit_.Arm(0, now_ + 5000);
  Pass();
  now_ += 200;
  Pass();
  EXPECT_TRUE(submit_.expired.empty());
  // The look that found nothing has corrected the time of the next one.
  EXPECT_EQ(watchdog_.NextPoll(now_), now_ + 4800);
  now_ += 4800;
  Pass();
  EXPECT_EQ(Expired(), std::vector<uint32_t>{0});
}

TEST_F(WatchdogTest, ADeadlineOfThePastExpiresAtOnce) {
  submit_.Arm(4, 1);
  Pass();
  EXPECT_EQ(Expired(), std::vector<uint32_t>{4});
}

class FullEdgeTest : public WatchdogTest {
 protected:
  FullEdgeTest() : WatchdogTest(2) {}
};

TEST_F(FullEdgeTest, WhatDoesNotFitIsKeptAndAsksForNoTimer) {
  submit_.accept = false;
  for (uint32_t slot = 0; slot < 5; ++slot) submit_.Arm(slot, now_ + 10 + slot);
  now_ += 100;
  Pass();
  EXPECT_TRUE(submit_.expired.empty());
  // The reactor is woken when there is room: an overdue deadline must not keep it awake.
  EXPECT_EQ(watchdog_.NextPoll(now_), Poller::kNever);
  submit_.accept = true;
  for (int i = 0; i < 10; ++i) Pass();
  EXPECT_EQ(Expired(), (std::vector<uint32_t>{0, 1, 2, 3, 4}));
}

// With real threads and a parked control reactor: the timer alone brings the message.
TEST(WatchdogThreadTest, WakesAParkedReactorForADeadline) {
  class Starter : public Submitter {
   public:
    void OnStart() override { Arm(5, ReadCycles() + ToCycles(std::chrono::milliseconds(20))); }
  };
  ActorSystem system;
  Reactor& data = *system.AddReactor({.name = "submit", .idle = IdlePolicy::kEvent});
  Reactor& control = *system.AddReactor({.name = "control", .idle = IdlePolicy::kEvent});
  auto& submit = system.AddActor<Starter>(data);
  auto& watchdog = system.AddActor<WatchdogActor>(control, "watchdog", kSlots);
  system.Connect<&WatchdogActor::OnArm>(submit, submit.arm, watchdog);
  system.Connect<&Submitter::OnExpired>(watchdog, watchdog.to_submit, submit);
  ASSERT_TRUE(system.Start().ok());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (submit.count == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  system.Stop(std::chrono::seconds(5));
  ASSERT_EQ(submit.expired.size(), 1u);
  EXPECT_EQ(submit.expired[0].slot, 5u);
}

}  // namespace
}  // namespace railhop
