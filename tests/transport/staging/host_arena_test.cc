#include "transport/staging/host_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <memory>
#include <string>

#include "tests/transport/staging/child_process.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kLaneBytes = kSlotsPerLane * kSlotBytes;

ProcessIdentity Self() {
  return *SelfIdentity();
}

template <typename T>
T ReadAt(const ArenaHandle& handle, size_t offset) {
  T value;
  std::memcpy(&value, handle.data() + offset, sizeof(value));
  return value;
}

TEST(HostArenaTest, HandleBytesLieWhereTheAbiSays) {
  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok()) << arena.status();
  const ArenaHandle& handle = (*arena)->handle();
  EXPECT_EQ(std::memcmp(handle.data(), "RHHOST1\0", 8), 0);
  EXPECT_EQ(ReadAt<int32_t>(handle, 8), Self().pid);
  struct stat found {};
  ASSERT_EQ(fstat(ReadAt<int32_t>(handle, 12), &found), 0);
  EXPECT_EQ(ReadAt<uint64_t>(handle, 16), Self().start_ticks);
  EXPECT_EQ(ReadAt<uint64_t>(handle, 24), found.st_dev);
  EXPECT_EQ(ReadAt<uint64_t>(handle, 32), found.st_ino);
  EXPECT_EQ(ReadAt<uint64_t>(handle, 40), 1056964608u);
  EXPECT_EQ(found.st_size, 1056964608);
  EXPECT_EQ(found.st_blocks, 0);
  for (size_t i = 48; i < 64; ++i) EXPECT_EQ(handle[i], 0) << i;
}

TEST(HostArenaTest, SenderFillsASlotOfItsLane) {
  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok());
  ASSERT_TRUE((*arena)->ReserveLane(3).ok());
  const ArenaHandle handle = (*arena)->handle();
  const ProcessIdentity owner = Self();
  const uint64_t offset = SlotOffset(3, 17);

  ChildProcess sender([&](Channel&) {
    auto imported = ImportedHostArena::Open(handle, owner);
    if (!imported.ok() || (*imported)->size() != kArenaBytes) return 1;
    if (!(*imported)->ReserveLane(3).ok()) return 2;
    std::memset((*imported)->base() + offset, 0x5A, kSlotBytes);
    return 0;
  });
  EXPECT_EQ(sender.Wait(), 0);
  const std::byte* const slot = (*arena)->base() + offset;
  EXPECT_EQ(slot[0], std::byte{0x5A});
  EXPECT_EQ(std::memcmp(slot, slot + 1, kSlotBytes - 1), 0);
  EXPECT_EQ(slot[-1], std::byte{0});
}

TEST(HostArenaTest, ReservesOneLaneAtATime) {
  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok());
  struct stat found {};
  const int fd = ReadAt<int32_t>((*arena)->handle(), 12);
  for (int repeat = 0; repeat < 2; ++repeat) {
    ASSERT_TRUE((*arena)->ReserveLane(6).ok());
    ASSERT_EQ(fstat(fd, &found), 0);
    EXPECT_EQ(static_cast<uint64_t>(found.st_blocks) * 512, kLaneBytes);
  }
  EXPECT_EQ((*arena)->ReserveLane(7).code(), absl::StatusCode::kOutOfRange);
}

TEST(HostArenaTest, HandlesOfOtherKindsAreRefused) {
  ArenaHandle cuda;
  cuda.fill(0xC5);
  EXPECT_FALSE(IsHostArenaHandle(cuda));
  EXPECT_FALSE(IsHostArenaHandle(ArenaHandle{}));
  const absl::Status status = ImportedHostArena::Open(cuda, Self()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("CUDA"));

  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok());
  EXPECT_TRUE(IsHostArenaHandle((*arena)->handle()));  // what a reader of CUDA handles asks
}

TEST(HostArenaTest, MalformedHandlesAreRefused) {
  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok());
  ASSERT_TRUE(ImportedHostArena::Open((*arena)->handle(), Self()).ok());
  // A byte of the marker, the signs of pid and fd, a byte of the size, one of the padding.
  for (const size_t at : {size_t{6}, size_t{11}, size_t{15}, size_t{40}, size_t{63}}) {
    ArenaHandle handle = (*arena)->handle();
    handle[at] ^= 0x80;
    EXPECT_EQ(ImportedHostArena::Open(handle, Self()).status().code(),
              absl::StatusCode::kInvalidArgument)
        << at;
  }
}

TEST(HostArenaTest, HandleOfAnotherProcessThanThePeerIsRefused) {
  auto arena = HostArena::Create();
  ASSERT_TRUE(arena.ok());
  ProcessIdentity other = Self();
  ++other.start_ticks;
  EXPECT_EQ(ImportedHostArena::Open((*arena)->handle(), other).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST(HostArenaTest, DeadOwnerIsUnavailable) {
  ChildProcess owner([](Channel& channel) {
    auto arena = HostArena::Create();
    if (!arena.ok() || !channel.Send((*arena)->handle()) || !channel.Send(Self())) return 1;
    channel.WaitForEnd();
    return 0;
  });
  ArenaHandle handle;
  ProcessIdentity identity;
  ASSERT_TRUE(owner.channel().Receive(&handle));
  ASSERT_TRUE(owner.channel().Receive(&identity));
  ASSERT_TRUE(ImportedHostArena::Open(handle, identity).ok());
  owner.Kill();
  EXPECT_EQ(ImportedHostArena::Open(handle, identity).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace railhop
