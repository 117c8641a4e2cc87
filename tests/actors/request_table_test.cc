#include "actors/request_table.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <set>
#include <thread>
#include <vector>

#include "runtime/fence.h"
#include "runtime/mpsc_ring.h"
#include "tests/support/flag.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPatience = std::chrono::duration_cast<milliseconds>(kTestPatience);

// What SubmitActor does at the end of a batch.
void Finish(RequestTable& table, BatchId id, BatchState state = BatchState::kCompleted,
            uint64_t bytes = 0) {
  Batch& batch = table.at(static_cast<uint32_t>(id.value));
  batch.progress.bytes_done = bytes;
  RequestTable::Publish(batch, state);
  FullFence();
  RequestTable::WakeWaiters(batch);
}

TEST(RequestTableTest, GivesOutEachBatchOnceUntilNoneIsLeft) {
  RequestTable table(8);
  std::set<uint32_t> indices;
  for (int i = 0; i < 8; ++i) {
    const BatchId id = table.Allocate();
    ASSERT_TRUE(id.valid());
    EXPECT_NE(table.Find(id), nullptr);
    EXPECT_EQ(table.IdOf(static_cast<uint32_t>(id.value)), id);
    indices.insert(static_cast<uint32_t>(id.value));
  }
  EXPECT_EQ(indices.size(), 8u);
  EXPECT_FALSE(table.Allocate().valid());
}

TEST(RequestTableTest, AFreedBatchComesBackUnderAnotherIdAndClean) {
  RequestTable table(1);
  const BatchId first = table.Allocate();
  Batch& batch = *table.Find(first);
  batch.requests.resize(3);
  batch.progress.bytes_relayed = 5;
  batch.progress.error = TransferError::kTransport;
  batch.progress.next_request = 3;
  Finish(table, first, BatchState::kFailed, 7);
  EXPECT_EQ(table.Read(first).bytes, 7u);
  EXPECT_EQ(table.Read(first).relayed_bytes, 5u);
  EXPECT_EQ(table.Read(first).error, TransferError::kTransport);
  ASSERT_EQ(table.Free(first), FreeResult::kOk);

  const BatchId second = table.Allocate();
  ASSERT_TRUE(second.valid());
  EXPECT_NE(second, first);
  EXPECT_TRUE(batch.requests.empty());
  EXPECT_EQ(batch.progress.next_request, 0u);
  const BatchStatus status = table.Read(second);
  EXPECT_EQ(status.state, BatchState::kPending);
  EXPECT_EQ(status.error, TransferError::kNone);
  EXPECT_EQ(status.bytes, 0u);
  EXPECT_EQ(status.relayed_bytes, 0u);
}

TEST(RequestTableTest, TheIdThatAFreeBatchSeemsToHaveIsNone) {
  RequestTable table(1);
  EXPECT_EQ(table.Find(table.IdOf(0)), nullptr) << "never given out";
  const BatchId used = table.Allocate();
  Finish(table, used);
  ASSERT_EQ(table.Free(used), FreeResult::kOk);
  const BatchId free = table.IdOf(0);
  EXPECT_EQ(table.Find(free), nullptr);
  EXPECT_EQ(table.Free(free), FreeResult::kUnknown);
  EXPECT_EQ(table.Read(free).error, TransferError::kInvalidRequest);
  EXPECT_TRUE(table.Allocate().valid()) << "the failed Free gave nothing back twice";
  EXPECT_FALSE(table.Allocate().valid());
}

TEST(RequestTableTest, StaleAndInventedIdsAreRecognised) {
  RequestTable table(2);
  const BatchId old = table.Allocate();
  Finish(table, old);
  ASSERT_EQ(table.Free(old), FreeResult::kOk);
  const BatchId current = table.Allocate();
  Finish(table, current);
  ASSERT_EQ(static_cast<uint32_t>(old.value), static_cast<uint32_t>(current.value));

  for (const BatchId id : {old, BatchId{}, BatchId{UINT64_MAX}, BatchId{uint64_t{1} << 32 | 1},
                           BatchId{uint64_t{1} << 32 | 2}}) {
    EXPECT_EQ(table.Find(id), nullptr);
    EXPECT_EQ(table.Read(id).state, BatchState::kFailed);
    EXPECT_EQ(table.Read(id).error, TransferError::kInvalidRequest);
    EXPECT_TRUE(table.Wait(id, kPatience));
    EXPECT_EQ(table.Free(id), FreeResult::kUnknown);
  }
  EXPECT_EQ(table.Read(current).state, BatchState::kCompleted);
}

