// Memory in a memfd that other processes of the host map through /proc/PID/fd.
//
// It takes no room in /dev/shm, has no name that could be left behind, and is freed when its owner
// and all who mapped it are gone. Sealed against shrinking and growing: whoever checked the size
// once can never run into a SIGBUS by a truncation.
// Threads: set-up and Reserve on a control thread; the memory itself is anyone's.
// fork: a child inherits neither mapping nor descriptor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

// All that another process needs to find the memory, and to be sure that it is that memory.
struct SharedMemoryId {
  int32_t pid = 0;
  int32_t fd = -1;  // in the process `pid`
  uint64_t start_ticks = 0;
  uint64_t device = 0;
  uint64_t inode = 0;
  uint64_t size = 0;  // bytes

  friend bool operator==(const SharedMemoryId&, const SharedMemoryId&) = default;
};

// Bytes that this process may still fill: of the machine and of its memory cgroups (version 2).
uint64_t AvailableMemory();

// A shared mapping of a memfd; closes both.
class MappedMemory {
 public:
  ~MappedMemory();
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  std::byte* base() const { return base_; }
  uint64_t size() const { return id_.size; }
  const SharedMemoryId& id() const { return id_; }

  // Gets the pages behind a range and maps them here. An error names the bytes needed and what was
  // `available`: past that, the kernel would rather kill a process than say no.
  absl::Status Reserve(uint64_t offset, uint64_t length, uint64_t available = AvailableMemory());

 protected:
  MappedMemory(std::byte* base, GuardedFd fd, const SharedMemoryId& id)
      : base_(base), fd_(std::move(fd)), id_(id) {}

 private:
  std::byte* const base_;
  const GuardedFd fd_;
  const SharedMemoryId id_;
};

class SharedMemory : public MappedMemory {
 public:
  // `name` shows up in /proc/PID/maps. No page is taken yet.
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(const char* name, uint64_t size);

 private:
  using MappedMemory::MappedMemory;
};

class ImportedMemory : public MappedMemory {
 public:
  // Checks device, inode, size and seals of what the descriptor leads to, then once more that the
  // process is still the one meant. Errors: Unavailable (owner gone), PermissionDenied, NotFound
  // (descriptor closed), FailedPrecondition (leads elsewhere, or is not safe to map).
  static absl::StatusOr<std::unique_ptr<ImportedMemory>> Open(const SharedMemoryId& id);

 private:
  using MappedMemory::MappedMemory;
};

}  // namespace railhop
