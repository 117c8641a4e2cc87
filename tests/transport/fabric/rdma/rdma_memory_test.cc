// Registration of host memory and of memory of GPUs, on the stand-ins for libibverbs and for the
// CUDA driver.
#include "transport/fabric/rdma/rdma_memory.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "tests/support/fake_verbs/fake_gpu.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kChunk = 65536;

class RdmaMemoryTest : public testing::Test {
 protected:
  ~RdmaMemoryTest() override {
    device_ = nullptr;
    EXPECT_EQ(verbs_.objects, 0);
    EXPECT_EQ(cuda_.calls_outside_relaxed_mode, 0);
  }

  RdmaDevice& Open(uint64_t most = UINT64_MAX, bool relaxed_ordering = true) {
    auto opened = RdmaDevice::Open(
        {.name = "fake0", .max_region_bytes = most, .relaxed_ordering = relaxed_ordering});
    EXPECT_TRUE(opened.ok()) << opened.status();
    device_ = *std::move(opened);
    return *device_;
  }
  uint64_t Chunks(std::initializer_list<int> devices) {
    return cuda_.MapChunks(kChunk, std::vector<int>(devices));
  }
  static std::vector<uint64_t> LengthsOf(const std::vector<MemoryPart>& parts) {
    std::vector<uint64_t> lengths;
    for (const MemoryPart& part : parts) lengths.push_back(part.length);
    return lengths;
  }

  FakeGpu gpu_;
  FakeCuda& cuda_ = FakeCuda::Get();
  FakeVerbs& verbs_ = FakeVerbs::Get();
  std::shared_ptr<RdmaDevice> device_;
  std::vector<std::byte> host_{100'000};
};

// --- Host memory, in parts

TEST_F(RdmaMemoryTest, HostMemoryWithinTheLimitIsOnePart) {
  RdmaDevice& device = Open(100'000);
  const auto parts = device.RegisterParts(host_.data(), 100'000);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(LengthsOf(*parts), ElementsAre(100'000));
  ASSERT_EQ(verbs_.Registrations().size(), 1u);
  EXPECT_FALSE(verbs_.Registrations()[0].by_file);
  EXPECT_TRUE(device.Deregister(parts->front().key).ok());
  EXPECT_TRUE(verbs_.Registrations().empty());
}

// Field fault T1: larger than the device's limit. Parts end at pages, and leave no byte out.
TEST_F(RdmaMemoryTest, T1MemoryAboveTheDevicesLimitIsRegisteredInParts) {
  verbs_.max_mr_size = 40'000;
  RdmaDevice& device = Open();
  const auto parts = device.RegisterParts(host_.data(), 100'000);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(LengthsOf(*parts), ElementsAre(36'864, 36'864, 26'272));
  const auto registered = verbs_.Registrations();
  ASSERT_EQ(registered.size(), 3u);
  uint64_t at = reinterpret_cast<uint64_t>(host_.data());
  for (size_t i = 0; i < registered.size(); ++i) {
    EXPECT_EQ(registered[i].address, at);
    EXPECT_EQ(registered[i].lkey, (*parts)[i].key.lkey);
    EXPECT_EQ(registered[i].rkey, (*parts)[i].key.rkey);
    at += (*parts)[i].length;
  }
  for (const MemoryPart& part : *parts) EXPECT_TRUE(device.Deregister(part.key).ok());
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaMemoryTest, TheConfiguredLimitCountsIfItIsLower) {
  verbs_.max_mr_size = 80'000;
  EXPECT_EQ(Open(50'000).RegisterParts(host_.data(), 100'000)->size(), 3u);
  verbs_.max_mr_size = 50'000;
  EXPECT_EQ(Open(80'000).RegisterParts(host_.data(), 100'000)->size(), 3u);
}

