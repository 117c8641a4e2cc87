// A staging arena in host memory, for ranks without a GPU: groups named `<group_id>.host`.
//
// Handle bytes (little-endian; the rest 0):
//   0 char[8] "RHHOST1\0" | 8 i32 pid | 12 i32 fd | 16 u64 start_ticks | 24 u64 st_dev |
//   32 u64 st_ino | 40 u64 size
// No CUDA handle begins with that marker, and a reader of CUDA handles must refuse those that do.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/process_identity.h"
#include "transport/staging/arena.h"
#include "transport/staging/shared_memory.h"

namespace railhop {

// True if the bytes are a host arena's, whatever else is wrong with them.
bool IsHostArenaHandle(const ArenaHandle& handle);

ArenaHandle EncodeHostArenaHandle(const SharedMemoryId& id);
// InvalidArgument: no marker, not 1008 MiB, or a field that no writer produces.
absl::StatusOr<SharedMemoryId> DecodeHostArenaHandle(const ArenaHandle& handle);

class HostArena : public Arena {
 public:
  // Takes address space only; the pages come with ReserveLane.
  static absl::StatusOr<std::unique_ptr<HostArena>> Create();

  std::byte* base() const override { return memory_->base(); }
  uint64_t size() const override { return memory_->size(); }
  const ArenaHandle& handle() const override { return handle_; }
  absl::Status ReserveLane(uint32_t lane) override;

 private:
  explicit HostArena(std::unique_ptr<SharedMemory> memory);

  const std::unique_ptr<SharedMemory> memory_;
  const ArenaHandle handle_;
  std::vector<bool> reserved_;  // per lane
};

class ImportedHostArena : public ImportedArena {
 public:
  // `peer` is the owner as the registry entry names it; a handle of another process is refused.
  // On PermissionDenied (or any error) pieces for this peer go direct, and the text says why.
  static absl::StatusOr<std::unique_ptr<ImportedHostArena>> Open(const ArenaHandle& handle,
                                                                 const ProcessIdentity& peer);

  std::byte* base() const override { return memory_->base(); }
  uint64_t size() const override { return memory_->size(); }
  absl::Status ReserveLane(uint32_t lane) override;

 private:
  explicit ImportedHostArena(std::unique_ptr<ImportedMemory> memory);

  const std::unique_ptr<ImportedMemory> memory_;
  std::vector<bool> reserved_;  // per lane
};

}  // namespace railhop
