#include "transport/staging/cuda_staging.h"

#include <fmt/format.h>

#include <string>

#include "runtime/log.h"
#include "transport/cuda/memory.h"
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
  const auto gpu = FindGpuOf(device_->driver(), address, length);
  if (!gpu.ok()) return gpu.status();
  if (!gpu->has_value() && location.starts_with("cuda:")) {
    return absl::InvalidArgumentError(
        fmt::format("memory at {} is not a GPU's, although its location is given as \"{}\"",
                    static_cast<const void*>(address), location));
  }
  return *gpu == device_->ordinal();
}

}  // namespace railhop
