#include "actors/ordered_ports.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

struct Open {
  int number;
};
struct Close {
  int number;
};

class Producer : public Actor {
 public:
  Producer() : Actor("producer") {}
  OutPort<Open> open;
  OutPort<Close> close;
  OrderedPorts<Open, Close> out{open, close};
};

class Consumer : public Actor {
 public:
  Consumer() : Actor("consumer") {}
  bool OnOpen(const Open& message) { return Take(message.number); }
  bool OnClose(const Close& message) { return Take(message.number); }
  bool Take(int number) {
    if (!accept) return false;
    got.push_back(number);
    return true;
  }
  bool accept = true;
  std::vector<int> got;
};

class OrderedPortsTest : public testing::Test {
 protected:
  OrderedPortsTest()
      : producer_reactor_(*system_.AddReactor({.name = "producer"})),
        consumer_reactor_(*system_.AddReactor({.name = "consumer"})),
        producer_(system_.AddActor<Producer>(producer_reactor_)),
        consumer_(system_.AddActor<Consumer>(consumer_reactor_)) {
    // The consumer looks at the later message's edge first.
    system_.Connect<&Consumer::OnClose>(producer_, producer_.close, consumer_, producer_.out.kEdge);
    system_.Connect<&Consumer::OnOpen>(producer_, producer_.open, consumer_, producer_.out.kEdge);
    producer_reactor_.StartActors();
    consumer_reactor_.StartActors();
  }
  ActorSystem system_;
  Reactor& producer_reactor_;
  Reactor& consumer_reactor_;
  Producer& producer_;
  Consumer& consumer_;
};

TEST_F(OrderedPortsTest, MessagesAreHandledInTheOrderOfTheirSending) {
  for (int i = 0; i < 12; i += 4) {
    producer_.out.Send(Open{i});
    producer_.out.Send(Close{i + 1});
    producer_.out.Send(Close{i + 2});
    producer_.out.Send(Open{i + 3});
  }
  for (int i = 0; i < 40; ++i) {
    consumer_reactor_.RunPass();
    producer_.out.Flush();
  }
  EXPECT_THAT(consumer_.got, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11));
}

TEST_F(OrderedPortsTest, DeliveredMeansHandled) {
  EXPECT_TRUE(producer_.out.Delivered());
  consumer_.accept = false;
  producer_.out.Send(Open{1});
  consumer_reactor_.RunPass();
  EXPECT_FALSE(producer_.out.Delivered());
  consumer_.accept = true;
  consumer_reactor_.RunPass();
  EXPECT_THAT(consumer_.got, ElementsAre(1));
  EXPECT_TRUE(producer_.out.Delivered());
  producer_.out.Send(Open{2});
  producer_.out.Send(Close{3});  // waits for the other
  EXPECT_FALSE(producer_.out.Delivered());
}

TEST_F(OrderedPortsTest, WhatDoesNotFitIsKept) {
  consumer_.accept = false;
  for (int i = 0; i < 10; ++i) producer_.out.Send(Open{i});
  EXPECT_EQ(producer_.out.Flush(), 0u);
  consumer_.accept = true;
  EXPECT_THAT(consumer_.got, IsEmpty());
  for (int i = 0; i < 10; ++i) {
    consumer_reactor_.RunPass();
    producer_.out.Flush();
  }
  EXPECT_THAT(consumer_.got, ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
}

// With threads and parking reactors: the room that comes back wakes the producer.
TEST(OrderedPortsThreadTest, KeepsItsOrderBetweenParkingReactors) {
  static constexpr int kMessages = 2000;
  class Sender : public Producer, public Poller {
   public:
    Sender() { AddPoller(this); }
    void OnStart() override {
      for (int i = 0; i < kMessages; i += 2) {
        out.Send(Open{i});
        out.Send(Close{i + 1});
      }
    }
    size_t Poll(uint64_t) override { return out.Flush(); }
  };
  class Counter : public Consumer {
   public:
    bool OnOpen(const Open& message) { return Count(message.number); }
    bool OnClose(const Close& message) { return Count(message.number); }
    bool Count(int number) {
      got.push_back(number);
      count.store(got.size());
      return true;
    }
    std::atomic<size_t> count{0};
  };
  ActorSystem system;
  Reactor& one = *system.AddReactor({.name = "one", .idle = IdlePolicy::kEvent});
  Reactor& two = *system.AddReactor({.name = "two", .idle = IdlePolicy::kEvent});
  auto& sender = system.AddActor<Sender>(one);
  auto& counter = system.AddActor<Counter>(two);
  system.Connect<&Counter::OnClose>(sender, sender.close, counter, sender.out.kEdge);
  system.Connect<&Counter::OnOpen>(sender, sender.open, counter, sender.out.kEdge);
  ASSERT_TRUE(system.Start().ok());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (counter.count < kMessages && std::chrono::steady_clock::now() < limit) {
    std::this_thread::yield();
  }
  system.Stop(std::chrono::seconds(5));
  ASSERT_EQ(counter.got.size(), static_cast<size_t>(kMessages));
  for (int i = 0; i < kMessages; ++i) ASSERT_EQ(counter.got[static_cast<size_t>(i)], i);
}

}  // namespace
}  // namespace railhop
