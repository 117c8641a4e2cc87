// One target as a simulated NIC sees it: its key table and memory, mapped, and its life watched.
//
// Threads: Open and the destructor on the control thread; the rest on the one thread that carries
// out requests, at most one request at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/key_table.h"
#include "transport/fabric/sim/segment_file.h"
#include "transport/fabric/sim/sim_mover.h"
#include "transport/ring/process_identity.h"
#include "transport/staging/shared_memory.h"

namespace railhop {

class SimRemote {
 public:
  // `connection` as in TargetInfo. `mover`, which outlives it, moves the bytes; nullptr: memcpy.
  // Fails if the target is gone, or this process may not reach into its memory.
  static absl::StatusOr<std::unique_ptr<SimRemote>> Open(const std::string& connection,
                                                         SimMover* mover);
  ~SimRemote();

  // Whether the range may be accessed with `rkey` now, without doing so.
  FabricStatus Check(uint32_t rkey, uint64_t address, uint32_t length);
  // Moves the bytes, if it may. A system call only for memory that cannot be mapped.
  FabricStatus Move(FabricOpcode opcode, void* local, uint32_t length, uint64_t address,
                    uint32_t rkey);

  // Asks the kernel, at most once in `interval` cycles: one system call.
  bool Dead(uint64_t now, uint64_t interval);

 private:
  struct Mapping {
    uint64_t address;  // in the target
    uint64_t size;
    std::byte* base;                         // here
    std::unique_ptr<ImportedMemory> memory;  // nullptr: imported by the mover
  };

  SimRemote(const SegmentRecord& record, bool same_process, SimMover* mover);

  absl::Status Map(const SharedRange& range);
  bool Copy(void* destination, const void* source, size_t length) const;
  FabricStatus MoveByKernel(FabricOpcode opcode, void* local, uint32_t length, uint64_t address);

  const int32_t pid_;
  const bool same_process_;
  SimMover* const mover_;
  ProcessWatch watch_;
  std::unique_ptr<ImportedMemory> table_memory_;
  KeyTable* table_ = nullptr;
  std::vector<Mapping> mappings_;
  bool dead_ = false;
  bool asked_ = false;
  uint64_t asked_at_ = 0;
};

}  // namespace railhop
