#include "runtime/event_loop.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <set>
#include <string>
#include <thread>

#include "tests/support/no_more_descriptors.h"

namespace railhop {
namespace {

using std::chrono::hours;
using std::chrono::microseconds;
using std::chrono::nanoseconds;

class EventFd {
 public:
  EventFd() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  ~EventFd() { close(fd_); }
  int fd() const { return fd_; }
  void Signal() const {
    const uint64_t one = 1;
    ASSERT_EQ(write(fd_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
  }
  void Clear() const {
    uint64_t value = 0;
    [[maybe_unused]] const ssize_t got = read(fd_, &value, sizeof value);
  }

 private:
  int fd_;
};

class EventLoopTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok()) << loop.status();
    loop_ = *std::move(loop);
  }

  EventLoop::WatchId Watch(const EventFd& event, Trigger trigger, EventLoop::Callback callback) {
    auto id = loop_->WatchFd(event.fd(), trigger, std::move(callback));
    EXPECT_TRUE(id.ok()) << id.status();
    return id.ok() ? *id : 0;
  }

  std::unique_ptr<EventLoop> loop_;
};

TEST_F(EventLoopTest, WithoutEventsNothingRuns) {
  EXPECT_EQ(loop_->RunReady(), 0);
  EXPECT_EQ(loop_->RunOnce(microseconds(1)), 0);
  EXPECT_EQ(loop_->RunOnce(nanoseconds(0)), 0);
  EXPECT_EQ(loop_->RunOnce(nanoseconds(-5)), 0);
}

TEST_F(EventLoopTest, AWaitIsNotShorterThanAskedFor) {
  const EventFd quiet;
  Watch(quiet, Trigger::kEdge, [] {});
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(loop_->RunOnce(microseconds(300)), 0);
  EXPECT_GE(std::chrono::steady_clock::now() - start, microseconds(300));
}

TEST_F(EventLoopTest, LevelCallsAsLongAsReadableEdgeOncePerWrite) {
  const EventFd level_event;
  const EventFd edge_event;
  int level = 0;
  int edge = 0;
  Watch(level_event, Trigger::kLevel, [&] { ++level; });
  Watch(edge_event, Trigger::kEdge, [&] { ++edge; });
  level_event.Signal();
  edge_event.Signal();
  EXPECT_EQ(loop_->RunReady(), 2);
  EXPECT_EQ(loop_->RunReady(), 1);
  EXPECT_EQ(level, 2);
  EXPECT_EQ(edge, 1);
  edge_event.Signal();  // never read, and yet a new edge
  EXPECT_EQ(loop_->RunReady(), 2);
  EXPECT_EQ(edge, 2);
}

TEST_F(EventLoopTest, AnEventFromAnotherThreadEndsTheWait) {
  const EventFd event;
  int calls = 0;
  Watch(event, Trigger::kEdge, [&] { ++calls; });
  std::thread other([&event] { event.Signal(); });
  EXPECT_EQ(loop_->RunOnce(hours(1)), 1);  // hangs, and meets ctest's limit, if the event is lost
  other.join();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, AnEventBeforeTheWaitIsNotLost) {
  const EventFd event;
  Watch(event, Trigger::kEdge, [] {});
  event.Signal();
  EXPECT_EQ(loop_->RunOnce(hours(1)), 1);
}

TEST_F(EventLoopTest, TheWaitMayBeAsLongAsItsTypeAllows) {
  const EventFd event;
  Watch(event, Trigger::kEdge, [] {});
  event.Signal();
  EXPECT_EQ(loop_->RunOnce(nanoseconds::max()), 1);
}

TEST_F(EventLoopTest, ATimerCallsAgainAndAgain) {
  int ticks = 0;
  const auto id = loop_->AddTimer(microseconds(50), [&] { ++ticks; });
  ASSERT_TRUE(id.ok());
  while (ticks < 3) EXPECT_EQ(loop_->RunOnce(hours(1)), 1);
  EXPECT_TRUE(loop_->Unwatch(*id));
  EXPECT_EQ(loop_->RunOnce(microseconds(200)), 0);
  EXPECT_EQ(ticks, 3);
}

TEST_F(EventLoopTest, UnwatchEndsTheCallbacks) {
  const EventFd event;
  int calls = 0;
  const EventLoop::WatchId id = Watch(event, Trigger::kLevel, [&] { ++calls; });
  event.Signal();
  EXPECT_TRUE(loop_->Unwatch(id));
  EXPECT_FALSE(loop_->Unwatch(id));
  EXPECT_FALSE(loop_->Unwatch(0));
  EXPECT_EQ(loop_->RunReady(), 0);
  EXPECT_EQ(calls, 0);
  EXPECT_NE(Watch(event, Trigger::kLevel, [] {}), id) << "ids are not used twice";
}

TEST_F(EventLoopTest, ACallbackMayUnwatchItselfAndOthers) {
  const EventFd a;
  const EventFd b;
  EventLoop::WatchId id_a = 0;
  EventLoop::WatchId id_b = 0;
  int calls = 0;
  // Both are pending; whichever runs first takes the other out before it runs.
  const auto remove_both = [&] {
    ++calls;
    EXPECT_TRUE(loop_->Unwatch(id_a));
    EXPECT_TRUE(loop_->Unwatch(id_b));
  };
  id_a = Watch(a, Trigger::kLevel, remove_both);
  id_b = Watch(b, Trigger::kLevel, remove_both);
  a.Signal();
  b.Signal();
  EXPECT_EQ(loop_->RunReady(), 1);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(loop_->RunReady(), 0);
}

TEST_F(EventLoopTest, ACallbackMayAddWatches) {
  const EventFd a;
  const EventFd b;
  int calls = 0;
  Watch(a, Trigger::kEdge, [&] { Watch(b, Trigger::kEdge, [&] { ++calls; }); });
  a.Signal();
  b.Signal();
  while (calls == 0) loop_->RunReady();
  EXPECT_EQ(calls, 1);
}

TEST_F(EventLoopTest, AHangUpCallsBack) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
  int calls = 0;
  const auto id = loop_->WatchFd(pipe_fds[0], Trigger::kEdge, [&] { ++calls; });
  ASSERT_TRUE(id.ok());
  close(pipe_fds[1]);
  EXPECT_EQ(loop_->RunOnce(hours(1)), 1);
  EXPECT_EQ(calls, 1);
  EXPECT_TRUE(loop_->Unwatch(*id));
  close(pipe_fds[0]);
}

