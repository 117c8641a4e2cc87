#include "transport/fabric/sim/cuda_mover.h"

#include <fmt/format.h>

#include <bit>
#include <utility>

namespace railhop {

CudaMover::CudaMover(std::shared_ptr<const CudaDevice> device)
    : device_(std::move(device)), driver_(device_->driver()) {}

absl::StatusOr<std::unique_ptr<CudaMover>> CudaMover::Create(
    std::shared_ptr<const CudaDevice> device) {
  std::unique_ptr<CudaMover> mover(new CudaMover(std::move(device)));
  CudaScope scope(*mover->device_);
  absl::Status status = mover->driver_.ToStatus(
      mover->driver_.stream_create_with_priority(&mover->stream_, cuda::kStreamNonBlocking, 0),
      fmt::format("no stream on GPU {}", mover->device_->pci()));
  if (!status.ok()) return status;
  return mover;
}

CudaMover::~CudaMover() {
  CudaScope scope(*device_);
  if (stream_ != nullptr) driver_.stream_destroy(stream_);
}

absl::StatusOr<std::byte*> CudaMover::Import(const DeviceHandle& handle) {
  CudaScope scope(*device_);
  cuda::DevicePointer memory = 0;
  absl::Status status = driver_.ToStatus(
      driver_.ipc_open_mem_handle(&memory, std::bit_cast<cuda::IpcMemHandle>(handle),
                                  cuda::kIpcLazyEnablePeerAccess),
      fmt::format("the target's memory cannot be mapped for GPU {}", device_->pci()));
  if (!status.ok()) return status;
  return reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
}

void CudaMover::Close(std::byte* memory) {
  CudaScope scope(*device_);
  driver_.ipc_close_mem_handle(reinterpret_cast<uintptr_t>(memory));
}

bool CudaMover::Copy(void* destination, const void* source, size_t length) {
  device_->Enter();
  return driver_.memcpy_async(reinterpret_cast<uintptr_t>(destination),
                              reinterpret_cast<uintptr_t>(source), length,
                              stream_) == cuda::kSuccess &&
         driver_.stream_synchronize(stream_) == cuda::kSuccess;
}

}  // namespace railhop
