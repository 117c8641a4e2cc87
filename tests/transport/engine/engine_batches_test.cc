#include "transport/engine/engine_batches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/flag.h"
#include "tests/support/wait_until.h"
#include "tests/transport/engine/fake_data_path.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;

class EngineBatchesTest : public testing::Test {
 protected:
  EngineError Submit(BatchHandle batch, std::initializer_list<uint64_t> lengths) {
    std::vector<TransferRequest> requests;
    for (const uint64_t length : lengths) requests.push_back({.target = 1, .length = length});
    return batches_.Submit(batch, requests, milliseconds(0));
  }
  TransferState TaskState(BatchHandle batch, size_t task) {
    EXPECT_EQ(batches_.TaskStatus(batch, task, &status_), EngineError::kOk);
    return status_.state;
  }
  TransferState WholeState(BatchHandle batch) {
    EXPECT_EQ(batches_.WholeStatus(batch, &status_), EngineError::kOk);
    return status_.state;
  }

  FakeDataPath path_;
  EngineBatches batches_{&path_};
  TransferStatus status_;
};

TEST_F(EngineBatchesTest, TasksAreNumberedOverSubmissions) {
  const BatchHandle batch = batches_.Allocate(3);
  ASSERT_NE(batch, kNoBatch);
  EXPECT_EQ(Submit(batch, {10, 20}), EngineError::kOk);
  EXPECT_EQ(Submit(batch, {30, 40}), EngineError::kTooManyRequests) << "nothing of it is taken";
  EXPECT_EQ(Submit(batch, {30}), EngineError::kOk);
  EXPECT_EQ(path_.batches.size(), 2u);
  path_.Land(1, 1);
  path_.Land(2, 0);
  EXPECT_EQ(TaskState(batch, 0), TransferState::kWaiting);
  EXPECT_EQ(status_.transferred_bytes, 0u);
  EXPECT_EQ(TaskState(batch, 1), TransferState::kCompleted);
  EXPECT_EQ(status_.transferred_bytes, 20u);
  EXPECT_EQ(TaskState(batch, 2), TransferState::kCompleted);
  EXPECT_EQ(status_.transferred_bytes, 30u);
  EXPECT_EQ(batches_.TaskStatus(batch, 3, &status_), EngineError::kInvalidArgument);
}

TEST_F(EngineBatchesTest, TheFenceGoesWithItsSubmission) {
  const BatchHandle batch = batches_.Allocate(2);
  int stream = 0;
  const std::vector<TransferRequest> requests{{.target = 1, .length = 10}};
  ASSERT_EQ(
      batches_.Submit(batch, requests, milliseconds(0), {SourceFence::Kind::kStream, &stream}),
      EngineError::kOk);
  EXPECT_EQ(path_.fence.kind, SourceFence::Kind::kStream);
  EXPECT_EQ(path_.fence.handle, &stream);
  ASSERT_EQ(Submit(batch, {20}), EngineError::kOk);
  EXPECT_EQ(path_.fence.kind, SourceFence::Kind::kThreadStream);
}

