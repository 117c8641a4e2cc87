#include "runtime/trace_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/scale.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// Each word follows from the first, so a record of two halves shows.
struct Record {
  uint64_t number = 0;
  uint64_t square = 0;
  uint64_t inverse = 0;
};
Record Make(uint64_t number) {
  return {number, number * number, ~number};
}
bool IsWhole(const Record& record) {
  return record.square == record.number * record.number && record.inverse == ~record.number;
}

std::vector<uint64_t> Take(TraceRing<Record>& ring, uint64_t* lost) {
  std::vector<uint64_t> numbers;
  *lost = ring.Take([&](const Record& record) {
    EXPECT_TRUE(IsWhole(record));
    numbers.push_back(record.number);
  });
  return numbers;
}

TEST(TraceRingTest, HandsOutEachRecordOnceInOrder) {
  TraceRing<Record> ring(8);
  uint64_t lost = 0;
  EXPECT_THAT(Take(ring, &lost), IsEmpty());
  for (uint64_t number : {1, 2, 3}) ring.Write(Make(number));
  EXPECT_THAT(Take(ring, &lost), ElementsAre(1, 2, 3));
  EXPECT_THAT(Take(ring, &lost), IsEmpty());
  ring.Write(Make(4));
  EXPECT_THAT(Take(ring, &lost), ElementsAre(4));
  EXPECT_EQ(lost, 0u);
}

TEST(TraceRingTest, TheCapacityIsAPowerOfTwo) {
  EXPECT_EQ(TraceRing<Record>(0).capacity(), 2u);
  EXPECT_EQ(TraceRing<Record>(8).capacity(), 8u);
  EXPECT_EQ(TraceRing<Record>(9).capacity(), 16u);
}

TEST(TraceRingTest, TheNewestTakeThePlaceOfTheOldestAndTheLossIsCounted) {
  TraceRing<Record> ring(4);
  uint64_t lost = 0;
  for (uint64_t number = 1; number <= 10; ++number) ring.Write(Make(number));
  EXPECT_THAT(Take(ring, &lost), ElementsAre(8, 9, 10)) << "the fourth place may be written into";
  EXPECT_EQ(lost, 7u);
  ring.Write(Make(11));
  EXPECT_THAT(Take(ring, &lost), ElementsAre(11));
  EXPECT_EQ(lost, 0u) << "what was lost is said once";
}

// A ring that is far too small for its writer: what is read is whole and in order, and nothing is
// missing from the count.
TEST(TraceRingTest, AReaderBesideTheWriterSeesWholeRecordsAndCountsTheRest) {
  const uint64_t records = StressCount(200'000, 50'000'000);
  TraceRing<Record> ring(16);
  std::atomic<bool> done{false};
  std::thread writer([&] {
    for (uint64_t number = 1; number <= records; ++number) {
      ring.Write(Make(number));
      if (number % 64 == 0) std::this_thread::yield();
    }
    done.store(true);
  });
  uint64_t seen = 0;
  uint64_t lost = 0;
  uint64_t last = 0;
  uint64_t broken = 0;
  for (bool last_look = false; !last_look;) {
    last_look = done.load();
    lost += ring.Take([&](const Record& record) {
      if (!IsWhole(record) || record.number <= last) ++broken;
      last = record.number;
      ++seen;
    });
  }
  writer.join();
  EXPECT_EQ(broken, 0u);
  EXPECT_EQ(last, records);
  EXPECT_EQ(seen + lost, records);
  EXPECT_GT(seen, 0u);
}

}  // namespace
}  // namespace railhop
