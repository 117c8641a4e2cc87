// Reactors driven by hand, one pass at a time, with a clock that the test moves. Parking is in
// reactor_park_test.cc.
#include "runtime/reactor.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/hand_driven_system.h"
#include "tests/support/test_actors.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class ScriptedPoller : public Poller {
 public:
  size_t Poll(uint64_t now) override {
    last_now = now;
    return poll();
  }
  std::function<size_t()> poll = [] { return 0; };
  uint64_t last_now = 0;
};

// A producer and a consumer on reactors of their own.
class ReactorTest : public testing::Test {
 protected:
  ReactorTest()
      : front_(hand_.AddReactor("front")),
        back_(hand_.AddReactor("back")),
        source_(hand_.system().AddActor<Source>(front_)),
        sink_(hand_.system().AddActor<Sink>(back_, &journal_)) {}

  void ConnectItems(size_t capacity = 256) {
    hand_.system().Connect<&Sink::OnItem>(source_, source_.items, sink_, {.capacity = capacity});
  }
  void Start() {
    hand_.Start();
    journal_.clear();
  }

  Journal journal_;
  HandDrivenSystem hand_;
  Reactor& front_;
  Reactor& back_;
  Source& source_;
  Sink& sink_;
};

TEST_F(ReactorTest, APassWithNothingToDoDoesNothing) {
  ConnectItems();
  Start();
  back_.RunPass();  // the first one also looks at the event loop
  EXPECT_EQ(back_.RunPass(), 0U);
  EXPECT_EQ(sink_.metrics().messages.load(), 0U);
  EXPECT_EQ(sink_.metrics().busy_cycles.load(), 0U);
  EXPECT_EQ(sink_.metrics().service.Snapshot().Count(), 0U);
}

TEST_F(ReactorTest, AnActorStartsOnce) {
  hand_.Start();
  hand_.RunAll();
  EXPECT_THAT(journal_, ElementsAre("sink start"));
}

TEST_F(ReactorTest, APassTakesAtMost16MessagesFromAnEdge) {
  ConnectItems(64);
  Start();
  ASSERT_EQ(source_.FillItems(), 64U);
  EXPECT_EQ(back_.RunPass(), 16U);
  EXPECT_EQ(journal_.size(), 16U);
  EXPECT_EQ(back_.RunPass(), 16U);
  EXPECT_EQ(hand_.RunUntilIdle(), 2U);
  EXPECT_EQ(journal_.size(), 64U);
  EXPECT_EQ(journal_.back(), "sink item 63");
}

TEST_F(ReactorTest, ControlEdgesAreDrainedBeforeDataEdges) {
  ConnectItems();  // data first: the order of connecting does not matter
  hand_.system().Connect<&Sink::OnUrgent>(source_, source_.urgent, sink_, {.control = true});
  Start();
  source_.items.Send({1});
  source_.urgent.Send({2});
  EXPECT_EQ(back_.RunPass(), 2U);
  EXPECT_THAT(journal_, ElementsAre("sink urgent 2", "sink item 1"));
}

TEST_F(ReactorTest, AControlMessageIsNeverBehindAFullDataEdge) {
  ConnectItems(16);
  hand_.system().Connect<&Sink::OnUrgent>(source_, source_.urgent, sink_, {.control = true});
  Start();
  ASSERT_EQ(source_.FillItems(), 16U);
  sink_.allowance = 0;  // and the consumer cannot take data at all
  EXPECT_EQ(back_.RunPass(), 0U);
  ASSERT_FALSE(source_.items.TrySend({16}));
  sink_.allowance = 1;
  source_.urgent.Send({1});
  ASSERT_TRUE(sink_.Post({.kind = 20}));
  EXPECT_EQ(back_.RunPass(), 2U);
  EXPECT_THAT(journal_, ElementsAre("sink control 20 0", "sink urgent 1"));
}

