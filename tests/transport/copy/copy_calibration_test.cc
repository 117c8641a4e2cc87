#include "transport/copy/copy_calibration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/copy/copy_cost_book.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// On the stand-in for the driver: what is measured is no time of a GPU, but what is copied is seen.
class CopyCalibratorTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    OpenDevice();
    slot_.resize(CopyCalibrator::kBytes + 1, std::byte{0xee});
  }

  void OpenDevice() {
    device_ = *CudaDevice::Open(**CudaDriver::Load(RAILHOP_FAKE_CUDA), "0000:65:00.0");
  }
  std::unique_ptr<CopyCalibrator> Make(
      const CudaCopyOptions& options = {},
      std::chrono::milliseconds deadline = std::chrono::seconds(60)) {
    auto calibrator = CopyCalibrator::Create(device_, options, deadline);
    EXPECT_TRUE(calibrator.ok()) << calibrator.status();
    return *std::move(calibrator);
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::shared_ptr<const CudaDevice> device_;
  std::vector<std::byte> slot_;
};

TEST_F(CopyCalibratorTest, TimesEachWayThereIsAndNothingElse) {
  const auto calibrator = Make();
  fake_.calls.clear();
  const auto costs = calibrator->Measure(slot_.data());
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_TRUE(costs->ways[0].available && costs->ways[1].available);
  EXPECT_GT(costs->ways[0].fixed, 0);
  EXPECT_GT(fake_.calls["cuMemcpyAsync"], 0);
  EXPECT_GT(fake_.calls["cuMemcpyBatchAsync"], 0);
  EXPECT_EQ(costs->ways[2].available, fake_.calls[kGatherListedKernel] != 0);
  EXPECT_EQ(slot_.back(), std::byte{0xee});
  // Nothing that would stop other streams of the device.
  for (const char* call : {"cuMemAlloc", "cuMemFree", "cuMemFreeHost", "cuStreamSynchronize"}) {
    EXPECT_EQ(fake_.calls[call], 0) << call;
  }
}

TEST_F(CopyCalibratorTest, WhoRingsBehindOthersIsMeasuredUnlessItIsGiven) {
  const auto calls_with = [this](const CudaCopyOptions& options) {
    const auto calibrator = Make(options);
    fake_.calls.clear();
    const auto costs = calibrator->Measure(slot_.data());
    EXPECT_TRUE(costs.ok()) << costs.status();
    for (const CopyWayCost& cost : costs->ways) {
      EXPECT_EQ(cost.available, cost.behind + cost.behind_per_span > 0);
    }
    EXPECT_FALSE(options.doorbell.has_value() && costs->cpu_rings_behind);
    return fake_.calls;
  };
  auto calls = calls_with({});
  EXPECT_GT(calls["cuStreamWriteValue64"], 0);
  EXPECT_GT(calls["cuEventRecord"], 0);
  calls = calls_with({.doorbell = CudaDoorbell::kStreamWrite});
  EXPECT_GT(calls["cuStreamWriteValue64"], 0);
  EXPECT_EQ(calls["cuEventRecord"], 0);
  calls = calls_with({.doorbell = CudaDoorbell::kCpu});
  EXPECT_EQ(calls["cuStreamWriteValue64"], 0);
  EXPECT_GT(calls["cuEventRecord"], 0);
}

// Whoever had the lane next would find these copies in it.
TEST_F(CopyCalibratorTest, CopiesThatDoNotEndAreToldApartAndWaitedForByTheNext) {
  const auto calibrator = Make({}, std::chrono::milliseconds(20));
  fake_.manual = true;
  EXPECT_TRUE(absl::IsAborted(calibrator->Measure(slot_.data()).status()));
  EXPECT_GT(fake_.Waiting(), 0u);
  const absl::Status next = calibrator->Measure(slot_.data()).status();
  EXPECT_TRUE(absl::IsUnavailable(next)) << next;
  EXPECT_THAT(std::string(next.message()), HasSubstr("has not finished a copy of before"));
  auto memory = std::make_shared<int>();
  calibrator->Keep(memory);
  EXPECT_EQ(memory.use_count(), 2);
  fake_.manual = false;
  fake_.Run(SIZE_MAX);
  // It gets to measuring, whatever becomes of that within such a deadline.
  EXPECT_FALSE(absl::IsUnavailable(calibrator->Measure(slot_.data()).status()));
}

