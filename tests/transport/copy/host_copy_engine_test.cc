#include "transport/copy/host_copy_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "transport/ring/control_block.h"

namespace railhop {
namespace {

using ::testing::ElementsAre;

constexpr uint64_t kUnlimited = UINT64_MAX;

std::vector<uint64_t> ReapAll(CopyEngine& engine) {
  std::vector<uint64_t> user_data;
  CopyDone done[3];
  for (size_t n = engine.Reap(done); n != 0; n = engine.Reap(done)) {
    for (size_t i = 0; i < n; ++i) {
      EXPECT_EQ(done[i].status, CopyStatus::kOk);
      user_data.push_back(done[i].user_data);
    }
  }
  return user_data;
}

TEST(HostCopyEngineTest, LaysSpansBackToBackAndRingsTheDoorbell) {
  HostCopyEngine engine(1, 4);
  const char a[] = "abc", b[] = "defgh";
  const CopySpan spans[] = {{a, 3}, {nullptr, 0}, {b, 5}};
  char slot[10] = "---------";
  uint64_t doorbell = 6;
  ASSERT_TRUE(engine.Issue({.stream = 0,
                            .spans = spans,
                            .destination = slot,
                            .doorbell = &doorbell,
                            .sequence = 7,
                            .user_data = 42}));
  EXPECT_EQ(engine.PendingBytes(), 8u);
  EXPECT_EQ(doorbell, 6u);
  EXPECT_THAT(ReapAll(engine), ElementsAre());
  EXPECT_EQ(engine.Progress(kUnlimited), 8u);
  EXPECT_STREQ(slot, "abcdefgh-");
  EXPECT_EQ(doorbell, 7u);
  EXPECT_EQ(engine.PendingBytes(), 0u);
  EXPECT_EQ(engine.PendingJobs(0), 1u);
  EXPECT_THAT(ReapAll(engine), ElementsAre(42));
  EXPECT_EQ(engine.PendingJobs(0), 0u);
}

TEST(HostCopyEngineTest, ProgressKeepsToItsBudget) {
  HostCopyEngine engine(2, 4);
  std::vector<char> source(100'000, 's'), slot(100'000);
  const CopySpan span{source.data(), source.size()};
  uint64_t doorbell = 0;
  ASSERT_TRUE(engine.Issue({.stream = 1,
                            .spans = {&span, 1},
                            .destination = slot.data(),
                            .doorbell = &doorbell,
                            .sequence = 1}));
  EXPECT_EQ(engine.Progress(0), 0u);
  EXPECT_EQ(engine.Progress(99'999), 99'999u);
  EXPECT_EQ(engine.PendingBytes(1), 1u);
  EXPECT_EQ(engine.PendingBytes(0), 0u);
  EXPECT_EQ(doorbell, 0u);
  EXPECT_EQ(engine.Progress(10), 1u);
  EXPECT_EQ(doorbell, 1u);
  EXPECT_EQ(slot, source);
}

TEST(HostCopyEngineTest, FullStreamTakesNothingUntilReaped) {
  HostCopyEngine engine(2, 2);
  char byte = 'x', slot = 0;
  const CopySpan span{&byte, 1};
  CopyJob job{.stream = 0, .spans = {&span, 1}, .destination = &slot};
  EXPECT_TRUE(engine.Issue(job));
  EXPECT_TRUE(engine.Issue(job));
  EXPECT_FALSE(engine.Issue(job));
  engine.Progress(kUnlimited);
  EXPECT_FALSE(engine.Issue(job));
  job.stream = 1;
  EXPECT_TRUE(engine.Issue(job));
  CopyDone done;
  EXPECT_EQ(engine.Reap({&done, 1}), 1u);
  job.stream = 0;
  EXPECT_TRUE(engine.Issue(job));
  EXPECT_EQ(engine.PendingBytes(), 2u);
}

TEST(HostCopyEngineTest, QueueIsAsDeepAsAskedFor) {
  constexpr uint32_t kDepth = 3;  // not a power of two, as the ring is
  HostCopyEngine engine(1, kDepth);
  char byte = 'x', slot = 0;
  const CopySpan span{&byte, 1};
  uint64_t next = 1, reaped = 1;
  for (int round = 0; round < 5; ++round) {
    while (engine.Issue({.spans = {&span, 1}, .destination = &slot, .user_data = next})) ++next;
    EXPECT_EQ(next - reaped, kDepth);
    engine.Progress(kUnlimited);
    CopyDone done;
    ASSERT_EQ(engine.Reap({&done, 1}), 1u);
    EXPECT_EQ(done.user_data, reaped++);
  }
}

TEST(HostCopyEngineTest, PiecesAreSmallWhereALanesSlotsStayInTheCache) {
  const uint64_t small = HostCopyEngine::SizesFor(2 << 20).idle;
  const uint64_t large = HostCopyEngine::SizesFor(1 << 20).idle;
  EXPECT_LE(2 * kSlotsPerLane * small, 2u << 20) << "with as much again for the sources";
  EXPECT_GT(large, small);
  EXPECT_EQ(HostCopyEngine::SizesFor(0).idle, large) << "the size of the cache is not known";
}

TEST(HostCopyEngineTest, LargePieceDoesNotStarveASmallOneOfAnotherLane) {
  HostCopyEngine engine(7, 4);
  std::vector<char> source(8 << 20), slot(8 << 20);
  const CopySpan large{source.data(), source.size()}, small{source.data(), 64};
  uint64_t doorbells[2] = {0, 0};
  ASSERT_TRUE(engine.Issue({.stream = 0,
                            .spans = {&large, 1},
                            .destination = slot.data(),
                            .doorbell = &doorbells[0],
                            .sequence = 1}));
  engine.Progress(1);
  char other_slot[64];
  ASSERT_TRUE(engine.Issue({.stream = 4,
                            .spans = {&small, 1},
                            .destination = other_slot,
                            .doorbell = &doorbells[1],
                            .sequence = 1}));
  engine.Progress(HostCopyEngine::kTurnBytes + 64);
  EXPECT_EQ(doorbells[0], 0u);
  EXPECT_EQ(doorbells[1], 1u);
}

TEST(HostCopyEngineTest, BusyLanesShareEvenly) {
  HostCopyEngine engine(3, 4);
  constexpr uint64_t kBytes = 40 * HostCopyEngine::kTurnBytes;
  std::vector<char> source(kBytes), slot(kBytes);
  const CopySpan span{source.data(), kBytes};
  for (uint32_t stream = 0; stream < 3; ++stream) {
    ASSERT_TRUE(engine.Issue({.stream = stream, .spans = {&span, 1}, .destination = slot.data()}));
  }
  engine.Progress(30 * HostCopyEngine::kTurnBytes);
  for (uint32_t stream = 0; stream < 3; ++stream) {
    EXPECT_EQ(engine.PendingBytes(stream), kBytes - 10 * HostCopyEngine::kTurnBytes);
  }
}

TEST(HostCopyEngineTest, EmptyJobRingsItsDoorbellInTurn) {
  HostCopyEngine engine(1, 4);
  char byte = 'x', slot = 0;
  const CopySpan span{&byte, 1};
  uint64_t doorbell = 0;
  ASSERT_TRUE(engine.Issue({.stream = 0,
                            .spans = {&span, 1},
                            .destination = &slot,
                            .doorbell = &doorbell,
                            .sequence = 1}));
  ASSERT_TRUE(engine.Issue(
      {.stream = 0, .spans = {}, .destination = nullptr, .doorbell = &doorbell, .sequence = 2}));
  EXPECT_EQ(engine.Progress(1), 1u);
  engine.Progress(1);
  EXPECT_EQ(doorbell, 2u);
  EXPECT_EQ(ReapAll(engine).size(), 2u);
}

// Random jobs on random streams in random budgets: every byte, every doorbell, every order.
TEST(HostCopyEngineTest, RandomJobsArriveWholeAndInOrder) {
  constexpr uint32_t kStreams = 5, kDepth = 6;
  HostCopyEngine engine(kStreams, kDepth);
  std::mt19937_64 random(1);
  std::vector<char> source(1 << 20);
  for (char& byte : source) byte = static_cast<char>(random());

  struct Job {
    std::vector<CopySpan> spans;
    std::vector<char> expected, slot;
  };
  std::vector<std::deque<Job>> jobs(kStreams);
  std::vector<uint64_t> doorbells(kStreams, 0), issued(kStreams, 0), reaped(kStreams, 0);
  size_t refused = 0;
  for (int step = 0; step < 20'000; ++step) {
    const auto stream = static_cast<uint32_t>(random() % kStreams);
    Job& job = jobs[stream].emplace_back();
    for (uint64_t span = random() % 6; span != 0; --span) {
      const uint64_t length = random() % (random() % 8 == 0 ? 200'000 : 300);
      const char* const start = source.data() + random() % (source.size() - length);
      job.spans.push_back({start, length});
      job.expected.insert(job.expected.end(), start, start + length);
    }
    job.slot.resize(job.expected.size());
    if (engine.Issue({.stream = stream,
                      .spans = job.spans,
                      .destination = job.slot.data(),
                      .doorbell = &doorbells[stream],
                      .sequence = issued[stream] + 1,
                      .user_data = stream * 1'000'000 + issued[stream]})) {
      ++issued[stream];
    } else {
      EXPECT_EQ(jobs[stream].size(), kDepth + 1u);
      jobs[stream].pop_back();
      ++refused;
    }
    const uint64_t budget = random() % 60'000;
    EXPECT_LE(engine.Progress(budget), budget);
    if (random() % 4 != 0) continue;
    for (const uint64_t user_data : ReapAll(engine)) {
      const auto from = static_cast<uint32_t>(user_data / 1'000'000);
      ASSERT_EQ(user_data % 1'000'000, reaped[from]);
      ++reaped[from];
      ASSERT_GE(doorbells[from], reaped[from]);
      ASSERT_EQ(jobs[from].front().slot, jobs[from].front().expected);
      jobs[from].pop_front();
    }
  }
  EXPECT_GT(refused, 0u);
  while (engine.PendingBytes() != 0) engine.Progress(kUnlimited);
  engine.Progress(1);
  ReapAll(engine);
  EXPECT_EQ(doorbells, issued);
}

// What a relay relies on: whoever sees the doorbell sees the bytes.
TEST(HostCopyEngineTest, BytesAreVisibleToWhoeverSeesTheDoorbell) {
  constexpr uint64_t kPieces = 2'000;
  constexpr size_t kLength = 4096;
  HostCopyEngine engine(1, 8);
  std::vector<uint64_t> slots[2] = {std::vector<uint64_t>(kLength / 8),
                                    std::vector<uint64_t>(kLength / 8)};
  alignas(64) uint64_t doorbell = 0;
  alignas(64) std::atomic<uint64_t> taken{0};
  std::thread relay([&] {
    for (uint64_t sequence = 1; sequence <= kPieces; ++sequence) {
      while (std::atomic_ref<uint64_t>(doorbell).load(std::memory_order_acquire) < sequence) {
        std::this_thread::yield();
      }
      for (const uint64_t word : slots[sequence % 2]) EXPECT_EQ(word, sequence);
      taken.store(sequence, std::memory_order_release);
    }
  });
  for (uint64_t sequence = 1; sequence <= kPieces; ++sequence) {
    while (taken.load(std::memory_order_acquire) + 2 < sequence) std::this_thread::yield();
    const std::vector<uint64_t> source(kLength / 8, sequence);
    const CopySpan span{source.data(), kLength};
    ASSERT_TRUE(engine.Issue({.stream = 0,
                              .spans = {&span, 1},
                              .destination = slots[sequence % 2].data(),
                              .doorbell = &doorbell,
                              .sequence = sequence}));
    while (engine.Progress(1000) != 0) {
    }
    EXPECT_EQ(ReapAll(engine).size(), 1u);
  }
  relay.join();
}

}  // namespace
}  // namespace railhop
