// Two reactors send a ball to and fro: on one core, where each hop is a switch of threads, and on
// two, where a peer that never sleeps returns the ball after another while each time, so that it
// arrives in every window of the park/wake protocol. The safety tick is an hour away: one lost
// wake-up ends the game.
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
#include "runtime/fence.h"
#include "tests/support/flag.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

struct Ball {
  uint64_t round = 0;
};

class Player : public Actor {
 public:
  struct Game {
    uint64_t rounds = 0;
    uint32_t delay = 0;  // a ball is returned after up to so many turns
    Flag done;
    std::atomic<uint64_t> progress{0};
  };

  Player(std::string name, Game* game, bool serves)
      : Actor(std::move(name)), game_(game), serves_(serves) {}

  void OnStart() override {
    if (serves_) out.Send({1});
  }
  bool OnBall(const Ball& ball) {
    if (!serves_) {
      HoldBack();
      out.Send(ball);
      return true;
    }
    in_order = in_order && ball.round == game_->progress.load(std::memory_order_relaxed) + 1;
    game_->progress.store(ball.round, std::memory_order_relaxed);
    if (ball.round == game_->rounds) {
      game_->done.Set();
    } else {
      out.Send({ball.round + 1});
    }
    return true;
  }

  OutPort<Ball> out;
  bool in_order = true;

 private:
  void HoldBack() {
    if (game_->delay == 0) return;
    random_ = random_ * 1664525 + 1013904223;
    for (uint32_t i = (random_ >> 8) % game_->delay; i > 0; --i) CpuRelax();
  }

  Game* const game_;
  const bool serves_;
  uint32_t random_ = 1;
};

// Waits as long as the game goes on. False: it stood still for a whole patience.
bool WaitWhileItMoves(const Player::Game& game) {
  uint64_t before = UINT64_MAX;
  while (!game.done.Wait(kTestPatience / 2)) {
    const uint64_t now = game.progress.load(std::memory_order_relaxed);
    if (now == before) return false;
    before = now;
  }
  return true;
}

struct Table {
  std::string name;
  std::chrono::microseconds spin;  // 0: EVENT
  uint32_t delay;                  // not 0: the peer is BUSY, on a core of its own
  uint64_t rounds;
  uint64_t long_rounds;
};

class PingPongStressTest : public testing::TestWithParam<Table> {};

TEST_P(PingPongStressTest, NoWakeUpIsLost) {
  const Table& table = GetParam();
  const std::vector<int> cores = AllowedCores();
  const bool busy_peer = table.delay != 0;
  if (busy_peer && cores.size() < 2) GTEST_SKIP() << "there is one core only";
  Player::Game game;
  game.rounds = StressCount(table.rounds, table.long_rounds);
  game.delay = table.delay;
  ActorSystem system;
  const auto add = [&](const char* name, int core, IdlePolicy idle) {
    return system.AddReactor({.name = name,
                              .core = core,
                              .idle = idle,
                              .spin = table.spin,
                              .safety_tick = std::chrono::hours(1)});
  };
  const IdlePolicy idle = table.spin.count() == 0 ? IdlePolicy::kEvent : IdlePolicy::kAdaptive;
  Reactor& ping_core = *add("ping", cores.front(), idle);
  Reactor& pong_core =
      busy_peer ? *add("pong", cores.back(), IdlePolicy::kBusy) : *add("pong", cores.front(), idle);
  Player& ping = system.AddActor<Player>(ping_core, "ping", &game, true);
  Player& pong = system.AddActor<Player>(pong_core, "pong", &game, false);
  system.Connect<&Player::OnBall>(ping, ping.out, pong, {.capacity = 2});
  system.Connect<&Player::OnBall>(pong, pong.out, ping, {.capacity = 2});
  ASSERT_TRUE(system.Start().ok());
  EXPECT_TRUE(WaitWhileItMoves(game)) << "stands still after " << game.progress.load();
  system.Stop(std::chrono::seconds(1));
  EXPECT_EQ(game.progress.load(), game.rounds);
  EXPECT_TRUE(ping.in_order);
  EXPECT_GT(ping_core.parks(), 0U) << "this is no test of parking";
  EXPECT_GT(ping_core.wake_target()->wakes(), 0U);
}

// On one core a spin longer than a hop lets the peer in only when it ends: the fewer rounds.
using std::chrono::microseconds;
INSTANTIATE_TEST_SUITE_P(
    Tables, PingPongStressTest,
    testing::Values(Table{"OneCoreEvent", microseconds(0), 0, 200'000, 10'000'000},
                    Table{"OneCoreSpin1us", microseconds(1), 0, 200'000, 10'000'000},
                    Table{"OneCoreSpin5us", microseconds(5), 0, 50'000, 1'000'000},
                    Table{"BusyPeerEvent", microseconds(0), 40, 200'000, 10'000'000},
                    Table{"BusyPeerSpin1us", microseconds(1), 100, 200'000, 10'000'000}),
    [](const auto& tested) { return tested.param.name; });

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
  threads.reserve(Server::kThreads);
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
