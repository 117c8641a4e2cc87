// The far end of the simulated fabric: a process that registers memory for simulated NICs to write
// to and read from. It has no thread: the writers reach into its memory.
//
//   auto target = SimTarget::Create(directory, "decode-0");
//   auto memory = (*target)->AllocateMemory(64 << 20);
//   (*target)->Register(memory->data(), memory->size(), {"nic3"});
//   (*target)->Publish();
//
// Threads: one control thread. Ownership: memory from AllocateMemory lives as long as the target;
// registered memory of the caller's must be deregistered before it is freed.
// Writers check keys and bounds when they move bytes, against a table in shared memory: a key is
// dead from the start of Deregister, whatever descriptions of the segment are still around.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/key_table.h"
#include "transport/fabric/sim/segment_file.h"
#include "transport/staging/shared_memory.h"

namespace railhop {

class SimTarget {
 public:
  // AlreadyExists: a live process serves `name` in `directory`, which must exist.
  static absl::StatusOr<std::unique_ptr<SimTarget>> Create(const std::string& directory,
                                                           const std::string& name);
  // Removes the published file and makes every key invalid.
  ~SimTarget();
  SimTarget(const SimTarget&) = delete;
  SimTarget& operator=(const SimTarget&) = delete;

  // Zeroed memory that other processes can map: the fast way. Not registered yet.
  absl::StatusOr<std::span<std::byte>> AllocateMemory(uint64_t bytes);

  // Memory of a GPU that the caller keeps, for NICs with a mover. Not registered yet.
  void AddDeviceMemory(void* address, uint64_t bytes, const DeviceHandle& handle);

  // Any memory of this process; what comes from neither of the two is written to and read from by
  // process_vm_writev and process_vm_readv. Ranges may overlap.
  absl::StatusOr<RemoteBuffer> Register(void* address, uint64_t length,
                                        std::vector<std::string> preferred_nics);
  // Returns when no writer touches the range any more. DeadlineExceeded: one was still at work
  // after a second (stopped, or killed, in the middle of a write).
  absl::Status Deregister(uint32_t rkey);

  // Writes or replaces `<directory>/<name>.segment` with what is registered now. Keys are valid
  // without it; it is how others learn of them.
  absl::Status Publish();

  // As LoadSimTarget would return it after Publish.
  TargetInfo info() const;

 private:
  SimTarget(std::string directory, std::string path, SegmentRecord record,
            std::unique_ptr<SharedMemory> table_memory);

  const std::string directory_;
  const std::string path_;
  SegmentRecord record_;
  const std::unique_ptr<SharedMemory> table_memory_;
  KeyTable* const table_;
  std::vector<std::unique_ptr<SharedMemory>> memories_;
  bool published_ = false;
};

}  // namespace railhop
