#include "transport/engine/registration.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace railhop {
namespace {

void* At(uint64_t address) {
  return reinterpret_cast<void*>(address);
}
EngineError Reserve(RegistrationTable& table, std::vector<BufferEntry> entries) {
  std::string error;
  return table.Reserve(entries, &error);
}

TEST(RegistrationTableTest, NeighboursAreAllowedAndOverlapsAreNot) {
  RegistrationTable table;
  EXPECT_EQ(Reserve(table, {{At(1000), 100}}), EngineError::kOk);
  for (const BufferEntry& entry : std::vector<BufferEntry>{
           {At(1000), 100}, {At(1099), 1}, {At(999), 2}, {At(500), 5000}, {At(1050), 10}}) {
    EXPECT_EQ(Reserve(table, {entry}), EngineError::kAddressOverlapped);
  }
  EXPECT_EQ(Reserve(table, {{At(1100), 1}, {At(999), 1}}), EngineError::kOk);
}

TEST(RegistrationTableTest, EmptyAndWrappingRangesAreRefused) {
  RegistrationTable table;
  EXPECT_EQ(Reserve(table, {{At(1000), 0}}), EngineError::kInvalidArgument);
  EXPECT_EQ(Reserve(table, {{At(UINT64_MAX - 4), 10}}), EngineError::kInvalidArgument);
  EXPECT_EQ(Reserve(table, {{nullptr, 10}}), EngineError::kInvalidArgument);
}

TEST(RegistrationTableTest, ABatchIsTakenWholeOrNotAtAll) {
  RegistrationTable table;
  EXPECT_EQ(Reserve(table, {{At(1000), 100}, {At(2000), 100}, {At(1050), 1}}),
            EngineError::kAddressOverlapped);
  EXPECT_EQ(Reserve(table, {{At(1000), 1000}}), EngineError::kOk) << "nothing of it is left";
}

TEST(RegistrationTableTest, ARangeIsReleasedByOneThreadAtATime) {
  RegistrationTable table;
  bool half_done = false;
  EXPECT_EQ(table.BeginRelease(At(1000), &half_done), EngineError::kAddressNotRegistered);
  ASSERT_EQ(Reserve(table, {{At(1000), 100}}), EngineError::kOk);
  EXPECT_EQ(table.BeginRelease(At(1001), &half_done), EngineError::kAddressNotRegistered);
  EXPECT_EQ(table.BeginRelease(At(1000), &half_done), EngineError::kOk);
  EXPECT_EQ(table.BeginRelease(At(1000), &half_done), EngineError::kAddressNotRegistered);
  EXPECT_EQ(Reserve(table, {{At(1000), 1}}), EngineError::kAddressOverlapped) << "not gone yet";
  EXPECT_FALSE(half_done);
  table.KeepAfterAll(At(1000), true);
  EXPECT_EQ(table.BeginRelease(At(1000), &half_done), EngineError::kOk);
  EXPECT_TRUE(half_done);
  table.EndRelease(At(1000));
  EXPECT_EQ(Reserve(table, {{At(1000), 1}}), EngineError::kOk);
}

TEST(RegistrationTableTest, OfThreadsThatWantTheSameRangeOneGetsIt) {
  RegistrationTable table;
  std::atomic<int> got{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (uint64_t i = 1; i <= 500; ++i) {
        const BufferEntry entry{At(i * 100), 60};
        std::string error;
        if (table.Reserve({&entry, 1}, &error) == EngineError::kOk) got.fetch_add(1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(got.load(), 500);
}

}  // namespace
}  // namespace railhop