TEST_F(EventLoopTest, CallsBackWhileBytesCanBeWritten) {
  int pipe_fds[2];
  ASSERT_EQ(pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK), 0);
  int calls = 0;
  const auto id = loop_->WatchWritable(pipe_fds[1], [&] { ++calls; });
  ASSERT_TRUE(id.ok());
  EXPECT_EQ(loop_->RunReady(), 1);
  EXPECT_EQ(loop_->RunReady(), 1);
  EXPECT_EQ(loop_->WatchFd(pipe_fds[1], Trigger::kLevel, [] {}).status().code(),
            absl::StatusCode::kAlreadyExists);
  const std::string block(4096, 'x');
  while (write(pipe_fds[1], block.data(), block.size()) > 0) {
  }
  EXPECT_EQ(loop_->RunReady(), 0);
  std::string drained(1 << 20, 0);
  EXPECT_GT(read(pipe_fds[0], drained.data(), drained.size()), 0);
  EXPECT_EQ(loop_->RunReady(), 1);
  EXPECT_EQ(calls, 3);
  EXPECT_TRUE(loop_->Unwatch(*id));
  close(pipe_fds[0]);
  close(pipe_fds[1]);
}

TEST_F(EventLoopTest, RefusesWhatCannotBeWatched) {
  EXPECT_EQ(loop_->WatchFd(-1, Trigger::kLevel, [] {}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  EXPECT_FALSE(loop_->WatchFd(file, Trigger::kLevel, [] {}).ok());
  close(file);
  const EventFd event;
  Watch(event, Trigger::kEdge, [] {});
  EXPECT_EQ(loop_->WatchFd(event.fd(), Trigger::kLevel, [] {}).status().code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_FALSE(loop_->AddTimer(nanoseconds(0), [] {}).ok());
  EXPECT_FALSE(loop_->AddTimer(nanoseconds(-1), [] {}).ok());
  EXPECT_EQ(loop_->RunReady(), 0) << "the loop goes on";
}

TEST_F(EventLoopTest, ASignalDoesNotEndTheWait) {
  struct sigaction action = {};
  static std::atomic<int> signals{0};
  action.sa_handler = [](int) { signals.fetch_add(1, std::memory_order_relaxed); };
  struct sigaction previous = {};
  ASSERT_EQ(sigaction(SIGUSR1, &action, &previous), 0);  // without SA_RESTART
  const EventFd event;
  Watch(event, Trigger::kEdge, [] {});
  std::atomic<bool> woken{false};
  const pthread_t waiter = pthread_self();
  std::thread other([&] {
    // Keeps interrupting until the event has been written; each signal is one EINTR or falls
    // outside the wait.
    for (int i = 0; i < 200; ++i) {
      pthread_kill(waiter, SIGUSR1);
      std::this_thread::yield();
    }
    woken.store(true, std::memory_order_release);
    event.Signal();
  });
  EXPECT_EQ(loop_->RunOnce(hours(1)), 1);
  EXPECT_TRUE(woken.load(std::memory_order_acquire)) << "the wait ended before the event";
  EXPECT_GT(signals.load(), 0);
  other.join();
  sigaction(SIGUSR1, &previous, nullptr);
}

std::set<int> OpenDescriptors() {
  std::set<int> fds;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    fds.insert(std::stoi(entry.path().filename().string()));
  }
  return fds;
}

TEST(EventLoopDescriptorTest, AllAreCloseOnExecAndNoneLeaks) {
  const std::set<int> before = OpenDescriptors();
  {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    ASSERT_TRUE((*loop)->AddTimer(microseconds(10), [] {}).ok());
    (*loop)->RunOnce(microseconds(100));
    int made = 0;
    for (const int fd : OpenDescriptors()) {
      const int flags = fcntl(fd, F_GETFD);
      if (before.count(fd) != 0 || flags < 0) continue;  // the listing's own is closed again
      EXPECT_NE(flags & FD_CLOEXEC, 0) << fd;
      ++made;
    }
    EXPECT_GT(made, 0);
  }
  EXPECT_EQ(OpenDescriptors(), before);
}

TEST(TimerSlackTest, IsThatOfTheCallingThread) {
  const int before = prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0);
  std::thread thread([] {
    EXPECT_TRUE(SetTimerSlack(microseconds(1)));
    EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), 1000);
  });
  thread.join();
  EXPECT_EQ(prctl(PR_GET_TIMERSLACK, 0, 0, 0, 0), before);
}

// libevent would end the process.
TEST(EventLoopDescriptorTest, WithoutAllOfItsDescriptorsItSaysSo) {
  bool made = false;
  for (int left = 0; !made; ++left) {
    ASSERT_LT(left, 16);
    const NoMoreDescriptors limit(left);
    const auto loop = EventLoop::Create();
    made = loop.ok();
    if (made) continue;
    EXPECT_EQ(loop.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(std::string(loop.status().message()).find("ulimit -n"), std::string::npos);
  }
}

}  // namespace
}  // namespace railhop
