#include "tools/demo/device_memory.h"

#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tools/demo/batches.h"
#include "tools/demo/checksum_kernel.h"

namespace railhop {
namespace {

// On the stand-in for the driver, whose device memory is the host's.
class DeviceMemoryTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    auto memory = DeviceMemory::Allocate("0000:65:00.0", kBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
  }
  void TearDown() override {
    memory_.reset();
    EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0);
    EXPECT_EQ(fake_.Allocated(), 0U);
  }

  static constexpr uint64_t kBytes = 100'000;
  FakeCuda& fake_ = FakeCuda::Get();
  std::unique_ptr<DeviceMemory> memory_;
};

TEST_F(DeviceMemoryTest, TheFirstWrongByteIsFoundWhereverItIs) {
  for (const uint64_t size : {uint64_t{1}, uint64_t{8}, uint64_t{8191}, kBytes - 5, kBytes}) {
    ASSERT_TRUE(memory_->Fill(size, 7).ok());
    EXPECT_EQ(*memory_->FindMismatch(size, 7), -1) << size;
    EXPECT_EQ(*memory_->FindMismatch(size, 8), 0) << size;
    for (const uint64_t at : {uint64_t{0}, size / 2, size - 1}) {
      memory_->bytes()[at] ^= std::byte{1};
      EXPECT_EQ(*memory_->FindMismatch(size, 7), static_cast<int64_t>(at)) << size;
      memory_->bytes()[at] ^= std::byte{1};
    }
  }
}

TEST_F(DeviceMemoryTest, WhatIsRightIsNotFetched) {
  if (ChecksumImage() == nullptr) GTEST_SKIP() << "built without nvcc";
  ASSERT_TRUE(memory_->Fill(kBytes, 1).ok());
  fake_.calls.clear();
  EXPECT_EQ(*memory_->FindMismatch(kBytes - kBytes % 8, 1), -1);
  EXPECT_EQ(fake_.calls[kChecksumKernel], 1);
  EXPECT_EQ(fake_.calls["cuMemcpyAsync"], 2);  // the sum, there and back
}

TEST_F(DeviceMemoryTest, ErrorsSayOfWhatAndWhatToDo) {
  fake_.largest_allocation = 1;
  const auto none = DeviceMemory::Allocate("0000:65:00.0", kBytes);
  fake_.largest_allocation = SIZE_MAX;
  ASSERT_FALSE(none.ok());
  for (const char* word : {"0000:65:00.0", "100000 bytes", "fewer --ranks"}) {
    EXPECT_NE(std::string(none.status().message()).find(word), std::string::npos) << none.status();
  }
  fake_.fail["cuStreamSynchronize"] = 700;
  const absl::Status filled = memory_->Fill(8, 1);
  EXPECT_NE(std::string(filled.message()).find("filling the source on GPU 0000:65:00.0"),
            std::string::npos)
      << filled;
}

TEST_F(DeviceMemoryTest, GpusAreListedByTheirAddresses) {
  const auto gpus = VisibleGpus();
  ASSERT_TRUE(gpus.ok()) << gpus.status();
  EXPECT_EQ(gpus->size(), 2U);
  for (const std::string& gpu : *gpus) {
    EXPECT_TRUE(DeviceMemory::Allocate(gpu, 8).ok());
  }
}

}  // namespace
}  // namespace railhop
