// Moves the bytes of a simulated NIC by a GPU.
#pragma once

#include <memory>

#include "transport/cuda/device.h"
#include "transport/fabric/sim/sim_mover.h"

namespace railhop {

class CudaMover final : public SimMover {
 public:
  static absl::StatusOr<std::unique_ptr<CudaMover>> Create(
      std::shared_ptr<const CudaDevice> device);
  ~CudaMover() override;

  absl::StatusOr<std::byte*> Import(const DeviceHandle& handle) override;
  void Close(std::byte* memory) override;
  bool Copy(void* destination, const void* source, size_t length) override;

 private:
  explicit CudaMover(std::shared_ptr<const CudaDevice> device);

  const std::shared_ptr<const CudaDevice> device_;
  const CudaDriver& driver_;
  cuda::Stream stream_ = nullptr;
};

}  // namespace railhop
