#include "transport/copy/cuda_copy_engine.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"

namespace railhop {
namespace {

constexpr uint32_t kDepth = 4;

// The engine on the stand-in for the driver, whose commands are carried out one by one.
class CudaCopyEngineTest : public testing::Test {
 protected:
  void SetUp() override { fake_.Reset(); }
  void TearDown() override { EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0); }

  void Make(CudaCopyOptions options = {}) {
    auto driver = CudaDriver::Load(RAILHOP_FAKE_CUDA);
    ASSERT_TRUE(driver.ok()) << driver.status();
    auto device = CudaDevice::Open(**driver, "0000:65:00.0");
    ASSERT_TRUE(device.ok()) << device.status();
    options.streams = 2;
    options.queue_depth = kDepth;
    auto engine = CudaCopyEngine::Create(*device, options);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
    auto memory = CudaHostMemory::Register(*device, words_, sizeof(words_));
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *std::move(memory);
    fake_.manual = true;
    fake_.calls.clear();
  }

  void Issue(uint64_t sequence, std::vector<CopySpan> spans, uint32_t stream = 0) {
    spans_.push_back(std::move(spans));
    ASSERT_TRUE(engine_->Issue({.stream = stream,
                                .spans = spans_.back(),
                                .destination = slot_,
                                .doorbell = &words_[stream],
                                .sequence = sequence,
                                .user_data = sequence}));
  }
  // "3 ok, 4 failed" of what has ended.
  std::string Reap() {
    engine_->Progress(0);
    CopyDone done[8];
    std::string text;
    const size_t count = engine_->Reap(done);
    for (size_t i = 0; i < count; ++i) {
      text += (i == 0 ? "" : ", ") + std::to_string(done[i].user_data) +
              (done[i].status == CopyStatus::kOk ? " ok" : " failed");
    }
    return text;
  }

