#include "transport/staging/host_staging.h"

#include <fmt/format.h>

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

absl::StatusOr<bool> HostStaging::CanStage(const std::byte*, size_t, std::string_view location) {
  if (!location.starts_with("cuda:")) return true;
  return absl::UnimplementedError(
      fmt::format("memory of location \"{}\" cannot be registered: {}; copy it to host memory and "
                  "register that with \"cpu:N\"",
                  location, why_no_gpu_));
}

}  // namespace railhop
