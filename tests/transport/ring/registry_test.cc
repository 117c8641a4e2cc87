#include "transport/ring/registry.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/transport/ring/ring_test_support.h"

namespace railhop {
namespace {

using ::railhop::testing::Child;
using ::railhop::testing::Join;
using ::railhop::testing::LogCapture;
using ::railhop::testing::MakeHandle;
using ::railhop::testing::MakeMember;
using ::railhop::testing::Member;
using ::railhop::testing::PrivateRoot;
using std::chrono::milliseconds;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

class RegistryTest : public ::testing::Test {
 protected:
  Member MustJoin(const std::string& rail = "r0") {
    absl::StatusOr<Member> member = Join(root_.Options(), rail);
    EXPECT_TRUE(member.ok()) << member.status();
    return std::move(*member);
  }
  std::unique_ptr<Registry> MustOpen(const std::string& group = "test") {
    absl::StatusOr<std::unique_ptr<Registry>> registry = Registry::Open(root_.Options(group));
    EXPECT_TRUE(registry.ok()) << registry.status();
    return std::move(*registry);
  }
  std::vector<PeerInfo> MustDiscover(Registry& registry) {
    absl::StatusOr<std::vector<PeerInfo>> peers = registry.Discover();
    EXPECT_TRUE(peers.ok()) << peers.status();
    return std::move(*peers);
  }
  // A published entry as a version-1 process leaves it: no mark, no side file.
  std::string WriteEntry(const ProcessIdentity& owner, uint64_t epoch,
                         const std::function<void(RegistryHeader&)>& change = nullptr) {
    RegistryHeader header{};
    header.magic = kRegistryMagic;
    header.abi_version = kAbiVersion;
    header.header_bytes = sizeof(RegistryHeader);
    header.mapping_bytes = sizeof(ControlBlock);
    header.state = static_cast<uint32_t>(RegistryState::kReady);
    header.rail_bytes = 2;
    std::memcpy(header.rail, "v1", 2);
    header.owner = owner;
    header.epoch = epoch;
    header.lane_count = kLaneCount;
    header.slots_per_lane = kSlotsPerLane;
    header.slot_size = kSlotBytes;
    header.arena_size = kArenaBytes;
    header.ipc_handle_bytes = kArenaHandleBytes;
    if (change) change(header);
    std::string path = root_.Registry() + "/" + PublishedName(MakeKey(owner, epoch));
    WriteFile(path, std::string(reinterpret_cast<const char*>(&header), sizeof(header)));
    EXPECT_EQ(truncate(path.c_str(), sizeof(ControlBlock)), 0);
    return path;
  }
  static void WriteFile(const std::string& path, const std::string& content, mode_t mode = 0600) {
    std::ofstream(path) << content;
    EXPECT_EQ(chmod(path.c_str(), mode), 0);
  }
  // Of a process that lives but is not us.
  static ProcessIdentity IdentityOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    return {geteuid(), pid, ParseProcessStat(text)->start_ticks};
  }

