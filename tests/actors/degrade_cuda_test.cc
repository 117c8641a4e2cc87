// The degrade table, the rows about GPUs, on the stand-in for the driver: docs/degrade.md.
#include <gmock/gmock.h>

#include "actors/route_planner.h"
#include "tests/actors/cuda_rank_support.h"
#include "transport/cuda/driver_abi.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = SourceFence::Kind;

using DegradeCudaTest = CudaRankTest;

TEST_F(DegradeCudaTest, DeviceQueryFails) {
  fake_.fail["cuDeviceGetAttribute"] = cuda::kInvalidValue;
  ExpectDirectWithOneWarning(OnGpu(), AllOf(HasSubstr("0000:65:00.0"), HasSubstr("what it can")));
}

TEST_F(DegradeCudaTest, NoSuchGpu) {
  ExpectDirectWithOneWarning(Relaying(0, kFast, "staging: CUDA gpu: \"0000:99:00.0\""),
                             HasSubstr("0000:99:00.0"));
  std::string error;
  std::byte byte{};
  const auto rank = Make(Config(2, kFast, "staging: CUDA gpu: \"0000:99:00.0\""));
  EXPECT_FALSE(rank->RegisterMemory(&byte, 1, "cuda:0", &error));
  EXPECT_THAT(error, HasSubstr("0000:99:00.0"));
}

TEST_F(DegradeCudaTest, NoMemoryForTheArenaOnTheGpu) {
  // The engine's own memory comes before, and does not matter to this.
  fake_.largest_allocation = 512 << 20;
  ExpectDirectWithOneWarning(OnGpu(),
                             AllOf(HasSubstr("1056964608 bytes"), HasSubstr("0000:65:00.0")));
}

// --- rows that send a batch of a rank directly whose other batches are relayed

struct DirectRow {
  const char* name;
  DirectReason reason;
  std::string target = "beside";
  const char* nic = "sim1";  // that the target prefers
  Opcode opcode = Opcode::kWrite;
  bool from_gpu = true;
  size_t bytes = 1 << 20;
};
void PrintTo(const DirectRow& row, std::ostream* out) {
  *out << row.name;
}

class DirectRowTest : public DegradeCudaTest, public testing::WithParamInterface<DirectRow> {
 protected:
  uint64_t Fallbacks(DirectReason reason) const {
    for (const auto& [name, count] : rank_->Stats().fallbacks) {
      if (name == DirectReasonName(reason)) return count;
    }
    return 0;
  }
};