TEST_F(RdmaMemoryTest, WithOneKeyTheLimitIsSaid) {
  verbs_.max_mr_size = 40'000;
  const absl::Status status = Open().Register(host_.data(), 40'001).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("limit is 40000 bytes"));
  EXPECT_TRUE(device_->Register(host_.data(), 40'000).ok());
}

TEST_F(RdmaMemoryTest, AFailureHalfWayUndoesTheParts) {
  verbs_.max_mr_size = 40'000;
  RdmaDevice& device = Open();
  const auto before = device.RegisterParts(host_.data(), 10'000);
  ASSERT_TRUE(before.ok());
  verbs_.fail["ibv_reg_mr_iova2"] = {.after = 2, .error = ENOSPC};
  const absl::Status status = device.RegisterParts(host_.data(), 100'000).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("26272 bytes"));
  EXPECT_EQ(verbs_.Registrations().size(), 1u);
  EXPECT_TRUE(device.RegisterParts(host_.data(), 100'000).ok());
}

// Field fault T1: the same again, overlapping, adjacent.
TEST_F(RdmaMemoryTest, T1TheSamePartsAgainAreCountedAndOthersHaveKeysOfTheirOwn) {
  verbs_.max_mr_size = 40'000;
  RdmaDevice& device = Open();
  const auto first = *device.RegisterParts(host_.data(), 100'000);
  const auto again = *device.RegisterParts(host_.data(), 100'000);
  EXPECT_EQ(verbs_.Registrations().size(), 3u);
  // Begins like the first, of which the last part alone differs; and one in the middle of it.
  const auto shorter = *device.RegisterParts(host_.data(), 90'000);
  EXPECT_EQ(shorter[0].key.lkey, first[0].key.lkey);
  EXPECT_NE(shorter[2].key.lkey, first[2].key.lkey);
  EXPECT_EQ(verbs_.Registrations().size(), 4u);
  const auto middle = *device.RegisterParts(host_.data() + 1, 50'000);
  EXPECT_EQ(verbs_.Registrations().size(), 6u);
  for (const MemoryPart& part : first) EXPECT_TRUE(device.Deregister(part.key).ok());
  EXPECT_EQ(verbs_.Registrations().size(), 6u);
  for (const MemoryPart& part : again) EXPECT_TRUE(device.Deregister(part.key).ok());
  EXPECT_EQ(verbs_.Registrations().size(), 5u);
  for (const MemoryPart& part : shorter) EXPECT_TRUE(device.Deregister(part.key).ok());
  for (const MemoryPart& part : middle) EXPECT_TRUE(device.Deregister(part.key).ok());
  EXPECT_TRUE(verbs_.Registrations().empty());
}

// --- Relaxed ordering

TEST_F(RdmaMemoryTest, RelaxedOrderingIsAskedForUnlessItIsNotWanted) {
  Open();
  ASSERT_TRUE(device_->Register(host_.data(), 100).ok());
  EXPECT_NE(verbs_.Registrations()[0].access & IBV_ACCESS_RELAXED_ORDERING, 0u);
  Open(UINT64_MAX, false);
  ASSERT_TRUE(device_->Register(host_.data(), 100).ok());
  EXPECT_EQ(verbs_.Registrations()[0].access & IBV_ACCESS_RELAXED_ORDERING, 0u);
  EXPECT_EQ(verbs_.calls["ibv_reg_mr"], 1);
}

TEST_F(RdmaMemoryTest, ALibraryWithoutRelaxedOrderingRegistersAsBefore) {
  Open();
  Verbs old = device_->verbs();
  old.reg_mr_iova2 = nullptr;
  RdmaMemory memory(old, device_->protection_domain(), {.device = "fake0"});
  ASSERT_TRUE(memory.Register(host_.data(), 100).ok());
  EXPECT_EQ(verbs_.Registrations()[0].access & IBV_ACCESS_RELAXED_ORDERING, 0u);
}

// --- Memory of GPUs

TEST_F(RdmaMemoryTest, GpuMemoryGoesByDmaBufWhoseDescriptorIsClosed) {
  const uint64_t memory = Chunks({1, 1});
  RdmaDevice& device = Open();
  const auto parts = device.RegisterParts(FakeGpu::AsPointer(memory + 5000), 100'000);
  ASSERT_TRUE(parts.ok()) << parts.status();
  // Over the border of two mappings (field fault G5).
  EXPECT_THAT(LengthsOf(*parts), ElementsAre(100'000));
  const auto registered = verbs_.Registrations();
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_TRUE(registered[0].by_file);
  EXPECT_EQ(registered[0].address, memory + 5000);
  EXPECT_EQ(registered[0].offset, 5000u - 4096u);
  EXPECT_EQ(registered[0].length, 100'000u);
  ASSERT_GE(cuda_.latest_dma_buf, 0);
  EXPECT_EQ(fcntl(cuda_.latest_dma_buf, F_GETFD), -1);
  EXPECT_EQ(verbs_.calls["ibv_reg_mr"] + verbs_.calls["ibv_reg_mr_iova2"], 0);
}

TEST_F(RdmaMemoryTest, WithoutDmaBufGpuMemoryIsAPeerDevices) {
  const uint64_t memory = Chunks({0});
  cuda_.dma_buf = 0;
  verbs_.peer_memory = true;
  ASSERT_TRUE(Open().Register(FakeGpu::AsPointer(memory), kChunk).ok());
  ASSERT_EQ(verbs_.Registrations().size(), 1u);
  EXPECT_FALSE(verbs_.Registrations()[0].by_file);
  EXPECT_EQ(verbs_.calls["ibv_reg_dmabuf_mr"], 0);
}

TEST_F(RdmaMemoryTest, ADeviceThatTakesNoDmaBufGetsItAsAPeerDevices) {
  const uint64_t memory = Chunks({0});
  verbs_.peer_memory = true;
  verbs_.fail["ibv_reg_dmabuf_mr"] = {.after = 0, .error = EOPNOTSUPP};
  ASSERT_TRUE(Open().Register(FakeGpu::AsPointer(memory), kChunk).ok());
  EXPECT_FALSE(verbs_.Registrations()[0].by_file);
  EXPECT_EQ(fcntl(cuda_.latest_dma_buf, F_GETFD), -1);
}

TEST_F(RdmaMemoryTest, WithNeitherTheErrorHasBothReasonsAndWhatToLoad) {
  const uint64_t memory = Chunks({1});
  verbs_.fail["ibv_reg_dmabuf_mr"] = {.after = 0, .error = EOPNOTSUPP};
  const absl::Status status = Open().Register(FakeGpu::AsPointer(memory), kChunk).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("fake0"), HasSubstr("0000:65:00.0"),
            HasSubstr("DMA-BUF: Operation not supported"), HasSubstr("peer device: Bad address"),
            HasSubstr("modprobe nvidia-peermem"), HasSubstr("Linux 5.12")));
  cuda_.dma_buf = 0;
  EXPECT_THAT(std::string(device_->Register(FakeGpu::AsPointer(memory), kChunk).status().message()),
              HasSubstr("offers no DMA-BUF"));
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaMemoryTest, ALibraryWithoutDmaBufIsAReason) {
  const uint64_t memory = Chunks({1});
  Open();
  Verbs old = device_->verbs();
  old.reg_dmabuf_mr = nullptr;
  RdmaMemory ranges(old, device_->protection_domain(), {.device = "fake0"});
  EXPECT_THAT(std::string(ranges.Register(FakeGpu::AsPointer(memory), 100).status().message()),
              HasSubstr("lacks ibv_reg_dmabuf_mr"));
  EXPECT_EQ(cuda_.calls["cuMemGetHandleForAddressRange"], 0);
}

// Field fault G5: a driver that exports each mapping by itself only.
TEST_F(RdmaMemoryTest, G5WhatIsNotTakenWholeIsTakenMappingByMapping) {
  const uint64_t memory = Chunks({0, 0, 0});
  cuda_.fail["cuMemGetHandleForAddressRange"] = cuda::kInvalidValue;
  RdmaDevice& device = Open();
  const auto parts = device.RegisterParts(FakeGpu::AsPointer(memory + 100), 2 * kChunk);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(LengthsOf(*parts), ElementsAre(kChunk - 100, kChunk, 100));
  for (const auto& each : verbs_.Registrations()) EXPECT_TRUE(each.by_file);
  for (const MemoryPart& part : *parts) EXPECT_TRUE(device.Deregister(part.key).ok());
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaMemoryTest, G5AMappingThatCannotBeTakenUndoesTheOthers) {
  const uint64_t memory = Chunks({0, 0, 0});
  cuda_.fail["cuMemGetHandleForAddressRange"] = cuda::kInvalidValue;
  verbs_.fail["ibv_reg_dmabuf_mr"] = {.after = 2, .error = ENOMEM};
  const absl::Status status = Open().RegisterParts(FakeGpu::AsPointer(memory), 3 * kChunk).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("65536 bytes"));
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaMemoryTest, GpuMemoryAboveTheLimitIsRegisteredInParts) {
  const uint64_t memory = Chunks({0, 0});
  verbs_.max_mr_size = 50'000;
  const auto parts = Open().RegisterParts(FakeGpu::AsPointer(memory), 100'000);
  ASSERT_TRUE(parts.ok()) << parts.status();
  EXPECT_THAT(LengthsOf(*parts), ElementsAre(49'152, 49'152, 1'696));
}

TEST_F(RdmaMemoryTest, G5MemoryWithAHoleIsRefusedWithTheReason) {
  const uint64_t memory = Chunks({0, -1, 0});
  const absl::Status status = Open().RegisterParts(FakeGpu::AsPointer(memory), 3 * kChunk).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("only the first 65536 are mapped"));
}

}  // namespace
}  // namespace railhop