  PrivateRoot root_;
};

// --- Open

TEST_F(RegistryTest, OpenMakesPrivateDirectoriesAndTheLock) {
  const auto registry = MustOpen();
  for (const std::string& path : {root_.Registry(), root_.Side()}) {
    struct stat info {};
    ASSERT_EQ(lstat(path.c_str(), &info), 0) << path;
    EXPECT_EQ(info.st_mode, mode_t{S_IFDIR | 0700}) << path;
  }
  struct stat info {};
  ASSERT_EQ(lstat((root_.Registry() + "/.lock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, mode_t{S_IFREG | 0600});
  EXPECT_EQ(info.st_nlink, 1u);
  EXPECT_EQ(registry->path(), root_.Registry());
  EXPECT_TRUE(Registry::Open(root_.Options()).ok()) << "a second time";
}

TEST_F(RegistryTest, OpenWorksUnderAnOddUmaskAndASetGroupRoot) {
  ASSERT_EQ(chmod(root_.path().c_str(), 02700), 0);
  const mode_t previous = umask(0277);
  const auto registry = Registry::Open(root_.Options());
  umask(previous);
  EXPECT_TRUE(registry.ok()) << registry.status();
  EXPECT_TRUE(Registry::Open(root_.Options()).ok());
}

TEST_F(RegistryTest, GroupIdWithASlashIsAClearError) {
  const absl::Status status = Registry::Open(root_.Options("a/b")).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(Text(status).find("'/'"), std::string::npos) << status;
  EXPECT_TRUE(PrivateRoot::List(root_.path()).empty());
}

TEST_F(RegistryTest, OpenRefusesADirectoryThatIsNotPrivate) {
  for (const std::string& directory : {root_.Registry(), root_.Side()}) {
    std::filesystem::create_directory(directory);
    for (const mode_t mode : {0755, 0770, 0500, 01700}) {
      ASSERT_EQ(chmod(directory.c_str(), mode), 0);
      const absl::Status status = Registry::Open(root_.Options()).status();
      EXPECT_TRUE(absl::IsFailedPrecondition(status));
      EXPECT_NE(Text(status).find(directory), std::string::npos) << status;
      EXPECT_NE(Text(status).find("must have exactly 0700"), std::string::npos) << status;
    }
    ASSERT_EQ(chmod(directory.c_str(), 0700), 0);
  }
  EXPECT_TRUE(Registry::Open(root_.Options()).ok());
}

TEST_F(RegistryTest, OpenRefusesADirectoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a directory away";
  std::filesystem::create_directory(root_.Registry());
  ASSERT_EQ(chmod(root_.Registry().c_str(), 0700), 0);
  ASSERT_EQ(chown(root_.Registry().c_str(), 12345, 12345), 0);
  const absl::Status status = Registry::Open(root_.Options()).status();
  EXPECT_NE(Text(status).find("belongs to uid 12345"), std::string::npos) << status;
}

TEST_F(RegistryTest, OpenDoesNotFollowASymbolicLink) {
  std::filesystem::create_directory(root_.path() + "/elsewhere");
  ASSERT_EQ(chmod((root_.path() + "/elsewhere").c_str(), 0700), 0);
  std::filesystem::create_directory_symlink(root_.path() + "/elsewhere", root_.Registry());
  EXPECT_TRUE(absl::IsFailedPrecondition(Registry::Open(root_.Options()).status()));
  EXPECT_TRUE(PrivateRoot::List(root_.path() + "/elsewhere").empty());
}

TEST_F(RegistryTest, OpenRefusesALockFileThatIsNotSound) {
  MustOpen();
  const std::string lock = root_.Registry() + "/.lock";
  ASSERT_EQ(chmod(lock.c_str(), 0644), 0);
  EXPECT_NE(Text(Registry::Open(root_.Options()).status()).find("has mode 0644"),
            std::string::npos);
  ASSERT_EQ(chmod(lock.c_str(), 0600), 0);
  std::filesystem::create_hard_link(lock, lock + "2");
  EXPECT_NE(Text(Registry::Open(root_.Options()).status()).find("2 links"), std::string::npos);
  std::filesystem::remove(lock + "2");
  std::filesystem::remove(lock);
  ASSERT_EQ(mkfifo(lock.c_str(), 0600), 0);
  EXPECT_NE(Text(Registry::Open(root_.Options()).status()).find("not a regular file"),
            std::string::npos);
  std::filesystem::remove(lock);
  std::filesystem::create_symlink("/dev/null", lock);
  EXPECT_NE(Text(Registry::Open(root_.Options()).status()).find("symbolic link"),
            std::string::npos);
}

TEST_F(RegistryTest, OpenNamesAMissingRoot) {
  const absl::Status status =
      Registry::Open({.root = root_.path() + "/missing", .group_id = "g"}).status();
  EXPECT_NE(Text(status).find(root_.path() + "/missing"), std::string::npos) << status;
}

// --- Create, publish, unpublish

TEST_F(RegistryTest, EntryIsUnseenUntilPublishedAndGoneAfterwards) {
  const auto registry = MustOpen();
  const std::vector<std::string> rails = {"mlx5_0", "mlx5_8"};
  auto self = registry->CreateLocal(rails, MakeHandle(9));
  ASSERT_TRUE(self.ok()) << self.status();
  const EntryKey key = MakeKey((*self)->owner(), (*self)->epoch());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()),
            (std::vector<std::string>{".lock", TemporaryName(key)}));
  EXPECT_EQ(PrivateRoot::List(root_.Side()),
            (std::vector<std::string>{SideName(key), SideName(key) + ".wake0",
                                      SideName(key) + ".wake1"}));
  ASSERT_TRUE((*self)->Publish().ok());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()),
            (std::vector<std::string>{".lock", PublishedName(key)}));
  EXPECT_TRUE(absl::IsFailedPrecondition((*self)->Publish())) << "twice";

  ASSERT_TRUE((*self)->Unpublish().ok());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
  EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
  EXPECT_EQ((*self)->block().header.state, 2u) << "stopping, for those who still map it";
  EXPECT_TRUE((*self)->Unpublish().ok()) << "twice";
}

TEST_F(RegistryTest, DestructionOfAnUnpublishedEntryLeavesNothing) {
  const auto registry = MustOpen();
  const std::vector<std::string> rails = {"r"};
  registry->CreateLocal(rails, MakeHandle(1)).value().reset();
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
  EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
}

