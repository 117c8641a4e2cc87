// The two fences of the park/wake protocol, on two cores: the owner parks and looks, the waker
// publishes and looks, both at the same moment, again and again. At least one of the two must see
// the other. On cores that do other work a meeting takes a thousand times as long, so rounds end
// after some seconds, too.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/cpu_placement.h"
#include "runtime/edge.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

struct Item {
  uint64_t value = 0;
};

// Two threads leave Meet within a cache line's way of each other.
class MeetingPoint {
 public:
  void Meet(uint64_t round, bool first) {
    std::atomic<uint64_t>& mine = first ? first_ : second_;
    const std::atomic<uint64_t>& other = first ? second_ : first_;
    mine.store(round, std::memory_order_release);
    for (int i = 0; other.load(std::memory_order_acquire) < round; ++i) {
      if (i > 1'000) std::this_thread::yield();  // the other one was preempted
    }
  }

 private:
  alignas(kNoFalseSharing) std::atomic<uint64_t> first_{0};
  alignas(kNoFalseSharing) std::atomic<uint64_t> second_{0};
};

// A few nanoseconds a turn, so that the two come in every order.
void Linger(uint64_t turns) {
  for (; turns > 0; --turns) asm volatile("" ::: "memory");
}

TEST(ParkerStressTest, EitherTheSleeperSeesTheWorkOrTheWakerSeesTheSleeper) {
  const std::vector<int> cores = AllowedCores();
  if (cores.size() < 2) GTEST_SKIP() << "there is one core only";
  std::atomic<uint64_t> rounds{StressCount(200'000, 10'000'000)};
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  Parker parker;
  SpscRing<Item> ring(4);
  WakeList wakes;
  const uint64_t bit = wakes.Add(&parker);
  MeetingPoint before;
  MeetingPoint after;
  std::thread waker([&] {
    EXPECT_TRUE(PinThisThread(cores.back(), PinPolicy::kRequired).ok());
    for (uint64_t round = 1; round <= rounds.load(); ++round) {
      before.Meet(round, false);
      Linger(round % 8);
      EXPECT_TRUE(ring.TryPush({round}));
      wakes.Touch(bit);
      wakes.Flush();
      after.Meet(round, false);
    }
  });
  EXPECT_TRUE(PinThisThread(cores.front(), PinPolicy::kRequired).ok());
  uint64_t lost = 0;
  uint64_t woken = 0;
  uint64_t found = 0;
  for (uint64_t round = 1; round <= rounds.load(); ++round) {
    const uint64_t wakes_before = parker.wakes();
    before.Meet(round, true);
    Linger(round / 8 % 8);
    parker.PreparePark();
    const bool saw = !ring.Empty();
    // Before both meet: the waker sees it, too.
    if (round % 1024 == 0 && std::chrono::steady_clock::now() > until) rounds.store(round);
    after.Meet(round, true);
    const bool was_woken = parker.wakes() != wakes_before;
    lost += !saw && !was_woken ? 1 : 0;
    woken += was_woken ? 1 : 0;
    found += saw ? 1 : 0;
    parker.FinishPark();
    ring.Pop();
  }
  waker.join();
  EXPECT_EQ(lost, 0U);
  EXPECT_GT(woken, 0U) << "the two never met: this was no test";
  EXPECT_GT(found, 0U) << "the two never met: this was no test";
}

}  // namespace
}  // namespace railhop