  FakeCuda& fake_ = FakeCuda::Get();
  alignas(64) uint64_t words_[8] = {};
  const char source_[8] = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h'};
  char slot_[16] = {};
  std::vector<std::vector<CopySpan>> spans_;
  std::unique_ptr<CudaCopyEngine> engine_;
  std::unique_ptr<CudaHostMemory> memory_;
};

TEST_F(CudaCopyEngineTest, APieceIsOverWhenItsDoorbellShows) {
  Make();
  EXPECT_EQ(engine_->doorbell(), CudaDoorbell::kStreamWrite);
  Issue(1, {{source_, 3}, {source_ + 5, 2}});
  EXPECT_EQ(engine_->PendingBytes(), 5u);
  EXPECT_EQ(fake_.Run(2), 2u);  // the copies
  EXPECT_EQ(Reap(), "");
  EXPECT_EQ(words_[0], 0u);
  EXPECT_EQ(fake_.Run(9), 1u);
  EXPECT_EQ(words_[0], 1u);
  EXPECT_STREQ(slot_, "abcfg");
  EXPECT_EQ(Reap(), "1 ok");
  EXPECT_EQ(engine_->PendingBytes(), 0u);
  EXPECT_EQ(fake_.calls["cuEventRecord"], 0);
  EXPECT_EQ(fake_.calls["cuStreamQuery"], 0);
}

// Calls of the driver are what bounds small pieces: none is made that a piece does not need.
TEST_F(CudaCopyEngineTest, APieceTakesTheFewestCallsOfTheDriver) {
  using Calls = std::map<std::string, int>;
  const auto calls_of = [this](CopyWay way, size_t spans) {
    Make({.way = way});
    Issue(1, std::vector<CopySpan>(spans, {source_, 1}));
    fake_.Run(spans + 2);
    EXPECT_EQ(Reap(), "1 ok");
    Calls calls = std::exchange(fake_.calls, {});
    calls.erase("cuMemHostGetDevicePointer");  // once per mapping of a lane
    engine_.reset();
    memory_.reset();
    words_[0] = 0;
    return calls;
  };
  EXPECT_EQ(calls_of(CopyWay::kAsync, 1),
            (Calls{{"cuMemcpyAsync", 1}, {"cuStreamWriteValue64", 1}}));
  EXPECT_EQ(calls_of(CopyWay::kBatch, 8),
            (Calls{{"cuMemcpyBatchAsync", 1}, {"cuStreamWriteValue64", 1}}));
  EXPECT_EQ(calls_of(CopyWay::kGather, 8), (Calls{{"cuLaunchKernel", 1}, {kGatherFewKernel, 1}}));
  EXPECT_EQ(calls_of(CopyWay::kGather, 9),
            (Calls{{"cuLaunchKernel", 1}, {kGatherInlineKernel, 1}}));
}

// Nanoseconds: batches win from two spans on where `batch` is cheap.
CopyCosts CostsWithBatch(double batch) {
  return {.ways = {CopyWayCost{true, 0, 1000}, CopyWayCost{true, batch, 0}, CopyWayCost{}}};
}

TEST_F(CudaCopyEngineTest, TheWayIsChosenByTheCostsOfTheArenaThatALaneLiesIn) {
  auto book = std::make_shared<CopyCostBook>();
  auto* const arena = reinterpret_cast<std::byte*>(slot_);
  Make({.book = book});
  const auto batches = [this](uint64_t sequence) {
    fake_.calls.clear();
    Issue(sequence, {{source_, 1}, {source_ + 2, 1}});
    fake_.Run(9);
    EXPECT_EQ(Reap(), std::to_string(sequence) + " ok");
    return fake_.calls["cuMemcpyBatchAsync"];
  };
  EXPECT_EQ(batches(1), 0);  // nothing is known
  book->Set(arena, CostsWithBatch(100));
  EXPECT_EQ(batches(2), 0);  // nor looked for again
  engine_->Reset(0);
  EXPECT_EQ(batches(3), 1);
  book->Set(arena, CostsWithBatch(3000));
  EXPECT_EQ(batches(4), 1);
  engine_->Reset(0);
  EXPECT_EQ(batches(5), 0);
  engine_->Force(CopyWay::kBatch);
  EXPECT_EQ(batches(6), 1);
}

TEST_F(CudaCopyEngineTest, GivenCostsComeBeforeMeasuredOnes) {
  auto book = std::make_shared<CopyCostBook>();
  book->Set(reinterpret_cast<std::byte*>(slot_), CostsWithBatch(3000));
  Make({.costs = CostsWithBatch(100), .book = book});
  Issue(1, {{source_, 1}, {source_ + 2, 1}});
  EXPECT_EQ(fake_.calls["cuMemcpyBatchAsync"], 1);
}

TEST_F(CudaCopyEngineTest, BehindOthersTheWayIsTheOneThatIsCheapestThere) {
  Make({.costs = CopyCosts{.ways = {CopyWayCost{true, 100, 0, 900, 0},
                                    CopyWayCost{true, 900, 0, 100}, CopyWayCost{}}}});
  Issue(1, {{source_, 1}, {source_ + 2, 1}});
  EXPECT_EQ(fake_.calls["cuMemcpyBatchAsync"], 0);
  Issue(2, {{source_, 1}, {source_ + 2, 1}});
  EXPECT_EQ(fake_.calls["cuMemcpyBatchAsync"], 1);
  fake_.Run(9);
  EXPECT_EQ(Reap(), "1 ok, 2 ok");
  Issue(3, {{source_, 1}, {source_ + 2, 1}});
  EXPECT_EQ(fake_.calls["cuMemcpyBatchAsync"], 1);
}

// A driver before 12.8 has no batches.
TEST_F(CudaCopyEngineTest, CostsOfAWayThatIsNotThereDoNotCount) {
  fake_.missing["cuMemcpyBatchAsync"] = true;
  Make({.costs = CostsWithBatch(100)});
  Issue(1, {{source_, 1}, {source_ + 2, 1}});
  EXPECT_EQ(fake_.calls["cuMemcpyAsync"], 2);
}

// Where pieces follow each other sooner so: the stream stands still for the device's write.
constexpr CopyCosts kCpuRings = {
    .ways = {CopyWayCost{.available = true}, CopyWayCost{}, CopyWayCost{.available = true}},
    .cpu_rings_behind = true};

TEST_F(CudaCopyEngineTest, BehindOthersTheCpuRingsUntilAllHaveEnded) {
  Make({.way = CopyWay::kAsync, .costs = kCpuRings});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Issue(sequence, {{source_, 2}});
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 1);
  EXPECT_EQ(fake_.calls["cuEventRecord"], 2);
  EXPECT_TRUE(engine_->DeviceRings(0));
  fake_.Run(2);  // the first, and its doorbell
  EXPECT_EQ(words_[0], 1u);
  EXPECT_EQ(Reap(), "1 ok");
  fake_.Run(2);
  EXPECT_EQ(words_[0], 1u);
  EXPECT_EQ(Reap(), "2 ok");
  EXPECT_EQ(words_[0], 2u);
  Issue(4, {{source_, 2}});  // the third is still there
  fake_.Run(9);
  EXPECT_EQ(Reap(), "3 ok, 4 ok");
  EXPECT_EQ(words_[0], 4u);
  Issue(5, {{source_, 2}});
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 2);
  fake_.Run(9);
  EXPECT_EQ(Reap(), "5 ok");
}