// What an old process reads, byte for byte.
TEST_F(RegistryTest, PublishedFileHoldsTheHeaderOfTheAbi) {
  const Member member = MustJoin("mlx5_3");
  const std::string path =
      root_.Registry() + "/" + PublishedName(MakeKey(member.self->owner(), member.self->epoch()));
  struct stat info {};
  ASSERT_EQ(lstat(path.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode, mode_t{S_IFREG | 0600});
  EXPECT_EQ(info.st_size, 8'306'816);
  EXPECT_GE(info.st_blocks * 512, 8'306'816) << "its pages are reserved";
  std::ifstream file(path, std::ios::binary);
  std::string raw(448, '\0');
  file.read(raw.data(), 448);
  const auto word = [&raw](size_t offset, size_t bytes) {
    uint64_t value = 0;
    std::memcpy(&value, raw.data() + offset, bytes);
    return value;
  };
  EXPECT_EQ(word(0, 8), 0x4D4350584E524547u);
  EXPECT_EQ(word(8, 4), 1u);
  EXPECT_EQ(word(12, 4), 448u);
  EXPECT_EQ(word(16, 8), 8'306'816u);
  EXPECT_EQ(word(24, 4), 1u);
  EXPECT_EQ(word(28, 4), 6u);
  EXPECT_EQ(word(32, 4), geteuid());
  EXPECT_EQ(word(36, 4), static_cast<uint64_t>(getpid()));
  EXPECT_EQ(word(40, 8), member.registry->self().start_ticks);
  EXPECT_EQ(word(48, 8), member.self->epoch());
  EXPECT_EQ(word(56, 8), 0u);
  EXPECT_EQ(word(64, 4), 7u);
  EXPECT_EQ(word(68, 4), 18u);
  EXPECT_EQ(word(72, 8), 8'388'608u);
  EXPECT_EQ(word(80, 8), 1'056'964'608u);
  EXPECT_EQ(word(88, 4), 64u);
  EXPECT_EQ(word(92, 4), 0u);
  EXPECT_EQ(raw.substr(96, 256), std::string("mlx5_3") + std::string(250, '\0'));
  const HandleBytes handle = MakeHandle(1);
  EXPECT_EQ(raw.substr(352, 64), std::string(handle.begin(), handle.end()));
  EXPECT_EQ(raw.substr(416, 32), std::string(32, '\0'));
}

TEST_F(RegistryTest, HeartbeatIsSeenByPeers) {
  Member member = MustJoin();
  EXPECT_EQ(member.self->block().header.heartbeat, 0u);
  member.self->Beat();
  member.self->Beat();
  EXPECT_EQ(member.self->block().header.heartbeat, 2u);
}

TEST_F(RegistryTest, SecondEngineOfAProcessIsRefused) {
  const Member first = MustJoin();
  const absl::Status status = Join(root_.Options(), "r1").status();
  EXPECT_TRUE(absl::IsAlreadyExists(status)) << status;
  EXPECT_NE(Text(status).find("second engine"), std::string::npos) << status;
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 2u) << "the first entry and the lock";
}

TEST_F(RegistryTest, EpochIsNewForEachRegistration) {
  const uint64_t first = MustJoin().self->epoch();
  const uint64_t second = MustJoin().self->epoch();
  EXPECT_NE(first, 0u);
  EXPECT_NE(first, second);
}

TEST_F(RegistryTest, NinthProcessGetsAClearMessage) {
  std::vector<Child> members;
  for (int i = 0; i < 8; ++i) {
    members.push_back(MakeMember(root_.Options(), "r" + std::to_string(i)));
    ASSERT_EQ(members.back().Await(), '.') << i;
  }
  const absl::Status status = Join(root_.Options(), "r8").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  for (const char* part :
       {"group test", "is full", "8 processes", "go direct", "MC_PXN_GROUP_ID"}) {
    EXPECT_NE(Text(status).find(part), std::string::npos) << status;
  }
  EXPECT_NE(Text(status).find(std::to_string(members[3].pid())), std::string::npos) << status;
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 9u) << "nothing of the ninth is left";

  members[5].Kill();
  EXPECT_TRUE(Join(root_.Options(), "r8").ok()) << "the dead one's place is free";
}

TEST_F(RegistryTest, UnpublishLeavesAnotherFileUnderItsNameAlone) {
  Member member = MustJoin();
  const std::string path =
      root_.Registry() + "/" + PublishedName(MakeKey(member.self->owner(), member.self->epoch()));
  std::filesystem::remove(path);
  WriteFile(path, "somebody else's");
  EXPECT_TRUE(member.self->Unpublish().ok());
  EXPECT_TRUE(std::filesystem::exists(path));
}

