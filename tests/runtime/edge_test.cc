#include "runtime/edge.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <vector>

#include "tests/support/manual_clock.h"

namespace railhop {
namespace {

struct Item {
  uint64_t value = 0;
};

// What a port needs of an actor: a handler.
struct Sink {
  bool OnItem(const Item& item) {
    if (seen.size() >= limit) return false;
    seen.push_back(item.value);
    if (on_item) on_item();
    return true;
  }
  std::function<void()> on_item;
  std::vector<uint64_t> seen;
  size_t limit = SIZE_MAX;
};

using Port = TypedInPort<&Sink::OnItem, Sink, SpscRing<Item>>;

class EdgeTest : public testing::Test {
 protected:
  // An edge whose consumer parks at `consumer_` and whose producer parks at `producer_`.
  void Connect(size_t capacity) {
    ring_ = std::make_unique<SpscRing<Item>>(capacity, 1, clock_.clock());
    out_.Connect(ring_.get(), &producer_wakes_, producer_wakes_.Add(&consumer_));
    in_ = std::make_unique<Port>(&sink_, ring_.get(), &consumer_wakes_,
                                 consumer_wakes_.Add(&producer_));
  }
  size_t Fill() {
    size_t sent = 0;
    while (out_.TrySend({sent})) ++sent;
    return sent;
  }