TEST_F(CopyCalibratorTest, OthersOfARowThatFailedAreWaitedFor) {
  const auto calibrator = Make({}, std::chrono::seconds(20));
  fake_.fail["cuEventRecord"] =
      cuda::kInvalidValue;  // first called behind others, by the processor
  EXPECT_FALSE(calibrator->Measure(slot_.data()).ok());
  EXPECT_EQ(fake_.Waiting(), 0u);
}

TEST_F(CopyCalibratorTest, CanMeasureAgainAfterACopyThatFailed) {
  const auto calibrator = Make();
  fake_.fail["cuMemcpyAsync"] = cuda::kInvalidValue;
  EXPECT_FALSE(calibrator->Measure(slot_.data()).ok());
  EXPECT_TRUE(calibrator->Measure(slot_.data()).ok());
}

TEST_F(CopyCalibratorTest, AWayThatIsNotThereHasNoCosts) {
  fake_.missing["cuMemcpyBatchAsync"] = true;
  OpenDevice();
  const auto costs = Make()->Measure(slot_.data());
  ASSERT_TRUE(costs.ok()) << costs.status();
  EXPECT_FALSE(costs->ways[1].available);
  EXPECT_THAT(ToString(*costs), testing::Not(HasSubstr("batch")));
}

TEST_F(CopyCalibratorTest, AGpuThatCannotCopyThereIsAnErrorThatNamesIt) {
  const auto calibrator = Make();
  fake_.fail["cuMemcpyAsync"] = cuda::kInvalidValue;
  const absl::Status status = calibrator->Measure(slot_.data()).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(StartsWith("GPU 0000:65:00.0 cannot copy there: a command was refused"),
                    HasSubstr("CUDA_ERROR")));
}

TEST_F(CopyCalibratorTest, GivesAllItsMemoryBack) {
  Make();
  EXPECT_EQ(fake_.Allocated(), 0u);
}

TEST_F(CopyCalibratorTest, WithoutMemoryThereIsNone) {
  fake_.largest_allocation = CopyCalibrator::kBytes - 1;
  const absl::Status status = CopyCalibrator::Create(device_, {}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("no memory to measure copies with"));
  EXPECT_EQ(fake_.Allocated(), 0u);
}

TEST(CopyCostBookTest, FindsTheArenaThatAnAddressLiesIn) {
  CopyCostBook book;
  auto* const first = reinterpret_cast<std::byte*>(uint64_t{1} << 40);  // NOLINT
  std::byte* const second = first + 2 * kArenaBytes;
  EXPECT_FALSE(book.Find(first).has_value());
  book.Set(first, {.ways = {CopyWayCost{true, 1}}});
  book.Set(second, {.ways = {CopyWayCost{true, 2}}});
  const auto fixed = [&](const std::byte* address) {
    const auto costs = book.Find(address);
    return costs.has_value() ? costs->ways[0].fixed : 0;
  };
  EXPECT_EQ(fixed(first - 1), 0);
  EXPECT_EQ(fixed(first), 1);
  EXPECT_EQ(fixed(first + kArenaBytes - 1), 1);
  EXPECT_EQ(fixed(first + kArenaBytes), 0);
  EXPECT_EQ(fixed(second + SlotOffset(6, 17)), 2);
  book.Erase(first);
  EXPECT_EQ(fixed(first), 0);
  EXPECT_EQ(fixed(second), 2);
}

}  // namespace
}  // namespace railhop