TEST_F(RegistryTest, PublishDoesNotReplaceAFile) {
  const auto registry = MustOpen();
  const std::vector<std::string> rails = {"r"};
  auto self = registry->CreateLocal(rails, MakeHandle(1)).value();
  const std::string path =
      root_.Registry() + "/" + PublishedName(MakeKey(self->owner(), self->epoch()));
  WriteFile(path, "in the way");
  EXPECT_TRUE(absl::IsFailedPrecondition(self->Publish()));
  EXPECT_EQ(self->block().header.state, 0u) << "initializing again";
  std::filesystem::remove(path);
  EXPECT_TRUE(self->Publish().ok());
}

TEST_F(RegistryTest, RemovedDirectoryIsNoticed) {
  Member member = MustJoin();
  std::filesystem::remove_all(root_.Registry());
  const absl::Status status = member.registry->Discover().status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(Text(status).find("was removed"), std::string::npos) << status;
}

TEST_F(RegistryTest, RailsAreChecked) {
  const auto registry = MustOpen();
  const std::vector<std::string> twice = {"a", "a"};
  EXPECT_TRUE(absl::IsInvalidArgument(registry->CreateLocal(twice, MakeHandle(1)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(registry->CreateLocal({}, MakeHandle(1)).status()));
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 1u);
}

// --- Space

// In a mount namespace of its own, so that the tiny file system vanishes with the child.
std::optional<std::string> WithTinyFileSystem(const std::string& path, const char* size,
                                              const std::function<bool(const Child::Link&)>& body) {
  Child child([&](const Child::Link& link) {
    if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("tmpfs", path.c_str(), "tmpfs", 0, (std::string("size=") + size).c_str()) != 0) {
      link.Tell('n');
      return true;
    }
    link.Tell('y');
    return body(link);
  });
  if (child.Await() != 'y') return "mounting a tmpfs is not permitted here";
  EXPECT_TRUE(child.Join());
  return std::nullopt;
}

#define CHECK_OR_FAIL(condition, text)                                       \
  if (!(condition)) {                                                        \
    std::fprintf(stderr, "%s: %s\n", #condition, std::string(text).c_str()); \
    return false;                                                            \
  }

TEST_F(RegistryTest, FileSystemTooSmallIsAnErrorThatSaysHowMuchIsMissing) {
  const auto skip = WithTinyFileSystem(root_.path(), "4m", [&](const Child::Link&) {
    const absl::Status status = Join(root_.Options(), "r").status();
    CHECK_OR_FAIL(absl::IsResourceExhausted(status), status.ToString());
    for (const char* part : {"8306816 bytes needed", " bytes free of 4194304", "--shm-size"}) {
      CHECK_OR_FAIL(Text(status).find(part) != std::string::npos, Text(status));
    }
    CHECK_OR_FAIL(PrivateRoot::List(root_.Registry()).size() == 1, "something was left behind");
    CHECK_OR_FAIL(PrivateRoot::List(root_.Side()).empty(), "something was left behind");
    return true;
  });
  if (skip.has_value()) GTEST_SKIP() << *skip;
}

// Pages for the first process, none for the second; every page of the first can be stored into.
TEST_F(RegistryTest, ReservedPagesCannotFaultWhenTheFileSystemFillsUp) {
  const auto skip = WithTinyFileSystem(root_.path(), "8m", [&](const Child::Link&) {
    absl::StatusOr<Member> member = Join(root_.Options(), "r");
    CHECK_OR_FAIL(member.ok(), member.status().ToString());
    std::ofstream(root_.path() + "/filler") << std::string(1 << 20, 'x');
    auto* bytes = reinterpret_cast<volatile unsigned char*>(member->self->block().lanes);
    for (size_t i = 0; i < sizeof(ControlBlock::lanes); i += 4096) bytes[i] = 1;
    const std::vector<std::string> rails = {"s"};
    const absl::Status status = member->registry->CreateLocal(rails, MakeHandle(1)).status();
    CHECK_OR_FAIL(absl::IsResourceExhausted(status), status.ToString());
    return true;
  });
  if (skip.has_value()) GTEST_SKIP() << *skip;
}

// The block fits and the side file does not: nothing of either is left.
TEST_F(RegistryTest, NoRoomForTheSideFileLeavesNothingBehind) {
  const auto skip = WithTinyFileSystem(root_.path(), "8116k", [&](const Child::Link&) {
    const absl::Status status = Join(root_.Options(), "r").status();
    CHECK_OR_FAIL(absl::IsResourceExhausted(status), status.ToString());
    CHECK_OR_FAIL(Text(status).find("6208 bytes needed") != std::string::npos, Text(status));
    CHECK_OR_FAIL(PrivateRoot::List(root_.Registry()).size() == 1, "something was left behind");
    CHECK_OR_FAIL(PrivateRoot::List(root_.Side()).empty(), "something was left behind");
    return true;
  });
  if (skip.has_value()) GTEST_SKIP() << *skip;
}

// --- Discover

TEST_F(RegistryTest, MembersFindEachOtherButNotThemselves) {
  const Child other = MakeMember(root_.Options(), "mlx5_1");
  ASSERT_EQ(other.Await(), '.');
  Member self = MustJoin("mlx5_0");
  const std::vector<PeerInfo> peers = MustDiscover(*self.registry);
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].owner, IdentityOf(other.pid()));
  EXPECT_EQ(peers[0].rails, (std::vector<std::string>{"mlx5_1"}));
  EXPECT_EQ(peers[0].arena_handle, MakeHandle(1));
  EXPECT_TRUE(peers[0].visible);
}

