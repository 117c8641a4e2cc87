// A staging arena in the memory of a GPU. The handle bytes are those of CUDA's IPC: other processes
// map the arena and copy into it over NVLink or PCIe.
//
// Order of the end (field-faults G4): an importer closes its mapping only after the last copy into
// it has ended, on its control thread; the owner frees the arena only when no lane of it is held
// by a living sender, else leaves it to the end of the process. Either may be killed at any time:
// the driver keeps the memory until the last process that maps it is gone.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/cuda/device.h"
#include "transport/staging/arena.h"

namespace railhop {

class CudaArena : public Arena {
 public:
  // Takes all 1008 MiB. ResourceExhausted says how much there was.
  static absl::StatusOr<std::unique_ptr<CudaArena>> Create(
      std::shared_ptr<const CudaDevice> device);
  ~CudaArena() override;

  std::byte* base() const override;
  uint64_t size() const override;
  const ArenaHandle& handle() const override { return handle_; }
  absl::Status ReserveLane(uint32_t lane) override;

 private:
  CudaArena(std::shared_ptr<const CudaDevice> device, cuda::DevicePointer memory,
            const cuda::IpcMemHandle& handle);

  const std::shared_ptr<const CudaDevice> device_;
  const cuda::DevicePointer memory_;
  ArenaHandle handle_;
};

class ImportedCudaArena : public ImportedArena {
 public:
  // Maps the arena of another process's GPU for copies by `device`. One mapping per process and
  // (handle, epoch), however many lanes use it; the epoch is that of the registry entry, so that an
  // arena which lies where an earlier one did is never taken for it.
  // InvalidArgument: the handle of a host arena, or of none; FailedPrecondition: the two GPUs
  // cannot reach each other, or the memory is smaller than an arena. Pieces go direct then.
  static absl::StatusOr<std::shared_ptr<ImportedCudaArena>> Open(
      std::shared_ptr<const CudaDevice> device, const ArenaHandle& handle, uint64_t epoch);
  ~ImportedCudaArena() override;

  std::byte* base() const override;
  uint64_t size() const override;
  absl::Status ReserveLane(uint32_t lane) override;

 private:
  struct Key;
  struct Mapping;
  struct Table;
  static Table& Mappings();
  explicit ImportedCudaArena(Mapping* mapping) : mapping_(*mapping) {}

  Mapping& mapping_;  // counted in the table
};

}  // namespace railhop
