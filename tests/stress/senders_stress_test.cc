// Many more senders than cores, rings of two cells, one receiver: it must get its turn, and so must
// each sender.
#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor_system.h"
#include "runtime/cpu_placement.h"
#include "tests/support/flag.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

struct Parcel {
  uint32_t sender = 0;
  uint64_t number = 0;
};

class Sender : public Actor, private Poller {
 public:
  Sender(uint32_t index, uint64_t count)
      : Actor("sender" + std::to_string(index)), index_(index), count_(count) {
    AddPoller(static_cast<Poller*>(this));
  }
  bool Drained() const override { return next_ == count_; }
  void OnFlush() override { next_ = count_; }

  OutPort<Parcel> parcels;

 private:
  size_t Poll(uint64_t) override {
    size_t sent = 0;
    while (next_ < count_ && parcels.TrySend({index_, next_})) {
      ++next_;
      ++sent;
    }
    return sent;
  }

  const uint32_t index_;
  const uint64_t count_;
  uint64_t next_ = 0;
};

class Receiver : public Actor {
 public:
  Receiver(size_t senders, uint64_t count)
      : Actor("receiver"), next(senders), left_(senders * count) {}
  bool OnParcel(const Parcel& parcel) {
    wrong += next[parcel.sender]++ == parcel.number ? 0 : 1;
    if (--left_ == 0) all.Set();
    return true;
  }

  std::vector<uint64_t> next;
  uint64_t wrong = 0;
  Flag all;

 private:
  uint64_t left_;
};

size_t Senders() {
  return 4 * AllowedCores().size();
}

class SendersStressTest : public testing::TestWithParam<IdlePolicy> {};

TEST_P(SendersStressTest, TheReceiverIsNotStarvedByReactors) {
  // BUSY senders hand over once per time slice only: the fewer.
  const uint64_t count = GetParam() == IdlePolicy::kBusy ? 50 : StressCount(5'000, 200'000);
  ActorSystem system;
  const auto options = [](std::string name, IdlePolicy idle) {
    return ReactorOptions{.name = std::move(name),
                          .idle = idle,
                          .spin = std::chrono::microseconds(5),
                          .safety_tick = std::chrono::hours(1)};
  };
  std::vector<Sender*> senders;
  for (size_t i = 0; i < Senders(); ++i) {
    Reactor& core = *system.AddReactor(options("sender" + std::to_string(i), GetParam()));
    senders.push_back(&system.AddActor<Sender>(core, static_cast<uint32_t>(i), count));
  }
  Reactor& core = *system.AddReactor(options("receiver", IdlePolicy::kEvent));
  Receiver& receiver = system.AddActor<Receiver>(core, senders.size(), count);
  for (Sender* sender : senders) {
    system.Connect<&Receiver::OnParcel>(*sender, sender->parcels, receiver, {.capacity = 2});
  }
  ASSERT_TRUE(system.Start().ok());
  const bool all = receiver.all.Wait();
  system.Stop(std::chrono::seconds(all ? 60 : 0));
  EXPECT_TRUE(all);
  for (size_t i = 0; i < senders.size(); ++i) EXPECT_EQ(receiver.next[i], count) << "sender " << i;
  EXPECT_EQ(receiver.wrong, 0U);
}

INSTANTIATE_TEST_SUITE_P(Idle, SendersStressTest,
                         testing::Values(IdlePolicy::kEvent, IdlePolicy::kAdaptive,
                                         IdlePolicy::kBusy),
                         [](const auto& tested) {
                           return tested.param == IdlePolicy::kEvent      ? "Event"
                                  : tested.param == IdlePolicy::kAdaptive ? "Adaptive"
                                                                          : "Busy";
                         });

TEST(InboxStressTest, TheReceiverIsNotStarvedByForeignThreads) {
  const uint64_t count = StressCount(5'000, 200'000);
  const size_t threads = Senders();
  SubmissionQueue<Parcel> queue(2);
  ActorSystem system;
  Receiver& receiver = system.AddActor<Receiver>(
      *system.AddReactor(
          {.name = "receiver", .idle = IdlePolicy::kEvent, .safety_tick = std::chrono::hours(1)}),
      threads, count);
  system.Connect<&Receiver::OnParcel>(queue, receiver);
  ASSERT_TRUE(system.Start().ok());
  std::atomic<bool> give_up{false};
  std::vector<std::thread> senders;
  senders.reserve(threads);
  for (uint32_t i = 0; i < threads; ++i) {
    senders.emplace_back([&, i] {
      for (uint64_t number = 0; number < count && !give_up.load(); ++number) {
        while (!queue.Prepare({i, number}) && !give_up.load()) std::this_thread::yield();
        queue.Submit();
      }
    });
  }
  EXPECT_TRUE(receiver.all.Wait());
  give_up.store(true);
  for (std::thread& sender : senders) sender.join();
  system.Stop(std::chrono::seconds(60));
  EXPECT_EQ(receiver.wrong, 0U);
}

// A ring whose producers are interrupted between taking a position and writing it.
class InterruptedRing : public MpscRing<Parcel> {
 public:
  using MpscRing<Parcel>::MpscRing;
  bool PushWithABreak(const Parcel& parcel) {
    const auto position = TryClaim();
    if (!position) return false;
    std::this_thread::yield();
    Write(*position, parcel);
    return true;
  }
};

TEST(InboxStressTest, PreemptedProducersLoseNothingAndStopNobody) {
  const uint64_t count = StressCount(30'000, 2'000'000);
  const size_t threads = 3;
  const int core = AllowedCores().front();
  InterruptedRing ring(16);
  std::vector<std::thread> producers;
  producers.reserve(threads);
  for (uint32_t i = 0; i < threads; ++i) {
    producers.emplace_back([&, i] {
      // All on one core: whoever runs has preempted the others.
      EXPECT_TRUE(PinThisThread(core, PinPolicy::kRequired).ok());
      for (uint64_t number = 0; number < count; ++number) {
        const Parcel parcel{i, number};
        while (!(number % 8 == i ? ring.PushWithABreak(parcel) : ring.TryPush(parcel))) {
          std::this_thread::yield();
        }
      }
    });
  }
  std::vector<uint64_t> next(threads);
  uint64_t wrong = 0;
  for (uint64_t total = 0; total < threads * count;) {
    const size_t taken = ring.Drain(16, [&](const Parcel& parcel) {
      wrong += next[parcel.sender]++ == parcel.number ? 0 : 1;
      return true;
    });
    total += taken;
    if (taken == 0) std::this_thread::yield();
  }
  for (std::thread& producer : producers) producer.join();
  EXPECT_EQ(wrong, 0U);
  EXPECT_TRUE(ring.AllTaken());
}

}  // namespace
}  // namespace railhop
