#include "actors/inbound_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

#include "tests/actors/peer_support.h"

namespace railhop::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// This process is the relay; children claim lanes of it.
class InboundWatchTest : public ::testing::Test {
 protected:
  void MakeRelay(milliseconds grace = milliseconds(50)) {
    auto options = TestRank::QuickOptions();
    options.lane_grace = grace;
    rank_ = std::make_unique<TestRank>(root_.Options(), std::vector<std::string>{"here"}, options);
    rank_->Start();
  }
  // A rank that attaches to this one.
  Child MakeSender() {
    Child child = MakeRank(root_.Options(), {"there"}, "here");
    EXPECT_EQ(child.Await(), '.');
    EXPECT_TRUE(child.Tell('w'));
    const int answered = rank_->relay->answered;
    EXPECT_TRUE(rank_->RunUntil([&] { return rank_->relay->answered > answered; }));
    EXPECT_EQ(child.Await(), 'W');
    return child;
  }
  LaneState State(uint32_t lane) const { return LoadLaneState(rank_->Header(lane)); }
  bool IsOurs(uint32_t lane) const {
    const auto holder = ReadSender(rank_->Header(lane));
    return holder.has_value() && *holder == rank_->member->sender();
  }
  bool IsFree(uint32_t lane) const { return State(lane) == LaneState::kFree; }

  PrivateRoot root_;
  LogCapture log_;
  std::unique_ptr<TestRank> rank_;
};

TEST_F(InboundWatchTest, ALivingSenderIsIntroducedAndThenAdmitted) {
  MakeRelay();
  rank_->cq_poll->answer = false;
  Child child = MakeRank(root_.Options(), {"there"}, "here");
  ASSERT_TRUE(child.Tell('w'));
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->cq_poll->sides.empty(); }));
  // Whoever writes its completions does not know yet whom to wake: nothing of it may be read.
  rank_->RunFor(milliseconds(100));
  EXPECT_THAT(rank_->relay->admitted, IsEmpty());
  const SenderSide introduced = rank_->cq_poll->sides[0];
  rank_->cq_poll->taken_out.Send({introduced.sender_epoch, introduced.lane});
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->relay->admitted.empty(); }));
  ASSERT_NE(introduced.side, nullptr);
  EXPECT_EQ(introduced.side->file().header.owner.pid, child.pid());
  EXPECT_EQ(rank_->relay->admitted[0].sender_epoch, introduced.sender_epoch);
  EXPECT_EQ(rank_->relay->admitted[0].lane, introduced.lane);
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->relay->answered == 1; }));  // the probe
}

TEST_F(InboundWatchTest, ADeadSendersLaneIsKeptUntilDrainedAndQuiet) {
  MakeRelay();
  Child child = MakeSender();
  const uint32_t lane = rank_->relay->admitted[0].lane;
  const uint64_t epoch = rank_->relay->admitted[0].sender_epoch;
  rank_->relay->answer_lost = false;
  child.Kill();
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->relay->lost.empty(); }));
  EXPECT_EQ(rank_->relay->lost[0].sender_epoch, epoch);
  ASSERT_TRUE(rank_->RunUntil([&] { return IsOurs(lane); }));
  // Its posts are not drained: the lane stays taken however long that is.
  rank_->RunFor(milliseconds(200));
  EXPECT_TRUE(IsOurs(lane));
  rank_->relay->drained_out.Send({epoch + 1, lane});  // somebody else's
  rank_->RunFor(milliseconds(100));
  EXPECT_TRUE(IsOurs(lane));
  rank_->relay->drained_out.Send({epoch, lane});
  ASSERT_TRUE(rank_->RunUntil([&] { return IsFree(lane); }));
  // Nobody may wake the dead.
  EXPECT_EQ(rank_->cq_poll->sides.back().side, nullptr);
  EXPECT_EQ(rank_->cq_poll->sides.back().lane, lane);
  Child next = MakeSender();
  EXPECT_THAT(rank_->relay->admitted, SizeIs(2));
  EXPECT_NE(rank_->relay->admitted[1].sender_epoch, epoch);
}

