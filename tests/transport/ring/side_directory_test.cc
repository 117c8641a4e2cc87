#include "transport/ring/side_directory.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/ring/ring_test_support.h"

namespace railhop {
namespace {

using ::railhop::testing::PrivateRoot;

constexpr uint64_t kSenderEpoch = 77;

class ClaimWordTest : public ::testing::Test {
 protected:
  ClaimWordTest() : lane_(std::make_unique<SideLane>()) { lane_->sender_epoch = kSenderEpoch; }
  std::unique_ptr<SideLane> lane_;
};

TEST_F(ClaimWordTest, WordIsSequenceAndState) {
  OfferPiece(*lane_, 21);
  EXPECT_EQ(lane_->claims[2], 21u << 2 | 1);
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 21), TakeResult::kTaken);
  EXPECT_EQ(lane_->claims[2], 21u << 2 | 2);
  OfferPiece(*lane_, 39);
  EXPECT_TRUE(RevokePiece(*lane_, 39));
  EXPECT_EQ(lane_->claims[2], 39u << 2 | 3);
}

TEST_F(ClaimWordTest, WhatIsTakenCannotBeRevoked) {
  OfferPiece(*lane_, 1);
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 1), TakeResult::kTaken);
  EXPECT_FALSE(RevokePiece(*lane_, 1));
}

TEST_F(ClaimWordTest, WhatIsRevokedCannotBeTaken) {
  OfferPiece(*lane_, 1);
  EXPECT_TRUE(RevokePiece(*lane_, 1));
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 1), TakeResult::kRevoked);
  EXPECT_FALSE(RevokePiece(*lane_, 1)) << "only once";
}

TEST_F(ClaimWordTest, AnotherEpochOrSequenceIsAVersion1Sender) {
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 1), TakeResult::kForeign) << "never offered";
  OfferPiece(*lane_, 1);
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch + 1, 1), TakeResult::kForeign);
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 19), TakeResult::kForeign);
  EXPECT_TRUE(RevokePiece(*lane_, 1));
  EXPECT_EQ(TakePiece(*lane_, kSenderEpoch, 19), TakeResult::kForeign) << "an older revocation";
  EXPECT_FALSE(RevokePiece(*lane_, 19)) << "what was not offered cannot be revoked";
}

// Exactly one of the two gets each piece, whoever comes first.
TEST_F(ClaimWordTest, Rule8ClaimWordsTakeAndRevokeNeverBothWin) {
  constexpr uint64_t kPieces = 20'000;
  std::atomic<uint64_t> offered{0}, taken_count{0};
  std::vector<uint8_t> taken(kPieces + 1, 0);
  std::thread relay([&] {
    for (uint64_t sequence = 1; sequence <= kPieces; ++sequence) {
      while (offered.load(std::memory_order_acquire) < sequence) {
      }
      taken[sequence] = TakePiece(*lane_, kSenderEpoch, sequence) == TakeResult::kTaken ? 1 : 0;
      taken_count.store(sequence, std::memory_order_release);
    }
  });
  uint64_t revoked_total = 0;
  for (uint64_t sequence = 1; sequence <= kPieces; ++sequence) {
    OfferPiece(*lane_, sequence);
    offered.store(sequence, std::memory_order_release);
    const bool revoked = RevokePiece(*lane_, sequence);
    while (taken_count.load(std::memory_order_acquire) < sequence) {
    }
    ASSERT_NE(revoked, taken[sequence] != 0) << sequence;
    revoked_total += revoked ? 1 : 0;
  }
  relay.join();
  EXPECT_GT(revoked_total, 0u);
}

class SideDirectoryTest : public ::testing::Test {
 protected:
  SideDirectoryTest() : self_(*SelfIdentity()), key_(MakeKey(self_, 5)) {
    absl::StatusOr<SideDirectory> directory = SideDirectory::Open(root_.path(), "test");
    EXPECT_TRUE(directory.ok()) << directory.status();
    directory_ = std::make_unique<SideDirectory>(std::move(*directory));
  }
  LocalSide MustCreate() {
    const std::vector<std::string> rails = {"a", "bb"};
    absl::StatusOr<LocalSide> side = directory_->Create(self_, 5, rails);
    EXPECT_TRUE(side.ok()) << side.status();
    return std::move(*side);
  }
  std::string Path(const std::string& name) const { return root_.Side() + "/" + name; }
  static bool IsReadable(int fd) {
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) == 1;
  }

  PrivateRoot root_;
  ProcessIdentity self_;
  EntryKey key_;
  std::unique_ptr<SideDirectory> directory_;
};

