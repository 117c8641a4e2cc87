#include "transport/fabric/rdma/cuda_read_flush.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "tests/support/fake_verbs/fake_gpu.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class CudaReadFlushTest : public testing::Test {
 protected:
  ~CudaReadFlushTest() override { EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0); }

  uint8_t Of(int device) {
    const uint64_t memory = fake_.MapChunks(4096, std::array{device});
    const auto number = flush_.Of(FakeGpu::AsPointer(memory), 4096);
    EXPECT_TRUE(number.ok()) << number.status();
    return number.value_or(99);
  }

  FakeGpu gpu_;
  FakeCuda& fake_ = FakeCuda::Get();
  CudaReadFlush flush_{gpu_.driver()};
};

TEST_F(CudaReadFlushTest, HostMemoryNeedsNone) {
  fake_.rdma_ordering = 0;
  std::byte host[64];
  EXPECT_EQ(*flush_.Of(host, sizeof(host)), 0);
}

TEST_F(CudaReadFlushTest, AGpuThatIsInOrderForItselfOrForAllNeedsNone) {
  fake_.rdma_ordering = 100;
  EXPECT_EQ(Of(0), 0);
  fake_.rdma_ordering = 200;
  EXPECT_EQ(Of(1), 0);
}

TEST_F(CudaReadFlushTest, AnotherOneIsFlushedByItsOwnContext) {
  fake_.rdma_ordering = 0;
  EXPECT_EQ(Of(0), 1);
  EXPECT_EQ(Of(1), 2);
  EXPECT_EQ(flush_.Flush(2), 0u);
  EXPECT_THAT(fake_.flushed, ElementsAre(1));
  EXPECT_EQ(flush_.Flush(3), 0u);
  EXPECT_THAT(fake_.flushed, ElementsAre(1, 0, 1));
  // No thread keeps a device.
  cuda::Context current = nullptr;
  EXPECT_NE(gpu_.driver().ctx_pop_current(&current), cuda::kSuccess);
}

TEST_F(CudaReadFlushTest, AGpuIsAskedOnce) {
  fake_.rdma_ordering = 0;
  Of(0);
  const int asked = fake_.calls["cuDeviceGetAttribute"];
  EXPECT_EQ(Of(0), 1);
  EXPECT_EQ(fake_.calls["cuDeviceGetAttribute"], asked);
}

// Bytes that may not be seen must not pass for read.
TEST_F(CudaReadFlushTest, AGpuThatTheHostCannotFlushFails) {
  fake_.rdma_ordering = 0;
  fake_.rdma_flush = 2;  // by stream operations only
  EXPECT_EQ(Of(1), 2);
  EXPECT_EQ(flush_.Flush(2), 2u);
  EXPECT_THAT(fake_.flushed, IsEmpty());
}

TEST_F(CudaReadFlushTest, AFlushThatFailsSaysWhichGpu) {
  fake_.rdma_ordering = 0;
  Of(0);
  Of(1);
  fake_.fail["cuFlushGPUDirectRDMAWrites"] = cuda::kIllegalAddress;
  EXPECT_EQ(flush_.Flush(3), 1u);
  EXPECT_THAT(fake_.flushed, ElementsAre(1));
  EXPECT_EQ(flush_.Flush(3), 0u);
}

TEST_F(CudaReadFlushTest, MemoryThatIsNotMappedToItsEndIsRefused) {
  const uint64_t memory = fake_.MapChunks(4096, std::array{0, -1});
  EXPECT_TRUE(absl::IsInvalidArgument(flush_.Of(FakeGpu::AsPointer(memory), 2 * 4096).status()));
}

}  // namespace
}  // namespace railhop
