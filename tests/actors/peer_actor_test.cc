#include "actors/peer_actor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>

#include "tests/actors/peer_support.h"
#include "transport/staging/host_staging.h"

namespace railhop::testing {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PeerActorTest : public ::testing::Test {
 protected:
  Child MakeChild(std::vector<std::string> rails, bool answering = true) {
    Child child = MakeRank(root_.Options(), std::move(rails), "", answering);
    EXPECT_EQ(child.Await(), '.');
    return child;
  }
  void MakeParent(PeerActor::Options options = TestRank::QuickOptions(),
                  std::shared_ptr<Staging> staging = std::make_shared<HostStaging>()) {
    rank_ = std::make_unique<TestRank>(root_.Options(), std::vector<std::string>{"here"}, options,
                                       false, std::move(staging));
    rank_->Start();
  }
  bool Attach(const std::string& rail) {
    const size_t before = rank_->submit->ready.size();
    return rank_->RunWanting(rail, [&] { return rank_->submit->ready.size() == before + 1; }) &&
           rank_->RunUntil([&] { return !rank_->peer->Attached().empty(); });
  }
  bool AllClosed(size_t times, LaneEnd end) {
    for (const LaneUser* user : rank_->users()) {
      if (user->closed.size() != times || user->closed.back().end != end) return false;
    }
    return true;
  }

  PrivateRoot root_;
  LogCapture log_;
  std::unique_ptr<TestRank> rank_;
};

TEST_F(PeerActorTest, AttachesToAnOwnerOfAWantedRail) {
  Child child = MakeChild({"there"});
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  for (const LaneUser* user : rank_->users()) {
    ASSERT_THAT(user->ready, SizeIs(1));
    EXPECT_EQ(user->ready[0].mapping, rank_->submit->ready[0].mapping);
    EXPECT_EQ(user->ready[0].next_sequence, 2u);  // 1 was the probe
  }
  const LaneMapping& mapping = *rank_->submit->ready[0].mapping;
  EXPECT_EQ(mapping.relay().info().owner.pid, child.pid());
  EXPECT_NE(mapping.relay().side(), nullptr);
  const LaneHeader& header = mapping.control().header;
  EXPECT_EQ(header.sender.pid, getpid());
  EXPECT_EQ(header.sender_epoch, rank_->member->self().epoch());
  EXPECT_EQ(LoadAcquire(header.arena_attached), 1u);
  EXPECT_EQ(LoadAcquire(header.completed), 1u);
  std::memset(mapping.slot(2), 0x5a, kSlotBytes);  // the pages are there
  const auto attached = rank_->peer->Attached();
  ASSERT_THAT(attached, SizeIs(1));
  EXPECT_EQ(attached[0].pid, child.pid());
  EXPECT_THAT(attached[0].rails, ElementsAre("there"));
  EXPECT_TRUE(rank_->Sleeps());
  EXPECT_THAT(log_.messages(), IsEmpty());
}

TEST_F(PeerActorTest, SubmitHearsOfALaneLast) {
  Child child = MakeChild({"there"});
  MakeParent();
  rank_->cq_poll->accept = false;
  ASSERT_TRUE(rank_->RunWanting("there", [&] { return !rank_->copy->ready.empty(); }));
  rank_->RunFor(milliseconds(50));
  EXPECT_THAT(rank_->submit->ready, IsEmpty());
  EXPECT_TRUE(rank_->Sleeps());
  // It is not told of the end of a lane that it never heard of.
  child.Kill();
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->copy->closed.empty(); }));
  rank_->cq_poll->accept = true;
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->cq_poll->closed.empty(); }));
  EXPECT_THAT(rank_->submit->closed, IsEmpty());
  Child next = MakeChild({"there"});
  EXPECT_TRUE(Attach("there"));
}

TEST_F(PeerActorTest, NothingIsAttachedThatNobodyWants) {
  Child child = MakeChild({"there"});
  MakeParent();
  rank_->Want("elsewhere");
  rank_->RunFor(milliseconds(300));
  EXPECT_THAT(rank_->submit->ready, IsEmpty());
  EXPECT_TRUE(rank_->Sleeps());
}

