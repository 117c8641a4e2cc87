#include "transport/staging/cuda_arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/transport/staging/child_process.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

using testing::HasSubstr;

std::shared_ptr<const CudaDevice> Device(const std::string& pci) {
  const auto device = CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), pci);
  EXPECT_TRUE(device.ok()) << device.status();
  return *device;
}

// An arena of the second GPU in another process, opened here for the first one.
class CudaArenaTest : public testing::Test {
 protected:
  CudaArenaTest()
      : owner_([](Channel& channel) {
          const auto arena = CudaArena::Create(Device("0000:65:00.0"));
          if (!arena.ok()) return 1;
          std::memcpy((*arena)->base() + SlotOffset(6, 17), "here", 5);
          channel.Send((*arena)->handle());
          channel.WaitForEnd();
          return 0;
        }) {
    fake_.Reset();
    EXPECT_TRUE(owner_.channel().Receive(&handle_));
  }
  void TearDown() override { EXPECT_EQ(fake_.Imported(), 0u); }

  absl::StatusOr<std::shared_ptr<ImportedCudaArena>> Open(uint64_t epoch = 1) {
    return ImportedCudaArena::Open(Device("0000:17:00.0"), handle_, epoch);
  }

  FakeCuda& fake_ = FakeCuda::Get();
  ChildProcess owner_;
  ArenaHandle handle_{};
};

TEST_F(CudaArenaTest, ShowsTheOwnersBytes) {
  const auto arena = Open();
  ASSERT_TRUE(arena.ok()) << arena.status();
  EXPECT_EQ((*arena)->size(), kArenaBytes);
  EXPECT_EQ(std::memcmp((*arena)->base() + SlotOffset(6, 17), "here", 5), 0);
  EXPECT_TRUE((*arena)->ReserveLane(6).ok());
  EXPECT_TRUE(absl::IsOutOfRange((*arena)->ReserveLane(7)));
}

// Field fault C4: another epoch is another arena, whatever the bytes of the handle.
TEST_F(CudaArenaTest, C4MappingsAreKeptByHandleAndEpoch) {
  const auto device = Device("0000:17:00.0");
  auto first = ImportedCudaArena::Open(device, handle_, 1);
  const auto second = ImportedCudaArena::Open(device, handle_, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*first)->base(), (*second)->base());
  EXPECT_EQ(fake_.Imported(), 1u);
  const auto third = ImportedCudaArena::Open(device, handle_, 2);
  EXPECT_EQ(fake_.calls["cuIpcOpenMemHandle"], 2);
  first->reset();
  EXPECT_EQ(fake_.calls["cuIpcCloseMemHandle"], 0);
}

TEST_F(CudaArenaTest, GpusThatCannotReachEachOtherAreRefusedWithTheReason) {
  fake_.peer_access = false;
  for (const bool open_checks : {true, false}) {
    fake_.open_checks_access = open_checks;
    const absl::Status status = Open().status();
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("0000:17:00.0"));
    EXPECT_THAT(status.message(), HasSubstr("cannot reach the peer's GPU"));
    EXPECT_EQ(fake_.Imported(), 0u);
  }
}

TEST_F(CudaArenaTest, WithoutMemoryTheErrorSaysHowMuchThereIs) {
  fake_.fail["cuMemAlloc"] = cuda::kOutOfMemory;
  const absl::Status status = CudaArena::Create(Device("0000:17:00.0")).status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("1056964608 bytes"));
  EXPECT_THAT(status.message(), HasSubstr("8589934592 are free"));
}

TEST_F(CudaArenaTest, AHandleThatCannotBeMadeLeavesNoMemoryBehind) {
  fake_.fail["cuIpcGetMemHandle"] = cuda::kNotSupported;
  EXPECT_FALSE(CudaArena::Create(Device("0000:17:00.0")).ok());
  EXPECT_EQ(fake_.Allocated(), 0u);
}

}  // namespace
}  // namespace railhop