TEST_F(ReactorTest, AStopIsNotHeldUpByAFullDataEdgeThatNobodyCanTake) {
  ConnectItems(16);
  Start();
  ASSERT_EQ(source_.FillItems(), 16U);
  sink_.allowance = 0;
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  hand_.RunAll();
  EXPECT_THAT(journal_, ElementsAre("sink stop"));
  EXPECT_FALSE(sink_.stopped()) << "the messages are still there";
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kFlush}));
  hand_.RunUntilIdle();
  EXPECT_TRUE(sink_.stopped());
  EXPECT_EQ(CountOf("sink item", journal_), 16U);
}

TEST_F(ReactorTest, TheControlLaneComesBeforeEveryActorOfThePass) {
  Sink& second = hand_.system().AddActor<Sink>(back_, &journal_, "second");
  ConnectItems();
  Start();
  source_.items.Send({1});
  ASSERT_TRUE(second.Post({.kind = 16, .arguments = {0, 0, 0, 0, 0, 9}}));
  EXPECT_EQ(back_.RunPass(), 2U);
  EXPECT_THAT(journal_, ElementsAre("second control 16 9", "sink item 1"));
}

TEST_F(ReactorTest, TheControlLaneIsBoundedAndKeepsItsOrder) {
  Start();
  uint64_t posted = 0;
  while (sink_.Post({.kind = 16, .arguments = {0, 0, 0, 0, 0, posted}})) ++posted;
  EXPECT_EQ(posted, 256U);
  EXPECT_EQ(back_.RunPass(), 16U);
  hand_.RunUntilIdle();
  ASSERT_EQ(journal_.size(), 256U);
  for (uint64_t i = 0; i < posted; ++i) {
    ASSERT_EQ(journal_[i], fmt::format("sink control 16 {}", i));
  }
}

TEST_F(ReactorTest, EveryPortGetsItsShareOfAPass) {
  Source& other = hand_.system().AddActor<Source>(front_, "other");
  ConnectItems();
  hand_.system().Connect<&Sink::OnOther>(other, other.items, sink_);
  Start();
  source_.FillItems();
  other.items.Send({7});
  EXPECT_EQ(back_.RunPass(), 17U);
  EXPECT_EQ(CountOf("sink other", journal_), 1U) << "not behind the 256 of the first";
}

TEST_F(ReactorTest, AConsumerThatCanTakeLittleServesItsPortsInTurn) {
  Source& other = hand_.system().AddActor<Source>(front_, "other");
  Source& third = hand_.system().AddActor<Source>(front_, "third");
  ConnectItems();
  hand_.system().Connect<&Sink::OnOther>(other, other.items, sink_);
  hand_.system().Connect<&Sink::OnThird>(third, third.items, sink_);
  Start();
  for (Source* source : {&source_, &other, &third}) ASSERT_EQ(source->FillItems(), 256U);
  for (int pass = 0; pass < 30; ++pass) {
    // Nothing can be taken in every other pass: that must not shift the turns.
    sink_.allowance = pass % 2 == 0 ? 1 : 0;
    back_.RunPass();
  }
  EXPECT_EQ(CountOf("sink item", journal_), 5U);
  EXPECT_EQ(CountOf("sink other", journal_), 5U);
  EXPECT_EQ(CountOf("sink third", journal_), 5U);
}

TEST_F(ReactorTest, ARefusedMessageIsKeptAndCountsAsNoWork) {
  Source& other = hand_.system().AddActor<Source>(front_, "other");
  ConnectItems();
  hand_.system().Connect<&Sink::OnOther>(other, other.items, sink_);
  Start();
  hand_.RunAll();
  source_.items.Send({1});
  source_.items.Send({2});
  sink_.allowance = 0;
  EXPECT_EQ(back_.RunPass(), 0U) << "so the reactor may park: what it lacks will wake it";
  EXPECT_EQ(sink_.metrics().messages.load(), 0U);
  sink_.allowance = 2;
  EXPECT_EQ(back_.RunPass(), 2U);
  EXPECT_THAT(journal_, ElementsAre("sink item 1", "sink item 2"));
}

