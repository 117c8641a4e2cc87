#include "transport/staging/host_staging.h"

#include <fmt/format.h>

#include "transport/cuda/memory.h"
#include "transport/staging/host_arena.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<Arena>> HostStaging::MakeArena() {
  return HostArena::Create();
}

absl::StatusOr<std::shared_ptr<ImportedArena>> HostStaging::OpenArena(const ArenaHandle& handle,
                                                                      const ProcessIdentity& owner,
                                                                      uint64_t) {
  return ImportedHostArena::Open(handle, owner);
}

absl::StatusOr<bool> HostStaging::CanStage(const std::byte* address, size_t length,
                                           std::string_view location) {
  bool of_gpu = location.starts_with("cuda:");
  const CudaDriver* const driver = of_gpu ? nullptr : CudaDriver::GetIfLoaded();
  if (driver != nullptr) {
    const auto gpu = FindGpuOf(*driver, address, length);
    of_gpu = !gpu.ok() || gpu->has_value();
  }
  if (!of_gpu) return true;
  return absl::UnimplementedError(fmt::format(
      "memory of a GPU, {} bytes at {} with location \"{}\", cannot be registered: {}; copy it to "
      "host memory and register that with \"cpu:N\"",
      length, static_cast<const void*>(address), location, why_no_gpu_));
}

}  // namespace railhop
