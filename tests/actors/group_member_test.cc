#include "actors/group_member.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <thread>

#include "actors/attached_rails.h"
#include "tests/support/flag.h"
#include "tests/transport/ring/ring_test_support.h"
#include "transport/staging/host_arena.h"

namespace railhop::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Only registers.
class KeyNic : public Nic {
 public:
  std::string_view kind() const override { return "sim"; }
  std::string_view name() const override { return "nic7"; }
  uint32_t send_queue_depth() const override { return 1; }
  absl::StatusOr<MemoryKey> Register(void* address, size_t length) override {
    if (refuse) return absl::ResourceExhaustedError("out of keys");
    registered[++last_] = {address, length};
    return MemoryKey{last_, 0};
  }
  absl::Status Deregister(const MemoryKey& key) override {
    registered.erase(key.lkey);
    return absl::OkStatus();
  }
  absl::StatusOr<EndpointId> Connect(const TargetInfo&, size_t) override { return EndpointId{1}; }
  void Disconnect(EndpointId) override {}
  bool Prepare(const WorkRequest&) override { return false; }
  void Submit() override {}
  size_t SendRoom(EndpointId) const override { return 0; }
  size_t Peek(std::span<NicCompletion>) override { return 0; }
  void Advance(size_t) override {}
  uint64_t PrepareToPark() override { return kNoDeadline; }
  void FinishPark() override {}
  int fd() const override { return -1; }

  bool refuse = false;
  std::map<uint32_t, std::pair<void*, size_t>> registered;

 private:
  uint32_t last_ = 40;
};

class GroupMemberTest : public ::testing::Test {
 protected:
  absl::StatusOr<std::unique_ptr<GroupMember>> Join(std::vector<std::string> rails = {"a"}) {
    return GroupMember::Join(
        {.registry = root_.Options(), .rails = std::move(rails), .nics = {&nic_}});
  }
  void ExpectNothingLeft() {
    EXPECT_THAT(nic_.registered, IsEmpty());
    EXPECT_THAT(PrivateRoot::List(root_.Registry()), ElementsAre(".lock"));
    EXPECT_THAT(PrivateRoot::List(root_.Side()), IsEmpty());
  }

  PrivateRoot root_;
  LogCapture log_;
  KeyNic nic_;
};

TEST_F(GroupMemberTest, JoinsWithEntrySideFileAndRegisteredArena) {
  auto member = Join({"a", "b"});
  ASSERT_TRUE(member.ok()) << member.status();
  const GroupMember& self = **member;
  EXPECT_EQ(self.self().block().header.state, static_cast<uint32_t>(RegistryState::kReady));
  EXPECT_THAT(self.arena_lkeys(), ElementsAre(41u));
  EXPECT_EQ(nic_.registered[41].first, (*member)->arena().base());
  EXPECT_EQ(nic_.registered[41].second, kArenaBytes);
  HandleBytes handle;
  std::copy_n(self.self().block().header.arena_handle, handle.size(), handle.begin());
  EXPECT_TRUE(IsHostArenaHandle(handle));
  EXPECT_EQ(self.sender().identity.pid, getpid());
  EXPECT_THAT(PrivateRoot::List(root_.Registry()), SizeIs(2));
  member->reset();
  ExpectNothingLeft();
  EXPECT_THAT(log_.messages(), IsEmpty());
}

TEST_F(GroupMemberTest, ASecondOneInTheSameProcessIsRefusedAndLeavesNothing) {
  auto first = Join();
  ASSERT_TRUE(first.ok());
  const auto second = Join();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(nic_.registered, SizeIs(1));
  EXPECT_THAT(PrivateRoot::List(root_.Registry()), SizeIs(2));
  first->reset();
  ExpectNothingLeft();
}

TEST_F(GroupMemberTest, BadRailsAndNicsThatRefuseLeaveNothing) {
  EXPECT_FALSE(Join({}).ok());
  EXPECT_FALSE(Join({"a", "a"}).ok());
  nic_.refuse = true;
  const auto refused = Join();
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("nic7"));
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("out of keys"));
  ExpectNothingLeft();
}

