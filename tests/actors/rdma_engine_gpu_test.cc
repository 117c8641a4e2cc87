// Whole Transfer Engines over RDMA with memory of GPUs, and with memory above a device's limit, on
// the stand-ins for libibverbs and for the CUDA driver.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/fake_verbs/fake_gpu.h"
#include "tests/support/wait_until.h"
#include "transport/engine/handshake_client.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;

constexpr size_t kChunk = 128 * 1024;
constexpr size_t kBytes = 4 * kChunk;
constexpr milliseconds kPatience = std::chrono::duration_cast<milliseconds>(kTestPatience);
constexpr const char* kHere = "staging: CUDA nics { name: 'fake0' rdma {} }";
constexpr const char* kThere = "staging: CUDA nics { name: 'fake1' rdma {} }";

class RdmaEngineGpuTest : public testing::Test {
 protected:
  void Start() {
    target_ = Make(kThere);
    engine_ = Make(kHere);
    ASSERT_TRUE(target_ != nullptr && engine_ != nullptr);
    peer_ = engine_->OpenSegment(target_->name());
    ASSERT_NE(peer_, kNoSegment) << TransferEngine::last_error();
  }
  void TearDown() override {
    engine_ = nullptr;
    target_ = nullptr;
    EXPECT_TRUE(verbs_.Registrations().empty());
    EXPECT_EQ(verbs_.objects, 0);
    EXPECT_EQ(verbs_.inline_room, 0u);
    EXPECT_EQ(verbs_.posted_inline, 0);
    EXPECT_EQ(cuda_.calls_outside_relaxed_mode, 0);
  }

  static std::unique_ptr<TransferEngine> Make(const std::string& config) {
    std::string error;
    auto engine = MakeTransferEngine(
        {.host = "127.0.0.1", .protocol = "rdma", .config_text = config}, &error);
    EXPECT_NE(engine, nullptr) << error;
    return engine;
  }
  static std::vector<std::byte> Filled(int seed, size_t bytes = kBytes) {
    std::vector<std::byte> filled(bytes);
    for (size_t i = 0; i < bytes; ++i) filled[i] = static_cast<std::byte>(i * seed + i / 256);
    return filled;
  }
  uint64_t Chunks(int device) {
    return cuda_.MapChunks(kChunk, std::array{device, device, device, device});
  }
  static void Register(TransferEngine& engine, uint64_t address, std::string_view location = "*") {
    ASSERT_EQ(engine.RegisterMemory(FakeGpu::AsPointer(address), kBytes, location),
              EngineError::kOk)
        << TransferEngine::last_error();
  }
  static std::vector<SegmentBuffer> Published(const TransferEngine& engine) {
    const auto fetched =
        HandshakeClient({}).FetchDescriptor(ParseHostPort(engine.name()).value(), "{}");
    EXPECT_TRUE(fetched.ok()) << fetched.status();
    return fetched.ok() ? fetched->buffers : std::vector<SegmentBuffer>();
  }
  TransferState Move(Opcode opcode, uint64_t here, uint64_t there, uint64_t bytes = kBytes) {
    const TransferTask task{opcode, FakeGpu::AsPointer(here), peer_, there, bytes};
    const BatchHandle batch = engine_->AllocateBatch(1);
    EXPECT_EQ(engine_->Submit(batch, {&task, 1}), EngineError::kOk) << TransferEngine::last_error();
    EXPECT_TRUE(engine_->Wait(batch, kPatience));
    TransferStatus status;
    EXPECT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
    EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
    return status.state;
  }
  static uint64_t AddressOf(std::vector<std::byte>& memory) {
    return reinterpret_cast<uint64_t>(memory.data());
  }

  FakeGpu gpu_;
  FakeCuda& cuda_ = FakeCuda::Get();
  FakeVerbs& verbs_ = FakeVerbs::Get();
  std::unique_ptr<TransferEngine> target_, engine_;
  SegmentHandle peer_ = kNoSegment;
};

// Each end a segment of several mappings (field fault G5), on a GPU of its own (G2).
TEST_F(RdmaEngineGpuTest, G5BytesOfExpandableSegmentsMoveBothWaysWithoutTheCpu) {
  Start();
  const uint64_t here = Chunks(0), there = Chunks(1);
  Register(*engine_, here);
  Register(*target_, there);
  for (const auto& each : verbs_.Registrations()) EXPECT_TRUE(each.by_file);
  cuda_.Write(here, Filled(3));
  EXPECT_EQ(Move(Opcode::kWrite, here, there), TransferState::kCompleted);
  EXPECT_EQ(cuda_.Read(there, kBytes), Filled(3));
  cuda_.Write(there, Filled(5));
  EXPECT_EQ(Move(Opcode::kRead, here, there), TransferState::kCompleted);
  EXPECT_EQ(cuda_.Read(here, kBytes), Filled(5));
  EXPECT_EQ(engine_->UnregisterMemory(FakeGpu::AsPointer(here)), EngineError::kOk);
  EXPECT_EQ(target_->UnregisterMemory(FakeGpu::AsPointer(there)), EngineError::kOk);
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaEngineGpuTest, ItsLocationIsPublishedAsGivenOrAsTheDriverKnowsIt) {
  Start();
  Register(*engine_, Chunks(0), "cuda:3");
  Register(*engine_, Chunks(1));
  Register(*engine_, Chunks(1), "");
  std::vector<std::byte> host(kBytes);
  Register(*engine_, AddressOf(host));
  EXPECT_THAT(
      Published(*engine_),
      ElementsAre(Field(&SegmentBuffer::name, "cuda:3"), Field(&SegmentBuffer::name, "cuda:1"),
                  Field(&SegmentBuffer::name, "cuda:1"), Field(&SegmentBuffer::name, "*")));
}

