#include "transport/cuda/driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/cuda/device.h"

namespace railhop {
namespace {

using testing::HasSubstr;

class CudaDriverTest : public testing::Test {
 protected:
  void SetUp() override { fake_.Reset(); }

  static absl::StatusOr<const CudaDriver*> Load() { return CudaDriver::Load(RAILHOP_FAKE_CUDA); }
  static absl::StatusOr<std::shared_ptr<const CudaDevice>> Open(const std::string& pci) {
    const auto driver = Load();
    if (!driver.ok()) return driver.status();
    return CudaDevice::Open(**driver, pci);
  }

  FakeCuda& fake_ = FakeCuda::Get();
};

TEST_F(CudaDriverTest, NoLibraryIsSaidByName) {
  const absl::Status status = CudaDriver::Load("libno-such-driver.so.1").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("libno-such-driver.so.1"));
}

TEST_F(CudaDriverTest, ALibraryThatIsNoDriver) {
  const absl::Status status = CudaDriver::Load("libm.so.6").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("cuGetProcAddress_v2"));
}

TEST_F(CudaDriverTest, ADriverThatIsTooOldOrLacksAFunction) {
  fake_.version = 11080;
  EXPECT_TRUE(absl::IsFailedPrecondition(Load().status())) << Load().status();
  EXPECT_THAT(Load().status().message(), HasSubstr("11.8"));
  fake_.Reset();
  fake_.missing["cuIpcOpenMemHandle"] = true;
  EXPECT_TRUE(absl::IsFailedPrecondition(Load().status())) << Load().status();
  EXPECT_THAT(Load().status().message(), HasSubstr("cuIpcOpenMemHandle"));
}

TEST_F(CudaDriverTest, ADriverThatCannotStart) {
  fake_.fail["cuInit"] = cuda::kNoDevice;
  const absl::Status status = Load().status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("100"));
}

TEST_F(CudaDriverTest, StatusesNameTheErrorAndItsKind) {
  const CudaDriver& driver = **Load();
  EXPECT_TRUE(driver.ToStatus(cuda::kSuccess, "x").ok());
  const absl::Status memory = driver.ToStatus(cuda::kOutOfMemory, "an arena");
  EXPECT_TRUE(absl::IsResourceExhausted(memory)) << memory;
  EXPECT_EQ(memory.message(), "an arena: CUDA_ERROR_OUT_OF_MEMORY (2, scripted)");
  EXPECT_TRUE(absl::IsInternal(driver.ToStatus(cuda::kIllegalAddress, "x")));
}

TEST_F(CudaDriverTest, DevicesAreFoundByAddress) {
  const auto device = Open("0000:65:00.0");
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_EQ((*device)->pci(), "0000:65:00.0");
  EXPECT_EQ((*device)->ordinal(), 1);
  EXPECT_TRUE((*device)->stream_write());
  EXPECT_EQ((*Open(""))->pci(), "0000:17:00.0");
}

TEST_F(CudaDriverTest, ADeviceThatIsNotThereIsSaidByAddress) {
  const absl::Status status = Open("0000:99:00.0").status();
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("0000:99:00.0"));
  fake_.fail["cuDeviceGet"] = cuda::kNoDevice;
  EXPECT_THAT(Open("").status().message(), HasSubstr("no GPU is visible"));
}

TEST_F(CudaDriverTest, AFailedDeviceQueryIsAnErrorThatNamesTheDevice) {
  fake_.fail["cuDeviceGetAttribute"] = cuda::kInvalidValue;
  absl::Status status = Open("0000:65:00.0").status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("0000:65:00.0"));
  fake_.fail["cuDevicePrimaryCtxRetain"] = cuda::kOutOfMemory;
  status = Open("0000:65:00.0").status();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

// A thread that had no current device has none afterwards.
TEST_F(CudaDriverTest, AScopeLeavesTheThreadAsItWas) {
  const auto device = *Open("");
  const CudaDriver& driver = device->driver();
  int mode = 0;
  driver.thread_exchange_stream_capture_mode(&mode);
  const int before = mode;
  driver.thread_exchange_stream_capture_mode(&mode);
  { const CudaScope scope(*device); }
  driver.thread_exchange_stream_capture_mode(&mode);
  EXPECT_EQ(mode, before);
  driver.thread_exchange_stream_capture_mode(&mode);
  cuda::Context current = nullptr;
  EXPECT_NE(driver.ctx_pop_current(&current), cuda::kSuccess);
}

}  // namespace
}  // namespace railhop
