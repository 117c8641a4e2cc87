#include "transport/staging/cuda_staging.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "runtime/log.h"
#include "transport/cuda/memory.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

// An arena whose first lane that is reserved is copied into for the book.
class MeasuredArena final : public ImportedArena {
 public:
  MeasuredArena(std::shared_ptr<ImportedArena> arena, std::shared_ptr<CopyCalibrator> calibrator,
                std::shared_ptr<CopyCostBook> book)
      : arena_(std::move(arena)), calibrator_(std::move(calibrator)), book_(std::move(book)) {}
  ~MeasuredArena() override { book_->Erase(base()); }

  std::byte* base() const override { return arena_->base(); }
  uint64_t size() const override { return arena_->size(); }

  absl::Status ReserveLane(uint32_t lane) override {
    absl::Status status = arena_->ReserveLane(lane);
    if (!status.ok() || measured_) return status;
    const absl::StatusOr<CopyCosts> costs = calibrator_->Measure(base() + SlotOffset(lane, 0));
    if (absl::IsAborted(costs.status())) calibrator_->Keep(arena_);
    if (!costs.ok()) return costs.status();
    measured_ = true;
    book_->Set(base(), *costs);
    Log(LogLevel::kInfo, "copies to a peer cost: " + ToString(*costs));
    return status;
  }

 private:
  const std::shared_ptr<ImportedArena> arena_;
  const std::shared_ptr<CopyCalibrator> calibrator_;
  const std::shared_ptr<CopyCostBook> book_;
  bool measured_ = false;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> CudaStaging::MakeArena() {
  return CudaArena::Create(device_);
}

absl::StatusOr<std::shared_ptr<ImportedArena>> CudaStaging::OpenArena(const ArenaHandle& handle,
                                                                      const ProcessIdentity&,
                                                                      uint64_t epoch) {
  auto arena = ImportedCudaArena::Open(device_, handle, epoch);
  if (!arena.ok() || calibrator_ == nullptr) return arena;
  return std::make_shared<MeasuredArena>(*std::move(arena), calibrator_, book_);
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