// The CPU rings only over what the device has rung: a doorbell never goes back.
TEST_F(CudaCopyEngineTest, TheCpuWaitsForTheDevicesDoorbell) {
  Make({.way = CopyWay::kAsync, .costs = kCpuRings});
  Issue(1, {{source_, 2}});
  Issue(2, {{source_, 2}});
  fake_.Run(9);
  words_[0] = 0;  // as if the device's write had not been seen yet
  EXPECT_EQ(Reap(), "");
  EXPECT_EQ(words_[0], 0u);
  words_[0] = 1;
  EXPECT_EQ(Reap(), "1 ok, 2 ok");
  EXPECT_EQ(words_[0], 2u);
}

TEST_F(CudaCopyEngineTest, AGatherRingsBehindOthersButNotBehindWhatTheCpuHasToRing) {
  if (GatherImage() == nullptr) GTEST_SKIP() << "built without nvcc";
  Make({.way = CopyWay::kGather, .costs = kCpuRings});
  for (uint64_t sequence = 1; sequence <= 2; ++sequence) Issue(sequence, {{source_, 2}});
  EXPECT_EQ(fake_.calls["cuEventRecord"], 0);
  engine_->Force(CopyWay::kAsync);
  Issue(3, {{source_, 2}});
  EXPECT_EQ(fake_.calls["cuEventRecord"], 1);
  engine_->Force(CopyWay::kGather);
  Issue(4, {{source_ + 4, 2}});
  EXPECT_EQ(fake_.calls["cuEventRecord"], 2);
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 0);
  fake_.Run(5);  // two kernels that ring, a copy, its event, a kernel that does not
  EXPECT_EQ(words_[0], 2u);
  EXPECT_EQ(Reap(), "1 ok, 2 ok, 3 ok");
  EXPECT_EQ(words_[0], 3u);
  fake_.Run(9);
  EXPECT_EQ(Reap(), "4 ok");
  EXPECT_EQ(words_[0], 4u);
  EXPECT_STREQ(slot_, "ef");
}

TEST_F(CudaCopyEngineTest, BehindOthersTheDeviceRingsUnlessTheCostsSayOtherwise) {
  Make({.way = CopyWay::kAsync});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Issue(sequence, {{source_, 2}});
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 3);
  EXPECT_EQ(fake_.calls["cuEventRecord"], 0);
  fake_.Run(9);
  EXPECT_EQ(Reap(), "1 ok, 2 ok, 3 ok");
}

TEST_F(CudaCopyEngineTest, TheCpuRingsOverTheFinishedPrefix) {
  Make({.doorbell = CudaDoorbell::kCpu});
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) Issue(sequence, {{source_, 2}});
  fake_.Run(3);  // copy, event, copy
  EXPECT_EQ(words_[0], 0u);
  EXPECT_EQ(Reap(), "1 ok");
  EXPECT_EQ(words_[0], 1u);
  fake_.Run(9);
  EXPECT_EQ(Reap(), "2 ok, 3 ok");
  EXPECT_EQ(words_[0], 3u);
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 0);
}

// Field fault G1.
TEST_F(CudaCopyEngineTest, G1Attribute122DecidesNever92) {
  fake_.stream_write = 0;
  fake_.stream_write_v1 = 1;
  Make({.way = CopyWay::kAsync});
  EXPECT_NE(engine_->doorbell(), CudaDoorbell::kStreamWrite);
  Issue(1, {{source_, 2}});
  fake_.Run(9);
  EXPECT_EQ(Reap(), "1 ok");
  EXPECT_EQ(words_[0], 1u);
  EXPECT_EQ(fake_.calls["cuStreamWriteValue64"], 0);
}