TEST_F(ReactorTest, AKeptMessageHoldsUpItsOwnEdgeOnly) {
  struct Picky : Actor {
    Picky() : Actor("picky") {}
    bool OnItem(const Item&) { return false; }
    bool OnOther(const Item& item) {
      others.push_back(item.value);
      return true;
    }
    std::vector<uint64_t> others;
  };
  Picky& picky = hand_.system().AddActor<Picky>(back_);
  Source& other = hand_.system().AddActor<Source>(front_, "other");
  hand_.system().Connect<&Picky::OnItem>(source_, source_.items, picky);
  hand_.system().Connect<&Picky::OnOther>(other, other.items, picky);
  Start();
  source_.items.Send({1});
  other.items.Send({2});
  other.items.Send({3});
  hand_.RunUntilIdle();
  EXPECT_THAT(picky.others, ElementsAre(2, 3));
}

// ---- time ----

TEST(ReactorHistogramsTest, SwitchedOffNothingIsTimed) {
  Journal journal;
  HandDrivenSystem hand(/*histograms=*/false);
  Reactor& reactor = hand.AddReactor("r");
  Source& source = hand.system().AddActor<Source>(reactor);
  Sink& sink = hand.system().AddActor<Sink>(reactor, &journal);
  hand.system().Connect<&Sink::OnItem>(source, source.items, sink);
  hand.Start();
  sink.on_message = [&] { hand.clock().Advance(2); };
  source.items.Send({1});
  EXPECT_GT(hand.RunAll(), 0U);
  EXPECT_EQ(sink.metrics().messages.load(), 1U);
  EXPECT_EQ(sink.metrics().service.Snapshot().Count(), 0U);
  EXPECT_EQ(sink.metrics().busy_cycles.load(), 0U);
}

TEST_F(ReactorTest, ServiceTimeIsTheMeanOfTheBatch) {
  ConnectItems();
  Start();
  hand_.RunAll();
  uint64_t cost = 0;
  sink_.on_message = [&] { hand_.clock().Advance(cost += 2); };  // 2, 4, 6, 8: 20 in all
  for (uint64_t i = 0; i < 4; ++i) source_.items.Send({i});
  EXPECT_EQ(back_.RunPass(), 4U);
  const HistogramSnapshot service = sink_.metrics().service.Snapshot();
  EXPECT_EQ(service.Count(), 4U);
  EXPECT_EQ(service.Percentile(1), 5U);
  EXPECT_EQ(service.Max(), 5U);
  EXPECT_EQ(sink_.metrics().busy_cycles.load(), 20U);
  EXPECT_EQ(sink_.metrics().messages.load(), 4U);
}

TEST_F(ReactorTest, QueueWaitEndsWhereTheActorBeginsNotWhereThePassDoes) {
  Sink& second = hand_.system().AddActor<Sink>(back_, &journal_, "second");
  Source& other = hand_.system().AddActor<Source>(front_, "other");
  ConnectItems();
  hand_.system().Connect<&Sink::OnItem>(other, other.items, second);
  Start();
  sink_.on_message = [&] { hand_.clock().Advance(9); };
  other.items.Send({1});
  hand_.clock().Advance(3);
  source_.items.Send({1});
  hand_.clock().Advance(4);
  EXPECT_GE(back_.RunPass(), 2U);
  EXPECT_EQ(sink_.metrics().queue_wait.Snapshot().Max(), 4U);
  EXPECT_EQ(second.metrics().queue_wait.Snapshot().Max(), 3U + 4U + 9U);
  EXPECT_EQ(second.metrics().service.Snapshot().Max(), 0U) << "the first one's time is its own";
}

TEST_F(ReactorTest, OneMessageIn64IsStampedUnlessAskedOtherwise) {
  ManualClock clock;
  ActorSystem system({.clock = clock.clock()});
  Reactor& core = *system.AddReactor({.name = "core"});
  Source& source = system.AddActor<Source>(core);
  Sink& sink = system.AddActor<Sink>(core, &journal_);
  system.Connect<&Sink::OnItem>(source, source.items, sink);
  for (int i = 0; i < 3 * 64 + 1; ++i) {
    source.items.Send({});
    system.RunAll();
  }
  EXPECT_EQ(sink.metrics().messages.load(), 3U * 64 + 1);
  EXPECT_EQ(sink.metrics().queue_wait.Snapshot().Count(), 4U);
}

