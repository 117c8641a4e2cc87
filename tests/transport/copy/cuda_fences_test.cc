#include "transport/copy/cuda_fences.h"

#include <gmock/gmock.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/log.h"
#include "tests/support/fake_cuda/fake_cuda.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using Kind = SourceFence::Kind;

class CudaFencesTest : public testing::Test {
 protected:
  void SetUp() override {
    fake_.Reset();
    auto driver = CudaDriver::Load(RAILHOP_FAKE_CUDA);
    ASSERT_TRUE(driver.ok()) << driver.status();
    driver_ = *driver;
    auto device = CudaDevice::Open(*driver_, "0000:65:00.0");
    ASSERT_TRUE(device.ok()) << device.status();
    device_ = *std::move(device);
    fences_ = std::make_unique<CudaFences>(device_, 4);
    const CudaScope scope(*device_);
    driver_->stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0);
    driver_->event_create(&event_, cuda::kEventDisableTiming);
    previous_ =
        SetLogSink([this](LogLevel, std::string_view message) { warnings_.emplace_back(message); });
  }
  void TearDown() override {
    SetLogSink(previous_);
    fences_ = nullptr;
    if (event_ != nullptr) {
      const CudaScope scope(*device_);
      driver_->event_destroy(event_);
    }
    EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0);
    EXPECT_EQ(fake_.captures_broken, 0);
  }

  // The application's work; it does not end before the stream is released.
  void Produce(cuda::Stream stream) {
    fake_.held.insert(stream);
    const CudaScope scope(*device_);
    ASSERT_EQ(driver_->event_record(event_, stream), cuda::kSuccess);
  }
  FenceTicket Record(uint32_t batch, Kind kind, void* handle = nullptr) {
    return fences_->Record(batch, {kind, handle});
  }

  FakeCuda& fake_ = FakeCuda::Get();
  const CudaDriver* driver_ = nullptr;
  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<CudaFences> fences_;
  cuda::Stream stream_ = nullptr;
  cuda::Event event_ = nullptr;
  std::vector<std::string> warnings_;
  LogSink previous_;
};

TEST_F(CudaFencesTest, ASourceSaidToBeReadyAsksNobody) {
  Produce(stream_);
  fake_.calls.clear();
  EXPECT_EQ(Record(0, Kind::kReady).state, FenceState::kDone);
  EXPECT_THAT(fake_.calls, IsEmpty());
}

TEST_F(CudaFencesTest, AnIdleStreamNeedsNoEvent) {
  EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kDone);
  EXPECT_EQ(Record(1, Kind::kThreadStream).state, FenceState::kDone);
  EXPECT_EQ(fake_.calls["cuEventRecord"], 0);
}

TEST_F(CudaFencesTest, C3WaitsForWhatIsOnTheStreamByNow) {
  Produce(stream_);
  EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kPending);
  EXPECT_EQ(fences_->Query(0), FenceState::kPending);
  fake_.Release(stream_);
  // What comes on the stream afterwards does not matter.
  Produce(stream_);
  EXPECT_EQ(fences_->Query(0), FenceState::kDone);
}

TEST_F(CudaFencesTest, TheDefaultIsTheStreamOfTheCallingThread) {
  const cuda::Stream own = cuda::ThreadStream();
  Produce(own);
  std::thread([&] { EXPECT_EQ(Record(1, Kind::kThreadStream).state, FenceState::kDone); }).join();
  EXPECT_EQ(Record(0, Kind::kThreadStream).state, FenceState::kPending);
  fake_.Release(own);
  EXPECT_EQ(fences_->Query(0), FenceState::kDone);
}

TEST_F(CudaFencesTest, ANullStreamIsTheDefaultOneOfTheProcess) {
  Produce(nullptr);
  EXPECT_EQ(Record(0, Kind::kStream).state, FenceState::kPending);
  EXPECT_EQ(Record(1, Kind::kThreadStream).state, FenceState::kDone);
  fake_.Release(nullptr);
  EXPECT_EQ(fences_->Query(0), FenceState::kDone);
}

