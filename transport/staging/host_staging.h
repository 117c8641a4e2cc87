// Staging in host memory: host_arena.h, and the copy engine's thread rings. Memory of a GPU is not
// taken, whatever it is registered as; the driver tells, if the process has loaded one.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "transport/staging/staging.h"

namespace railhop {

class HostStaging final : public Staging {
 public:
  // `why_no_gpu`: what is answered to whoever registers GPU memory.
  explicit HostStaging(
      std::string why_no_gpu = "this rank uses no GPU (with  staging: CUDA  in its config it does)")
      : why_no_gpu_(std::move(why_no_gpu)) {}

  absl::StatusOr<std::unique_ptr<Arena>> MakeArena() override;
  absl::StatusOr<std::shared_ptr<ImportedArena>> OpenArena(const ArenaHandle& handle,
                                                           const ProcessIdentity& owner,
                                                           uint64_t epoch) override;
  std::shared_ptr<void> ShareDoorbells(void*, size_t) override { return nullptr; }
  absl::StatusOr<bool> CanStage(const std::byte* address, size_t length,
                                std::string_view location) override;

 private:
  const std::string why_no_gpu_;
};

}  // namespace railhop