TEST_F(PeerActorTest, APeerThatJoinsLateIsFound) {
  MakeParent();
  rank_->Want("there");
  rank_->RunFor(milliseconds(200));
  Child child = MakeChild({"there"});
  EXPECT_TRUE(rank_->RunWanting("there", [&] { return rank_->submit->ready.size() == 1; }));
}

TEST_F(PeerActorTest, PreattachAsksForNothing) {
  auto options = TestRank::QuickOptions();
  options.preattach = true;
  MakeParent(options);
  Child child = MakeChild({"there", "here"});
  Child same = MakeChild({"here"});  // owns nothing that we have not got ourselves
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->peer->Attached().size() == 1; }));
  rank_->RunFor(milliseconds(300));
  ASSERT_THAT(rank_->peer->Attached(), SizeIs(1));
  EXPECT_EQ(rank_->peer->Attached()[0].pid, child.pid());
}

TEST_F(PeerActorTest, OneLaneServesAllRailsOfAPeer) {
  Child child = MakeChild({"a", "b"});
  MakeParent();
  ASSERT_TRUE(Attach("b"));
  rank_->Want("a");
  rank_->RunFor(milliseconds(300));
  EXPECT_THAT(rank_->submit->ready, SizeIs(1));
  EXPECT_THAT(rank_->peer->Attached()[0].rails, ElementsAre("a", "b"));
}

TEST_F(PeerActorTest, ADeadPeersLaneIsClosedAndItsSuccessorFound) {
  Child child = MakeChild({"there"});
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  rank_->SetAnswer(false);
  child.Kill();
  ASSERT_TRUE(rank_->RunUntil([&] { return AllClosed(1, LaneEnd::kPeerDead); }));
  EXPECT_THAT(rank_->peer->Attached(), IsEmpty());
  EXPECT_TRUE(rank_->Sleeps());
  Child successor = MakeChild({"there"});
  ASSERT_TRUE(Attach("there"));
  // The lane of the dead one is still in use: it is mapped, and the new one has another number.
  EXPECT_NE(rank_->submit->ready[1].lane, rank_->submit->ready[0].lane);
  EXPECT_EQ(LoadAcquire(rank_->submit->ready[0].mapping->control().header.head), 1u);
  for (LaneUser* user : rank_->users()) user->Answer();
  rank_->RunFor(milliseconds(50));
  ASSERT_THAT(rank_->peer->Attached(), SizeIs(1));
  EXPECT_EQ(rank_->peer->Attached()[0].pid, successor.pid());
}

TEST_F(PeerActorTest, ASilentPeerIsOfferedNothingUntilItBeatsAgain) {
  Child child = MakeChild({"there"});
  auto options = TestRank::QuickOptions();
  options.heartbeat_timeout = milliseconds(400);
  MakeParent(options);
  ASSERT_TRUE(Attach("there"));
  child.Stop();
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->submit->closed.empty(); }));
  ASSERT_TRUE(AllClosed(rank_->submit->closed.size(), LaneEnd::kStale));
  EXPECT_THAT(rank_->peer->Attached(), IsEmpty());
  kill(child.pid(), SIGCONT);
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->submit->ready.size() >= 2; }));
  // The same lane, where it stopped; no second probe.
  EXPECT_EQ(rank_->submit->ready[1].next_sequence, 2u);
  EXPECT_EQ(rank_->submit->ready[1].mapping->relay().info().owner.pid, child.pid());
}

TEST_F(PeerActorTest, ASilentPeerThatDiesIsAnnouncedAsDead) {
  Child child = MakeChild({"there"});
  auto options = TestRank::QuickOptions();
  options.heartbeat_timeout = milliseconds(400);
  MakeParent(options);
  ASSERT_TRUE(Attach("there"));
  rank_->submit->answer = false;  // a piece is still out
  child.Stop();
  ASSERT_TRUE(rank_->RunUntil([&] { return !rank_->submit->closed.empty(); }));
  const size_t stale = rank_->submit->closed.size();
  EXPECT_EQ(rank_->submit->closed.back().end, LaneEnd::kStale);
  child.Kill();
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->submit->closed.size() > stale; }));
  EXPECT_EQ(rank_->submit->closed.back().end, LaneEnd::kPeerDead);
}

