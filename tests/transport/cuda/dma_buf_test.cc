#include "transport/cuda/dma_buf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace railhop {
namespace {

using testing::HasSubstr;

class DmaBufTest : public testing::Test {
 protected:
  static constexpr size_t kChunk = 8192;

  void SetUp() override {
    fake_.Reset();
    device_ = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "0000:65:00.0");
    memory_ = fake_.MapChunks(kChunk, std::array{1, 1, -1});
  }
  void TearDown() override { EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0); }

  absl::StatusOr<DmaBuf> Export(uint64_t offset, size_t length) {
    return ExportDmaBuf(*device_,
                        reinterpret_cast<void*>(memory_ + offset),  // NOLINT
                        length);
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::shared_ptr<const CudaDevice> device_;
  uint64_t memory_ = 0;
};

// The driver takes whole pages only.
TEST_F(DmaBufTest, TheFileHasThePagesThatTheRangeTouches) {
  const auto buffer = Export(5000, 4000);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->offset, 5000u - 4096u);
  FakeDmaBuf content;
  ASSERT_EQ(pread(buffer->fd.get(), &content, sizeof(content), 0), ssize_t{sizeof(content)});
  EXPECT_EQ(content.address, memory_ + 4096);
  EXPECT_EQ(content.bytes, 8192u);
}

TEST_F(DmaBufTest, ARangeOfPagesIsTakenAsItIs) {
  const auto buffer = Export(4096, 4096);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_EQ(buffer->offset, 0u);
  FakeDmaBuf content;
  ASSERT_EQ(pread(buffer->fd.get(), &content, sizeof(content), 0), ssize_t{sizeof(content)});
  EXPECT_EQ(content.bytes, 4096u);
}

// The attribute comes first: a GPU without is not asked for a file.
TEST_F(DmaBufTest, AGpuOrADriverWithoutIsUnimplementedAndNotAsked) {
  fake_.dma_buf = 0;
  const absl::Status status = Export(0, 100).status();
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("0000:65:00.0"));
  EXPECT_EQ(fake_.calls["cuMemGetHandleForAddressRange"], 0);
  fake_.dma_buf = 1;
  fake_.missing["cuMemGetHandleForAddressRange"] = true;
  device_ = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "0000:65:00.0");
  EXPECT_TRUE(absl::IsUnimplemented(Export(0, 100).status()));
}

TEST_F(DmaBufTest, WhatTheDriverRefusesIsSaidInItsWords) {
  const absl::Status status = Export(kChunk, kChunk + 1).status();  // into the hole
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("CUDA_ERROR"));
}

}  // namespace
}  // namespace railhop
