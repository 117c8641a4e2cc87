// ReadFlush by the CUDA driver: asks each GPU once whether it is in order by itself.
//
// Threads: as read_flush.h says. The thread that polls need not have a current device, and keeps
// the one it has.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

#include "transport/cuda/device.h"
#include "transport/fabric/read_flush.h"

namespace railhop {

class CudaReadFlush final : public ReadFlush {
 public:
  explicit CudaReadFlush(const CudaDriver& driver) : driver_(driver) {}

  absl::StatusOr<uint8_t> Of(const void* address, size_t length) override;
  // One call of the driver for each GPU. One that refuses, or cannot be flushed from the host at
  // all, costs one warning.
  uint64_t Flush(uint64_t gpus) override;

 private:
  struct Gpu {
    bool asked = false;
    bool in_order = false;
    // Of one that is not in order; set before its number is given out, and not changed then.
    std::shared_ptr<const CudaDevice> device;
    bool can_flush = false;
  };

  absl::Status Ask(cuda::Device ordinal, Gpu* gpu);
  void Warn(const Gpu& gpu, cuda::Result result);

  const CudaDriver& driver_;
  std::mutex mutex_;
  std::array<Gpu, kMostGpus> gpus_;
  std::atomic<bool> warned_{false};
};

}  // namespace railhop
