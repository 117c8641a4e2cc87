// Bounce buffers by themselves, over the stand-in for the driver.
#include "transport/fabric/tcp/tcp_bounce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/transport/fabric/tcp/gpu_memory.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

using testing::HasSubstr;
using Copy = TcpBounceBuffer::Copy;

constexpr size_t kBytes = 1 << 20;

class TcpBounceTest : public GpuMemory, public testing::Test {
 protected:
  TcpBounce& Bounce(int device) {
    const auto found = bounces_->Find(AsPointer(Allocate(device, kBytes)), kBytes);
    EXPECT_TRUE(found.ok()) << found.status();
    return **found;
  }

  std::shared_ptr<TcpBounces> bounces_ = MakeBounces();
};

TEST_F(TcpBounceTest, BytesComeAndGoWhenTheGpuGetsToThem) {
  const std::vector<std::byte> bytes = Pattern(1000, 1);
  const uint64_t memory = Allocate(1, kBytes);
  fake_.Write(memory + 5, bytes);
  TcpBounceBuffer buffer;
  ASSERT_TRUE(buffer.Take(&Bounce(1)));
  fake_.manual = true;
  ASSERT_TRUE(buffer.Load(memory + 5, bytes.size()));
  EXPECT_TRUE(buffer.loading());
  EXPECT_EQ(buffer.Ask(), Copy::kPending);
  EXPECT_TRUE(buffer.Loaded(memory + 5).empty());
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(buffer.Ask(), Copy::kDone);
  EXPECT_FALSE(buffer.copying());
  EXPECT_THAT(buffer.Loaded(memory + 5), testing::ElementsAreArray(bytes));
  EXPECT_THAT(buffer.Loaded(memory + 5 + 999), testing::ElementsAre(bytes.back()));
  EXPECT_TRUE(buffer.Loaded(memory + 5 + 1000).empty());
  EXPECT_TRUE(buffer.Loaded(memory + 4).empty());

  ASSERT_TRUE(buffer.Store(memory + 500'000, 1000));
  EXPECT_FALSE(buffer.loading());
  EXPECT_EQ(buffer.Ask(), Copy::kPending);
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(buffer.Ask(), Copy::kDone);
  EXPECT_EQ(fake_.Read(memory + 500'000, 1000), bytes);
  EXPECT_TRUE(buffer.Loaded(memory + 500'000).empty());
}

TEST_F(TcpBounceTest, ThereAreSoManyBuffersAndNoMore) {
  TcpBounce& bounce = Bounce(0);
  std::array<TcpBounceBuffer, TcpBounce::kBuffers> all;
  for (TcpBounceBuffer& buffer : all) {
    ASSERT_TRUE(buffer.Take(&bounce));
    std::memset(buffer.room().data(), 1, buffer.room().size());  // and they are apart:
    for (const TcpBounceBuffer& other : all) {
      EXPECT_TRUE(&other == &buffer || !other.held() ||
                  std::abs(other.room().data() - buffer.room().data()) >=
                      static_cast<ptrdiff_t>(TcpBounce::kBufferBytes));
    }
  }
  TcpBounceBuffer late;
  EXPECT_FALSE(late.Take(&bounce));
  EXPECT_FALSE(late.held());
  all[3].GiveBack();
  all[3].GiveBack();
  EXPECT_TRUE(late.Take(&bounce));
  EXPECT_FALSE(all[3].Take(&bounce));
  EXPECT_TRUE(all[4].Take(&bounce));  // its own
}

TEST_F(TcpBounceTest, ARefusedOrFailedCopyIsToldAndNothingIsUnderWay) {
  const uint64_t memory = Allocate(0, kBytes);
  TcpBounceBuffer buffer;
  ASSERT_TRUE(buffer.Take(&Bounce(0)));
  fake_.manual = true;
  fake_.fail["cuMemcpyAsync"] = cuda::kIllegalAddress;
  EXPECT_FALSE(buffer.Load(memory, 100));
  EXPECT_FALSE(buffer.copying());
  // A copy whose end could not be told has ended.
  fake_.fail["cuEventRecord"] = cuda::kOutOfMemory;
  EXPECT_FALSE(buffer.Store(memory, 100));
  EXPECT_FALSE(buffer.copying());
  EXPECT_EQ(fake_.Waiting(), 0u);
  ASSERT_TRUE(buffer.Load(memory, 100));
  fake_.fail["cuEventQuery"] = cuda::kIllegalAddress;
  EXPECT_EQ(buffer.Ask(), Copy::kFailed);
  EXPECT_FALSE(buffer.copying());
  EXPECT_TRUE(buffer.Loaded(memory).empty());
}

TEST_F(TcpBounceTest, TheEndOfABufferWaitsForItsCopy) {
  const uint64_t memory = Allocate(0, kBytes);
  TcpBounce& bounce = Bounce(0);
  fake_.manual = true;
  {
    TcpBounceBuffer buffer;
    ASSERT_TRUE(buffer.Take(&bounce));
    ASSERT_TRUE(buffer.Load(memory, 100));
  }
  EXPECT_EQ(fake_.Waiting(), 0u);
  std::array<TcpBounceBuffer, TcpBounce::kBuffers> all;
  for (TcpBounceBuffer& buffer : all) EXPECT_TRUE(buffer.Take(&bounce));
}

TEST_F(TcpBounceTest, HostMemoryNeedsNone) {
  std::byte host[16] = {};
  EXPECT_EQ(*bounces_->Find(host, sizeof(host)), nullptr);
  EXPECT_EQ(fake_.calls["cuMemHostAlloc"], 0);
}

// Field fault G2: whichever GPU is the rank's own.
TEST_F(TcpBounceTest, G2EachGpuHasItsOwnMadeOnce) {
  TcpBounce& first = Bounce(0);
  TcpBounce& second = Bounce(1);
  EXPECT_EQ(first.device(), 0);
  EXPECT_EQ(second.device(), 1);
  EXPECT_EQ(&Bounce(1), &second);
  EXPECT_EQ(bounces_->Of(1), &second);
  EXPECT_EQ(fake_.calls["cuMemHostAlloc"], 2);
  EXPECT_EQ(fake_.stream_priority.size(), 2u);
  bounces_.reset();
  EXPECT_EQ(fake_.calls["cuMemFreeHost"], 2);
  EXPECT_EQ(fake_.stream_priority.size(), 0u);
}

TEST_F(TcpBounceTest, WhatCannotBeHadIsSaidAndTriedAgainTheNextTime) {
  const uint64_t memory = Allocate(1, kBytes);
  for (const char* call : {"cuMemHostAlloc", "cuStreamCreateWithPriority", "cuEventCreate"}) {
    fake_.fail[call] = cuda::kOutOfMemory;
    const absl::Status status = bounces_->Find(AsPointer(memory), kBytes).status();
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_THAT(status.message(), HasSubstr("GPU 0000:65:00.0 cannot be moved over TCP")) << call;
  }
  EXPECT_EQ(fake_.stream_priority.size(), 0u);
  EXPECT_TRUE(bounces_->Find(AsPointer(memory), kBytes).ok());
  // Field fault G5: what is not mapped.
  EXPECT_TRUE(absl::IsInvalidArgument(
      bounces_->Find(AsPointer(fake_.MapChunks(4096, std::array{0, -1})), 8192).status()));
}

}  // namespace
}  // namespace railhop
