#include "transport/staging/cuda_staging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/transport/staging/child_process.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

using testing::HasSubstr;

class CudaStagingTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    device_ = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "0000:65:00.0");
    staging_ = std::make_unique<CudaStaging>(device_);
  }

  std::byte* Allocate(const CudaDevice& device, size_t bytes) {
    CudaScope scope(device);
    cuda::DevicePointer memory = 0;
    EXPECT_EQ(device.driver().mem_alloc(&memory, bytes), cuda::kSuccess);
    return reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<CudaStaging> staging_;
};

// Field fault G6: what the process calls the device counts for nothing.
TEST_F(CudaStagingTest, MemoryOfTheRanksGpuCanBeStagedWhateverItsNumber) {
  std::byte* const memory = Allocate(*device_, 4096);
  EXPECT_TRUE(*staging_->CanStage(memory, 4096, "cuda:0"));
  EXPECT_TRUE(*staging_->CanStage(memory + 100, 200, "cuda:1"));
  EXPECT_TRUE(*staging_->CanStage(memory, 4096, "*"));
}

TEST_F(CudaStagingTest, G2MemoryOfAnotherGpuGoesDirect) {
  const auto other = *CudaDevice::Open(device_->driver(), "0000:17:00.0");
  EXPECT_FALSE(*staging_->CanStage(Allocate(*other, 4096), 4096, "cuda:1"));
}

TEST_F(CudaStagingTest, HostMemoryGoesDirectAndIsNoGpus) {
  std::byte host[64] = {};
  EXPECT_FALSE(*staging_->CanStage(host, sizeof(host), "cpu:0"));
  EXPECT_FALSE(*staging_->CanStage(host, sizeof(host), "*"));
  const absl::Status status = staging_->CanStage(host, sizeof(host), "cuda:0").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("is not a GPU's"));
}

// Field fault G5.
TEST_F(CudaStagingTest, G5MemoryOfSeveralMappingsIsStagedAndInPartRefusedWithTheReason) {
  const uint64_t chunks = fake_.MapChunks(4096, std::array{1, 1, -1});
  auto* const memory = reinterpret_cast<std::byte*>(chunks);  // NOLINT(performance-no-int-to-ptr)
  EXPECT_TRUE(*staging_->CanStage(memory + 100, 8000, "*"));
  const absl::Status status = staging_->CanStage(memory, 8193, "cuda:0").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("only the first 8192 are mapped"));
}

// By the first lane that is reserved, in its own first slot.
TEST_F(CudaStagingTest, APeersArenaIsMeasuredOnceAndForgottenWithItsMapping) {
  ChildProcess owner([](Channel& channel) {
    const auto device = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "0000:17:00.0");
    const auto arena = CudaArena::Create(device);
    if (!arena.ok()) return 1;
    channel.Send((*arena)->handle());
    channel.WaitForEnd();
    return 0;
  });
  ArenaHandle handle{};
  ASSERT_TRUE(owner.channel().Receive(&handle));
  auto book = std::make_shared<CopyCostBook>();
  CudaStaging staging(device_, *CopyCalibrator::Create(device_, {}), book);
  auto arena = staging.OpenArena(handle, {}, 1);
  ASSERT_TRUE(arena.ok()) << arena.status();
  std::byte* const base = (*arena)->base();
  EXPECT_TRUE(absl::IsOutOfRange((*arena)->ReserveLane(7)));
  EXPECT_FALSE(book->Find(base).has_value());

  std::fill_n(base + SlotOffset(2, 17), kSlotBytes + CopyCalibrator::kBytes + 1, std::byte{0xee});
  ASSERT_TRUE((*arena)->ReserveLane(3).ok());
  EXPECT_TRUE(book->Find(base + SlotOffset(3, 0)).has_value());
  EXPECT_EQ(base[SlotOffset(3, 0) - 1], std::byte{0xee});
  EXPECT_NE(base[SlotOffset(3, 0)], std::byte{0xee});
  EXPECT_EQ(base[SlotOffset(3, 0) + CopyCalibrator::kBytes], std::byte{0xee});

  fake_.calls.clear();
  ASSERT_TRUE((*arena)->ReserveLane(4).ok());
  EXPECT_EQ(fake_.calls["cuMemcpyAsync"], 0);
  arena->reset();
  EXPECT_FALSE(book->Find(base).has_value());
}

TEST_F(CudaStagingTest, DoorbellsAreSharedWhileTheResultLives) {
  alignas(4096) static std::byte block[4096];
  std::shared_ptr<void> shared = staging_->ShareDoorbells(block, sizeof(block));
  EXPECT_NE(shared, nullptr);
  shared.reset();
  EXPECT_EQ(fake_.calls["cuMemHostUnregister"], 1);
  fake_.fail["cuMemHostRegister"] = cuda::kNotSupported;
  EXPECT_EQ(staging_->ShareDoorbells(block, sizeof(block)), nullptr);
}

}  // namespace
}  // namespace railhop