TEST_F(PeerActorTest, AStoppingPeerGetsItsLaneBack) {
  Child child = MakeChild({"there"});
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  ASSERT_TRUE(child.Tell('s'));
  ASSERT_TRUE(rank_->RunUntil([&] { return AllClosed(1, LaneEnd::kStale); }));
  rank_->RunFor(milliseconds(400));
  EXPECT_EQ(child.Await(), 'S');  // it waited for nothing but this
  EXPECT_THAT(rank_->peer->Attached(), IsEmpty());
  EXPECT_THAT(log_.messages(), IsEmpty());
}

TEST_F(PeerActorTest, AStoppingRankGivesItsLanesBackFirst) {
  Child child = MakeChild({"there"});
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  rank_->SetAnswer(false);
  rank_->peer->Post({.kind = ControlMessage::kStop});
  ASSERT_TRUE(rank_->RunUntil([&] { return AllClosed(1, LaneEnd::kStale); }));
  rank_->RunFor(milliseconds(50));
  EXPECT_FALSE(rank_->peer->stopped());
  EXPECT_TRUE(rank_->Sleeps());
  for (LaneUser* user : rank_->users()) user->Answer();
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->peer->stopped(); }));
  EXPECT_THAT(PrivateRoot::List(root_.Registry()), SizeIs(2));  // .lock and the child's entry
  EXPECT_FALSE(rank_->peer->WaitForRail("there", std::chrono::hours(1)));
  // The child's lane is free again: it stops without waiting for anybody.
  ASSERT_TRUE(child.Tell('s'));
  EXPECT_EQ(child.Await(), 'S');
}

// Host staging whose lanes take as long to reserve as the test wants: what a GPU's do that are
// written to meanwhile.
class SlowStaging final : public Staging {
 public:
  absl::StatusOr<std::unique_ptr<Arena>> MakeArena() override { return host_.MakeArena(); }
  std::shared_ptr<void> ShareDoorbells(void*, size_t) override { return nullptr; }
  absl::StatusOr<bool> CanStage(const std::byte* address, size_t length,
                                std::string_view location) override {
    return host_.CanStage(address, length, location);
  }
  absl::StatusOr<std::shared_ptr<ImportedArena>> OpenArena(const ArenaHandle& handle,
                                                           const ProcessIdentity& owner,
                                                           uint64_t epoch) override {
    auto arena = host_.OpenArena(handle, owner, epoch);
    if (!arena.ok()) return arena;
    return std::make_shared<Slow>(*std::move(arena), this);
  }
  void Finish(const absl::Status& status) {
    status_ = status;
    finished_.store(true);
    finished_.notify_all();
  }
  int reserving() const { return reserving_.load(); }

 private:
  struct Slow final : ImportedArena {
    Slow(std::shared_ptr<ImportedArena> real, SlowStaging* staging)
        : arena(std::move(real)), of(staging) {}
    std::byte* base() const override { return arena->base(); }
    uint64_t size() const override { return arena->size(); }
    absl::Status ReserveLane(uint32_t lane) override {
      const absl::Status status = arena->ReserveLane(lane);
      ++of->reserving_;
      of->finished_.wait(false);
      return status.ok() ? of->status_ : status;
    }
    std::shared_ptr<ImportedArena> arena;
    SlowStaging* of;
  };
  HostStaging host_;
  std::atomic<int> reserving_{0};
  std::atomic<bool> finished_{false};
  absl::Status status_;  // written before finished_
};

class SlowLaneTest : public PeerActorTest {
 protected:
  // Up to where the lane of the other process is being reserved.
  void StartReserving() {
    child_.emplace(MakeChild({"there"}));
    MakeParent(TestRank::QuickOptions(), staging_);
    ASSERT_TRUE(rank_->RunWanting("there", [&] { return staging_->reserving() == 1; }));
  }
  // Of the first lane of the other process.
  LaneState State() {
    const std::vector<PeerInfo> found = *rank_->member->registry().Discover();
    for (const PeerInfo& info : found) {
      if (info.owner.pid != child_->pid()) continue;
      const auto mapping = *rank_->member->registry().MapPeer(info);
      return LoadLaneState(mapping->block().lanes[0].header);
    }
    return LaneState::kFree;
  }