// Of passes that follow one another closely only some are timed, and those stand for the others.
TEST_F(ReactorTest, TimedPassesStandForThoseBetween) {
  ConnectItems();
  Start();
  constexpr uint64_t kPasses = 1'000;
  uint64_t read_early = 0;
  for (uint64_t i = 0; i < kPasses; ++i) {
    sink_.on_message = [&] { hand_.clock().Advance(4); };
    hand_.clock().Advance(Reactor::kTimingGap / 32);
    source_.items.Send({i});
    back_.RunPass();
    if (i == kPasses / 2) read_early = sink_.metrics().service.Snapshot().Count();
  }
  hand_.clock().Advance(Reactor::kTimingGap);
  source_.items.Send({kPasses});
  back_.RunPass();
  EXPECT_LT(read_early, kPasses / 2 + 1) << "the passes since the last timed one are still to come";
  EXPECT_GT(read_early, kPasses / 2 - 64);
  EXPECT_EQ(sink_.metrics().service.Snapshot().Count(), kPasses + 1);
  EXPECT_EQ(sink_.metrics().service.Snapshot().Max(), 4U);
  EXPECT_EQ(sink_.metrics().busy_cycles.load(), 4 * (kPasses + 1));
}

TEST_F(ReactorTest, PollersGetTheTimeOfThePassAndCountAsService) {
  ScriptedPoller poller;
  Polling& polling = hand_.system().AddActor<Polling>(back_, &poller);
  Start();
  hand_.RunAll();
  hand_.clock().Advance(100);
  poller.poll = [&] {
    hand_.clock().Advance(6);
    return 3;
  };
  EXPECT_EQ(back_.RunPass(), 3U);
  EXPECT_EQ(poller.last_now, hand_.clock().now() - 6);
  EXPECT_EQ(back_.now(), hand_.clock().now() - 6);
  EXPECT_EQ(polling.metrics().service.Snapshot().Count(), 3U);
  EXPECT_EQ(polling.metrics().service.Snapshot().Max(), 2U);
  EXPECT_EQ(polling.metrics().messages.load(), 0U);
  EXPECT_EQ(polling.metrics().busy_cycles.load(), 6U);
}

TEST_F(ReactorTest, ActorsRunInTheOrderThatIsSet) {
  Journal ran;
  ScriptedPoller pollers[3];
  std::vector<const Actor*> actors;
  for (int i = 0; i < 3; ++i) {
    pollers[i].poll = [&ran, i] { return ran.push_back(std::to_string(i)), size_t{0}; };
    actors.push_back(&hand_.system().AddActor<Polling>(back_, &pollers[i]));
  }
  hand_.system().SetRunOrder({actors[2], actors[1]});  // and the one not named comes last
  Start();
  back_.RunPass();
  EXPECT_THAT(ran, ElementsAre("2", "1", "0"));
  // Control messages still find their actor.
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kFirstUserKind}));
  back_.RunPass();
  EXPECT_EQ(CountOf("sink control", journal_), 1U);
}

// ---- credit ----

TEST_F(ReactorTest, CreditGoesBackWhenHalfOfASmallEdgeWasTaken) {
  ConnectItems(8);
  Start();
  ASSERT_EQ(source_.FillItems(), 8U);
  sink_.allowance = 3;
  back_.RunPass();
  EXPECT_EQ(source_.items.Room(), 0U);
  back_.RunPass();  // an idle pass of an awake reactor publishes nothing
  EXPECT_EQ(source_.items.Room(), 0U);
  sink_.allowance = 1;
  back_.RunPass();
  EXPECT_EQ(source_.items.Room(), 4U);
}

// ---- wakes ----

