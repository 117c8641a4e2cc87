#include "transport/staging/cuda_staging.h"

#include <fmt/format.h>

#include <string>

#include "runtime/log.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<Arena>> CudaStaging::MakeArena() {
  return CudaArena::Create(device_);
}

absl::StatusOr<std::shared_ptr<ImportedArena>> CudaStaging::OpenArena(const ArenaHandle& handle,
                                                                      const ProcessIdentity&,
                                                                      uint64_t epoch) {
  return ImportedCudaArena::Open(device_, handle, epoch);
}

std::shared_ptr<void> CudaStaging::ShareDoorbells(void* block, size_t bytes) {
  auto memory = CudaHostMemory::Register(device_, block, bytes);
  if (memory.ok()) return *std::move(memory);
  LogOnce(LogLevel::kWarning, "doorbells",
          fmt::format("doorbells are rung by the processor: {}",
                      std::string(memory.status().message())));
  return nullptr;
}

absl::StatusOr<bool> CudaStaging::CanStage(const std::byte* address, size_t length,
                                           std::string_view location) {
  const CudaDriver& driver = device_->driver();
  CudaScope scope(*device_);
  const auto begin = reinterpret_cast<cuda::DevicePointer>(address);
  int type = 0;
  const bool of_gpu = driver.pointer_get_attribute(&type, cuda::PointerAttribute::kMemoryType,
                                                   begin) == cuda::kSuccess &&
                      type == cuda::kMemoryTypeDevice;
  if (!of_gpu) {
    if (!location.starts_with("cuda:")) return false;
    return absl::InvalidArgumentError(
        fmt::format("memory at {} is not a GPU's, although its location is given as \"{}\"",
                    static_cast<const void*>(address), location));
  }
  bool ours = true;
  for (cuda::DevicePointer at = begin; at - begin < length;) {
    cuda::DevicePointer start = 0;
    size_t size = 0;
    int ordinal = -1;
    const auto ask = [&](void* value, cuda::PointerAttribute attribute) {
      return driver.pointer_get_attribute(value, attribute, at) == cuda::kSuccess;
    };
    if (!ask(&start, cuda::PointerAttribute::kRangeStart) ||
        !ask(&size, cuda::PointerAttribute::kRangeSize) ||
        !ask(&ordinal, cuda::PointerAttribute::kDeviceOrdinal)) {
      return absl::InvalidArgumentError(
          fmt::format("of the {} bytes of GPU memory at {} only the first {} are mapped", length,
                      static_cast<const void*>(address), at - begin));
    }
    ours = ours && ordinal == device_->ordinal();
    at = start + size;
  }
  return ours;
}

}  // namespace railhop