  ManualClock clock_;
  Sink sink_;
  Histogram queue_wait_;
  Parker producer_;
  Parker consumer_;
  WakeList producer_wakes_;
  WakeList consumer_wakes_;
  std::unique_ptr<SpscRing<Item>> ring_;
  OutPort<Item> out_;
  std::unique_ptr<Port> in_;
};

TEST_F(EdgeTest, APortIsConnectedOnceItHasARing) {
  EXPECT_FALSE(out_.connected());
  Connect(4);
  EXPECT_TRUE(out_.connected());
}

TEST_F(EdgeTest, ADrainHandlesAtMost16Messages) {
  Connect(64);
  ASSERT_EQ(Fill(), 64U);
  EXPECT_EQ(in_->Drain(&queue_wait_), 16U);
  EXPECT_EQ(sink_.seen.size(), 16U);
  EXPECT_FALSE(in_->AllTaken());
}

TEST_F(EdgeTest, QueueWaitIsFromSendToTheTimeOfTheDrain) {
  Connect(8);
  out_.Send({1});
  clock_.Advance(10);
  out_.Send({2});
  clock_.Advance(7);
  ASSERT_EQ(in_->Drain(&queue_wait_), 2U);
  const HistogramSnapshot waits = queue_wait_.Snapshot();
  EXPECT_EQ(waits.Count(), 2U);
  EXPECT_EQ(waits.Percentile(50), 7U);
  EXPECT_EQ(waits.Max(), 17U);
}

TEST_F(EdgeTest, AMessageWaitsWhileThoseBeforeItAreHandled) {
  Connect(8);
  out_.Send({1});
  out_.Send({2});
  sink_.on_item = [this] { clock_.Advance(5); };
  ASSERT_EQ(in_->Drain(&queue_wait_), 2U);
  EXPECT_EQ(queue_wait_.Snapshot().Percentile(50), 0U);
  EXPECT_EQ(queue_wait_.Snapshot().Max(), 5U);
}

TEST_F(EdgeTest, AMessageFromACoreWhoseCounterIsAheadHasWaitedForNothing) {
  Connect(8);
  clock_.Advance(5);
  out_.Send({1});
  clock_.Advance(uint64_t{0} - 5);  // back again
  ASSERT_EQ(in_->Drain(&queue_wait_), 1U);
  EXPECT_EQ(queue_wait_.Snapshot().Count(), 1U);
  EXPECT_EQ(queue_wait_.Snapshot().Max(), 0U) << "not minus five";
}

TEST_F(EdgeTest, TheTimeOfARefusedMessageCountsUntilItIsTaken) {
  Connect(8);
  out_.Send({1});
  sink_.limit = 0;
  clock_.Advance(10);
  EXPECT_EQ(in_->Drain(&queue_wait_), 0U);
  EXPECT_EQ(queue_wait_.Snapshot().Count(), 0U);
  sink_.limit = 1;
  clock_.Advance(20);
  EXPECT_EQ(in_->Drain(&queue_wait_), 1U);
  EXPECT_EQ(queue_wait_.Snapshot().Max(), 30U);
}

TEST_F(EdgeTest, AParkedConsumerIsWokenOnceAtTheFlush) {
  Connect(8);
  consumer_.PreparePark();
  out_.Send({1});
  out_.Send({2});
  EXPECT_EQ(consumer_.wakes(), 0U) << "not at each send";
  producer_wakes_.Flush();
  EXPECT_EQ(consumer_.wakes(), 1U);
}

TEST_F(EdgeTest, AnAwakeConsumerIsNotWoken) {
  Connect(8);
  out_.Send({1});
  producer_wakes_.Flush();
  EXPECT_EQ(consumer_.wakes(), 0U);
}

TEST_F(EdgeTest, AFlushIsForWhatWasSentSinceTheLastOne) {
  Connect(8);
  out_.Send({1});
  producer_wakes_.Flush();
  consumer_.PreparePark();
  producer_wakes_.Flush();
  EXPECT_EQ(consumer_.wakes(), 0U);
}

TEST_F(EdgeTest, AFailedSendWakesNobody) {
  Connect(2);
  ASSERT_EQ(Fill(), 2U);
  producer_wakes_.Flush();
  consumer_.PreparePark();
  EXPECT_FALSE(out_.TrySend({2}));
  producer_wakes_.Flush();
  EXPECT_EQ(consumer_.wakes(), 0U);
}

TEST_F(EdgeTest, AFullEdgeIsRememberedUntilTheNextPass) {
  Connect(2);
  EXPECT_EQ(out_.Room(), 2U);
  EXPECT_FALSE(producer_wakes_.saw_full());
  EXPECT_EQ(Fill(), 2U);
  EXPECT_TRUE(producer_wakes_.saw_full());
  producer_wakes_.ForgetFull();
  EXPECT_FALSE(producer_wakes_.saw_full());
  EXPECT_EQ(out_.Room(), 0U);
  EXPECT_TRUE(producer_wakes_.saw_full()) << "who asks for room and gets none waits for it too";
}

TEST_F(EdgeTest, TooLittleRoomCountsAsFull) {
  Connect(4);
  for (int i = 0; i < 3; ++i) out_.Send({});
  EXPECT_EQ(out_.Room(1), 1U);
  EXPECT_FALSE(producer_wakes_.saw_full());
  EXPECT_EQ(out_.Room(2), 1U);
  EXPECT_TRUE(producer_wakes_.saw_full());
}

TEST_F(EdgeTest, PublishedRoomWakesAProducerThatParkedForIt) {
  Connect(4);
  ASSERT_EQ(Fill(), 4U);
  producer_.PreparePark(producer_wakes_.saw_full());
  sink_.limit = 1;
  EXPECT_EQ(in_->Drain(&queue_wait_), 1U);
  consumer_wakes_.Flush();
  EXPECT_EQ(producer_.wakes(), 0U) << "one cell of four is not published yet";
  sink_.limit = 2;
  EXPECT_EQ(in_->Drain(&queue_wait_), 1U);
  consumer_wakes_.Flush();
  EXPECT_EQ(producer_.wakes(), 1U);
}

TEST_F(EdgeTest, RoomPublishedBeforeTheConsumerParksWakesTheProducerToo) {
  Connect(4);
  ASSERT_EQ(Fill(), 4U);
  producer_.PreparePark(producer_wakes_.saw_full());
  sink_.limit = 1;
  EXPECT_EQ(in_->Drain(&queue_wait_), 1U);
  in_->PublishCredit();
  consumer_wakes_.Flush();
  EXPECT_EQ(producer_.wakes(), 1U);
  in_->PublishCredit();
  producer_.PreparePark(true);
  consumer_wakes_.Flush();
  EXPECT_EQ(producer_.wakes(), 1U) << "nothing new was published";
}

TEST_F(EdgeTest, PublishedRoomDoesNotWakeAProducerThatParkedForLackOfWork) {
  Connect(4);
  for (int i = 0; i < 4; ++i) out_.Send({});
  producer_.PreparePark(producer_wakes_.saw_full());
  EXPECT_EQ(in_->Drain(&queue_wait_), 4U);
  consumer_wakes_.Flush();
  EXPECT_EQ(producer_.wakes(), 0U);
}

TEST(WakeListTest, NoParkerNoBit) {
  WakeList wakes;
  EXPECT_EQ(wakes.Add(nullptr), 0U);
}

TEST(WakeListTest, OneParkerHasOneBit) {
  WakeList wakes;
  Parker a;
  Parker b;
  const uint64_t bit = wakes.Add(&a);
  EXPECT_NE(wakes.Add(&b), bit);
  EXPECT_EQ(wakes.Add(&a), bit);
}

TEST(WakeListTest, OnlyTouchedParkersAreWoken) {
  WakeList wakes;
  std::vector<std::unique_ptr<Parker>> parkers;
  std::vector<uint64_t> bits;
  for (int i = 0; i < 3; ++i) {
    parkers.push_back(std::make_unique<Parker>());
    bits.push_back(wakes.Add(parkers.back().get()));
    parkers.back()->PreparePark(/*for_room=*/true);
  }
  wakes.Touch(bits[0]);
  wakes.TouchRoom(bits[2]);
  wakes.Flush();
  EXPECT_EQ(parkers[0]->wakes(), 1U);
  EXPECT_EQ(parkers[1]->wakes(), 0U);
  EXPECT_EQ(parkers[2]->wakes(), 1U);
}

TEST(WakeListTest, MoreParkersThanBitsAreAllWoken) {
  WakeList wakes;
  std::vector<std::unique_ptr<Parker>> parkers;
  std::vector<uint64_t> bits;
  for (int i = 0; i < 100; ++i) {
    parkers.push_back(std::make_unique<Parker>());
    bits.push_back(wakes.Add(parkers.back().get()));
  }
  for (size_t i = 0; i < parkers.size(); ++i) {
    parkers[i]->PreparePark();
    wakes.Touch(bits[i]);
    wakes.Flush();
    EXPECT_EQ(parkers[i]->wakes(), 1U) << i;
    parkers[i]->FinishPark();
  }
}

}  // namespace
}  // namespace railhop
