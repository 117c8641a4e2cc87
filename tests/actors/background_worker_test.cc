#include "actors/background_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <vector>

#include "tests/support/flag.h"

namespace railhop {
namespace {

using testing::ElementsAre;

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

}  // namespace
}  // namespace railhop
