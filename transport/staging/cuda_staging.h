// Staging in the memory of one GPU, the rank's own: cuda_arena.h, and the GPU rings. The first lane
// of a peer that is reserved is measured: what copies into it cost, by each way.
#pragma once

#include <memory>
#include <utility>

#include "transport/copy/copy_calibration.h"
#include "transport/copy/copy_cost_book.h"
#include "transport/cuda/device.h"
#include "transport/staging/staging.h"

namespace railhop {

class CudaStaging final : public Staging {
 public:
  // Measures copies with `calibrator` and writes into `book`, whose costs are those of arenas that
  // OpenArena gave and that live. No calibrator: nothing is measured.
  explicit CudaStaging(std::shared_ptr<const CudaDevice> device,
                       std::shared_ptr<CopyCalibrator> calibrator = nullptr,
                       std::shared_ptr<CopyCostBook> book = nullptr)
      : device_(std::move(device)), calibrator_(std::move(calibrator)), book_(std::move(book)) {}

  absl::StatusOr<std::unique_ptr<Arena>> MakeArena() override;
  absl::StatusOr<std::shared_ptr<ImportedArena>> OpenArena(const ArenaHandle& handle,
                                                           const ProcessIdentity& owner,
                                                           uint64_t epoch) override;
  // nullptr, with one warning per process, where the device cannot see host memory.
  std::shared_ptr<void> ShareDoorbells(void* block, size_t bytes) override;
  // Memory of this GPU. Memory that consists of several mappings (expandable segments) is looked at
  // mapping by mapping. What "cuda:N" numbers is the application's affair: the driver knows where
  // an address lies.
  absl::StatusOr<bool> CanStage(const std::byte* address, size_t length,
                                std::string_view location) override;

 private:
  const std::shared_ptr<const CudaDevice> device_;
  const std::shared_ptr<CopyCalibrator> calibrator_;
  const std::shared_ptr<CopyCostBook> book_;
};

}  // namespace railhop