TEST(RequestTableTest, OnlyAQuiescentBatchIsFreed) {
  RequestTable table(1);
  const BatchId id = table.Allocate();
  EXPECT_EQ(table.Free(id), FreeResult::kBusy);
  Finish(table, id, BatchState::kTimeout);
  EXPECT_EQ(table.Free(id), FreeResult::kBusy);
  EXPECT_FALSE(table.Allocate().valid());
  Finish(table, id, BatchState::kCanceled);
  EXPECT_EQ(table.Free(id), FreeResult::kOk);
  EXPECT_EQ(table.Free(id), FreeResult::kUnknown);
}

// Two threads free the same batches in the same order, as fast as they can.
TEST(RequestTableTest, OfTwoThreadsThatFreeABatchOneDoes) {
  constexpr uint32_t kBatches = 20'000;
  RequestTable table(kBatches);
  for (uint64_t round = StressCount(20, 500); round-- > 0;) {
    std::vector<BatchId> ids;
    for (uint32_t i = 0; i < kBatches; ++i) {
      ids.push_back(table.Allocate());
      ASSERT_TRUE(ids.back().valid());
      Finish(table, ids.back());
    }
    std::atomic<int> ready{0};
    std::atomic<uint32_t> freed{0};
    std::array<std::thread, 2> threads;
    for (std::thread& thread : threads) {
      thread = std::thread([&] {
        ++ready;
        while (ready < 2) std::this_thread::yield();
        for (const BatchId id : ids) freed += table.Free(id) == FreeResult::kOk ? 1 : 0;
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(freed, kBatches);
  }
}

TEST(RequestTableTest, AWaitEndsWithEachStateThatIsNotPending) {
  for (const BatchState state :
       {BatchState::kCompleted, BatchState::kFailed, BatchState::kCanceled, BatchState::kTimeout}) {
    RequestTable table(1);
    const BatchId id = table.Allocate();
    EXPECT_FALSE(table.Wait(id, milliseconds(0)));
    EXPECT_FALSE(table.Wait(id, milliseconds(-5)));
    Finish(table, id, state);
    EXPECT_TRUE(table.Wait(id, milliseconds(0)));
  }
}

TEST(RequestTableTest, AWaitForEverIsNotOneForNever) {
  RequestTable table(1);
  const BatchId id = table.Allocate();
  std::atomic<int> result{-1};
  Flag entered;
  std::thread waiter([&] {
    entered.Set();
    result = table.Wait(id, milliseconds::max()) ? 1 : 0;
  });
  ASSERT_TRUE(entered.Wait());
  while (table.at(static_cast<uint32_t>(id.value)).waiters.load() == 0 && result == -1) {
    std::this_thread::yield();
  }
  EXPECT_EQ(result, -1);
  Finish(table, id);
  waiter.join();
  EXPECT_EQ(result, 1);
}

// The wait must find the end of its batch although the batch was freed and given out again between
// its look and its sleep: the next owner's word must not look the same.
TEST(RequestTableTest, AWaiterDoesNotSleepOnTheNextBatchInTheSamePlace) {
  RequestTable table(1);
  const BatchId first = table.Allocate();
  const uint32_t word = table.at(0).state.load();
  Finish(table, first);
  ASSERT_EQ(table.Free(first), FreeResult::kOk);
  const BatchId second = table.Allocate();
  ASSERT_EQ(table.Read(second).state, BatchState::kPending);
  EXPECT_NE(table.at(0).state.load(), word);
}

// Two threads hand batches to and fro as fast as they can; a lost wake-up is a wait that ends by
// its patience.
TEST(RequestTableTest, NoWakeUpIsLost) {
  RequestTable table(4);
  MpscRing<BatchId> to_finish(16);
  const uint64_t rounds = StressCount(5000, 2'000'000);
  std::atomic<bool> stop{false};
  std::thread finisher([&] {
    while (!stop.load()) {
      if (to_finish.Drain(16, [&](const BatchId& id) {
            Finish(table, id);
            return true;
          }) == 0) {
        std::this_thread::yield();
      }
    }
  });
  bool all = true;
  for (uint64_t i = 0; all && i < rounds; ++i) {
    const BatchId id = table.Allocate();
    ASSERT_TRUE(id.valid());
    ASSERT_TRUE(to_finish.TryPush(id));
    all = table.Wait(id, kPatience);
    ASSERT_EQ(table.Free(id), FreeResult::kOk);
  }
  EXPECT_TRUE(all);
  stop = true;
  finisher.join();
}

// One thread frees each batch the instant it sees it completed, before the publisher is out of
// Publish and while the one that submitted it may still be inside Wait.
TEST(RequestTableTest, AnotherThreadFreesABatchTheInstantItCompletes) {
  constexpr uint32_t kBatches = 1024;
  RequestTable table(kBatches);
  MpscRing<BatchId> to_finish(2 * kBatches);
  const uint64_t rounds = StressCount(100'000, 1'000'000);
  std::array<std::atomic<uint64_t>, kBatches> submitted{};  // by index
  std::atomic<uint64_t> freed{0};
  std::atomic<uint64_t> wrong{0};
  std::thread finisher([&] {
    for (uint64_t finished = 0; finished < rounds;) {
      const size_t taken = to_finish.Drain(16, [&](const BatchId& id) {
        Finish(table, id, BatchState::kCompleted, 11);
        return true;
      });
      finished += taken;
      if (taken == 0) std::this_thread::yield();
    }
  });
  std::thread freer([&] {
    while (freed.load() < rounds) {
      bool any = false;
      for (const std::atomic<uint64_t>& slot : submitted) {
        const BatchId id{slot.load()};
        const BatchStatus status = table.Read(id);
        if (!id.valid() || status.state != BatchState::kCompleted) continue;
        if (status.bytes != 11) ++wrong;
        if (table.Free(id) != FreeResult::kOk) ++wrong;
        ++freed;
        any = true;
      }
      if (!any) std::this_thread::yield();
    }
  });
  std::deque<BatchId> waiting;
  bool all = true;
  for (uint64_t given = 0; given < rounds;) {
    const BatchId id = table.Allocate();
    if (id.valid()) {
      table.Find(id)->requests.resize(given % 5);
      // Before it can complete: the freer looks at nothing else.
      submitted[static_cast<uint32_t>(id.value)] = id.value;
      while (!to_finish.TryPush(id)) std::this_thread::yield();
      waiting.push_back(id);
      ++given;
    }
    if (id.valid() && waiting.size() < kBatches / 2) continue;
    if (waiting.empty()) {
      std::this_thread::yield();
      continue;
    }
    all = table.Wait(waiting.front(), kPatience) && all;
    waiting.pop_front();
  }
  finisher.join();
  freer.join();
  EXPECT_TRUE(all);
  EXPECT_EQ(wrong, 0u);
  EXPECT_EQ(freed, rounds);
  for (uint32_t i = 0; i < kBatches; ++i) EXPECT_TRUE(table.Allocate().valid());
}

// Four threads allocate, fill, wait and free; one plays SubmitActor. At the end every batch is free
// again.
TEST(RequestTableTest, ManyThreadsAllocateSubmitAndFree) {
  constexpr uint32_t kBatches = 6;
  RequestTable table(kBatches);
  MpscRing<BatchId> to_finish(16);
  const uint64_t rounds = StressCount(4000, 500'000);
  std::atomic<bool> stop{false};
  std::thread finisher([&] {
    while (!stop.load()) {
      to_finish.Drain(16, [&](const BatchId& id) {
        Finish(table, id, BatchState::kCompleted,
               table.at(static_cast<uint32_t>(id.value)).requests.size());
        return true;
      });
      std::this_thread::yield();
    }
  });
  std::atomic<int> wrong{0};
  std::vector<std::thread> users;
  for (size_t user = 0; user < 4; ++user) {
    users.emplace_back([&, user] {
      for (uint64_t i = 0; i < rounds / 4; ++i) {
        BatchId id;
        while (!(id = table.Allocate()).valid()) std::this_thread::yield();
        table.Find(id)->requests.resize(user + 1);
        while (!to_finish.TryPush(id)) std::this_thread::yield();
        if (!table.Wait(id, kPatience)) ++wrong;
        if (table.Read(id).bytes != user + 1) ++wrong;
        if (table.Free(id) != FreeResult::kOk) ++wrong;
      }
    });
  }
  for (std::thread& user : users) user.join();
  stop = true;
  finisher.join();
  EXPECT_EQ(wrong, 0);
  std::set<uint64_t> ids;
  for (uint32_t i = 0; i < kBatches; ++i) ids.insert(table.Allocate().value);
  EXPECT_EQ(ids.size(), kBatches);
  EXPECT_FALSE(ids.contains(0));
  EXPECT_FALSE(table.Allocate().valid());
}

TEST(RequestTableTest, EveryErrorHasAName) {
  std::set<std::string> names;
  for (int32_t error = 0; error >= static_cast<int32_t>(TransferError::kDevice); --error) {
    names.insert(TransferErrorName(static_cast<TransferError>(error)));
  }
  EXPECT_EQ(names.size(), 15u);
  EXPECT_FALSE(names.contains("unknown"));
  EXPECT_STREQ(TransferErrorName(static_cast<TransferError>(-99)), "unknown");
}

}  // namespace
}  // namespace railhop
