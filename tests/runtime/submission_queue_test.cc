#include "runtime/submission_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/hand_driven_system.h"

namespace railhop {
namespace {

using testing::ElementsAre;

struct Request {
  uint64_t value = 0;
};

class Door : public Actor {
 public:
  Door() : Actor("door") {}
  bool OnRequest(const Request& request) {
    if (!open) return false;
    seen.push_back(request.value);
    return true;
  }
  bool open = true;
  std::vector<uint64_t> seen;
};

class SubmissionQueueTest : public testing::Test {
 protected:
  SubmissionQueueTest()
      : core_(hand_.AddReactor("core")), door_(hand_.system().AddActor<Door>(core_)) {
    hand_.system().Connect<&Door::OnRequest>(queue_, door_);
    hand_.Start();
    hand_.RunAll();
  }

  HandDrivenSystem hand_;
  SubmissionQueue<Request> queue_{32, 1, hand_.clock().clock()};
  Reactor& core_;
  Door& door_;
};

TEST_F(SubmissionQueueTest, APreparedEntryIsVisibleBeforeItsSubmit) {
  ASSERT_TRUE(queue_.Prepare({1}));
  EXPECT_EQ(core_.RunPass(), 1U);
  EXPECT_THAT(door_.seen, ElementsAre(1));
}

TEST_F(SubmissionQueueTest, OneSubmitIsOneWakeForAllThatWasPrepared) {
  core_.wake_target()->PreparePark();
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(queue_.Prepare({i}));
  EXPECT_EQ(core_.wake_target()->wakes(), 0U);
  queue_.Submit();
  EXPECT_EQ(core_.wake_target()->wakes(), 1U);
}

TEST_F(SubmissionQueueTest, AnAwakeConsumerIsNotWoken) {
  ASSERT_TRUE(queue_.Prepare({1}));
  queue_.Submit();
  EXPECT_EQ(core_.wake_target()->wakes(), 0U);
}

TEST_F(SubmissionQueueTest, AFullQueueIsTheCallersAnswer) {
  for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(queue_.Prepare({i}));
  EXPECT_FALSE(queue_.Prepare({32}));
  EXPECT_EQ(core_.RunPass(), 16U);
  EXPECT_TRUE(queue_.Prepare({32}));
  hand_.RunUntilIdle();
  EXPECT_EQ(door_.seen.size(), 33U);
  EXPECT_EQ(door_.seen.back(), 32U);
}

TEST_F(SubmissionQueueTest, TheWaitInTheQueueIsTheActorsQueueWait) {
  ASSERT_TRUE(queue_.Prepare({1}));
  hand_.clock().Advance(21);
  core_.RunPass();
  EXPECT_EQ(door_.metrics().queue_wait.Snapshot().Count(), 1U);
  EXPECT_EQ(door_.metrics().queue_wait.Snapshot().Max(), 21U);
}

TEST_F(SubmissionQueueTest, AStopClosesItAndWhatItAcceptedIsHandled) {
  for (uint64_t i = 0; i < 20; ++i) ASSERT_TRUE(queue_.Prepare({i}));
  door_.open = false;
  ASSERT_TRUE(door_.Post({.kind = ControlMessage::kStop}));
  core_.RunPass();
  EXPECT_TRUE(queue_.closed());
  EXPECT_FALSE(queue_.Prepare({20}));
  EXPECT_FALSE(door_.stopped());
  door_.open = true;
  hand_.RunUntilIdle();
  EXPECT_TRUE(door_.stopped());
  EXPECT_EQ(door_.seen.size(), 20U);
}

TEST(SubmissionQueueAloneTest, AConsumerThatNeverParksNeedsNoWake) {
  ManualClock clock;
  ActorSystem system({.clock = clock.clock()});
  SubmissionQueue<Request> queue(4);
  Reactor& busy = *system.AddReactor({.name = "busy", .idle = IdlePolicy::kBusy});
  Door& door = system.AddActor<Door>(busy);
  system.Connect<&Door::OnRequest>(queue, door);
  ASSERT_TRUE(queue.Prepare({1}));
  queue.Submit();
  system.RunAll();
  EXPECT_THAT(door.seen, ElementsAre(1));
}

}  // namespace
}  // namespace railhop
