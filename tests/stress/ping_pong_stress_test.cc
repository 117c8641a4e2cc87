// Two reactors that share one core and send a ball to and fro. Each hop finds the other one parked,
// about to park or just woken, so every window of the park/wake protocol is hit again and again.
// The safety tick is an hour away: one lost wake-up ends the game.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/actor_system.h"
#include "runtime/completion_queue.h"
#include "runtime/cpu_placement.h"
#include "tests/support/flag.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

struct Ball {
  uint64_t round = 0;
};

class Player : public Actor {
 public:
  // `rounds` 0: gives back what it gets; otherwise it serves, and counts up to that.
  Player(std::string name, uint64_t rounds, Flag* done, std::atomic<uint64_t>* progress)
      : Actor(std::move(name)), rounds_(rounds), done_(done), progress_(progress) {}

  void OnStart() override {
    if (rounds_ != 0) out.Send({1});
  }
  bool OnBall(const Ball& ball) {
    if (rounds_ == 0) {
      out.Send(ball);
      return true;
    }
    in_order = in_order && ball.round == progress_->load(std::memory_order_relaxed) + 1;
    progress_->store(ball.round, std::memory_order_relaxed);
    if (ball.round == rounds_) {
      done_->Set();
    } else {
      out.Send({ball.round + 1});
    }
    return true;
  }

  OutPort<Ball> out;
  bool in_order = true;

 private:
  const uint64_t rounds_;
  Flag* const done_;
  std::atomic<uint64_t>* const progress_;
};

// Waits for `done` as long as `progress` moves. False: it stood still for a whole patience.
bool WaitWhileItMoves(const Flag& done, const std::atomic<uint64_t>& progress) {
  uint64_t before = UINT64_MAX;
  while (!done.Wait(kTestPatience / 2)) {
    const uint64_t now = progress.load(std::memory_order_relaxed);
    if (now == before) return false;
    before = now;
  }
  return true;
}

class PingPongStressTest : public testing::TestWithParam<std::chrono::microseconds> {};

TEST_P(PingPongStressTest, NoWakeUpIsLostOnOneCore) {
  // A spin longer than a hop lets the peer in only when it ends: 30 us a round, hence fewer.
  const bool spins = GetParam() > std::chrono::microseconds(1);
  const uint64_t rounds = spins ? StressCount(50'000, 1'000'000) : StressCount(200'000, 10'000'000);
  const int core = AllowedCores().front();
  const IdlePolicy idle = GetParam().count() == 0 ? IdlePolicy::kEvent : IdlePolicy::kAdaptive;
  Flag done;
  std::atomic<uint64_t> progress{0};
  ActorSystem system;
  const auto options = [&](const char* name) {
    return ReactorOptions{.name = name,
                          .core = core,
                          .idle = idle,
                          .spin = GetParam(),
                          .safety_tick = std::chrono::hours(1)};
  };
  Reactor& ping_core = *system.AddReactor(options("ping"));
  Reactor& pong_core = *system.AddReactor(options("pong"));
  Player& ping = system.AddActor<Player>(ping_core, "ping", rounds, &done, &progress);
  Player& pong = system.AddActor<Player>(pong_core, "pong", 0, &done, &progress);
  system.Connect<&Player::OnBall>(ping, ping.out, pong, {.capacity = 2});
  system.Connect<&Player::OnBall>(pong, pong.out, ping, {.capacity = 2});
  ASSERT_TRUE(system.Start().ok());
  EXPECT_TRUE(WaitWhileItMoves(done, progress)) << "stands still after " << progress.load();
  system.Stop(std::chrono::seconds(1));
  EXPECT_EQ(progress.load(), rounds);
  EXPECT_TRUE(ping.in_order);
  // On one core the peer runs only while this one is parked or preempted: it did sleep and wake.
  EXPECT_GT(ping_core.parks(), 0U);
  EXPECT_GT(ping_core.wake_target()->wakes(), 0U);
  RecordProperty("wakes", std::to_string(ping_core.wake_target()->wakes()));
}

INSTANTIATE_TEST_SUITE_P(EventAndAdaptive, PingPongStressTest,
                         testing::Values(std::chrono::microseconds(0), std::chrono::microseconds(1),
                                         std::chrono::microseconds(5)),
                         [](const auto& tested) {
                           return "Spin" + std::to_string(tested.param.count()) + "us";
                         });

// Applications and an actor: each thread hands a request in and sleeps until its own answer is
// there.
struct Request {
  uint32_t thread = 0;
  uint64_t value = 0;
};

class Server : public Actor {
 public:
  static constexpr uint32_t kThreads = 3;

  Server() : Actor("server") {}
  bool OnRequest(const Request& request) {
    answers[request.thread].Send({request.value});
    return true;
  }
  OutPort<Ball> answers[kThreads];
};

TEST(HandOverStressTest, EachThreadGetsEachOfItsAnswers) {
  const uint64_t requests = StressCount(40'000, 2'000'000);
  constexpr uint64_t kWindow = 8;
  SubmissionQueue<Request> queue(4);
  std::vector<std::unique_ptr<CompletionQueue<Ball>>> answers;
  ActorSystem system;
  Reactor& core = *system.AddReactor(
      {.name = "server", .idle = IdlePolicy::kEvent, .safety_tick = std::chrono::hours(1)});
  Server& server = system.AddActor<Server>(core);
  system.Connect<&Server::OnRequest>(queue, server);
  for (OutPort<Ball>& port : server.answers) {
    answers.push_back(std::make_unique<CompletionQueue<Ball>>(CapacityForWindow(kWindow)));
    answers.back()->Connect(core, port);
  }
  ASSERT_TRUE(system.Start().ok());
  std::atomic<uint64_t> wrong{0};
  std::vector<std::thread> threads;
  for (uint32_t t = 0; t < Server::kThreads; ++t) {
    threads.emplace_back([&, t] {
      CompletionQueue<Ball>& mine = *answers[t];
      uint64_t sent = 0;
      uint64_t got = 0;
      while (got < requests) {
        while (sent < requests && sent - got < kWindow && queue.Prepare({t, sent})) ++sent;
        queue.Submit();
        if (sent == got) {
          std::this_thread::yield();  // the queue is full of the others' requests
          continue;
        }
        if (!mine.Wait(kTestPatience)) {
          ++wrong;
          return;
        }
        for (const Ball* ball = mine.Peek(); ball != nullptr; ball = mine.Peek()) {
          wrong += ball->round == got++ ? 0 : 1;
          mine.Advance();
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0U);
}

}  // namespace
}  // namespace railhop
