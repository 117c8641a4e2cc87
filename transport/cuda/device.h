// One GPU as this process uses it: its primary context, which the host's own CUDA code shares.
//
// Threads call CUDA in one of two ways, and both first switch to relaxed capture mode, so that a
// graph which another thread of the process captures survives what we do:
//   - Enter() once and for all: threads of our own (reactors);
//   - a CudaScope around a few calls: threads that belong to the application. It leaves the thread
//     as it found it, whether that had a current device or none.
// Immutable after Open; any thread. Whatever lives on the device holds a shared_ptr of it.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/cuda/driver.h"

namespace railhop {

class CudaDevice {
 public:
  // `pci`: "0000:17:00.0", found whatever order CUDA_VISIBLE_DEVICES gives the devices; empty: the
  // first visible device.
  static absl::StatusOr<std::shared_ptr<const CudaDevice>> Open(const CudaDriver& driver,
                                                                const std::string& pci);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaDriver& driver() const { return driver_; }
  cuda::Device ordinal() const { return device_; }
  cuda::Context context() const { return context_; }
  const std::string& pci() const { return pci_; }
  // Streams can write 64 bits to memory, in order with their copies.
  bool stream_write() const { return stream_write_; }

  // Makes the device current in a thread of our own; costs nothing the second time.
  void Enter() const;

 private:
  explicit CudaDevice(const CudaDriver& driver) : driver_(driver) {}

  const CudaDriver& driver_;
  cuda::Device device_ = 0;
  cuda::Context context_ = nullptr;
  std::string pci_;
  bool stream_write_ = false;
};

class CudaScope {
 public:
  explicit CudaScope(const CudaDevice& device);
  ~CudaScope();
  CudaScope(const CudaScope&) = delete;
  CudaScope& operator=(const CudaScope&) = delete;

 private:
  const CudaDriver& driver_;
  int capture_mode_ = cuda::kCaptureModeRelaxed;  // of the thread, before
};

// Host memory that the device may write to, such as the block with a relay's doorbells.
class CudaHostMemory {
 public:
  // The range stays mapped until this is destroyed, and no stream writes to it then any more.
  static absl::StatusOr<std::unique_ptr<CudaHostMemory>> Register(
      std::shared_ptr<const CudaDevice> device, void* address, size_t length);
  ~CudaHostMemory();
  CudaHostMemory(const CudaHostMemory&) = delete;
  CudaHostMemory& operator=(const CudaHostMemory&) = delete;

 private:
  CudaHostMemory(std::shared_ptr<const CudaDevice> device, void* address)
      : device_(std::move(device)), address_(address) {}

  const std::shared_ptr<const CudaDevice> device_;
  void* const address_;
};

}  // namespace railhop