TEST_F(RdmaEngineGpuTest, AReadIntoAGpuThatIsNotInOrderIsFlushed) {
  cuda_.rdma_ordering = 0;
  Start();
  const uint64_t here = Chunks(1), there = Chunks(0);
  std::vector<std::byte> host(kBytes);
  Register(*engine_, here);
  Register(*engine_, AddressOf(host));
  Register(*target_, there);
  EXPECT_EQ(Move(Opcode::kWrite, here, there), TransferState::kCompleted);
  EXPECT_EQ(Move(Opcode::kRead, AddressOf(host), there), TransferState::kCompleted);
  EXPECT_THAT(cuda_.flushed, testing::IsEmpty());
  EXPECT_EQ(Move(Opcode::kRead, here, there), TransferState::kCompleted);
  EXPECT_THAT(cuda_.flushed, testing::Contains(1));
  EXPECT_THAT(cuda_.flushed, testing::Each(1));
}

TEST_F(RdmaEngineGpuTest, AReadIntoAGpuThatIsInOrderIsNot) {
  Start();
  const uint64_t here = Chunks(1), there = Chunks(0);
  Register(*engine_, here);
  Register(*target_, there);
  EXPECT_EQ(Move(Opcode::kRead, here, there), TransferState::kCompleted);
  EXPECT_THAT(cuda_.flushed, testing::IsEmpty());
}

TEST_F(RdmaEngineGpuTest, AReadThatCannotBeFlushedFails) {
  cuda_.rdma_ordering = cuda_.rdma_flush = 0;
  Start();
  const uint64_t here = Chunks(1), there = Chunks(0);
  Register(*engine_, here);
  Register(*target_, there);
  EXPECT_EQ(Move(Opcode::kWrite, here, there), TransferState::kCompleted);
  EXPECT_EQ(Move(Opcode::kRead, here, there), TransferState::kFailed);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("GPU"));
}

TEST_F(RdmaEngineGpuTest, GpuMemoryThatNoDeviceTakesIsRefusedWithBothReasons) {
  cuda_.dma_buf = 0;
  Start();
  EXPECT_EQ(engine_->RegisterMemory(FakeGpu::AsPointer(Chunks(1)), kBytes, "cuda:1"),
            EngineError::kContext);
  EXPECT_THAT(TransferEngine::last_error(),
              AllOf(HasSubstr("fake0"), HasSubstr("0000:65:00.0"), HasSubstr("nvidia-peermem")));
}

// --- Memory above the limit (field fault T1)

TEST_F(RdmaEngineGpuTest, T1MemoryInPartsAtBothEndsMovesOverTheirBorders) {
  setenv("MC_MAX_MR_SIZE", "100000", 1);
  Start();
  unsetenv("MC_MAX_MR_SIZE");
  std::vector<std::byte> here = Filled(3), there(kBytes);
  Register(*engine_, AddressOf(here));
  Register(*target_, AddressOf(there), "cpu:0");
  const std::vector<SegmentBuffer> buffers = Published(*target_);
  ASSERT_EQ(buffers.size(), 6u);
  uint64_t at = AddressOf(there);
  for (const SegmentBuffer& buffer : buffers) {
    EXPECT_EQ(buffer.address, at);
    EXPECT_EQ(buffer.name, "cpu:0");
    at += buffer.length;
  }
  EXPECT_EQ(at, AddressOf(there) + kBytes);
  EXPECT_EQ(Move(Opcode::kWrite, AddressOf(here), AddressOf(there)), TransferState::kCompleted);
  EXPECT_EQ(there, Filled(3));
  const std::vector<std::byte> expected = Filled(7, kBytes - 1000);
  std::copy(expected.begin(), expected.end(), there.begin());
  // Not in step: each request has borders of both ends in it.
  EXPECT_EQ(Move(Opcode::kRead, AddressOf(here) + 1000, AddressOf(there), kBytes - 1000),
            TransferState::kCompleted);
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), here.begin() + 1000));
  EXPECT_EQ(target_->UnregisterMemory(there.data()), EngineError::kOk);
  EXPECT_TRUE(Published(*target_).empty());
  EXPECT_EQ(engine_->UnregisterMemory(here.data()), EngineError::kOk);
  EXPECT_TRUE(verbs_.Registrations().empty());
}

TEST_F(RdmaEngineGpuTest, AFailureHalfWayLeavesNothingRegisteredOrPublished) {
  verbs_.max_mr_size = 100'000;
  Start();
  std::vector<std::byte> memory(kBytes);
  verbs_.fail["ibv_reg_mr_iova2"] = {.after = 3, .error = ENOSPC};
  EXPECT_NE(target_->RegisterMemory(memory.data(), kBytes, "*"), EngineError::kOk);
  EXPECT_TRUE(verbs_.Registrations().empty());
  EXPECT_TRUE(Published(*target_).empty());
  EXPECT_EQ(target_->RegisterMemory(memory.data(), kBytes, "*"), EngineError::kOk);
}

}  // namespace
}  // namespace railhop