TEST_F(GroupMemberTest, ANinthProcessIsToldThatTheGroupIsFull) {
  std::vector<Child> members;
  for (int i = 0; i < 8; ++i) {
    members.push_back(MakeMember(root_.Options(), "r" + std::to_string(i)));
    ASSERT_EQ(members.back().Await(), '.');
  }
  const auto ninth = Join();
  EXPECT_EQ(ninth.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(nic_.registered, IsEmpty());
  members[3].Kill();
  EXPECT_TRUE(Join().ok());
}

TEST_F(GroupMemberTest, AStoppedHolderOfTheLockIsWaitedForButNotForEver) {
  ASSERT_TRUE(Join().ok());  // makes the directories
  Child holder([this](const Child::Link& link) {
    const auto directory = RegistryDirectory::Open(root_.Options());
    if (!directory.ok()) return false;
    const auto lock = (*directory)->LockGroup();
    return lock.ok() && link.Tell() && link.Await() == 'q';
  });
  ASSERT_EQ(holder.Await(), '.');
  holder.Stop();
  auto options = root_.Options();
  options.lock_timeout = std::chrono::milliseconds(50);
  const auto blocked = GroupMember::Join({.registry = options, .rails = {"a"}, .nics = {&nic_}});
  EXPECT_EQ(blocked.status().code(), absl::StatusCode::kDeadlineExceeded);
  holder.Kill();
  EXPECT_TRUE(Join().ok());
}

TEST_F(GroupMemberTest, AnArenaWhoseLaneIsHeldOutlivesTheMember) {
  auto member = Join();
  ASSERT_TRUE(member.ok());
  EXPECT_EQ((*member)->HeldLanes(), 0u);
  Child sender([this](const Child::Link& link) {
    auto joined = testing::Join(root_.Options(), "there");
    if (!joined.ok()) return false;
    const auto peers = joined->registry->Discover();
    if (!peers.ok() || peers->size() != 1) return false;
    auto mapping = joined->registry->MapPeer((*peers)[0]);
    const LaneSender self{joined->self->owner(), joined->self->epoch()};
    return mapping.ok() && ClaimLane(**mapping, self).ok() && link.Tell() && link.Await() == 'q';
  });
  ASSERT_EQ(sender.Await(), '.');
  EXPECT_EQ((*member)->HeldLanes(), 1u);
  std::byte* const base = (*member)->arena().base();
  member->reset();
  EXPECT_EQ(log_.Count("kept until this process ends"), 1u);
  base[0] = std::byte{1};  // still mapped: no fault
  sender.Kill();
  member = Join();
  ASSERT_TRUE(member.ok());
  EXPECT_EQ((*member)->HeldLanes(), 0u);
}

TEST(AttachedRailsTest, WaitersAreToldOfWhatTheyWaitFor) {
  AttachedRails rails;
  EXPECT_FALSE(rails.WaitFor("a", std::chrono::milliseconds(0)));
  std::thread waiter([&] { EXPECT_TRUE(rails.WaitFor("b", kTestPatience)); });
  rails.Add({.pid = 1, .lane = 0, .rails = {"a"}});
  rails.Add({.pid = 2, .lane = 1, .rails = {"b", "c"}});
  waiter.join();
  EXPECT_TRUE(rails.WaitFor("a", std::chrono::milliseconds(0)));
  rails.Remove(1);
  EXPECT_FALSE(rails.WaitFor("c", std::chrono::milliseconds(0)));
  ASSERT_THAT(rails.Snapshot(), SizeIs(1));
  EXPECT_EQ(rails.Snapshot()[0].pid, 1);
  std::thread closed([&] { EXPECT_FALSE(rails.WaitFor("c", kTestPatience)); });
  rails.Close();
  closed.join();
  EXPECT_THAT(rails.Snapshot(), IsEmpty());
}

}  // namespace
}  // namespace railhop::testing
