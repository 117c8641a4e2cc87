// Systems that are built, started, stopped in every way and destroyed, over and over: nothing hangs
// and nothing is left behind. Beside them the host process forks.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <thread>

#include "runtime/actor_system.h"
#include "tests/support/scale.h"
#include "tests/support/wait_until.h"

namespace railhop {
namespace {

using std::chrono::hours;
using std::chrono::nanoseconds;
using std::chrono::seconds;

struct Token {
  uint64_t value = 0;
};

// Two of them keep tokens going round for ever: there is always a message in flight.
class Runner : public Actor {
 public:
  explicit Runner(std::string name) : Actor(std::move(name)) {}

  void OnStart() override {
    if (with_timer) {
      EXPECT_TRUE(reactor().loop().AddTimer(hours(1), [] { FAIL(); }).ok());
    }
    for (uint64_t i = 0; i < tokens; ++i) out.Send({i});
  }
  bool OnToken(const Token& token) {
    ++seen;
    if (stop_at != 0 && seen == stop_at) system->Stop(seconds(60));
    if (!stopping_) out.Send(token);
    return true;
  }
  void OnStop() override { stopping_ = true; }

  OutPort<Token> out;
  uint64_t tokens = 0;
  bool with_timer = false;
  ActorSystem* system = nullptr;
  uint64_t stop_at = 0;
  uint64_t seen = 0;

 private:
  bool stopping_ = false;
};

struct Course {
  static constexpr uint64_t kTokens = 4;
  static constexpr size_t kCapacity = CapacityForWindow(kTokens);

  ActorSystem system;
  Runner* front;
  Runner* back;

  explicit Course(IdlePolicy idle) {
    const auto add = [&](const char* name) {
      Reactor* reactor = system.AddReactor({.name = name, .idle = idle, .safety_tick = hours(1)});
      Runner& runner = system.AddActor<Runner>(*reactor, name);
      runner.system = &system;
      return &runner;
    };
    front = add("front");
    back = add("back");
    system.Connect<&Runner::OnToken>(*front, front->out, *back, {.capacity = kCapacity});
    system.Connect<&Runner::OnToken>(*back, back->out, *front, {.capacity = kCapacity});
    front->tokens = kTokens;
  }
};

size_t Entries(const char* folder) {
  const std::filesystem::directory_iterator entries(folder);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

void LiveOnce(uint64_t i) {
  Course course(i % 2 == 0 ? IdlePolicy::kEvent : IdlePolicy::kAdaptive);
  course.front->with_timer = i % 3 == 0;
  const uint64_t ending = i % 7;
  if (ending == 0) return;  // never started
  if (ending == 1) course.back->stop_at = 1 + i % 50;
  ASSERT_TRUE(course.system.Start().ok());
  switch (ending) {
    case 1:  // from inside a message handler
      ASSERT_TRUE(WaitUntil([&] { return course.back->stopped(); })) << i;
      break;
    case 2:  // destroyed with messages in flight
      break;
    case 3:  // no time to drain
      course.system.Stop(nanoseconds(0));
      break;
    case 4:  // from two threads
    {
      std::thread other([&] { course.system.Stop(seconds(60)); });
      course.system.Stop(seconds(60));
      other.join();
      break;
    }
    default:
      course.system.Stop(seconds(60));
      course.system.Stop(seconds(60));
  }
}

TEST(LifecycleStressTest, CreateAndDestroyLeaveNothingBehind) {
  const uint64_t loops = StressCount(1'000, 10'000);
  LiveOnce(5);
  const size_t descriptors = Entries("/proc/self/fd");
  const size_t threads = Entries("/proc/self/task");
  for (uint64_t i = 0; i < loops; ++i) {
    ASSERT_NO_FATAL_FAILURE(LiveOnce(i));
    ASSERT_EQ(Entries("/proc/self/fd"), descriptors) << "after loop " << i;
  }
  EXPECT_TRUE(WaitUntil([&] { return Entries("/proc/self/task") <= threads; }));
}

TEST(LifecycleStressTest, AHostThatForksHarmsNothing) {
  const uint64_t forks = StressCount(200, 2'000);
  auto course = std::make_unique<Course>(IdlePolicy::kEvent);
  ASSERT_TRUE(course->system.Start().ok());
  for (uint64_t i = 0; i < forks; ++i) {
    const uint64_t before = course->front->metrics().messages.load();
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      // With destructors, without them, or with an exec: that is how children of hosts end.
      if (i % 3 == 0) course.reset();
      if (i % 3 == 1) execl("/bin/true", "true", static_cast<char*>(nullptr));
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << " at " << i;
    ASSERT_TRUE(WaitUntil([&] { return course->front->metrics().messages.load() > before + 10; }))
        << "the parent stands still after fork " << i;
  }
  course->system.Stop(seconds(60));
}

}  // namespace
}  // namespace railhop
