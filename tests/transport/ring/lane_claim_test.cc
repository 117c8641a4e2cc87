#include "transport/ring/lane_claim.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/completion.h"

namespace railhop {
namespace {

using ::railhop::testing::Child;
using ::railhop::testing::Join;
using ::railhop::testing::MakeHandle;
using ::railhop::testing::Member;
using ::railhop::testing::PrivateRoot;
using std::chrono::milliseconds;

// This process is the relay's peer and maps it; the relay lives in a child and does nothing.
class LaneClaimTest : public ::testing::Test {
 protected:
  LaneClaimTest()
      : relay_(std::make_unique<Child>(testing::MakeMember(root_.Options(), "relay"))),
        self_{*SelfIdentity(), 1001} {
    EXPECT_EQ(relay_->Await(), '.');
    registry_ = Registry::Open(root_.Options()).value();
    peer_ = registry_->MapPeer(registry_->Discover().value().at(0)).value();
  }

  LaneHeader& header(uint32_t lane) { return peer_->block().lanes[lane].header; }
  LaneControl& lane(uint32_t index) { return peer_->block().lanes[index]; }
  LaneClaim MustClaim(const LaneSender& sender) {
    absl::StatusOr<LaneClaim> claim = ClaimLane(*peer_, sender);
    EXPECT_TRUE(claim.ok()) << claim.status();
    return claim.value_or(LaneClaim{});
  }
  // Turns the relay into a version-1 process: no side file, no mark.
  void MakeRelayVersion1() {
    const PeerInfo info = peer_->info();
    peer_.reset();
    relay_->Kill();
    Child stand_in([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
    EXPECT_EQ(stand_in.Await(), '.');
    const ProcessIdentity owner = IdentityOf(stand_in.pid());
    // The dead relay's entry, under its new owner's name.
    const std::string from =
        root_.Registry() + "/" + PublishedName(MakeKey(info.owner, info.epoch));
    const std::string to = root_.Registry() + "/" + PublishedName(MakeKey(owner, info.epoch));
    const int fd = open(from.c_str(), O_RDWR | O_CLOEXEC);
    EXPECT_EQ(pwrite(fd, &owner, sizeof(owner), offsetof(RegistryHeader, owner)),
              ssize_t{sizeof(owner)});
    close(fd);
    EXPECT_EQ(rename(from.c_str(), to.c_str()), 0);
    relay_ = std::make_unique<Child>(std::move(stand_in));
    peer_ = registry_->MapPeer(registry_->Discover().value().at(0)).value();
    EXPECT_EQ(peer_->side(), nullptr);
  }
  static ProcessIdentity IdentityOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return {geteuid(), pid, ParseProcessStat(text)->start_ticks};
  }
  // A sender that claims a lane of the relay, tells which, and holds it.
  Child MakeClaimer(bool publish = true) const {
    return Child([this, publish](const Child::Link& link) {
      Member member;
      if (publish) {
        member = Join(root_.Options(), "sender").value();
      } else {
        member.registry = Registry::Open(root_.Options()).value();
      }
      const std::vector<PeerInfo> peers = member.registry->Discover().value();
      for (const PeerInfo& info : peers) {
        if (info.owner.pid != relay_->pid()) continue;
        auto mapping = member.registry->MapPeer(info).value();
        const uint64_t epoch = publish ? member.self->epoch() : 31337;
        const auto claim = ClaimLane(*mapping, {member.registry->self(), epoch});
        link.Tell(claim.ok() ? static_cast<char>('a' + claim->lane) : 'x');
        return link.Await() == 'q';
      }
      return false;
    });
  }

  PrivateRoot root_;
  std::unique_ptr<Child> relay_;
  LaneSender self_;
  std::unique_ptr<Registry> registry_;
  std::shared_ptr<PeerMapping> peer_;
};

TEST_F(LaneClaimTest, FirstFreeLaneIsTaken) {
  const LaneClaim claim = MustClaim(self_);
  EXPECT_EQ(claim.lane, 0u);
  EXPECT_EQ(claim.first_sequence, 1u);
  EXPECT_FALSE(claim.reused);
  EXPECT_EQ(LoadLaneState(header(0)), LaneState::kReady);
  EXPECT_EQ(header(0).sender, self_.identity);
  EXPECT_EQ(header(0).sender_epoch, self_.epoch);
  EXPECT_EQ(header(0).arena_attached, 0u);
  EXPECT_EQ(ReadSender(header(0)), self_);
  EXPECT_EQ(ReadSender(header(1)), std::nullopt);
  const SideLane& side = peer_->side()->file().lanes[0];
  EXPECT_EQ(side.sender_epoch, self_.epoch);
  EXPECT_EQ(side.claim_count, 1u);
}

TEST_F(LaneClaimTest, ClaimedLaneIsClearedWhateverItHeld) {
  std::memset(static_cast<void*>(&lane(0)), 0xee, sizeof(LaneControl));
  StoreLaneState(header(0), LaneState::kFree);
  SideLane& side = peer_->side()->file().lanes[0];
  std::memset(static_cast<void*>(side.claims), 0xee, sizeof(side.claims));
  EXPECT_EQ(MustClaim(self_).lane, 0u);
  LaneControl expected{};
  expected.header.state = 2;
  expected.header.sender = self_.identity;
  expected.header.sender_epoch = self_.epoch;
  EXPECT_EQ(std::memcmp(&lane(0), &expected, sizeof(expected)), 0);
  for (const uint64_t claim : side.claims) EXPECT_EQ(claim, 0u);
}

TEST_F(LaneClaimTest, OwnLaneIsNeverClaimed) {
  const LaneSender relay{peer_->info().owner, peer_->epoch()};
  EXPECT_TRUE(absl::IsInvalidArgument(ClaimLane(*peer_, relay).status()));
}

TEST_F(LaneClaimTest, StoppingRelayIsNotClaimed) {
  StoreRelease(peer_->block().header.state, 2);
  EXPECT_TRUE(absl::IsUnavailable(ClaimLane(*peer_, self_).status()));
}

TEST_F(LaneClaimTest, SevenLanesAndNoMore) {
  std::vector<Child> senders;
  for (uint32_t i = 0; i < kLaneCount; ++i) {
    senders.push_back(MakeClaimer(/*publish=*/false));
    EXPECT_EQ(senders.back().Await(), static_cast<char>('a' + i));
  }
  const absl::Status status = ClaimLane(*peer_, self_).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  const std::string text(status.message());
  EXPECT_NE(text.find("all 7 lanes"), std::string::npos) << text;
  EXPECT_NE(text.find(std::to_string(senders[4].pid())), std::string::npos) << text;
}

// A real claimer, killed in the middle: the entry lock is free again and the lane is debris.
TEST_F(LaneClaimTest, DeadClaimersDebrisIsCleared) {
  Child claimer([this](const Child::Link& link) {
    auto registry = Registry::Open(root_.Options()).value();
    auto mapping = registry->MapPeer(registry->Discover().value().at(0)).value();
    const auto lock = mapping->LockEntry();
    LaneControl& mine = mapping->block().lanes[0];
    StoreLaneState(mine.header, LaneState::kClaiming);
    mine.header.sender = registry->self();
    mine.header.sender_epoch = 5;
    mine.descriptors[3].commit_sequence = 22;
    return lock.ok() && link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(claimer.Await(), '.');
  claimer.Kill();
  ASSERT_EQ(LoadLaneState(header(0)), LaneState::kClaiming);
  EXPECT_EQ(MustClaim(self_).lane, 0u);
  EXPECT_EQ(lane(0).descriptors[3].commit_sequence, 0u);
  EXPECT_EQ(ReadSender(header(0)), self_);
}

TEST_F(LaneClaimTest, StoppedClaimerDoesNotFreezeOthers) {
  const Child claimer([this](const Child::Link& link) {
    auto registry = Registry::Open(root_.Options()).value();
    auto mapping = registry->MapPeer(registry->Discover().value().at(0)).value();
    const auto lock = mapping->LockEntry();
    return lock.ok() && link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(claimer.Await(), '.');
  claimer.Stop();
  RegistryOptions options = root_.Options();
  options.lock_timeout = milliseconds(10);
  auto registry = Registry::Open(options).value();
  auto peer = registry->MapPeer(peer_->info()).value();
  const absl::Status status = ClaimLane(*peer, self_).status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  const std::string name = PublishedName(MakeKey(peer->info().owner, peer->epoch()));
  EXPECT_NE(std::string(status.message()).find(name), std::string::npos) << status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(MarkAttached(*peer, self_, 0, true)));
  EXPECT_TRUE(absl::IsDeadlineExceeded(ReleaseLane(*peer, self_, 0)));
}

// --- Rule 7

TEST_F(LaneClaimTest, Rule7ReuseGoesOnWhereADrainedLaneWas) {
  MustClaim(self_);
  StoreRelease(header(0).head, 41);
  StoreRelease(header(0).doorbell, 41);
  StoreRelease(header(0).completed, 41);
  lane(0).completions[4].commit_sequence = 41;
  const LaneClaim again = MustClaim(self_);
  EXPECT_EQ(again.lane, 0u);
  EXPECT_TRUE(again.reused);
  EXPECT_EQ(again.first_sequence, 42u);
  EXPECT_EQ(lane(0).completions[4].commit_sequence, 41u) << "nothing was cleared";
  EXPECT_EQ(peer_->side()->file().lanes[0].claim_count, 1u);
}

TEST_F(LaneClaimTest, Rule7ReuseLeavesAnUndrainedLaneAsItIs) {
  MustClaim(self_);
  StoreRelease(header(0).head, 3);
  StoreRelease(header(0).doorbell, 3);
  StoreRelease(header(0).completed, 2);
  EXPECT_TRUE(absl::IsUnavailable(ClaimLane(*peer_, self_).status()));
  EXPECT_EQ(LoadLaneState(header(1)), LaneState::kFree) << "and no second lane is taken";
  // A doorbell written by the GPU before head is a piece all the same.
  StoreRelease(header(0).completed, 3);
  StoreRelease(header(0).doorbell, 4);
  EXPECT_TRUE(absl::IsUnavailable(ClaimLane(*peer_, self_).status()));
  EXPECT_EQ(header(0).head, 3u);
}

TEST_F(LaneClaimTest, LaneOfAnOlderEpochIsClearedUnlessAttachedOrInUse) {
  MustClaim(self_);
  ASSERT_TRUE(MarkAttached(*peer_, self_, 0, true).ok());
  const LaneSender later{self_.identity, self_.epoch + 1};
  EXPECT_EQ(MustClaim(later).lane, 1u) << "still attached";
  ASSERT_TRUE(ReleaseLane(*peer_, later, 1).ok());

  ASSERT_TRUE(MarkAttached(*peer_, self_, 0, false).ok());
  StoreRelease(header(0).head, 2);
  EXPECT_EQ(MustClaim(later).lane, 1u) << "the relay may still read its slots";
  ASSERT_TRUE(ReleaseLane(*peer_, later, 1).ok());

  StoreRelease(header(0).completed, 2);
  const LaneClaim claim = MustClaim(later);
  EXPECT_EQ(claim.lane, 0u);
  EXPECT_FALSE(claim.reused);
  EXPECT_EQ(header(0).head, 0u);
  EXPECT_EQ(ReadSender(header(0)), later);
}

// --- Attach and release

TEST_F(LaneClaimTest, AttachAndReleaseAreTheHoldersOnly) {
  MustClaim(self_);
  const LaneSender other{self_.identity, self_.epoch + 1};
  EXPECT_TRUE(absl::IsFailedPrecondition(MarkAttached(*peer_, other, 0, true)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReleaseLane(*peer_, other, 0)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReleaseLane(*peer_, self_, 1)));
  EXPECT_TRUE(absl::IsFailedPrecondition(ReleaseLane(*peer_, self_, 7))) << "no such lane";
  ASSERT_TRUE(MarkAttached(*peer_, self_, 0, true).ok());
  EXPECT_EQ(header(0).arena_attached, 1u);
  ASSERT_TRUE(ReleaseLane(*peer_, self_, 0).ok());
  const LaneControl empty{};
  EXPECT_EQ(std::memcmp(&lane(0), &empty, sizeof(empty)), 0);
}

TEST_F(LaneClaimTest, LaneIsNotReleasedWhileAPieceIsOut) {
  MustClaim(self_);
  StoreRelease(header(0).doorbell, 1);
  EXPECT_TRUE(absl::IsUnavailable(ReleaseLane(*peer_, self_, 0)));
  StoreRelease(header(0).head, 1);
  EXPECT_TRUE(absl::IsUnavailable(ReleaseLane(*peer_, self_, 0)));
  StoreRelease(header(0).completed, 1);
  EXPECT_TRUE(ReleaseLane(*peer_, self_, 0).ok());
}

// Claimed anew by the same sender under the same epoch, the lane still shows that it is another
// claim.
TEST_F(LaneClaimTest, ClaimCountTellsClaimsOfOneEpochApart) {
  MustClaim(self_);
  ASSERT_TRUE(ReleaseLane(*peer_, self_, 0).ok());
  EXPECT_FALSE(MustClaim(self_).reused);
  EXPECT_EQ(peer_->side()->file().lanes[0].claim_count, 2u);
}

// --- Rule 5

TEST_F(LaneClaimTest, DeadSendersLaneOfANewRelayIsNotTouched) {
  Child sender = MakeClaimer();
  ASSERT_EQ(sender.Await(), 'a');
  const LaneSender dead = *ReadSender(header(0));
  sender.Kill();
  EXPECT_EQ(MustClaim(self_).lane, 1u);
  EXPECT_EQ(ReadSender(header(0)), dead);
}

TEST_F(LaneClaimTest, DeadSendersLaneOfAVersion1RelayIsCleared) {
  MakeRelayVersion1();
  Child sender = MakeClaimer();
  ASSERT_EQ(sender.Await(), 'a');
  EXPECT_EQ(MustClaim(self_).lane, 1u) << "it lives";
  ASSERT_TRUE(ReleaseLane(*peer_, self_, 1).ok());
  StoreRelease(header(0).head, 9);
  sender.Kill();
  const LaneClaim claim = MustClaim(self_);
  EXPECT_EQ(claim.lane, 0u);
  EXPECT_EQ(header(0).head, 0u);
}

TEST_F(LaneClaimTest, SenderOfAnotherNamespaceIsNotTakenForDead) {
  MakeRelayVersion1();
  // Looks dead, and has an entry that bears its mark.
  const LaneSender invisible{{geteuid(), 2'000'000'000, 42}, 9};
  MustClaim(invisible);
  const std::string path =
      root_.Registry() + "/" + PublishedName(MakeKey(invisible.identity, invisible.epoch));
  std::filesystem::copy(
      root_.Registry() + "/" + PublishedName(MakeKey(peer_->info().owner, peer_->epoch())), path);
  ASSERT_EQ(chmod(path.c_str(), 0600), 0);
  {
    const GuardedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(HoldMark(fd.get(), path).ok());
    EXPECT_EQ(MustClaim(self_).lane, 1u);
    ASSERT_TRUE(ReleaseLane(*peer_, self_, 1).ok());
  }
  EXPECT_EQ(MustClaim(self_).lane, 0u) << "now it is";
}

// The relay's own part: this process is the relay, a child was its sender.
class TakeOverTest : public ::testing::Test {
 protected:
  TakeOverTest() : member_(Join(root_.Options(), "relay").value()) {}
  Child MakeSender() const {
    return Child([this](const Child::Link& link) {
      auto registry = Registry::Open(root_.Options()).value();
      auto relay = registry->MapPeer(registry->Discover().value().at(0)).value();
      return ClaimLane(*relay, {registry->self(), 7}).ok() && link.Tell() && link.Await() != 0;
    });
  }
  LaneHeader& header(uint32_t lane) { return member_.self->block().lanes[lane].header; }

  PrivateRoot root_;
  Member member_;
};

TEST_F(TakeOverTest, Rule5DeadSendersLaneIsKeptUntilItIsDrained) {
  Child sender = MakeSender();
  ASSERT_EQ(sender.Await(), '.');
  const LaneSender dead = *ReadSender(header(0));
  EXPECT_TRUE(absl::IsFailedPrecondition(TakeOverLane(*member_.self, 0, dead))) << "it lives";
  sender.Kill();
  EXPECT_TRUE(absl::IsFailedPrecondition(TakeOverLane(*member_.self, 1, dead))) << "not its lane";
  EXPECT_TRUE(absl::IsFailedPrecondition(FreeTakenLane(*member_.self, 0))) << "not taken yet";
  StoreRelease(header(0).doorbell, 4);
  ASSERT_TRUE(TakeOverLane(*member_.self, 0, dead).ok());
  EXPECT_EQ(ReadSender(header(0)), (LaneSender{member_.self->owner(), member_.self->epoch()}));
  EXPECT_EQ(header(0).doorbell, 4u) << "what the dead sender's GPU wrote is left to be watched";
  EXPECT_TRUE(absl::IsFailedPrecondition(TakeOverLane(*member_.self, 0, dead))) << "twice";

  // Nobody claims it meanwhile.
  Child next([this](const Child::Link&) {
    auto registry = Registry::Open(root_.Options()).value();
    auto relay = registry->MapPeer(registry->Discover().value().at(0)).value();
    const auto claim = ClaimLane(*relay, {registry->self(), 8});
    return claim.ok() && claim->lane == 1;
  });
  EXPECT_TRUE(next.Join());

  ASSERT_TRUE(FreeTakenLane(*member_.self, 0).ok());
  EXPECT_EQ(LoadLaneState(header(0)), LaneState::kFree);
  EXPECT_EQ(header(0).doorbell, 0u);
  EXPECT_TRUE(absl::IsFailedPrecondition(FreeTakenLane(*member_.self, 0))) << "twice";
}

TEST(QuietDoorbellTest, MovesWithTheDoorbell) {
  LaneHeader header{};
  QuietDoorbell quiet(milliseconds(200));
  const QuietDoorbell::Time start{};
  EXPECT_FALSE(quiet.Observe(header, start));
  EXPECT_FALSE(quiet.Observe(header, start + milliseconds(199)));
  header.doorbell = 1;
  EXPECT_FALSE(quiet.Observe(header, start + milliseconds(200)));
  EXPECT_FALSE(quiet.Observe(header, start + milliseconds(399)));
  EXPECT_TRUE(quiet.Observe(header, start + milliseconds(400)));
}

}  // namespace
}  // namespace railhop