TEST_F(EngineBatchesTest, WhatIsLateShowsATimeoutAndEndsAllTheSame) {
  EngineBatches batches(&path_, std::chrono::nanoseconds(1));
  const BatchHandle batch = batches.Allocate(2);
  const std::vector<TransferRequest> requests{{.target = 1, .length = 10},
                                              {.target = 1, .length = 20}};
  const auto before = std::chrono::steady_clock::now();
  ASSERT_EQ(batches.Submit(batch, requests, milliseconds(0)), EngineError::kOk);
  while (std::chrono::steady_clock::now() - before < milliseconds(1)) std::this_thread::yield();
  path_.Land(1, 0);
  TransferStatus status;
  ASSERT_EQ(batches.TaskStatus(batch, 0, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kCompleted);
  ASSERT_EQ(batches.TaskStatus(batch, 1, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kTimeout);
  ASSERT_EQ(batches.WholeStatus(batch, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kTimeout);
  EXPECT_EQ(batches.Free(batch), EngineError::kBatchBusy);
  path_.Land(1, 1);
  path_.End(1, BatchState::kCompleted);
  ASSERT_EQ(batches.WholeStatus(batch, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kCompleted);
  EXPECT_EQ(batches.Free(batch), EngineError::kOk);
  // Without that limit there is no such state.
  const BatchHandle patient = batches_.Allocate(1);
  Submit(patient, {10});
  EXPECT_EQ(TaskState(patient, 0), TransferState::kWaiting);
}

// --- Callbacks: End() of the fake path tells the listener, as a thread of the data path does.

// What callbacks were told, in order.
class Told {
 public:
  BatchCallback Callback() {
    return [this](BatchHandle batch, const TransferStatus& status) {
      const std::lock_guard lock(mutex_);
      told_.emplace_back(batch, status.state);
      changed_.notify_all();
    };
  }
  // The `count` first.
  std::vector<std::pair<BatchHandle, TransferState>> Await(size_t count) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(changed_.wait_for(lock, kTestPatience, [&] { return told_.size() >= count; }));
    return told_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::pair<BatchHandle, TransferState>> told_;
};

TEST_F(EngineBatchesTest, ACallbackIsToldOnceWhenAllHasEnded) {
  Told told;
  const BatchHandle batch = batches_.Allocate(2);
  ASSERT_EQ(batches_.SetCallback(batch, told.Callback()), EngineError::kOk);
  Submit(batch, {10});
  Submit(batch, {20});
  path_.Land(2, 0);
  path_.End(2, BatchState::kCompleted);
  path_.Land(1, 0);
  path_.End(1, BatchState::kCompleted);
  using Pair = std::pair<BatchHandle, TransferState>;
  EXPECT_EQ(told.Await(1), (std::vector<Pair>{{batch, TransferState::kCompleted}}));
  EXPECT_EQ(batches_.Free(batch), EngineError::kOk) << "the end counts as seen";
  batches_.StopCallbacks();
  EXPECT_EQ(told.Await(1).size(), 1u);
}

TEST_F(EngineBatchesTest, ACallbackHearsOfATimeoutAndOfTheEnd) {
  Told told;
  const BatchHandle batch = batches_.Allocate(1);
  batches_.SetCallback(batch, told.Callback());
  Submit(batch, {10});
  path_.End(1, BatchState::kTimeout);
  EXPECT_EQ(told.Await(1)[0].second, TransferState::kTimeout);
  EXPECT_EQ(batches_.Free(batch), EngineError::kBatchBusy);
  path_.End(1, BatchState::kFailed);
  EXPECT_EQ(told.Await(2)[1].second, TransferState::kFailed);
  EXPECT_EQ(batches_.Free(batch), EngineError::kOk);
}

TEST_F(EngineBatchesTest, ACallbackMayFreeItsBatchAndSubmitTheNext) {
  std::atomic<int> rounds{0};
  std::atomic<BatchHandle> next{kNoBatch};
  std::function<void(BatchHandle, const TransferStatus&)> callback =
      [&](BatchHandle batch, const TransferStatus& status) {
        EXPECT_EQ(status.state, TransferState::kCompleted);
        EXPECT_EQ(batches_.Free(batch), EngineError::kOk);
        if (++rounds == 3) return;
        const BatchHandle another = batches_.Allocate(1);
        EXPECT_EQ(batches_.SetCallback(another, callback), EngineError::kOk);
        EXPECT_EQ(Submit(another, {10}), EngineError::kOk);
        next.store(another);
        next.notify_all();
      };
  const BatchHandle first = batches_.Allocate(1);
  batches_.SetCallback(first, callback);
  Submit(first, {10});
  for (uint64_t id = 1; id <= 3; ++id) {
    // The path is the test's own: nothing else touches it while the callback waits for its turn.
    path_.Land(id, 0);
    path_.End(id, BatchState::kCompleted);
    if (id == 3) break;
    next.wait(kNoBatch);
    next.store(kNoBatch);
  }
  EXPECT_TRUE(WaitUntil([&] { return rounds.load() == 3; }));
  batches_.StopCallbacks();
}

TEST_F(EngineBatchesTest, ACallbackComesBeforeTheFirstSubmission) {
  const BatchHandle batch = batches_.Allocate(2);
  EXPECT_EQ(batches_.SetCallback(batch, nullptr), EngineError::kInvalidArgument);
  Submit(batch, {10});
  EXPECT_EQ(batches_.SetCallback(batch, [](BatchHandle, const TransferStatus&) {}),
            EngineError::kInvalidArgument);
  EXPECT_EQ(batches_.SetCallback(batch + 1, [](BatchHandle, const TransferStatus&) {}),
            EngineError::kInvalidArgument);
  EXPECT_EQ(path_.batches.at(1).listener, nullptr) << "nobody waits for it";
}

TEST_F(EngineBatchesTest, ACallbackMaySetAnotherWhileCallbacksAreStopped) {
  for (int round = 0; round < 100; ++round) {
    EngineBatches batches(&path_);
    std::atomic<bool> stopping{false};
    const BatchHandle batch = batches.Allocate(1);
    batches.SetCallback(batch, [&](BatchHandle, const TransferStatus&) {
      stopping.wait(false);
      EXPECT_EQ(batches.SetCallback(batches.Allocate(1), [](BatchHandle, const TransferStatus&) {}),
                EngineError::kOk);
    });
    const std::vector<TransferRequest> requests{{.target = 1, .length = 10}};
    ASSERT_EQ(batches.Submit(batch, requests, milliseconds(0)), EngineError::kOk);
    path_.Land(path_.last, 0);
    path_.End(path_.last, BatchState::kCompleted);
    stopping = true;
    stopping.notify_all();
    batches.StopCallbacks();
  }
}

TEST_F(EngineBatchesTest, ACallbackMayDestroyTheBatches) {
  auto batches = std::make_unique<EngineBatches>(&path_);
  Flag ended;
  Flag destroyed;
  const BatchHandle batch = batches->Allocate(1);
  batches->SetCallback(batch, [&](BatchHandle, const TransferStatus&) {
    EXPECT_TRUE(ended.Wait());  // the path tells of nothing any more
    batches.reset();
    destroyed.Set();
  });
  const std::vector<TransferRequest> requests{{.target = 1, .length = 10}};
  ASSERT_EQ(batches->Submit(batch, requests, milliseconds(0)), EngineError::kOk);
  path_.Land(path_.last, 0);
  path_.End(path_.last, BatchState::kCompleted);
  ended.Set();
  EXPECT_TRUE(destroyed.Wait());
}

TEST_F(EngineBatchesTest, AfterTheStopNoCallbackStarts) {
  std::atomic<int> calls{0};
  const BatchHandle batch = batches_.Allocate(1);
  batches_.SetCallback(batch, [&](BatchHandle, const TransferStatus&) { ++calls; });
  Submit(batch, {10});
  batches_.StopCallbacks();
  path_.Land(1, 0);
  path_.End(1, BatchState::kCompleted);
  batches_.StopCallbacks();
  EXPECT_EQ(calls.load(), 0);
  EXPECT_EQ(WholeState(batch), TransferState::kCompleted);
}

TEST_F(EngineBatchesTest, FailedIsShownOnlyWhenNothingCanLandAnyMore) {
  const BatchHandle batch = batches_.Allocate(2);
  Submit(batch, {10, 20});
  path_.Land(1, 0);
  EXPECT_EQ(TaskState(batch, 1), TransferState::kWaiting);
  path_.End(1, BatchState::kTimeout);
  EXPECT_EQ(TaskState(batch, 1), TransferState::kTimeout);
  EXPECT_EQ(TaskState(batch, 0), TransferState::kCompleted) << "its bytes are there";
  EXPECT_EQ(WholeState(batch), TransferState::kTimeout);
  EXPECT_EQ(batches_.Free(batch), EngineError::kBatchBusy);
  path_.End(1, BatchState::kFailed);
  EXPECT_EQ(TaskState(batch, 1), TransferState::kFailed);
  EXPECT_EQ(TaskState(batch, 0), TransferState::kCompleted);
  EXPECT_EQ(WholeState(batch), TransferState::kFailed);
  EXPECT_EQ(status_.transferred_bytes, 10u);
}

TEST_F(EngineBatchesTest, AWholeBatchWaitsForItsLastSubmission) {
  const BatchHandle batch = batches_.Allocate(4);
  for (int i = 0; i < 3; ++i) Submit(batch, {10});
  path_.End(1, BatchState::kFailed);
  path_.Land(2, 0);
  path_.End(2, BatchState::kCompleted);
  EXPECT_EQ(WholeState(batch), TransferState::kWaiting) << "not failed: the third still moves";
  path_.End(3, BatchState::kCanceled);
  EXPECT_EQ(WholeState(batch), TransferState::kFailed);
}

TEST_F(EngineBatchesTest, IsFreedOnlyOnceTheEndOfEveryTaskWasSeen) {
  const BatchHandle batch = batches_.Allocate(2);
  Submit(batch, {10, 20});
  path_.Land(1, 0);
  path_.Land(1, 1);
  path_.End(1, BatchState::kCompleted);
  EXPECT_EQ(batches_.Free(batch), EngineError::kBatchBusy);
  TaskState(batch, 1);
  EXPECT_EQ(batches_.Free(batch), EngineError::kBatchBusy);
  TaskState(batch, 0);
  EXPECT_EQ(batches_.Free(batch), EngineError::kOk);
  EXPECT_TRUE(path_.batches.empty());
  EXPECT_EQ(batches_.Free(batch), EngineError::kInvalidArgument);
  EXPECT_EQ(Submit(batch, {1}), EngineError::kInvalidArgument);
  EXPECT_EQ(batches_.WholeStatus(batch, &status_), EngineError::kInvalidArgument);
}

TEST_F(EngineBatchesTest, SeeingTheWholeIsSeeingEachTask) {
  const BatchHandle batch = batches_.Allocate(2);
  Submit(batch, {10, 20});
  path_.End(1, BatchState::kFailed);
  EXPECT_EQ(WholeState(batch), TransferState::kFailed);
  EXPECT_EQ(batches_.Free(batch), EngineError::kOk);
}

TEST_F(EngineBatchesTest, AnEmptyBatchIsCompleteAndMayBeFreed) {
  const BatchHandle batch = batches_.Allocate(0);
  EXPECT_EQ(Submit(batch, {}), EngineError::kOk);
  EXPECT_EQ(WholeState(batch), TransferState::kCompleted);
  EXPECT_TRUE(batches_.Wait(batch, milliseconds(0)));
  EXPECT_EQ(batches_.Free(batch), EngineError::kOk);
}

TEST_F(EngineBatchesTest, CancelReachesEachSubmission) {
  const BatchHandle batch = batches_.Allocate(2);
  Submit(batch, {10});
  Submit(batch, {10});
  EXPECT_FALSE(batches_.Wait(batch, milliseconds(0)));
  EXPECT_EQ(batches_.Cancel(batch), EngineError::kOk);
  EXPECT_TRUE(path_.batches[1].canceled && path_.batches[2].canceled);
}

TEST_F(EngineBatchesTest, AFullDataPathIsTheCallersAnswer) {
  const BatchHandle batch = batches_.Allocate(2);
  path_.answer = SubmitResult::kTryAgain;
  EXPECT_EQ(Submit(batch, {10}), EngineError::kTooManyRequests);
  path_.answer = SubmitResult::kOk;
  EXPECT_EQ(Submit(batch, {10, 10}), EngineError::kOk) << "nothing was used up";
}

TEST_F(EngineBatchesTest, HandlesAreNeverZeroAndNeverGivenTwiceAtOnce) {
  EXPECT_EQ(batches_.Allocate(EngineBatches::kMaxTasks + 1), kNoBatch);
  std::set<BatchHandle> handles;
  for (size_t i = 0; i < EngineBatches::kMaxBatches; ++i) handles.insert(batches_.Allocate(1));
  EXPECT_EQ(handles.size(), EngineBatches::kMaxBatches);
  EXPECT_FALSE(handles.contains(0));
  EXPECT_FALSE(handles.contains(kNoBatch));
  EXPECT_EQ(batches_.Allocate(1), kNoBatch);
  EXPECT_EQ(batches_.Free(*handles.begin()), EngineError::kOk);
  const BatchHandle anew = batches_.Allocate(1);
  EXPECT_NE(anew, kNoBatch);
  EXPECT_FALSE(handles.contains(anew)) << "a stale handle must be recognised";
}

TEST_F(EngineBatchesTest, ThreadsAllocateBesideEachOther) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this] {
      for (int i = 0; i < 2000; ++i) {
        const BatchHandle batch = batches_.Allocate(1);
        TransferStatus status;
        ASSERT_NE(batch, kNoBatch);
        ASSERT_EQ(batches_.WholeStatus(batch, &status), EngineError::kOk);
        ASSERT_EQ(batches_.Free(batch), EngineError::kOk);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace railhop