TEST_F(InboundWatchTest, ADoorbellThatStillMovesKeepsTheLane) {
  MakeRelay(milliseconds(300));
  Child child = MakeSender();
  const uint32_t lane = rank_->relay->admitted[0].lane;
  child.Kill();
  ASSERT_TRUE(rank_->RunUntil([&] { return IsOurs(lane); }));
  // GPU work of the dead process goes on, for longer than the grace time: each pass sees it move.
  const auto until = std::chrono::steady_clock::now() + milliseconds(900);
  uint64_t doorbell = LoadAcquire(rank_->Header(lane).doorbell);
  while (std::chrono::steady_clock::now() < until) {
    StoreRelease(rank_->Header(lane).doorbell, ++doorbell);
    rank_->system.RunAll();
    ASSERT_TRUE(IsOurs(lane)) << "freed under a moving doorbell";
  }
  EXPECT_TRUE(rank_->RunUntil([&] { return IsFree(lane); }));
}

TEST_F(InboundWatchTest, ASenderThatReleasedItsLaneIsForgottenWhenItEnds) {
  MakeRelay();
  Child child = MakeSender();
  const uint32_t lane = rank_->relay->admitted[0].lane;
  ASSERT_TRUE(child.Tell('s'));
  ASSERT_TRUE(rank_->RunUntil([&] { return IsFree(lane); }));
  EXPECT_EQ(child.Await(), 'S');
  EXPECT_THAT(rank_->relay->lost, IsEmpty());
  ASSERT_TRUE(child.Tell('q'));
  EXPECT_TRUE(child.Join());
  // Its process has ended: what was kept of it is withdrawn, and the lane is simply free.
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->relay->lost.size() == 1; }));
  EXPECT_TRUE(IsFree(lane));
  rank_->RunFor(milliseconds(300));
  EXPECT_TRUE(IsFree(lane));
}

TEST_F(InboundWatchTest, ASenderThatDiedBeforeItWasSeenIsNeverAdmitted) {
  MakeRelay();
  // A sender that claims by hand and dies before a pass of the relay.
  Child child([this](const Child::Link& link) {
    auto member = GroupMember::Join({.registry = root_.Options(), .rails = {"there"}, .nics = {}});
    if (!member.ok()) return false;
    const auto peers = (*member)->registry().Discover();
    if (!peers.ok() || peers->size() != 1) return false;
    auto mapping = (*member)->registry().MapPeer((*peers)[0]);
    if (!mapping.ok() || !ClaimLane(**mapping, (*member)->sender()).ok()) return false;
    return link.Tell() && link.Await() == 'q';
  });
  ASSERT_EQ(child.Await(), '.');
  child.Kill();
  ASSERT_EQ(State(0), LaneState::kReady);
  ASSERT_TRUE(rank_->RunUntil([&] { return IsFree(0); }));
  EXPECT_THAT(rank_->relay->admitted, IsEmpty());
  EXPECT_THAT(rank_->relay->lost, SizeIs(1));
}

TEST_F(InboundWatchTest, AVersionOneSenderIsAdmittedWithNobodyToWake) {
  MakeRelay();
  Child child([this](const Child::Link& link) {
    auto member = Join(root_.Options(), "there");
    if (!member.ok()) return false;
    const auto peers = member->registry->Discover();
    if (!peers.ok() || peers->size() != 1) return false;
    auto mapping = member->registry->MapPeer((*peers)[0]);
    if (!mapping.ok()) return false;
    std::filesystem::remove_all(root_.Side());
    const LaneSender sender{member->self->owner(), member->self->epoch()};
    return ClaimLane(**mapping, sender).ok() && link.Tell() && link.Await() == 'q';
  });
  ASSERT_EQ(child.Await(), '.');
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->relay->admitted.size() == 1; }));
  EXPECT_EQ(rank_->cq_poll->sides[0].side, nullptr);
}

TEST_F(InboundWatchTest, AClaimThatIsNobodysIsTakenBack) {
  MakeRelay();
  // No such process ever was: its lane is cleaned up like that of a dead one.
  LaneHeader& header = rank_->Header(3);
  header.sender = {geteuid(), getpid(), rank_->member->sender().identity.start_ticks + 1};
  header.sender_epoch = 77;
  StoreLaneState(header, LaneState::kReady);
  ASSERT_TRUE(rank_->RunUntil([&] { return IsFree(3); }));
  EXPECT_THAT(rank_->relay->admitted, IsEmpty());
  // Another user's is not ours to judge.
  header.sender = {geteuid() + 1, 1, 1};
  header.sender_epoch = 78;
  StoreLaneState(header, LaneState::kReady);
  ASSERT_TRUE(rank_->RunUntil([&] { return log_.Count("belongs to another user") == 1; }));
  rank_->RunFor(milliseconds(100));
  EXPECT_EQ(State(3), LaneState::kReady);
  EXPECT_THAT(rank_->relay->admitted, IsEmpty());
}

}  // namespace
}  // namespace railhop::testing