TEST_F(RegistryTest, FurtherRailsComeFromTheSideFile) {
  const Child other([this](const Child::Link& link) {
    auto registry = Registry::Open(root_.Options()).value();
    const std::vector<std::string> rails = {"a", "b", std::string(256, 'c')};
    auto self = registry->CreateLocal(rails, MakeHandle(1)).value();
    return self->Publish().ok() && link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(other.Await(), '.');
  const auto registry = MustOpen();
  const std::vector<PeerInfo> peers = MustDiscover(*registry);
  ASSERT_EQ(peers.size(), 1u);
  EXPECT_EQ(peers[0].rails, (std::vector<std::string>{"a", "b", std::string(256, 'c')}));
}

TEST_F(RegistryTest, UnpublishedAndStoppingEntriesAreNotFound) {
  const auto registry = MustOpen();
  const Child child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
  ASSERT_EQ(child.Await(), '.');
  LogCapture log;
  WriteEntry(IdentityOf(child.pid()), 5, [](RegistryHeader& h) { h.state = 0; });
  WriteEntry(IdentityOf(child.pid()), 6, [](RegistryHeader& h) { h.state = 2; });
  EXPECT_TRUE(MustDiscover(*registry).empty());
  EXPECT_TRUE(log.messages().empty()) << "they are nothing to warn about";
}

// Everything that must not be in the directory: each is skipped with one warning, however often the
// scan comes by, and the healthy entry is found all the same.
TEST_F(RegistryTest, MalformedEntriesAreSkippedWithOneWarningEach) {
  const Child child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
  ASSERT_EQ(child.Await(), '.');
  const ProcessIdentity alive = IdentityOf(child.pid());
  const auto registry = MustOpen();
  const std::string directory = root_.Registry() + "/";
  const auto name = [&](uint64_t epoch) {
    return directory + PublishedName(MakeKey(alive, epoch));
  };

  WriteEntry(alive, 100);  // the healthy one
  WriteEntry(alive, 1, [](RegistryHeader& h) { h.magic = 0; });
  WriteEntry(alive, 2, [](RegistryHeader& h) { h.abi_version = 2; });
  WriteEntry(alive, 3, [](RegistryHeader& h) { h.padding[0] = 1; });
  WriteEntry(alive, 4, [](RegistryHeader& h) { h.epoch = 99; });
  WriteEntry(alive, 5, [](RegistryHeader& h) { h.state = 3; });
  WriteFile(name(6), "short");
  WriteFile(name(7), "");
  ASSERT_EQ(truncate(WriteEntry(alive, 8).c_str(), sizeof(ControlBlock) + 1), 0);
  ASSERT_EQ(chmod(WriteEntry(alive, 9).c_str(), 0644), 0);
  std::filesystem::create_hard_link(WriteEntry(alive, 10), root_.path() + "/second-link");
  std::filesystem::create_symlink(name(100), name(11));
  std::filesystem::create_symlink("/nowhere", name(12));
  std::filesystem::create_directory(name(13));
  ASSERT_EQ(mkfifo(name(14).c_str(), 0600), 0);
  WriteFile(directory + "README", "hello");
  WriteFile(directory + "peer.x.y.z.reg", "hello");
  size_t bad = 16;
  if (geteuid() == 0) {
    ASSERT_EQ(chown(WriteEntry(alive, 15).c_str(), 12345, 12345), 0);
    ++bad;
  }

  LogCapture log;
  for (int i = 0; i < 3; ++i) {
    const std::vector<PeerInfo> peers = MustDiscover(*registry);
    ASSERT_EQ(peers.size(), 1u);
    EXPECT_EQ(peers[0].epoch, 100u);
    EXPECT_EQ(peers[0].rails, (std::vector<std::string>{"v1"}));
  }
  EXPECT_EQ(log.messages().size(), bad) << ::testing::PrintToString(log.messages());
  for (const char* part : {"magic", "abi_version is 2", "padding", "not those of its name",
                           "state is 3", "5 bytes long", "0 bytes long", "mode 0644", "2 links",
                           "symbolic link", "README does not belong here"}) {
    EXPECT_GE(log.Count(part), 1u) << part;
  }
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), bad + 2) << "and nothing was removed";
}

