// What tests of the TCP fabric share that have GPUs: memory of the stand-in for the driver, which
// the CPU cannot touch. Nothing may need a current device, nor end a graph's capture.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/cuda/device.h"
#include "transport/fabric/tcp/tcp_bounce.h"

namespace railhop {

class GpuMemory {
 protected:
  GpuMemory() {
    fake_.Reset();
    fake_.hidden = true;
    driver_ = *CudaDriver::Get();
  }
  ~GpuMemory() { EXPECT_EQ(fake_.calls_outside_relaxed_mode, 0); }

  // Of a rank whose own GPU is the first.
  std::shared_ptr<TcpBounces> MakeBounces() const {
    return std::make_shared<TcpBounces>(*CudaDevice::Open(*driver_, ""));
  }
  uint64_t Allocate(int device, size_t bytes) const {
    const auto opened = CudaDevice::Open(*driver_, device == 0 ? "0000:17:00.0" : "0000:65:00.0");
    const CudaScope scope(**opened);
    cuda::DevicePointer memory = 0;
    EXPECT_EQ(driver_->mem_alloc(&memory, bytes), cuda::kSuccess);
    return memory;
  }
  static std::byte* AsPointer(uint64_t address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

  FakeCuda& fake_ = FakeCuda::Get();
  const CudaDriver* driver_ = nullptr;
};

}  // namespace railhop