class WakeTest : public ReactorTest {
 protected:
  void SetUp() override {
    ConnectItems();
    Start();
    hand_.RunAll();
  }
  uint64_t Wakes() const { return back_.wake_target()->wakes(); }
};

TEST_F(WakeTest, AParkedPeerIsWokenOnceAtTheEndOfThePass) {
  back_.wake_target()->PreparePark();
  source_.items.Send({1});
  source_.items.Send({2});
  EXPECT_EQ(Wakes(), 0U);
  front_.RunPass();
  EXPECT_EQ(Wakes(), 1U);
  source_.items.Send({3});
  front_.RunPass();
  EXPECT_EQ(Wakes(), 1U) << "woken already, though it has not run yet";
}

TEST_F(WakeTest, AnAwakePeerIsNotWoken) {
  for (uint64_t i = 0; i < 100; ++i) {
    source_.items.Send({i});
    front_.RunPass();
  }
  EXPECT_EQ(Wakes(), 0U);
}

TEST_F(WakeTest, APassThatSentNothingWakesNobody) {
  back_.wake_target()->PreparePark();
  front_.RunPass();
  EXPECT_EQ(Wakes(), 0U);
}

TEST_F(WakeTest, APostWakesAtOnce) {
  back_.wake_target()->PreparePark();
  ASSERT_TRUE(sink_.Post({.kind = 16}));
  EXPECT_EQ(Wakes(), 1U);
}

TEST_F(WakeTest, ABusyPeerIsNeverWoken) {
  Reactor& busy = hand_.AddReactor("busy", IdlePolicy::kBusy);
  EXPECT_EQ(busy.wake_target(), nullptr);
  Source& source = hand_.system().AddActor<Source>(front_, "other");
  Sink& sink = hand_.system().AddActor<Sink>(busy, &journal_, "busy sink");
  hand_.system().Connect<&Sink::OnItem>(source, source.items, sink);
  back_.wake_target()->PreparePark();
  source.items.Send({1});
  front_.RunPass();
  EXPECT_GE(busy.RunPass(), 1U);
  EXPECT_THAT(journal_, ElementsAre("busy sink item 1"));
  EXPECT_EQ(Wakes(), 0U) << "and nobody in its place";
}

TEST_F(WakeTest, APeerOnTheSameReactorIsNeverWoken) {
  Source& source = hand_.system().AddActor<Source>(back_, "neighbour");
  Sink& sink = hand_.system().AddActor<Sink>(back_, &journal_, "neighbour sink");
  hand_.system().Connect<&Sink::OnItem>(source, source.items, sink);
  back_.wake_target()->PreparePark();
  source.items.Send({1});
  EXPECT_EQ(back_.RunPass(), 1U);
  EXPECT_EQ(Wakes(), 0U);
}

TEST_F(WakeTest, AProducerThatParkedOnAFullEdgeIsWokenWhenThereIsRoom) {
  source_.FillItems();
  ASSERT_TRUE(front_.wakes().saw_full());
  front_.wake_target()->PreparePark(/*for_room=*/true);
  EXPECT_EQ(back_.RunPass(), 16U);
  EXPECT_EQ(front_.wake_target()->wakes(), 1U);
}

TEST_F(WakeTest, AProducerThatParkedForLackOfWorkIsLeftAsleep) {
  for (uint64_t i = 0; i < 64; ++i) source_.items.Send({i});
  front_.RunPass();
  front_.wake_target()->PreparePark();
  hand_.clock().Advance(1);
  EXPECT_EQ(back_.RunPass(), 16U);
  EXPECT_EQ(front_.wake_target()->wakes(), 0U);
}

// ---- the event loop within a pass ----

TEST_F(ReactorTest, TheEventLoopIsLookedAtOncePerInterval) {
  Parker event;  // something with a descriptor
  int called = 0;
  ASSERT_TRUE(back_.loop().WatchFd(event.fd(), Trigger::kEdge, [&] { ++called; }).ok());
  Start();
  back_.RunPass();
  event.PreparePark();
  event.WakeIfParked();
  EXPECT_EQ(back_.RunPass(), 0U) << "not yet: it costs 0.3 us";
  EXPECT_EQ(called, 0);
  hand_.clock().Advance(ToCycles(Reactor::kEventInterval));
  EXPECT_EQ(back_.RunPass(), 1U) << "a callback is work: it may have left some";
  EXPECT_EQ(called, 1);
}

