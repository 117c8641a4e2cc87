#include "transport/staging/shared_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <string>

#include "tests/transport/staging/child_process.h"
#include "transport/ring/process_identity.h"

namespace railhop {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint64_t kSize = 1 << 20;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

// A memfd of this process, made by hand so that it can be wrong in every way.
class HandMade {
 public:
  explicit HandMade(uint64_t size, int seals = F_SEAL_SHRINK)
      : fd_(memfd_create("hand-made", MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size)), 0);
    EXPECT_EQ(fcntl(fd_, F_ADD_SEALS, seals), 0);
  }
  ~HandMade() { close(fd_); }
  HandMade(const HandMade&) = delete;
  HandMade& operator=(const HandMade&) = delete;

  int fd() const { return fd_; }
  SharedMemoryId Id() const {
    struct stat made {};
    EXPECT_EQ(fstat(fd_, &made), 0);
    const ProcessIdentity self = *SelfIdentity();
    return {.pid = self.pid,
            .fd = fd_,
            .start_ticks = self.start_ticks,
            .device = made.st_dev,
            .inode = made.st_ino,
            .size = static_cast<uint64_t>(made.st_size)};
  }

 private:
  int fd_;
};

uint64_t PagesTaken(const MappedMemory& memory) {
  struct stat found {};
  EXPECT_EQ(fstat(memory.id().fd, &found), 0);
  return static_cast<uint64_t>(found.st_blocks) * 512;
}

TEST(SharedMemoryTest, AnotherProcessSeesTheSameBytes) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok()) << memory.status();
  const SharedMemoryId id = (*memory)->id();
  std::memcpy((*memory)->base(), "from the owner", 15);

  ChildProcess child([&](Channel&) {
    auto imported = ImportedMemory::Open(id);
    if (!imported.ok()) return 1;
    if (std::memcmp((*imported)->base(), "from the owner", 15) != 0) return 2;
    std::memcpy((*imported)->base() + kSize - 9, "from peer", 9);
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  EXPECT_EQ(std::memcmp((*memory)->base() + kSize - 9, "from peer", 9), 0);
}

TEST(SharedMemoryTest, ForkedChildInheritsNothing) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok());
  ChildProcess child([&](Channel&) {
    unsigned char residency[kSize / 4096];
    if (mincore((*memory)->base(), kSize, residency) == 0 || errno != ENOMEM) return 1;
    if (fcntl((*memory)->id().fd, F_GETFD) != -1) return 2;
    memory->reset();  // and its destructor there must not touch what is not its own
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
}

TEST(SharedMemoryTest, NeitherShrinksNorGrowsNorLosesItsSeals) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok());
  const int fd = (*memory)->id().fd;
  EXPECT_NE(ftruncate(fd, kSize / 2), 0);
  EXPECT_NE(ftruncate(fd, kSize * 2), 0);
  EXPECT_NE(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemoryTest, EmptyMemoryIsRefused) {
  EXPECT_FALSE(SharedMemory::Create("test", 0).ok());
}

TEST(SharedMemoryTest, ReserveTakesExactlyThePagesOfTheRange) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(PagesTaken(**memory), 0u);
  ASSERT_TRUE((*memory)->Reserve(kSize / 4, kSize / 2).ok());
  EXPECT_EQ(PagesTaken(**memory), kSize / 2);
  ASSERT_TRUE((*memory)->Reserve(kSize / 4, kSize / 2).ok());
  EXPECT_EQ(PagesTaken(**memory), kSize / 2);
}

TEST(SharedMemoryTest, ReserveSaysWhatIsMissing) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok());
  const absl::Status status = (*memory)->Reserve(0, kSize, /*available=*/kSize - 1);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr(std::to_string(kSize)), HasSubstr(std::to_string(kSize - 1))));
  EXPECT_EQ(PagesTaken(**memory), 0u);
}