// --- Stale entries

TEST_F(RegistryTest, Rule12SideDirectoryIsClearedWithADeadMember) {
  const auto registry = MustOpen();
  for (const bool zombie : {false, true}) {
    Child other = MakeMember(root_.Options(), "r");
    ASSERT_EQ(other.Await(), '.');
    EXPECT_EQ(MustDiscover(*registry).size(), 1u);
    EXPECT_EQ(PrivateRoot::List(root_.Side()).size(), 3u);
    if (zombie) {
      other.KillToZombie();
    } else {
      other.Kill();
    }
    EXPECT_TRUE(MustDiscover(*registry).empty());
    EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
    EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
  }
}

TEST_F(RegistryTest, UnfinishedEntriesOfDeadOwnersAreReclaimed) {
  const auto registry = MustOpen();
  Child other([this](const Child::Link& link) {
    auto mine = Registry::Open(root_.Options()).value();
    const std::vector<std::string> rails = {"r"};
    auto self = mine->CreateLocal(rails, MakeHandle(1)).value();
    return link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(other.Await(), '.');
  MustDiscover(*registry);
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 2u) << "its owner lives";
  EXPECT_EQ(PrivateRoot::List(root_.Side()).size(), 3u);
  const ProcessIdentity dead = IdentityOf(other.pid());
  other.Kill();
  // And one whose owner died before it had any size.
  WriteFile(root_.Registry() + "/" + TemporaryName(MakeKey(dead, 77)), "");
  MustDiscover(*registry);
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
  EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
}

TEST_F(RegistryTest, StraySideFilesOfDeadOwnersAreReclaimed) {
  const auto registry = MustOpen();
  Child child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
  ASSERT_EQ(child.Await(), '.');
  const EntryKey key = MakeKey(IdentityOf(child.pid()), 5);
  WriteFile(root_.Side() + "/" + SideName(key), "torn");
  ASSERT_EQ(mkfifo((root_.Side() + "/" + WakeName(key, WakeRole::kCompletion)).c_str(), 0600), 0);
  WriteFile(root_.Side() + "/notes", "not ours");
  MustDiscover(*registry);
  EXPECT_EQ(PrivateRoot::List(root_.Side()).size(), 3u) << "their owner lives";
  child.Kill();
  MustDiscover(*registry);
  EXPECT_EQ(PrivateRoot::List(root_.Side()), (std::vector<std::string>{"notes"}));
}

// A member of another PID namespace looks dead from here. Its mark says otherwise.
TEST_F(RegistryTest, MarkedEntryOfAnInvisibleOwnerIsKeptAndSaid) {
  const auto registry = MustOpen();
  const ProcessIdentity invisible{geteuid(), 2'000'000'000, 42};
  const std::string path = WriteEntry(invisible, 9);
  const GuardedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(HoldMark(fd.get(), path).ok());
  WriteFile(root_.Side() + "/" + SideName(MakeKey(invisible, 9)), "kept");

  LogCapture log;
  for (int i = 0; i < 2; ++i) {
    const std::vector<PeerInfo> peers = MustDiscover(*registry);
    ASSERT_EQ(peers.size(), 1u);
    EXPECT_FALSE(peers[0].visible);
    const absl::Status status = registry->MapPeer(peers[0]).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status));
    EXPECT_NE(Text(status).find("PID namespace"), std::string::npos) << status;
  }
  EXPECT_EQ(log.Count("another PID namespace"), 1u) << ::testing::PrintToString(log.messages());
  EXPECT_TRUE(std::filesystem::exists(root_.Side() + "/" + SideName(MakeKey(invisible, 9))));
}