TEST_F(CudaFencesTest, AnEventCanHaveBeenRecordedInAnotherThread) {
  std::thread([this] { Produce(stream_); }).join();
  EXPECT_EQ(Record(0, Kind::kEvent, event_).state, FenceState::kPending);
  EXPECT_EQ(fences_->Query(0), FenceState::kPending);
  fake_.Release(stream_);
  EXPECT_EQ(fences_->Query(0), FenceState::kDone);
  EXPECT_EQ(Record(1, Kind::kEvent, event_).state, FenceState::kDone);
}

TEST_F(CudaFencesTest, TicketsOfAStreamAreInTheOrderOfTheirEvents) {
  cuda::Stream other = nullptr;
  {
    const CudaScope scope(*device_);
    driver_->stream_create_with_priority(&other, cuda::kStreamNonBlocking, 0);
  }
  Produce(stream_);
  Produce(other);
  const FenceTicket first = Record(0, Kind::kStream, stream_);
  const FenceTicket second = Record(1, Kind::kStream, stream_);
  const FenceTicket third = Record(2, Kind::kStream, other);
  const FenceTicket alone = Record(3, Kind::kEvent, event_);
  EXPECT_EQ(first.stream, second.stream);
  EXPECT_NE(first.stream, third.stream);
  EXPECT_NE(first.stream, 0u);
  EXPECT_NE(third.stream, 0u);
  EXPECT_EQ(alone.stream, 0u);
  EXPECT_LT(first.end, second.begin);
  EXPECT_LT(first.begin, first.end);
  fake_.Release(stream_);
  fake_.Release(other);
}

TEST_F(CudaFencesTest, ABatchsEventIsUsedAgain) {
  for (int i = 0; i < 3; ++i) {
    Produce(stream_);
    EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kPending);
    fake_.Release(stream_);
    EXPECT_EQ(fences_->Query(0), FenceState::kDone);
  }
  EXPECT_EQ(fake_.calls["cuEventCreate"], 2) << "the test's own, and one";
  fences_ = nullptr;
  EXPECT_EQ(fake_.calls["cuEventDestroy"], 1);
}

// The capture must survive: see TearDown.
TEST_F(CudaFencesTest, AStreamThatIsBeingCapturedFailsAndIsLeftAlone) {
  fake_.capturing = {stream_};
  EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kFailed);
  EXPECT_EQ(Record(1, Kind::kStream, stream_).state, FenceState::kFailed);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("its stream is being captured"),
                                           HasSubstr("0000:65:00.0"))));
  fake_.capturing = {cuda::ThreadStream()};
  EXPECT_EQ(Record(0, Kind::kThreadStream).state, FenceState::kFailed);
}

TEST_F(CudaFencesTest, AnyErrorOfTheDriverFails) {
  for (const char* call : {"cuStreamIsCapturing", "cuStreamQuery", "cuStreamGetId", "cuEventCreate",
                           "cuEventRecord"}) {
    Produce(stream_);
    fake_.fail[call] = cuda::kIllegalAddress;
    EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kFailed) << call;
    fake_.Release(stream_);
  }
  Produce(stream_);
  fake_.fail["cuEventQuery"] = cuda::kIllegalAddress;
  EXPECT_EQ(Record(0, Kind::kEvent, event_).state, FenceState::kFailed);
  EXPECT_EQ(Record(0, Kind::kStream, stream_).state, FenceState::kPending);
  fake_.sticky = cuda::kIllegalAddress;
  EXPECT_EQ(fences_->Query(0), FenceState::kFailed);
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("its fence has failed"),
                                           HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS"))));
  fake_.sticky = 0;
  fake_.Release(stream_);
}

}  // namespace
}  // namespace railhop