TEST_F(SideDirectoryTest, Rule12SideDirectoryIsPrivate) {
  const LocalSide side = MustCreate();
  for (const std::string& name : PrivateRoot::List(root_.Side())) {
    struct stat info {};
    ASSERT_EQ(lstat(Path(name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0600u) << name;
  }
  EXPECT_EQ(std::filesystem::file_size(Path(SideName(key_))), 6208u);
}

TEST_F(SideDirectoryTest, PeerReadsWhatTheOwnerWrote) {
  const LocalSide side = MustCreate();
  const absl::StatusOr<PeerSide> peer = directory_->OpenPeer(key_);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ(peer->rails(), (std::vector<std::string>{"a", "bb"}));
  EXPECT_EQ(peer->capabilities(), 0u);
  OfferPiece(peer->file().lanes[6], 18);
  EXPECT_EQ(side.file().lanes[6].claims[17], ClaimWord(18, ClaimState::kOffered));
}

TEST_F(SideDirectoryTest, WakeReachesAParkedRoleOnly) {
  LocalSide side = MustCreate();
  const absl::StatusOr<PeerSide> peer = directory_->OpenPeer(key_);
  ASSERT_TRUE(peer.ok()) << peer.status();
  peer->Wake(WakeRole::kRelay);
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kRelay))) << "awake: no system call";

  side.Park(WakeRole::kRelay);
  peer->Wake(WakeRole::kCompletion);
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kCompletion)));
  peer->Wake(WakeRole::kRelay);
  EXPECT_TRUE(IsReadable(side.wake_fd(WakeRole::kRelay)));
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kCompletion)));

  side.Unpark(WakeRole::kRelay);
  side.DrainWake(WakeRole::kRelay);
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kRelay)));
  peer->Wake(WakeRole::kRelay);
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kRelay)));
}

TEST_F(SideDirectoryTest, FullPipeNeitherBlocksNorLosesTheWake) {
  LocalSide side = MustCreate();
  const absl::StatusOr<PeerSide> peer = directory_->OpenPeer(key_);
  ASSERT_TRUE(peer.ok()) << peer.status();
  side.Park(WakeRole::kCompletion);
  for (int i = 0; i < 100'000; ++i) peer->Wake(WakeRole::kCompletion);
  EXPECT_TRUE(IsReadable(side.wake_fd(WakeRole::kCompletion)));
  side.DrainWake(WakeRole::kCompletion);
  EXPECT_FALSE(IsReadable(side.wake_fd(WakeRole::kCompletion)));
  peer->Wake(WakeRole::kCompletion);
  EXPECT_TRUE(IsReadable(side.wake_fd(WakeRole::kCompletion)));
}

// The owner dies parked. Waking it must do nothing at all: no SIGPIPE above all.
TEST_F(SideDirectoryTest, WakingADeadOwnerIsHarmless) {
  testing::Child owner([this](const testing::Child::Link& link) {
    const std::vector<std::string> rails = {"r"};
    absl::StatusOr<SideDirectory> directory = SideDirectory::Open(root_.path(), "test");
    absl::StatusOr<LocalSide> side = directory->Create(self_, 5, rails);
    side->Park(WakeRole::kRelay);
    return link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(owner.Await(), '.');
  const absl::StatusOr<PeerSide> peer = directory_->OpenPeer(key_);
  ASSERT_TRUE(peer.ok()) << peer.status();
  owner.Kill();
  for (int i = 0; i < 100'000; ++i) peer->Wake(WakeRole::kRelay);
}

TEST_F(SideDirectoryTest, AbsentFileIsAVersion1Peer) {
  EXPECT_TRUE(absl::IsNotFound(directory_->OpenPeer(key_).status()));
  EXPECT_TRUE(absl::IsNotFound(directory_->ReadRails(key_).status()));
}

TEST_F(SideDirectoryTest, UnsoundFilesAreRefused) {
  const auto expect_refused = [this](const char* what) {
    EXPECT_TRUE(absl::IsFailedPrecondition(directory_->OpenPeer(key_).status())) << what;
  };
  {
    const LocalSide side = MustCreate();
    side.file().header.version = 2;
    expect_refused("version");
    side.file().header.version = 1;
    side.file().header.epoch = 6;
    expect_refused("another's epoch");
    side.file().header.epoch = 5;
    ASSERT_TRUE(directory_->OpenPeer(key_).ok());
    std::filesystem::remove(Path(WakeName(key_, WakeRole::kRelay)));
    expect_refused("no pipe");
    std::ofstream(Path(WakeName(key_, WakeRole::kRelay))) << "a file, not a pipe";
    ASSERT_EQ(chmod(Path(WakeName(key_, WakeRole::kRelay)).c_str(), 0600), 0);
    expect_refused("no named pipe");
  }
  directory_->Remove(key_);
  std::filesystem::create_symlink("/etc/passwd", Path(SideName(key_)));
  expect_refused("symbolic link");
  directory_->Remove(key_);
  ASSERT_EQ(mkfifo(Path(SideName(key_)).c_str(), 0600), 0);
  expect_refused("pipe");
  directory_->Remove(key_);
  std::ofstream(Path(SideName(key_))) << std::string(6208, '\0');
  expect_refused("mode");
  ASSERT_EQ(chmod(Path(SideName(key_)).c_str(), 0600), 0);
  expect_refused("zeros");
}

TEST_F(SideDirectoryTest, CreateThatFailsLeavesNothing) {
  ASSERT_EQ(mkfifo(Path(WakeName(key_, WakeRole::kCompletion)).c_str(), 0600), 0);
  const std::vector<std::string> rails = {"a"};
  EXPECT_TRUE(absl::IsFailedPrecondition(directory_->Create(self_, 5, rails).status()));
  EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
}

}  // namespace
}  // namespace railhop
