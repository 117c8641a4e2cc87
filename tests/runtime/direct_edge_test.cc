// Direct edges: a message to an actor of the same reactor is handled by a call, where that is
// possible, and goes through the ring where it is not.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "tests/support/hand_driven_system.h"
#include "tests/support/test_actors.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr EdgeOptions kDirect{.capacity = 4, .direct = true};

// Sends what the test says in its turn, and takes what comes back.
class Talker : public Actor, private Poller {
 public:
  explicit Talker(Journal* journal) : Actor("talker"), journal_(*journal) { AddPoller(this); }

  bool OnReply(const Item& item) {
    journal_.push_back(fmt::format("talker reply {}", item.value));
    return true;
  }
  std::function<void()> turn;
  OutPort<Item> items;

 private:
  size_t Poll(uint64_t) override {
    if (turn == nullptr) return 0;
    std::exchange(turn, nullptr)();
    return 1;
  }
  Journal& journal_;
};

// Answers each item.
class Replier : public Actor {
 public:
  explicit Replier(Journal* journal) : Actor("replier"), journal_(*journal) {}
  bool OnItem(const Item& item) {
    if (refuse) return false;
    journal_.push_back(fmt::format("replier item {}", item.value));
    replies.Send(item);
    return true;
  }
  bool refuse = false;
  OutPort<Item> replies;

 private:
  Journal& journal_;
};

class DirectEdgeTest : public testing::Test {
 protected:
  // Not timed: without histograms.
  explicit DirectEdgeTest(bool histograms = false)
      : hand_(histograms),
        core_(hand_.AddReactor("core")),
        replier_(hand_.system().AddActor<Replier>(core_, &journal_)),
        talker_(hand_.system().AddActor<Talker>(core_, &journal_)) {
    hand_.system().Connect<&Replier::OnItem>(talker_, talker_.items, replier_, kDirect);
    hand_.system().Connect<&Talker::OnReply>(replier_, replier_.replies, talker_, kDirect);
    hand_.Start();
    core_.RunPass();  // the first one also looks at the event loop
  }
  // What the talker does in its next turn; it is written down when that has ended.
  size_t RunTurn(const std::function<void()>& turn) {
    talker_.turn = [this, turn] {
      turn();
      journal_.push_back("turn over");
    };
    return core_.RunPass();
  }

  Journal journal_;
  HandDrivenSystem hand_;
  Reactor& core_;
  Replier& replier_;  // runs before the talker
  Talker& talker_;
};

TEST_F(DirectEdgeTest, AMessageIsHandledWithinTheSend) {
  RunTurn([&] { talker_.items.Send({7}); });
  EXPECT_THAT(journal_, ElementsAre("replier item 7", "turn over"));
}

TEST_F(DirectEdgeTest, AnActorIsNotCalledInTheMiddleOfItsOwnTurn) {
  RunTurn([&] { talker_.items.Send({7}); });
  core_.RunPass();
  EXPECT_THAT(journal_, ElementsAre("replier item 7", "turn over", "talker reply 7"));
}

TEST_F(DirectEdgeTest, ACallCountsAsWorkAndAsAMessage) {
  EXPECT_EQ(RunTurn([&] { talker_.items.Send({1}); }), 2U) << "the turn, and the call";
  EXPECT_EQ(replier_.metrics().messages.load(), 1U);
  EXPECT_EQ(core_.RunPass(), 1U) << "the reply";
  EXPECT_EQ(core_.RunPass(), 0U);
}

TEST_F(DirectEdgeTest, WhatIsRefusedWaitsAndKeepsLaterMessagesBehindIt) {
  replier_.refuse = true;
  RunTurn([&] { talker_.items.Send({1}); });
  replier_.refuse = false;
  RunTurn([&] { talker_.items.Send({2}); });
  // 1 was taken from the ring in the replier's turn, before the talker's.
  EXPECT_THAT(journal_, ElementsAre("turn over", "replier item 1", "talker reply 1",
                                    "replier item 2", "turn over"));

  journal_.clear();
  replier_.refuse = true;
  RunTurn([&] {
    talker_.items.Send({3});
    replier_.refuse = false;
    talker_.items.Send({4});
  });
  EXPECT_EQ(CountOf("replier", journal_), 0U) << "4 must not overtake 3";
  core_.RunPass();
  EXPECT_THAT(journal_, ElementsAre("talker reply 2", "turn over", "replier item 3",
                                    "talker reply 3", "replier item 4", "talker reply 4"));
}

TEST_F(DirectEdgeTest, ARingThatIsFullSaysSo) {
  replier_.refuse = true;
  size_t sent = 0;
  RunTurn([&] {
    while (talker_.items.TrySend({sent})) ++sent;
  });
  EXPECT_EQ(sent, kDirect.capacity);
}

TEST_F(DirectEdgeTest, OutsideOfAPassNobodyIsCalled) {
  talker_.items.Send({5});
  EXPECT_THAT(journal_, IsEmpty());
  core_.RunPass();
  EXPECT_THAT(journal_, ElementsAre("replier item 5", "talker reply 5"));
}

TEST_F(DirectEdgeTest, BetweenTwoReactorsItIsAnEdgeAsAnyOther) {
  HandDrivenSystem hand(false);
  Reactor& front = hand.AddReactor("front");
  Reactor& back = hand.AddReactor("back");
  Journal journal;
  Talker& talker = hand.system().AddActor<Talker>(front, &journal);
  Sink& sink = hand.system().AddActor<Sink>(back, &journal);
  hand.system().Connect<&Sink::OnItem>(talker, talker.items, sink, kDirect);
  hand.Start();
  journal.clear();
  talker.turn = [&] { talker.items.Send({5}); };
  front.RunPass();
  EXPECT_THAT(journal, IsEmpty());
  back.RunPass();
  EXPECT_THAT(journal, ElementsAre("sink item 5"));
}

class TimedDirectEdgeTest : public DirectEdgeTest {
 protected:
  TimedDirectEdgeTest() : DirectEdgeTest(true) {}
};

// Or the time of the called would be the caller's.
TEST_F(TimedDirectEdgeTest, InATimedPassItIsHandledInItsOwnTurn) {
  RunTurn([&] { talker_.items.Send({1}); });
  EXPECT_THAT(journal_, ElementsAre("turn over"));
  // The first pass with work was timed; the next one to be is at the latest so much later.
  RunTurn([&] { talker_.items.Send({2}); });
  EXPECT_THAT(journal_, ElementsAre("turn over", "replier item 1", "talker reply 1",
                                    "replier item 2", "turn over"));
  hand_.clock().Advance(Reactor::kTimingGap);
  journal_.clear();
  RunTurn([&] { talker_.items.Send({3}); });
  EXPECT_EQ(CountOf("replier", journal_), 0U);
}

}  // namespace
}  // namespace railhop