  std::shared_ptr<SlowStaging> staging_ = std::make_shared<SlowStaging>();
  std::optional<Child> child_;
};

TEST_F(SlowLaneTest, ALaneIsGivenBackOnceNothingOfOursWritesToIt) {
  StartReserving();
  ASSERT_NE(State(), LaneState::kFree);
  rank_->peer->Post({.kind = ControlMessage::kStop});
  rank_->RunFor(milliseconds(100));
  EXPECT_NE(State(), LaneState::kFree);
  staging_->Finish(absl::OkStatus());
  EXPECT_TRUE(rank_->RunUntil([&] { return State() == LaneState::kFree; }));
}

TEST_F(SlowLaneTest, ALaneThatMayBeWrittenToForEverIsLeftAlone) {
  StartReserving();
  staging_->Finish(absl::AbortedError("a copy does not end"));
  ASSERT_TRUE(rank_->RunUntil([&] { return log_.Count("left alone") == 1; }));
  rank_->RunFor(OutboundPeer::kFirstRetry + milliseconds(50));
  EXPECT_NE(State(), LaneState::kFree);
  EXPECT_EQ(staging_->reserving(), 1);
}

TEST_F(SlowLaneTest, OneThatSettlesTooLateIsLeftAloneAsWell) {
  StartReserving();
  rank_->peer->Post({.kind = ControlMessage::kStop});
  rank_->RunFor(milliseconds(20));
  staging_->Finish(absl::AbortedError("a copy does not end"));
  ASSERT_TRUE(rank_->RunUntil([&] { return log_.Count("left alone") == 1; }));
  EXPECT_NE(State(), LaneState::kFree);
}

TEST_F(PeerActorTest, AFlushEndsAStopThatNobodyAnswers) {
  Child child = MakeChild({"there"});
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  rank_->SetAnswer(false);
  rank_->peer->Post({.kind = ControlMessage::kStop});
  rank_->RunFor(milliseconds(50));
  EXPECT_FALSE(rank_->peer->stopped());
  rank_->peer->Post({.kind = ControlMessage::kFlush});
  EXPECT_TRUE(rank_->RunUntil([&] { return rank_->peer->stopped(); }));
}

TEST_F(PeerActorTest, TwoRanksThatStopTogetherDoNotWaitForEachOther) {
  Child a = MakeRank(root_.Options(), {"a"}, "b");
  Child b = MakeRank(root_.Options(), {"b"}, "a");
  ASSERT_EQ(a.Await(), '.');
  ASSERT_EQ(b.Await(), '.');
  a.Tell('w');
  b.Tell('w');
  ASSERT_EQ(a.Await(), 'W');
  ASSERT_EQ(b.Await(), 'W');
  a.Tell('s');
  b.Tell('s');
  EXPECT_EQ(a.Await(), 'S');
  EXPECT_EQ(b.Await(), 'S');
  EXPECT_THAT(PrivateRoot::List(root_.Registry()), ElementsAre(".lock"));
  EXPECT_THAT(PrivateRoot::List(root_.Side()), IsEmpty());
}

TEST_F(PeerActorTest, Rule6ProbeWithoutAnAnswerOffersNothing) {
  Child child = MakeChild({"there"}, false);
  auto options = TestRank::QuickOptions();
  options.probe_timeout = milliseconds(50);
  MakeParent(options);
  ASSERT_TRUE(
      rank_->RunWanting("there", [&] { return log_.Count("did not answer the probe") == 1; }));
  rank_->RunFor(milliseconds(300));
  EXPECT_THAT(rank_->submit->ready, IsEmpty());
  EXPECT_EQ(log_.Count("did not answer the probe"), 1u);
  // Another owner of the rail is not kept waiting for.
  Child other = MakeChild({"there"});
  ASSERT_TRUE(rank_->RunWanting("there", [&] { return rank_->peer->Attached().size() == 1; }));
  EXPECT_EQ(rank_->peer->Attached()[0].pid, other.pid());
  // An answer that comes late is as good.
  child.Tell('a');
  ASSERT_TRUE(rank_->RunUntil([&] { return rank_->peer->Attached().size() == 2; }));
}

