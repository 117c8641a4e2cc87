#include "transport/fabric/key_table.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <set>
#include <thread>

namespace railhop {
namespace {

using std::chrono::milliseconds;

TEST(KeyTableTest, ChecksKeyAndBounds) {
  const auto table = std::make_unique<KeyTable>();
  const absl::StatusOr<uint32_t> key = table->Add(1000, 100, 3);
  ASSERT_TRUE(key.ok());
  EXPECT_NE(*key, 0u);
  for (const auto& [address, length] :
       {std::pair<uint64_t, uint64_t>{1000, 100}, {1000, 0}, {1099, 1}, {1100, 0}}) {
    KeyTable::Entry* const entry = table->Acquire(*key, address, length);
    ASSERT_NE(entry, nullptr) << address << "+" << length;
    EXPECT_EQ(entry->memory, 3u);
    KeyTable::Release(entry);
    EXPECT_TRUE(table->Covers(*key, address, length)) << address << "+" << length;
  }
  for (const auto& [address, length] : {std::pair<uint64_t, uint64_t>{999, 1},
                                        {999, 101},
                                        {1000, 101},
                                        {1100, 1},
                                        {1101, 0},
                                        {1050, UINT64_MAX},
                                        {UINT64_MAX, 2}}) {
    EXPECT_EQ(table->Acquire(*key, address, length), nullptr) << address << "+" << length;
    EXPECT_FALSE(table->Covers(*key, address, length)) << address << "+" << length;
  }
  EXPECT_EQ(table->Acquire(0, 1000, 1), nullptr);
  EXPECT_EQ(table->Acquire(*key ^ (1u << 31), 1000, 1), nullptr);
  EXPECT_EQ(table->Acquire(*key ^ 1, 1000, 1), nullptr);
  EXPECT_FALSE(table->Covers(0, 1000, 1));
  EXPECT_FALSE(table->Covers(*key ^ 1, 1000, 1));
  EXPECT_TRUE(table->Remove(*key, milliseconds(0)).ok());  // nobody was left counted
  EXPECT_FALSE(table->Covers(*key, 1000, 1));
}

TEST(KeyTableTest, RefusesRangesThatAreNone) {
  const auto table = std::make_unique<KeyTable>();
  EXPECT_EQ(table->Add(1000, 0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(table->Add(1000, UINT64_MAX, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

TEST(KeyTableTest, RemovedKeyStaysInvalidWhenItsSlotIsUsedAnew) {
  const auto table = std::make_unique<KeyTable>();
  std::set<uint32_t> old_keys;
  for (int round = 0; round < 3; ++round) {
    std::set<uint32_t> keys;
    for (uint32_t i = 0; i < KeyTable::kCapacity; ++i) keys.insert(*table->Add(1000, 100, 0));
    EXPECT_EQ(keys.size(), KeyTable::kCapacity);
    EXPECT_EQ(table->Add(1000, 100, 0).status().code(), absl::StatusCode::kResourceExhausted);
    for (const uint32_t key : old_keys) {
      if (keys.count(key) == 0) {
        EXPECT_EQ(table->Acquire(key, 1000, 1), nullptr);
      }
    }
    for (const uint32_t key : keys) EXPECT_TRUE(table->Remove(key, milliseconds(0)).ok());
    old_keys = keys;
  }
  EXPECT_EQ(table->Remove(*old_keys.begin(), milliseconds(0)).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(table->Remove(0, milliseconds(0)).code(), absl::StatusCode::kNotFound);
}

TEST(KeyTableTest, RemoveSaysWhenSomebodyIsStillAtWork) {
  const auto table = std::make_unique<KeyTable>();
  const uint32_t key = *table->Add(1000, 100, 0);
  KeyTable::Entry* const entry = table->Acquire(key, 1000, 100);
  EXPECT_EQ(table->Remove(key, milliseconds(1)).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(table->Acquire(key, 1000, 100), nullptr);
  // Its slot is not given to another range while the old user holds it.
  for (uint32_t i = 0; i + 1 < KeyTable::kCapacity; ++i) ASSERT_TRUE(table->Add(1, 1, 0).ok());
  EXPECT_FALSE(table->Add(1, 1, 0).ok());
  KeyTable::Release(entry);
  EXPECT_TRUE(table->Add(1, 1, 0).ok());
}

// After Remove returned nobody may touch the range: the data race otherwise is the sanitizer's.
TEST(KeyTableTest, RemoveWaitsForThoseAtWork) {
  const auto table = std::make_unique<KeyTable>();
  for (int round = 0; round < 200; ++round) {
    int range = 0;
    const uint32_t key = *table->Add(1000, 100, 0);
    std::atomic<bool> started{false};
    std::thread user([&] {
      KeyTable::Entry* entry = nullptr;
      while ((entry = table->Acquire(key, 1000, 100)) != nullptr) {
        ++range;
        KeyTable::Release(entry);
        started.store(true, std::memory_order_relaxed);
      }
      started.store(true, std::memory_order_relaxed);
    });
    while (!started.load(std::memory_order_relaxed)) std::this_thread::yield();
    EXPECT_TRUE(table->Remove(key, milliseconds(10'000)).ok());
    const int seen = range;
    range = -1;
    user.join();
    EXPECT_GT(seen, 0);
    EXPECT_EQ(range, -1);
  }
}

}  // namespace
}  // namespace railhop