TEST_F(ReactorTest, AWakeSeenInThePassBeforeBlockingIsNotSleptThrough) {
  // The order that loses a wake-up if the pass swallows it: this reactor announces that it parks,
  // finds its edge empty, then a peer sends and writes the eventfd, then the same pass looks at its
  // descriptors - and must not say that there is nothing to do.
  ConnectItems();
  ScriptedPoller peer;
  hand_.system().AddActor<Polling>(back_, &peer);
  Start();
  hand_.RunAll();
  hand_.clock().Advance(ToCycles(Reactor::kEventInterval));
  peer.poll = [&] {
    source_.items.Send({1});
    front_.RunPass();
    return 0;
  };
  back_.wake_target()->PreparePark();
  EXPECT_NE(back_.RunPass(), 0U);
  EXPECT_EQ(back_.wake_target()->wakes(), 1U);
  EXPECT_THAT(journal_, IsEmpty());
}

// ---- stop ----

TEST_F(ReactorTest, AnIdleActorStopsInThePassThatTellsIt) {
  Start();
  EXPECT_FALSE(sink_.stopped());
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  EXPECT_THAT(journal_, ElementsAre("sink stop"));
  EXPECT_TRUE(sink_.stopped());
  EXPECT_FALSE(source_.stopped()) << "each actor is told for itself";
}

TEST_F(ReactorTest, AnActorIsToldToStopOnce) {
  sink_.in_flight = 1;
  Start();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  sink_.in_flight = 0;
  back_.RunPass();
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  EXPECT_EQ(CountOf("sink stop", journal_), 1U);
  EXPECT_TRUE(sink_.stopped());
}

TEST_F(ReactorTest, ItIsStoppedOnlyWhenMailboxAndWorkInFlightAreGone) {
  ConnectItems();
  Start();
  sink_.in_flight = 1;
  for (uint64_t i = 0; i < 17; ++i) source_.items.Send({i});
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  EXPECT_FALSE(sink_.stopped());
  back_.RunPass();
  EXPECT_EQ(CountOf("sink item", journal_), 17U);
  EXPECT_FALSE(sink_.stopped()) << "something is in flight";
  sink_.in_flight = 0;
  back_.RunPass();
  EXPECT_TRUE(sink_.stopped());
}

TEST_F(ReactorTest, AFlushEndsWhatIsInFlight) {
  Start();
  sink_.in_flight = 3;
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  EXPECT_FALSE(sink_.stopped());
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kFlush}));
  back_.RunPass();
  EXPECT_THAT(journal_, ElementsAre("sink stop", "sink flush"));
  EXPECT_TRUE(sink_.stopped());
}

TEST_F(ReactorTest, AStoppedActorStillTakesMessages) {
  ConnectItems();
  Start();
  ASSERT_TRUE(sink_.Post({.kind = ControlMessage::kStop}));
  back_.RunPass();
  ASSERT_TRUE(sink_.stopped());
  source_.items.Send({1});
  back_.RunPass();
  EXPECT_EQ(CountOf("sink item", journal_), 1U) << "a peer that is still draining may answer";
}

TEST_F(ReactorTest, AStopWakesWhoWaitsForIt) {
  Parker waiter;
  ManualClock clock;
  Reactor reactor({.name = "alone", .clock = clock.clock(), .stop_waiter = &waiter});
  Sink sink(&journal_);
  reactor.AddActor(&sink);
  reactor.StartActors();
  waiter.PreparePark();
  ASSERT_TRUE(sink.Post({.kind = ControlMessage::kStop}));
  EXPECT_EQ(waiter.wakes(), 0U);
  reactor.RunPass();
  EXPECT_EQ(waiter.wakes(), 1U);
}

}  // namespace
}  // namespace railhop
