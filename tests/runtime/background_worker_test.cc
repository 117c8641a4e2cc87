#include "runtime/background_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/flag.h"

namespace railhop {
namespace {

using testing::ElementsAre;

#if defined(__SANITIZE_THREAD__)
constexpr bool kThreadSanitizer = true;
#else
constexpr bool kThreadSanitizer = false;
#endif

TEST(BackgroundWorkerTest, RunsJobsInOrderOnAThreadOfItsOwn) {
  std::vector<int> order;
  Flag last;
  std::atomic<int> wakes{0};
  BackgroundWorker worker([&] {
    if (++wakes == 3) last.Set();
  });
  const pthread_t self = pthread_self();
  std::vector<std::shared_ptr<BackgroundWorker::Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(worker.Start([&order, self, i] {
      order.push_back(i);
      return pthread_equal(self, pthread_self()) != 0 ? absl::InternalError("same thread")
                                                      : absl::OkStatus();
    }));
  }
  ASSERT_TRUE(last.Wait());
  EXPECT_THAT(order, ElementsAre(0, 1, 2));
  for (const auto& job : jobs) {
    EXPECT_TRUE(job->done());
    EXPECT_TRUE(job->status().ok()) << job->status();
  }
}

TEST(BackgroundWorkerTest, StartsAgainAfterItRanOutOfWork) {
  for (int i = 0; i < 200; ++i) {
    std::atomic<int> ran{0};
    std::shared_ptr<BackgroundWorker::Job> second;
    Flag done;
    BackgroundWorker worker([&] {
      if (ran == 2) done.Set();
    });
    const auto run = [&] {
      ++ran;
      return absl::UnavailableError("no");
    };
    auto first = worker.Start(run);
    if (i % 2 == 0) {
      while (!first->done()) sched_yield();
    }
    second = worker.Start(run);
    ASSERT_TRUE(done.Wait());
    while (!second->done()) sched_yield();
    EXPECT_EQ(second->status().message(), "no");
  }
}

TEST(BackgroundWorkerTest, DoesSoManyJobsAtATime) {
  std::atomic<int> begun{0}, most{0}, running{0};
  Flag all, done;
  {
    std::atomic<int> ended{0};
    BackgroundWorker worker(
        [&] {
          if (++ended == 6) done.Set();
        },
        3);
    for (int i = 0; i < 6; ++i) {
      worker.Start([&] {
        most = std::max(most.load(), ++running);
        if (++begun == 3) all.Set();
        EXPECT_TRUE(all.Wait()) << "three are under way at once";
        --running;
        return absl::OkStatus();
      });
    }
    ASSERT_TRUE(done.Wait());
  }
  EXPECT_EQ(most, 3);
}

TEST(BackgroundWorkerTest, EndsAfterTheJobUnderWayAndDropsTheRest) {
  Flag begun, go;
  std::atomic<int> ran{0};
  auto kept = std::make_shared<int>(1);
  std::shared_ptr<BackgroundWorker::Job> first, second;
  {
    BackgroundWorker worker([] {});
    first = worker.Start([&] {
      begun.Set();
      EXPECT_TRUE(go.Wait());
      ++ran;
      return absl::OkStatus();
    });
    second = worker.Start([&, kept] {
      ++ran;
      return absl::OkStatus();
    });
    ASSERT_TRUE(begun.Wait());
    EXPECT_EQ(kept.use_count(), 2);  // by the job
    go.Set();
  }
  EXPECT_TRUE(first->done());
  // Whether the second had begun is a matter of luck; the worker no longer runs either way.
  EXPECT_EQ(ran, second->done() ? 2 : 1);
}

// As a user who may have one thread, in a process of its own.
int ExitCodeWithoutAThread() {
  int wakes = 0;
  BackgroundWorker worker([&] { ++wakes; });
  const rlimit limit{1, 1};
  if (setrlimit(RLIMIT_NPROC, &limit) != 0 || setuid(54321) != 0) return 2;
  const auto job = worker.Start([] { return absl::OkStatus(); });
  if (!job->done() || wakes != 1) return 3;
  if (job->status().code() != absl::StatusCode::kResourceExhausted) return 4;
  return std::string(job->status().message()).find("ulimit -u") == std::string::npos ? 5 : 0;
}

TEST(BackgroundWorkerTest, AJobThatThereIsNoThreadForIsDoneWithTheReason) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become a user that has no other process";
  if (kThreadSanitizer) GTEST_SKIP() << "its own thread counts towards the limit";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) _exit(ExitCodeWithoutAThread());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace railhop