TEST_F(PeerActorTest, AVersionOnePeerHasNoSideFile) {
  Child child = MakeChild({"there"});
  std::filesystem::remove_all(root_.Side());
  MakeParent();
  ASSERT_TRUE(Attach("there"));
  EXPECT_EQ(rank_->submit->ready[0].mapping->relay().side(), nullptr);
  EXPECT_FALSE(rank_->submit->ready[0].mapping->Revoke(2));
}

TEST_F(PeerActorTest, AStoppedHolderOfTheGroupLockStopsNobodyElse) {
  Child child = MakeChild({"there"});
  MakeParent();
  Child holder([this](const Child::Link& link) {
    const int fd = open((root_.Registry() + "/.lock").c_str(), O_RDWR | O_CLOEXEC);
    return flock(fd, LOCK_EX) == 0 && link.Tell() && link.Await() == 'q';
  });
  ASSERT_EQ(holder.Await(), '.');
  holder.Stop();
  rank_->Want("there");
  const uint64_t beats = LoadRelaxed(rank_->member->self().block().header.heartbeat);
  rank_->RunFor(milliseconds(300));
  EXPECT_THAT(rank_->submit->ready, IsEmpty());
  EXPECT_GT(LoadRelaxed(rank_->member->self().block().header.heartbeat), beats);
  holder.Kill();
  EXPECT_TRUE(rank_->RunWanting("there", [&] { return rank_->submit->ready.size() == 1; }));
}

TEST_F(PeerActorTest, AnArenaThatCannotBeOpenedIsSaidOnceAndTriedRarely) {
  // A member whose arena handle is no host arena's.
  Child member = MakeMember(root_.Options(), "there");
  ASSERT_EQ(member.Await(), '.');
  MakeParent();
  ASSERT_TRUE(
      rank_->RunWanting("there", [&] { return log_.Count("nothing is relayed through") == 1; }));
  rank_->RunFor(milliseconds(500));
  EXPECT_EQ(log_.Count("nothing is relayed through"), 1u);
  EXPECT_THAT(rank_->submit->ready, IsEmpty());
}

TEST_F(PeerActorTest, ThreadsWaitForARail) {
  Child child = MakeChild({"there"});
  rank_ = std::make_unique<TestRank>(root_.Options(), std::vector<std::string>{"here"},
                                     TestRank::QuickOptions(), true);
  ASSERT_TRUE(rank_->system.Start().ok());
  EXPECT_FALSE(rank_->peer->WaitForRail("nowhere", milliseconds(50)));
  std::vector<std::thread> waiters;
  std::atomic<int> found{0};
  for (int i = 0; i < 3; ++i) {
    waiters.emplace_back(
        [&] { found += rank_->peer->WaitForRail("there", kTestPatience) ? 1 : 0; });
  }
  for (std::thread& waiter : waiters) waiter.join();
  EXPECT_EQ(found, 3);
  std::thread late([&] { EXPECT_FALSE(rank_->peer->WaitForRail("nowhere", kTestPatience)); });
  rank_->system.Stop(kTestPatience);
  late.join();
}

TEST_F(PeerActorTest, TheSlotLogLooksOncePerInterval) {
  using Clock = std::chrono::steady_clock;
  PeerActor::Options options = TestRank::QuickOptions();
  constexpr std::chrono::milliseconds kEvery{20};
  std::vector<Clock::time_point> looks;
  options.slot_log_every = kEvery;
  options.read_slots = [&] {
    looks.push_back(Clock::now());
    return std::vector<LaneSlots>{};
  };
  MakeParent(options);
  ASSERT_TRUE(rank_->RunUntil([&] { return looks.size() == 5; }));
  // By the clock of the passes, which is read a moment before.
  EXPECT_GE(looks.back() - looks.front(), 4 * kEvery - std::chrono::milliseconds(5));
}

}  // namespace
}  // namespace railhop::testing