TEST_F(CudaCopyEngineTest, WithoutKernelsAndStreamWritesTheCpuRings) {
  fake_.stream_write = 0;
  fake_.fail["cuModuleLoadData"] = 200;
  Make({.way = CopyWay::kGather});
  EXPECT_EQ(engine_->doorbell(), CudaDoorbell::kCpu);
  Issue(1, {{source_, 2}, {source_ + 4, 2}});
  fake_.Run(9);
  EXPECT_EQ(Reap(), "1 ok");
  EXPECT_STREQ(slot_, "abef");
  EXPECT_EQ(fake_.calls["cuMemcpyAsync"], 2);
}

TEST_F(CudaCopyEngineTest, ADriverWithoutBatchesCopiesOneByOne) {
  fake_.missing["cuMemcpyBatchAsync"] = true;
  Make({.way = CopyWay::kBatch});
  Issue(1, {{source_, 2}, {source_ + 4, 2}});
  fake_.Run(9);
  EXPECT_EQ(Reap(), "1 ok");
  EXPECT_STREQ(slot_, "abef");
}

TEST_F(CudaCopyEngineTest, BothSignaturesOfTheBatchCopy) {
  for (const int version : {12080, 13000}) {
    fake_.Reset();
    fake_.version = version;
    words_[0] = 0;
    Make({.way = CopyWay::kBatch});
    Issue(1, {{source_ + 1, 2}, {source_ + 1, 0}, {source_ + 6, 2}});
    fake_.Run(9);
    EXPECT_EQ(Reap(), "1 ok");
    EXPECT_STREQ(slot_, "bcgh");
    EXPECT_EQ(fake_.calls["cuMemcpyBatchAsync"], 1) << version;
    engine_.reset();
    memory_.reset();
  }
}

// A later doorbell would announce the failed piece too.
TEST_F(CudaCopyEngineTest, ARefusedCommandEndsItsPieceAndAllLaterOnesOfTheLane) {
  Make({.way = CopyWay::kAsync});
  Issue(1, {{source_, 2}});
  fake_.fail["cuMemcpyAsync"] = cuda::kInvalidValue;
  Issue(2, {{source_, 2}});
  Issue(3, {{source_, 2}});
  Issue(1, {{source_, 2}}, 1);
  EXPECT_EQ(Reap(), "");  // what was issued before still reads its source
  fake_.Run(99);
  EXPECT_EQ(Reap(), "1 ok, 2 failed, 3 failed, 1 ok");
  EXPECT_EQ(words_[0], 1u);
  engine_->Reset(0);
  words_[0] = 0;
  Issue(2, {{source_, 2}});
  fake_.Run(99);
  EXPECT_EQ(Reap(), "2 ok");
}

// Field fault G9.
TEST_F(CudaCopyEngineTest, G9AStickyErrorFailsEverythingAndAbortsNothing) {
  Make({.doorbell = CudaDoorbell::kCpu});
  Issue(1, {{source_, 2}});
  Issue(1, {{source_, 2}}, 1);
  fake_.sticky = cuda::kIllegalAddress;
  EXPECT_EQ(Reap(), "1 failed, 1 failed");
  Issue(2, {{source_, 2}});
  EXPECT_EQ(Reap(), "2 failed");
  EXPECT_EQ(words_[0], 0u);
  EXPECT_NE(engine_->error().find("ILLEGAL_ADDRESS"), std::string::npos);
  fake_.sticky = 0;  // for the destructor
}

// A doorbell that never shows, though the stream is done.
TEST_F(CudaCopyEngineTest, AStolenDoorbellDoesNotHang) {
  Make();
  Issue(1, {{source_, 2}});
  fake_.Run(9);
  words_[0] = 0;
  std::string reaped;
  while (reaped.empty()) reaped = Reap();
  EXPECT_EQ(reaped, "1 failed");
}

TEST_F(CudaCopyEngineTest, StreamsHaveThePriorityAskedFor) {
  Make({.priority = -99});
  ASSERT_EQ(fake_.stream_priority.size(), 2u);
  for (const auto& [stream, priority] : fake_.stream_priority) EXPECT_EQ(priority, -5);
}

}  // namespace
}  // namespace railhop
