#include "transport/cuda/memory.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <string>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/cuda/device.h"

namespace railhop {
namespace {

using testing::HasSubstr;

class CudaMemoryTest : public testing::Test {
 protected:
  static constexpr size_t kChunk = 8192;

  void SetUp() override {
    fake_.Reset();
    device_ = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "");
  }

  absl::StatusOr<std::optional<cuda::Device>> Find(uint64_t address, size_t length) {
    return FindGpuOf(device_->driver(),
                     reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr)
                     length);
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::shared_ptr<const CudaDevice> device_;
};

TEST_F(CudaMemoryTest, HostMemoryIsNoGpus) {
  std::array<std::byte, 64> host{};
  EXPECT_EQ(*Find(reinterpret_cast<uint64_t>(host.data()), host.size()), std::nullopt);
}

TEST_F(CudaMemoryTest, AnAllocationIsItsGpusWhicheverIsCurrent) {
  const auto other = *CudaDevice::Open(device_->driver(), "0000:65:00.0");
  const CudaScope scope(*other);
  cuda::DevicePointer memory = 0;
  ASSERT_EQ(other->driver().mem_alloc(&memory, kChunk), cuda::kSuccess);
  EXPECT_EQ(*Find(memory, kChunk), 1);
  EXPECT_EQ(*Find(memory + 1, 1), 1);
  // Not even into the rest of the block that it was cut from.
  const absl::Status status = Find(memory, kChunk + 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
}

// Field fault G5: expandable segments. Their range, as the driver has it, is all that is reserved.
TEST_F(CudaMemoryTest, G5NeighbouringMappingsAreOneRange) {
  const uint64_t memory = fake_.MapChunks(kChunk, std::array{1, 1, 1});
  EXPECT_EQ(*Find(memory, 3 * kChunk), 1);
  EXPECT_EQ(*Find(memory + 100, 2 * kChunk), 1);
  EXPECT_EQ(*Find(memory + kChunk - 1, 2), 1);
}

TEST_F(CudaMemoryTest, G5TheEndsOfMappingsAreTold) {
  const uint64_t memory = fake_.MapChunks(kChunk, std::array{1, 1, 1});
  const auto ends = [&](uint64_t offset, size_t length) {
    return GpuMappingEnds(device_->driver(),
                          reinterpret_cast<void*>(memory + offset),  // NOLINT
                          length);
  };
  EXPECT_THAT(ends(0, 3 * kChunk), testing::ElementsAre(kChunk, 2 * kChunk, 3 * kChunk));
  EXPECT_THAT(ends(100, kChunk), testing::ElementsAre(kChunk - 100, kChunk));
  EXPECT_THAT(ends(100, kChunk - 100), testing::ElementsAre(kChunk - 100));
}

TEST_F(CudaMemoryTest, G5WhereTheMappingEndsIsSaid) {
  const uint64_t memory = fake_.MapChunks(kChunk, std::array{0, 0, -1, 0});
  EXPECT_EQ(*Find(memory + 100, 2 * kChunk - 100), 0);
  const absl::Status status = Find(memory + 100, 2 * kChunk - 99).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("only the first {} are mapped, up to {:#x}",
                                                      2 * kChunk - 100, memory + 2 * kChunk)));
  EXPECT_EQ(*Find(memory + 3 * kChunk, kChunk), 0);
}

TEST_F(CudaMemoryTest, G5WhereAnotherGpuBeginsIsSaid) {
  const uint64_t memory = fake_.MapChunks(kChunk, std::array{0, 1});
  EXPECT_EQ(*Find(memory + kChunk, kChunk), 1);
  const absl::Status status = Find(memory, kChunk + 1).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr(fmt::format("at {:#x} is device 1's", memory + kChunk)));
}

}  // namespace
}  // namespace railhop