// The same with real namespaces: the member is process 1 of its own.
TEST_F(RegistryTest, Rule11OwnersMarkOutlivesAnotherPidNamespace) {
  const auto registry = MustOpen();
  Child outer([this](const Child::Link& link) {
    if (unshare(CLONE_NEWPID) != 0) {
      link.Tell('n');
      return true;
    }
    Child inner([this, &link](const Child::Link& inner_link) {
      // A /proc of its own, as a container has one.
      if (unshare(CLONE_NEWNS) != 0 || mount("", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        link.Tell('n');
        return true;
      }
      const absl::StatusOr<Member> member = Join(root_.Options(), "r");
      link.Tell(member.ok() ? 'y' : 'e');
      return inner_link.Await() != 0;
    });
    link.Await();
    inner.Tell();
    return inner.Join();
  });
  const char answer = outer.Await();
  if (answer == 'n') GTEST_SKIP() << "PID namespaces are not permitted here";
  ASSERT_EQ(answer, 'y');
  LogCapture log;
  const std::vector<PeerInfo> peers = MustDiscover(*registry);
  ASSERT_EQ(peers.size(), 1u);
  // Its pid is 1 there, and another process's here.
  EXPECT_EQ(peers[0].owner.pid, 1);
  EXPECT_FALSE(peers[0].visible);
  EXPECT_EQ(log.Count("another PID namespace"), 1u);
  EXPECT_EQ(PrivateRoot::List(root_.Side()).size(), 3u);
  outer.Tell();
  EXPECT_TRUE(outer.Join());
  EXPECT_TRUE(MustDiscover(*registry).empty());
}

// As a process does that was killed, for the time its threads take to end.
TEST_F(RegistryTest, MemberThatIsEndingIsNoNewsAndNoPeer) {
  const auto registry = MustOpen();
  Child child([this](const Child::Link& link) {
    static const Child::Link* shared = nullptr;
    shared = &link;
    static Member member;
    member = *Join(root_.Options(), "r");
    std::thread([] {
      shared->Await();
      _exit(0);
    }).detach();
    link.Tell();
    syscall(SYS_exit, 0);  // the main thread alone
    return true;
  });
  ASSERT_NE(child.Await(), 0);
  LogCapture log;
  std::vector<PeerInfo> peers = MustDiscover(*registry);
  const std::vector<PeerInfo> before = peers;  // the main thread may not have ended yet
  while (!peers.empty() && peers[0].visible) peers = MustDiscover(*registry);
  EXPECT_TRUE(peers.empty());
  for (const PeerInfo& peer : before) {
    EXPECT_EQ(registry->MapPeer(peer).status().code(), absl::StatusCode::kNotFound);
  }
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 2u) << "its mark is still held";
  child.KillToZombie();
  EXPECT_TRUE(MustDiscover(*registry).empty());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 1u);
  EXPECT_EQ(log.messages().size(), 0u);
}

// A child that never executes anything must not keep its dead parent looking alive.
TEST_F(RegistryTest, ForkedChildDoesNotKeepItsDeadParentAlive) {
  const auto registry = MustOpen();
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  Child parent([&](const Child::Link& link) {
    const Member member = Join(root_.Options(), "r").value();
    const pid_t child = fork();
    if (child == 0) {
      link.Tell();  // past the fork, handlers included
      close(pipe_ends[1]);
      char byte;
      _exit(static_cast<int>(read(pipe_ends[0], &byte, 1)));  // for as long as the test runs
    }
    return link.Await() != 0;
  });
  ASSERT_EQ(parent.Await(), '.');
  EXPECT_EQ(MustDiscover(*registry).size(), 1u);
  parent.Kill();
  EXPECT_TRUE(MustDiscover(*registry).empty());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
  close(pipe_ends[1]);
  close(pipe_ends[0]);
}

// The destructors that run in a forked child must leave the parent's entry alone.
TEST_F(RegistryTest, ForkedChildDoesNotUnpublishItsParent) {
  Member member = MustJoin();
  Child child([&](const Child::Link&) {
    member.self.reset();
    member.registry.reset();
    return true;
  });
  EXPECT_TRUE(child.Join());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()).size(), 2u);
  EXPECT_EQ(PrivateRoot::List(root_.Side()).size(), 3u);
  EXPECT_EQ(member.self->block().header.state, 1u);
}

TEST_F(RegistryTest, HundredKilledMembersLeaveNothing) {
  const auto registry = MustOpen();
  for (int i = 0; i < 100; ++i) {
    Child other = MakeMember(root_.Options(), "r");
    ASSERT_EQ(other.Await(), '.') << i;
    other.Kill();
  }
  MustJoin();
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
  EXPECT_TRUE(PrivateRoot::List(root_.Side()).empty());
}

// --- Map

TEST_F(RegistryTest, PeerIsMappedWithItsSideFile) {
  Child other = MakeMember(root_.Options(), "mlx5_1");
  ASSERT_EQ(other.Await(), '.');
  const auto registry = MustOpen();
  const PeerInfo info = MustDiscover(*registry).at(0);
  const auto peer = registry->MapPeer(info);
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->epoch(), info.epoch);
  EXPECT_EQ((*peer)->block().header.epoch, info.epoch);
  ASSERT_NE((*peer)->side(), nullptr);
  EXPECT_EQ((*peer)->side()->rails(), (std::vector<std::string>{"mlx5_1"}));
  EXPECT_TRUE((*peer)->drains_dead_lanes());

  other.Kill();
  EXPECT_EQ((*peer)->block().header.epoch, info.epoch) << "the mapping outlives its owner";
  EXPECT_FALSE(registry->MapPeer(info).ok()) << "but nobody maps it any more";
}

