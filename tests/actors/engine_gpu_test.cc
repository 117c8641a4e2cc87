// Whole Transfer Engines over TCP with memory of GPUs, on the stand-in for the driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/wait_until.h"
#include "transport/cuda/device.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr size_t kBytes = 1 << 20;
constexpr milliseconds kPatience = std::chrono::duration_cast<milliseconds>(kTestPatience);
constexpr const char* kUsesGpu = "staging: CUDA";

std::unique_ptr<TransferEngine> MakeEngine(const std::string& config) {
  std::string error;
  auto engine = MakeTransferEngine({.host = "127.0.0.1", .config_text = config}, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

class EngineGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    fake_.hidden = true;
    device_ = *CudaDevice::Open(**CudaDriver::Get(), "");
    target_ = MakeEngine(kUsesGpu);
    engine_ = MakeEngine(kUsesGpu);
    there_ = fake_.MapChunks(kBytes / 4, std::array{1, 1, 1, 1});
    here_ = fake_.MapChunks(kBytes / 4, std::array{0, 0, 0, 0});
    ASSERT_EQ(target_->RegisterMemory(AsPointer(there_), kBytes, "*"), EngineError::kOk)
        << TransferEngine::last_error();
    // What an application numbers is its own affair.
    ASSERT_EQ(engine_->RegisterMemory(AsPointer(here_), kBytes, "cuda:3"), EngineError::kOk)
        << TransferEngine::last_error();
    peer_ = engine_->OpenSegment(target_->name());
    ASSERT_NE(peer_, kNoSegment);
  }
  void TearDown() override {
    engine_ = nullptr;
    target_ = nullptr;
    EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0);
    EXPECT_EQ(fake_.stream_priority.size(), 0u);
  }

  static std::byte* AsPointer(uint64_t address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  static std::vector<std::byte> Filled(int seed, size_t bytes = kBytes) {
    std::vector<std::byte> filled(bytes);
    for (size_t i = 0; i < bytes; ++i) filled[i] = static_cast<std::byte>(i * seed + i / 256);
    return filled;
  }
  BatchHandle Submit(Opcode opcode, void* source, const SourceFence& fence = {}) {
    const TransferTask task{opcode, source, peer_, there_, kBytes};
    const BatchHandle batch = engine_->AllocateBatch(1);
    EXPECT_EQ(engine_->Submit(batch, {&task, 1}, milliseconds(0), fence), EngineError::kOk)
        << TransferEngine::last_error();
    return batch;
  }
  TransferState Finish(BatchHandle batch) {
    EXPECT_TRUE(engine_->Wait(batch, kPatience));
    TransferStatus status;
    EXPECT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
    EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
    return status.state;
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<TransferEngine> target_, engine_;
  uint64_t there_ = 0, here_ = 0;
  SegmentHandle peer_ = kNoSegment;
};

// Each end a segment of several mappings (field fault G5), on a GPU of its own (G2).
TEST_F(EngineGpuTest, G5BytesOfExpandableSegmentsMoveBothWays) {
  fake_.Write(here_, Filled(3));
  EXPECT_EQ(Finish(Submit(Opcode::kWrite, AsPointer(here_))), TransferState::kCompleted);
  EXPECT_EQ(fake_.Read(there_, kBytes), Filled(3));
  fake_.Write(there_, Filled(5));
  EXPECT_EQ(Finish(Submit(Opcode::kRead, AsPointer(here_))), TransferState::kCompleted);
  EXPECT_EQ(fake_.Read(here_, kBytes), Filled(5));
}

// What the producer has not written yet is not read.
TEST_F(EngineGpuTest, C3TheSourceIsCopiedAfterItsFence) {
  const CudaScope scope(*device_);
  const CudaDriver& driver = device_->driver();
  cuda::Stream stream = nullptr;
  ASSERT_EQ(driver.stream_create_with_priority(&stream, cuda::kStreamNonBlocking, 0),
            cuda::kSuccess);
  const std::vector<std::byte> produced = Filled(7);
  {
    const auto lock = fake_.Lock();
    fake_.held.insert(stream);
  }
  ASSERT_EQ(driver.memcpy_async(here_, reinterpret_cast<uint64_t>(produced.data()), kBytes, stream),
            cuda::kSuccess);
  const BatchHandle batch =
      Submit(Opcode::kWrite, AsPointer(here_), {SourceFence::Kind::kStream, stream});
  // Another batch goes all its way meanwhile.
  EXPECT_EQ(Finish(Submit(Opcode::kRead, AsPointer(here_), {SourceFence::Kind::kReady})),
            TransferState::kCompleted);
  fake_.Release(stream);
  EXPECT_EQ(Finish(batch), TransferState::kCompleted);
  EXPECT_EQ(fake_.Read(there_, kBytes), produced);
  driver.stream_destroy(stream);
}

// Field fault G9.
TEST_F(EngineGpuTest, G9ALostGpuFailsItsBatchesAndTheEngineGoesOn) {
  std::vector<std::byte> host = Filled(9), target_host(kBytes);
  ASSERT_EQ(engine_->RegisterMemory(host.data(), kBytes, "*"), EngineError::kOk);
  ASSERT_EQ(target_->RegisterMemory(target_host.data(), kBytes, "*"), EngineError::kOk);
  const SourceFence ready{SourceFence::Kind::kReady};
  {
    const auto lock = fake_.Lock();
    fake_.sticky = cuda::kIllegalAddress;
  }
  // At once, and not once for each try that a broken connection gets.
  EXPECT_EQ(Finish(Submit(Opcode::kWrite, AsPointer(here_), ready)), TransferState::kFailed);
  EXPECT_EQ(fake_.calls["cuMemcpyAsync"], 1);
  EXPECT_EQ(Finish(Submit(Opcode::kWrite, host.data(), ready)), TransferState::kFailed);
  there_ = reinterpret_cast<uint64_t>(target_host.data());
  EXPECT_EQ(Finish(Submit(Opcode::kWrite, host.data(), ready)), TransferState::kCompleted);
  EXPECT_EQ(target_host, host);
}

TEST_F(EngineGpuTest, G5WhatIsMappedInPartIsRefusedWithTheAddress) {
  const uint64_t chunks = fake_.MapChunks(4096, std::array{0, -1, 0});
  EXPECT_NE(engine_->RegisterMemory(AsPointer(chunks), 3 * 4096, "*"), EngineError::kOk);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("only the first 4096 are mapped"));
  EXPECT_EQ(engine_->RegisterMemory(AsPointer(chunks), 4096, "*"), EngineError::kOk);
}

// Which it would else take for its own, and end the process.
TEST_F(EngineGpuTest, AnEngineThatUsesNoGpuRefusesItsMemoryWhateverItIsCalled) {
  const auto plain = MakeEngine("");
  for (const char* location : {"*", "cpu:0", "cuda:0"}) {
    EXPECT_NE(plain->RegisterMemory(AsPointer(here_), kBytes, location), EngineError::kOk);
    EXPECT_THAT(TransferEngine::last_error(),
                AllOf(HasSubstr("memory of a GPU"), HasSubstr("staging: CUDA")));
  }
  std::vector<std::byte> host(4096);
  EXPECT_EQ(plain->RegisterMemory(host.data(), host.size(), "*"), EngineError::kOk);
}

}  // namespace
}  // namespace railhop
