#include "runtime/parker.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/fence.h"
#include "tests/support/flag.h"
#include "tests/support/no_more_descriptors.h"

namespace railhop {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;

bool Readable(const Parker& parker) {
  pollfd watched{parker.fd(), POLLIN, 0};
  return poll(&watched, 1, 0) == 1;
}

TEST(ParkerTest, ItsDescriptorIsCloseOnExecAndNonblocking) {
  const Parker parker;
  EXPECT_NE(fcntl(parker.fd(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_NE(fcntl(parker.fd(), F_GETFL) & O_NONBLOCK, 0);
}

TEST(ParkerTest, AnAwakeOwnerCostsNoSystemCall) {
  Parker parker;
  parker.WakeIfParked();
  parker.WakeIfParkedForRoom();
  EXPECT_EQ(parker.wakes(), 0U);
  EXPECT_FALSE(Readable(parker));
}

TEST(ParkerTest, OfSeveralWakersOneMakesTheCall) {
  Parker parker;
  parker.PreparePark();
  parker.WakeIfParked();
  parker.WakeIfParked();
  EXPECT_EQ(parker.wakes(), 1U);
  EXPECT_TRUE(Readable(parker));
}

TEST(ParkerTest, AfterFinishParkItIsAwakeAgain) {
  Parker parker;
  parker.PreparePark();
  parker.FinishPark();
  parker.WakeIfParked();
  EXPECT_EQ(parker.wakes(), 0U);
}

TEST(ParkerTest, RoomWakesOnlyAnOwnerThatParkedForRoom) {
  Parker parker;
  parker.PreparePark(/*for_room=*/false);
  parker.WakeIfParkedForRoom();
  EXPECT_EQ(parker.wakes(), 0U);
  parker.FinishPark();
  parker.PreparePark(/*for_room=*/true);
  parker.WakeIfParkedForRoom();
  EXPECT_EQ(parker.wakes(), 1U);
}

TEST(ParkerTest, WorkWakesAnOwnerThatParkedForRoom) {
  Parker parker;
  parker.PreparePark(/*for_room=*/true);
  parker.WakeIfParked();
  EXPECT_EQ(parker.wakes(), 1U);
}

TEST(ParkerTest, AWakeBeforeTheBlockEndsItAtOnceAndOnce) {
  Parker parker;
  parker.PreparePark();
  parker.WakeIfParked();
  parker.Block(hours(1));
  EXPECT_FALSE(Readable(parker)) << "the wake is used up";
}

TEST(ParkerTest, WithoutADescriptorItLooksAroundInsteadOfSleeping) {
  const NoMoreDescriptors limit;
  Parker parker;
  EXPECT_EQ(parker.fd(), -1);
  parker.PreparePark();
  parker.WakeIfParked();
  parker.Block(hours(1));
}

TEST(ParkerTest, ABlockEndsAtItsTimeout) {
  Parker parker;
  parker.PreparePark();
  parker.Block(nanoseconds(1));
  parker.FinishPark();
  EXPECT_EQ(parker.wakes(), 0U);
}

TEST(ParkerTest, ASignalEndsABlock) {
  // The owner looks again and blocks again: that is the caller's loop.
  struct sigaction action {};
  action.sa_handler = [](int) {};
  struct sigaction previous {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &previous), 0);
  Parker parker;
  Flag returned;
  std::atomic<bool> done{false};
  std::thread owner([&] {
    parker.PreparePark();
    parker.Block(hours(1));
    returned.Set();
  });
  // The signal may come before the thread blocks, hence again and again.
  std::thread sender([&] {
    while (!done.load()) {
      pthread_kill(owner.native_handle(), SIGUSR1);
      std::this_thread::yield();
    }
  });
  EXPECT_TRUE(returned.Wait());
  done.store(true);
  sender.join();
  parker.WakeIfParked();  // should the signal not have done it
  owner.join();
  sigaction(SIGUSR1, &previous, nullptr);
}

TEST(ParkerTest, ADeadlineThatIsTooFarIsTheEndOfTime) {
  using TimePoint = std::chrono::steady_clock::time_point;
  EXPECT_EQ(DeadlineAfter(nanoseconds::max()), TimePoint::max());
  EXPECT_GT(DeadlineAfter(hours(1)), std::chrono::steady_clock::now());
  EXPECT_LT(DeadlineAfter(-hours(1)), std::chrono::steady_clock::now());
}

// The whole protocol, with a word as the work: an owner that blocks without a limit and a waker
// that publishes one thing at a time. A lost wake-up would leave both waiting.
TEST(ParkerTest, NoWakeUpIsLost) {
  constexpr uint64_t kRounds = 20'000;
  Parker parker;
  std::atomic<uint64_t> published{0};
  std::atomic<uint64_t> taken{0};
  std::thread owner([&] {
    for (uint64_t next = 1; next <= kRounds; ++next) {
      while (published.load(std::memory_order_acquire) < next) {
        parker.PreparePark();
        if (published.load(std::memory_order_acquire) < next) parker.Block(hours(1));
        parker.FinishPark();
      }
      taken.store(next, std::memory_order_release);
      taken.notify_one();
    }
  });
  for (uint64_t i = 1; i <= kRounds; ++i) {
    published.store(i, std::memory_order_release);
    FullFence();
    parker.WakeIfParked();
    if (i % 2 == 0) taken.wait(i - 1, std::memory_order_acquire);
  }
  owner.join();
  EXPECT_EQ(taken.load(), kRounds);
}

}  // namespace
}  // namespace railhop
