// Memory of the stand-in for the CUDA driver, as the stand-in for libibverbs reaches it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/fake_cuda/fake_cuda.h"
#include "tests/support/fake_verbs/fake_verbs.h"
#include "transport/cuda/memory.h"

namespace railhop {

// Both stand-ins are reset, memory made afterwards is hidden from the CPU, and the driver is
// loaded.
class FakeGpu final : public FakeVerbs::Gpu {
 public:
  FakeGpu() {
    cuda_.Reset();
    cuda_.hidden = true;
    driver_ = *CudaDriver::Get();
    FakeVerbs::Get().Reset();
    FakeVerbs::Get().gpu = this;
  }
  ~FakeGpu() { FakeVerbs::Get().gpu = nullptr; }
  FakeGpu(const FakeGpu&) = delete;
  FakeGpu& operator=(const FakeGpu&) = delete;

  bool Owns(uint64_t address) override {
    const auto found = FindGpuOf(*driver_, AsPointer(address), 1);
    return found.ok() && found->has_value();
  }
  std::vector<std::byte> Read(uint64_t address, size_t bytes) override {
    return cuda_.Read(address, bytes);
  }
  void Write(uint64_t address, const std::vector<std::byte>& bytes) override {
    cuda_.Write(address, bytes);
  }

  const CudaDriver& driver() const { return *driver_; }
  static std::byte* AsPointer(uint64_t address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  FakeCuda& cuda_ = FakeCuda::Get();
  const CudaDriver* driver_ = nullptr;
};

}  // namespace railhop