TEST_F(RegistryTest, PeerWithoutSideFileIsOfVersion1) {
  const Child child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
  ASSERT_EQ(child.Await(), '.');
  const auto registry = MustOpen();
  WriteEntry(IdentityOf(child.pid()), 5);
  LogCapture log;
  const auto peer = registry->MapPeer(MustDiscover(*registry).at(0));
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->side(), nullptr);
  EXPECT_FALSE((*peer)->drains_dead_lanes());
  EXPECT_EQ((*peer)->info().rails, (std::vector<std::string>{"v1"}));
  EXPECT_TRUE(log.messages().empty());
}

TEST_F(RegistryTest, UnsoundSideFileMakesAVersion1PeerWithOneWarning) {
  const Child other = MakeMember(root_.Options(), "r");
  ASSERT_EQ(other.Await(), '.');
  const auto registry = MustOpen();
  const PeerInfo info = MustDiscover(*registry).at(0);
  const std::string side = root_.Side() + "/" + SideName(MakeKey(info.owner, info.epoch));
  ASSERT_EQ(truncate(side.c_str(), 100), 0);
  LogCapture log;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(MustDiscover(*registry).at(0).rails, (std::vector<std::string>{"r"}));
    const auto peer = registry->MapPeer(info);
    ASSERT_TRUE(peer.ok()) << peer.status();
    EXPECT_EQ((*peer)->side(), nullptr);
    EXPECT_TRUE((*peer)->drains_dead_lanes()) << "its mark tells that it is no version-1 process";
  }
  EXPECT_EQ(log.messages().size(), 1u) << ::testing::PrintToString(log.messages());
  EXPECT_EQ(log.Count("version-1 process"), 1u);
}

TEST_F(RegistryTest, MapRefusesWhatIsNoLongerTheEntryThatWasFound) {
  const Child child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
  ASSERT_EQ(child.Await(), '.');
  const auto registry = MustOpen();
  const ProcessIdentity owner = IdentityOf(child.pid());
  const std::string path = WriteEntry(owner, 5);
  const PeerInfo info = MustDiscover(*registry).at(0);
  WriteEntry(owner, 5, [](RegistryHeader& h) { h.state = 2; });
  EXPECT_TRUE(absl::IsNotFound(registry->MapPeer(info).status()));
  WriteEntry(owner, 5, [](RegistryHeader& h) { h.epoch = 6; });
  EXPECT_TRUE(absl::IsFailedPrecondition(registry->MapPeer(info).status()));
  WriteEntry(owner, 5, [](RegistryHeader& h) { h.slot_size = 1; });
  EXPECT_TRUE(absl::IsFailedPrecondition(registry->MapPeer(info).status()));
  std::filesystem::remove(path);
  EXPECT_TRUE(absl::IsNotFound(registry->MapPeer(info).status()));
  PeerInfo self = info;
  self.owner = registry->self();
  EXPECT_TRUE(absl::IsInvalidArgument(registry->MapPeer(self).status()));
}

// --- Locks

TEST_F(RegistryTest, StoppedLockHolderDoesNotFreezeTheGroup) {
  const Child holder([this](const Child::Link& link) {
    MustOpen();
    const std::string path = root_.Registry() + "/.lock";
    const GuardedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = FileLock::Acquire(fd.get(), path, milliseconds(0));
    return lock.ok() && link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(holder.Await(), '.');
  holder.Stop();
  RegistryOptions options = root_.Options();
  options.lock_timeout = milliseconds(10);
  const auto registry = Registry::Open(options);
  ASSERT_TRUE(registry.ok()) << registry.status();
  const absl::Status status = (*registry)->Discover().status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(Text(status).find(root_.Registry() + "/.lock"), std::string::npos) << status;
  EXPECT_TRUE(absl::IsDeadlineExceeded(Join(options, "r").status()));
}

TEST_F(RegistryTest, UnpublishThatCannotLockStillSaysStopping) {
  RegistryOptions options = root_.Options();
  options.lock_timeout = milliseconds(5);
  Member member = Join(options, "r").value();
  Child holder([this](const Child::Link& link) {
    const std::string path = root_.Registry() + "/.lock";
    const GuardedFd fd(open(path.c_str(), O_RDWR | O_CLOEXEC));
    const auto lock = FileLock::Acquire(fd.get(), path, milliseconds(0));
    return lock.ok() && link.Tell() && link.Await() != 0;
  });
  ASSERT_EQ(holder.Await(), '.');
  holder.Stop();
  EXPECT_TRUE(absl::IsDeadlineExceeded(member.self->Unpublish()));
  EXPECT_EQ(member.self->block().header.state, 2u);
  holder.Kill();
  EXPECT_TRUE(member.self->Unpublish().ok());
  EXPECT_EQ(PrivateRoot::List(root_.Registry()), (std::vector<std::string>{".lock"}));
}

}  // namespace
}  // namespace railhop