TEST_P(DirectRowTest, GoesDirectAndIsNoNews) {
  const DirectRow& row = GetParam();
  const std::unique_ptr<Child> relay = StartRelay();
  MakeSender(Config(0, kFast,
                    "pxn { enable: true group_id: \"test\" preattach: true min_relay_bytes: 4097 } "
                    "staging: CUDA gpu: \"0000:65:00.0\""));
  ASSERT_TRUE(rank_->WaitForRelay("sim1", kForever));
  // What is unlike this write makes the difference.
  ASSERT_EQ(Finish(Submit({})).relayed_bytes, kBytes);

  const Target target = MakeTarget(row.target, kBytes, row.nic);
  const std::vector<std::byte> sent = Pattern(kBytes, 3);
  std::vector<std::byte> on_host(kBytes);
  Register(*rank_, on_host);
  std::byte* const ours = row.from_gpu ? source_ : on_host.data();
  const bool reads = row.opcode == Opcode::kRead;
  std::byte* const from = reads ? target.memory.data() : ours;
  const std::byte* const to = reads ? ours : target.memory.data();
  std::copy(sent.begin(), sent.end(), from);
  const BatchStatus status =
      Run(*rank_, {{row.opcode, ours, Open(*rank_, row.target),
                    reinterpret_cast<uint64_t>(target.memory.data()), row.bytes}});

  EXPECT_EQ(status.state, BatchState::kCompleted) << TransferErrorName(status.error);
  EXPECT_EQ(status.bytes, row.bytes);
  EXPECT_EQ(status.relayed_bytes, 0U);
  EXPECT_TRUE(std::equal(to, to + row.bytes, sent.begin()));
  EXPECT_EQ(rank_->Stats().bytes_direct, row.bytes);
  EXPECT_EQ(rank_->Stats().bytes_relayed, kBytes) << "what went before";
  EXPECT_GT(Fallbacks(row.reason), 0U);
  EXPECT_THAT(warnings_, IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    EachRow, DirectRowTest,
    testing::Values(
        DirectRow{.name = "NotAWrite", .reason = DirectReason::kNotWrite, .opcode = Opcode::kRead},
        DirectRow{.name = "SourceThatCannotBeStaged",
                  .reason = DirectReason::kNotStaging,
                  .from_gpu = false},
        DirectRow{.name = "RailOfThisRank", .reason = DirectReason::kOwnRail, .nic = "sim0"},
        DirectRow{.name = "NameThatDoesNotFit",
                  .reason = DirectReason::kSessionName,
                  .target = std::string("a\0b", 3)},
        DirectRow{.name = "SmallBatch", .reason = DirectReason::kSmallBatch, .bytes = 4096}),
    [](const auto& tested) { return std::string(tested.param.name); });

TEST_F(DegradeCudaTest, AGpuThatCanEverythingIsNoNews) {
  const auto rank = Make(OnGpu());
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ(rank->pxn_off_reason(), "");
  EXPECT_THAT(warnings_, IsEmpty());
}

// Old bytes are in the source until the producer is let go on: whoever read it before would send
// those.
TEST_F(DegradeCudaTest, C3TheBytesOfTheFinishedProducerAreSent) {
  for (const bool relayed : {false, true}) {
    const std::unique_ptr<Child> relay = relayed ? StartRelay() : nullptr;
    MakeSender(OnGpu());
    if (relayed) {
      ASSERT_TRUE(rank_->WaitForRelay("sim1", kForever));
    }
    const std::vector<std::byte> produced = Pattern(kBytes, 2);
    fake_.held.insert(stream_);
    {
      const CudaScope scope(*device_);
      ASSERT_EQ(device_->driver().memcpy_async(
                    reinterpret_cast<cuda::DevicePointer>(source_),
                    reinterpret_cast<cuda::DevicePointer>(produced.data()), kBytes, stream_),
                cuda::kSuccess);
    }
    const BatchId batch = Submit({Kind::kStream, stream_});
    // Another batch goes all its way meanwhile.
    EXPECT_EQ(Finish(Submit({Kind::kReady})).state, BatchState::kCompleted);
    EXPECT_TRUE(Arrived(content_));
    EXPECT_EQ(rank_->Status(batch).state, BatchState::kPending);
    fake_.Release(stream_);
    const BatchStatus status = Finish(batch);
    EXPECT_EQ(status.state, BatchState::kCompleted);
    EXPECT_EQ(status.relayed_bytes, relayed ? kBytes : 0);
    EXPECT_TRUE(Arrived(produced));
    TearDownSender();
  }
}

TEST_F(DegradeCudaTest, AFenceThatFailsFailsTheBatch) {
  MakeSender(OnGpu());
  fake_.held.insert(stream_);
  const CudaScope scope(*device_);
  ASSERT_EQ(device_->driver().stream_write_value64(
                stream_, reinterpret_cast<cuda::DevicePointer>(source_), 1, 0),
            cuda::kSuccess);
  fake_.fail["cuEventQuery"] = cuda::kIllegalAddress;
  const BatchStatus status = Finish(Submit({Kind::kStream, stream_}));
  EXPECT_EQ(status.state, BatchState::kFailed);
  EXPECT_EQ(status.error, TransferError::kFence);
  EXPECT_EQ(status.bytes, 0U);
  EXPECT_TRUE(Arrived(std::vector<std::byte>(kBytes)));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("its fence has failed"),
                                           HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"))));
  fake_.Release(stream_);
}

TEST_F(DegradeCudaTest, AStreamThatIsBeingCapturedFailsTheBatch) {
  MakeSender(OnGpu());
  fake_.capturing = {stream_};
  for (int i = 0; i < 2; ++i) {
    const BatchStatus status = Finish(Submit({Kind::kStream, stream_}));
    EXPECT_EQ(status.state, BatchState::kFailed);
    EXPECT_EQ(status.error, TransferError::kFence);
  }
  EXPECT_TRUE(Arrived(std::vector<std::byte>(kBytes)));
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("its stream is being captured")));
  EXPECT_EQ(fake_.captures_broken, 0);
}

TEST_F(DegradeCudaTest, AFenceWithoutAGpuFailsTheBatch) {
  const Target target = MakeTarget("host", 4096, "sim1");
  std::vector<std::byte> memory = Pattern(4096, 1);
  const auto rank = Make(Config(2, kFast));
  Register(*rank, memory);
  const TransferRequest request{Opcode::kWrite, memory.data(), Open(*rank, "host"),
                                reinterpret_cast<uint64_t>(target.memory.data()), memory.size()};
  for (const Kind kind : {Kind::kStream, Kind::kEvent, Kind::kThreadStream, Kind::kReady}) {
    const bool fails = kind == Kind::kStream || kind == Kind::kEvent;
    BatchId batch;
    ASSERT_EQ(rank->SubmitWith({&request, 1}, {.fence = {kind, this}}, &batch), SubmitResult::kOk);
    EXPECT_TRUE(rank->Wait(batch, kForever));
    EXPECT_EQ(rank->Status(batch).error, fails ? TransferError::kFence : TransferError::kNone);
  }
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("the rank uses no GPU")));
}

TEST_F(DegradeCudaTest, WithoutDoorbellsOfTheGpuTheProcessorRings) {
  const std::unique_ptr<Child> relay = StartRelay();
  fake_.fail["cuMemHostRegister"] = cuda::kNotSupported;
  MakeSender(OnGpu());
  ASSERT_TRUE(rank_->WaitForRelay("sim1", kForever));
  fake_.calls["cuStreamWriteValue64"] = 0;
  const BatchStatus status = Finish(Submit({}));
  EXPECT_EQ(status.state, BatchState::kCompleted);
  EXPECT_EQ(status.relayed_bytes, kBytes);
  EXPECT_TRUE(Arrived(content_));
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 0);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("doorbells are rung by the processor")));
}

}  // namespace
}  // namespace railhop
