#include "runtime/completion_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/flag.h"
#include "tests/support/hand_driven_system.h"

namespace railhop {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

struct Result {
  uint64_t value = 0;
};

class Worker : public Actor {
 public:
  Worker() : Actor("worker") {}
  OutPort<Result> results;
};

class CompletionQueueTest : public testing::Test {
 protected:
  CompletionQueueTest()
      : core_(hand_.AddReactor("core")), worker_(hand_.system().AddActor<Worker>(core_)) {
    queue_.Connect(core_, worker_.results);
    hand_.Start();
  }

  CompletionQueue<Result> queue_{4};
  HandDrivenSystem hand_;
  Reactor& core_;
  Worker& worker_;
};

TEST_F(CompletionQueueTest, WithoutAResultThereIsNothingToSee) {
  EXPECT_EQ(queue_.Peek(), nullptr);
  EXPECT_FALSE(queue_.Wait(nanoseconds(0)));
  EXPECT_FALSE(queue_.Wait(nanoseconds(1)));
  EXPECT_FALSE(queue_.Wait(nanoseconds(-1)));
}

TEST_F(CompletionQueueTest, AResultStaysUntilItIsAdvancedOver) {
  worker_.results.Send({1});
  worker_.results.Send({2});
  EXPECT_TRUE(queue_.Wait(nanoseconds(0))) << "no need to wait for the end of the pass";
  ASSERT_NE(queue_.Peek(), nullptr);
  EXPECT_EQ(queue_.Peek()->value, 1U);
  EXPECT_EQ(queue_.Peek()->value, 1U);
  queue_.Advance();
  ASSERT_NE(queue_.Peek(), nullptr);
  EXPECT_EQ(queue_.Peek()->value, 2U);
  queue_.Advance();
  EXPECT_EQ(queue_.Peek(), nullptr);
}

TEST_F(CompletionQueueTest, AdvancingMakesRoom) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(worker_.results.TrySend({i}));
  EXPECT_FALSE(worker_.results.TrySend({4}));
  queue_.Advance();
  queue_.Advance();  // half of the queue: the credit goes back
  EXPECT_TRUE(worker_.results.TrySend({4}));
}

TEST_F(CompletionQueueTest, WaitingForMoreMakesAllRoomKnown) {
  for (uint64_t i = 0; i < 4; ++i) ASSERT_TRUE(worker_.results.TrySend({i}));
  for (int i = 0; i < 3; ++i) queue_.Advance();
  EXPECT_EQ(worker_.results.Room(3), 2U);
  queue_.Advance();
  EXPECT_FALSE(queue_.Wait(nanoseconds(1)));
  EXPECT_EQ(worker_.results.Room(4), 4U);
}

TEST_F(CompletionQueueTest, TheEndOfThePassWakesAThreadThatWaits) {
  Flag got;
  uint64_t value = 0;
  std::thread application([&] {
    if (queue_.Wait(hours(1)) && queue_.Peek() != nullptr) value = queue_.Peek()->value;
    got.Set();
  });
  worker_.results.Send({7});
  core_.RunPass();
  EXPECT_TRUE(got.Wait());
  application.join();
  EXPECT_EQ(value, 7U);
}

TEST_F(CompletionQueueTest, AWaitWithoutALimitWaits) {
  Flag got;
  std::thread application([&] {
    if (queue_.Wait(nanoseconds::max())) got.Set();
  });
  worker_.results.Send({7});
  core_.RunPass();
  EXPECT_TRUE(got.Wait());
  application.join();
}

}  // namespace
}  // namespace railhop
