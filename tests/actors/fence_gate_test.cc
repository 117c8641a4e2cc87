#include "actors/fence_gate.h"

#include <gmock/gmock.h>

#include <chrono>
#include <string>
#include <vector>

#include "runtime/cycle_clock.h"
#include "tests/actors/scripted_fences.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class FenceGateTest : public testing::Test {
 protected:
  static constexpr uint64_t kStream = 7;

  void Hold(uint32_t batch, uint64_t stream) { gate_.Hold(batch, fences_.Next(stream), now_); }
  // "3 done" or "3 failed" each, of what is held no longer; a long time after the last look.
  std::vector<std::string> Poll() {
    now_ += ToCycles(std::chrono::seconds(1));
    return PollNow();
  }
  std::vector<std::string> PollNow() {
    std::vector<std::string> texts;
    for (const FenceGate::Ended& ended : gate_.Poll(now_)) {
      texts.push_back(std::to_string(ended.batch) +
                      (ended.state == FenceState::kDone ? " done" : " failed"));
    }
    return texts;
  }

  ScriptedFences fences_;
  FenceGate gate_{&fences_, 16};
  uint64_t now_ = 1'000'000;
};

TEST_F(FenceGateTest, OneQueryOfTheNewestCoversTheOlderOnes) {
  for (uint32_t batch : {1, 2, 3}) Hold(batch, kStream);
  fences_.states[3] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done", "2 done", "3 done"));
  EXPECT_THAT(fences_.Asked(), ElementsAre(3));
  EXPECT_TRUE(gate_.empty());
}

TEST_F(FenceGateTest, WhileTheNewestIsPendingTheFirstOnesGoThrough) {
  for (uint32_t batch : {1, 2, 3, 4}) Hold(batch, kStream);
  fences_.states[1] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done"));
  EXPECT_THAT(fences_.Asked(), ElementsAre(4, 1, 2));
}

// Two threads put work on one stream: that a batch came here first does not say that it was
// recorded first.
TEST_F(FenceGateTest, WhatWasRecordedLaterOrAtTheSameTimeIsNotCovered) {
  const FenceTicket first = fences_.Next(kStream);
  FenceTicket second = fences_.Next(kStream);
  const FenceTicket third = fences_.Next(kStream);
  second.end = third.end + 1;
  gate_.Hold(9, third, now_);
  gate_.Hold(5, second, now_);
  gate_.Hold(1, first, now_);
  fences_.states[1] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done"));
  EXPECT_THAT(fences_.Asked(), ElementsAre(1, 9));
  fences_.states[5] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("5 done"));
  EXPECT_THAT(Poll(), IsEmpty());
  fences_.states[9] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("9 done"));
}

TEST_F(FenceGateTest, StreamsDoNotWaitForEachOther) {
  Hold(1, kStream);
  Hold(2, kStream + 1);
  fences_.states[2] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("2 done"));
}

TEST_F(FenceGateTest, EventsOfNoKnownStreamStandAlone) {
  Hold(1, 0);
  Hold(2, 0);
  Hold(3, 0);
  fences_.states[2] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("2 done"));
  gate_.Remove(3);
  fences_.states[3] = FenceState::kDone;
  EXPECT_THAT(Poll(), IsEmpty());
  fences_.states[1] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done"));
  EXPECT_TRUE(gate_.empty());
}

TEST_F(FenceGateTest, AFailedFenceCoversNothing) {
  Hold(1, kStream);
  Hold(2, kStream);
  fences_.states[2] = FenceState::kFailed;
  EXPECT_THAT(Poll(), ElementsAre("2 failed"));
  EXPECT_FALSE(gate_.empty());
  fences_.states[1] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done"));
}

TEST_F(FenceGateTest, WhatIsRemovedIsNotAskedFor) {
  for (uint32_t batch : {1, 2, 3}) Hold(batch, kStream);
  gate_.Remove(3);
  gate_.Remove(3);
  gate_.Remove(8);
  fences_.states[2] = FenceState::kDone;
  EXPECT_THAT(Poll(), ElementsAre("1 done", "2 done"));
  EXPECT_THAT(fences_.Asked(), ElementsAre(2));
  Hold(4, kStream);
  gate_.Remove(4);
  EXPECT_TRUE(gate_.empty());
}

TEST_F(FenceGateTest, TheLongerItWaitsTheLessOftenItIsAskedFor) {
  Hold(1, kStream);
  EXPECT_THAT(PollNow(), IsEmpty());
  EXPECT_EQ(fences_.Asked().size(), 1u);
  EXPECT_THAT(PollNow(), IsEmpty());
  EXPECT_EQ(fences_.Asked().size(), 0u) << "at once again";
  now_ += ToCycles(std::chrono::microseconds(3));
  PollNow();
  EXPECT_EQ(fences_.Asked().size(), 1u);
  now_ += ToCycles(std::chrono::milliseconds(160));
  PollNow();
  EXPECT_EQ(fences_.Asked().size(), 1u);
  now_ += ToCycles(std::chrono::microseconds(990));
  PollNow();
  EXPECT_EQ(fences_.Asked().size(), 0u);
  now_ += ToCycles(std::chrono::microseconds(20));
  PollNow();
  EXPECT_EQ(fences_.Asked().size(), 1u) << "a millisecond is the longest";
  // Another one of the same stream that has just come is looked at at once.
  Hold(2, kStream);
  PollNow();
  EXPECT_THAT(fences_.Asked(), ElementsAre(2, 1));
}

TEST_F(FenceGateTest, AParkedReactorWakesForIt) {
  EXPECT_EQ(gate_.NextPoll(now_), Poller::kNever);
  Hold(1, kStream);
  const uint64_t next = gate_.NextPoll(now_);
  EXPECT_GT(next, now_ + ToCycles(std::chrono::microseconds(40)));
  EXPECT_LT(next, now_ + ToCycles(std::chrono::microseconds(60)));
}

}  // namespace
}  // namespace railhop