TEST(SharedMemoryTest, ReserveOutsideTheMemoryIsRefused) {
  auto memory = SharedMemory::Create("test", kSize);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ((*memory)->Reserve(kSize, 1).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ((*memory)->Reserve(4096, UINT64_MAX).code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(PagesTaken(**memory), 0u);
}

TEST(SharedMemoryTest, AvailableMemoryIsThatOfThisMachine) {
  const uint64_t total =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  EXPECT_GT(AvailableMemory(), 1u << 20);
  EXPECT_LT(AvailableMemory(), 64 * total);  // some swap may come on top
}

TEST(ImportedMemoryTest, OutlivesItsOwnerButCannotBeOpenedAnew) {
  ChildProcess owner([](Channel& channel) {
    auto memory = SharedMemory::Create("test", kSize);
    if (!memory.ok() || !channel.Send((*memory)->id())) return 1;
    channel.WaitForEnd();
    return 0;
  });
  SharedMemoryId id;
  ASSERT_TRUE(owner.channel().Receive(&id));
  auto imported = ImportedMemory::Open(id);
  ASSERT_TRUE(imported.ok()) << imported.status();
  owner.Kill();

  std::memset((*imported)->base(), 1, kSize);
  const absl::Status status = ImportedMemory::Open(id).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(Text(status), AllOf(HasSubstr(std::to_string(id.pid)), HasSubstr("has ended")));
}

TEST(ImportedMemoryTest, OtherStartTicksMeanAnotherProcess) {
  const HandMade file(kSize);
  SharedMemoryId id = file.Id();
  ASSERT_TRUE(ImportedMemory::Open(id).ok());
  ++id.start_ticks;
  EXPECT_EQ(ImportedMemory::Open(id).status().code(), absl::StatusCode::kUnavailable);
}

TEST(ImportedMemoryTest, WrongDeviceInodeOrSizeIsRefused) {
  const HandMade file(kSize);
  for (uint64_t SharedMemoryId::*field :
       {&SharedMemoryId::device, &SharedMemoryId::inode, &SharedMemoryId::size}) {
    SharedMemoryId id = file.Id();
    id.*field += 1;
    EXPECT_EQ(ImportedMemory::Open(id).status().code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST(ImportedMemoryTest, ClosedDescriptorIsNotFound) {
  SharedMemoryId id;
  {
    const HandMade file(kSize);
    id = file.Id();
  }
  EXPECT_EQ(ImportedMemory::Open(id).status().code(), absl::StatusCode::kNotFound);
}

TEST(ImportedMemoryTest, DescriptorUsedAnewByAnotherFileIsRefused) {
  const HandMade file(kSize);
  const SharedMemoryId id = file.Id();
  const HandMade other(kSize);
  ASSERT_EQ(dup2(other.fd(), file.fd()), file.fd());
  const absl::Status status = ImportedMemory::Open(id).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("used anew"));
}

TEST(ImportedMemoryTest, DescriptorUsedAnewByAPipeIsRefusedAtOnce) {
  const HandMade file(kSize);
  const SharedMemoryId id = file.Id();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(dup2(ends[0], file.fd()), file.fd());
  EXPECT_EQ(ImportedMemory::Open(id).status().code(), absl::StatusCode::kFailedPrecondition);
  close(ends[0]);
  close(ends[1]);
}

TEST(ImportedMemoryTest, MemoryThatCouldShrinkIsRefused) {
  const HandMade file(kSize, F_SEAL_GROW);
  const absl::Status status = ImportedMemory::Open(file.Id()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(Text(status), HasSubstr("not sealed"));
}

TEST(ImportedMemoryTest, MemoryThatCannotBeWrittenIsRefused) {
  const HandMade file(kSize, F_SEAL_SHRINK | F_SEAL_WRITE);
  EXPECT_FALSE(ImportedMemory::Open(file.Id()).ok());
}

TEST(ImportedMemoryTest, NotPermittedNamesTheProcessAndTheWayOut) {
  const HandMade file(kSize);
  const SharedMemoryId id = file.Id();
  const bool root = geteuid() == 0;
  // Root may look into any process, so there the child gives its rights up and looks at us; another
  // user may not look into a process of its own that is not dumpable.
  if (!root) prctl(PR_SET_DUMPABLE, 0);
  ChildProcess child([&](Channel& channel) {
    if (root && setuid(65534) != 0) return 1;
    const absl::Status status = ImportedMemory::Open(id).status();
    char text[512] = {};
    strncpy(text, Text(status).c_str(), sizeof(text) - 1);
    channel.Send(text);
    return status.code() == absl::StatusCode::kPermissionDenied ? 0 : 2;
  });
  char text[512] = {};
  EXPECT_TRUE(child.channel().Receive(&text));
  EXPECT_EQ(child.Wait(), 0);
  if (!root) prctl(PR_SET_DUMPABLE, 1);
  EXPECT_THAT(std::string(text), AllOf(HasSubstr("not permitted"), HasSubstr("same user"),
                                       HasSubstr("process " + std::to_string(id.pid))));
}

}  // namespace
}  // namespace railhop
