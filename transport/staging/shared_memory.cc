#include "transport/staging/shared_memory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/falloc.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <string>
#include <utility>

#include "transport/ring/guarded_fd.h"
#include "transport/ring/process_identity.h"

namespace railhop {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int kPopulateWrite = 23;  // Linux 5.14
#else
constexpr int kPopulateWrite = MADV_POPULATE_WRITE;
#endif

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::string ErrnoText(int error) {
  return fmt::format("{} (errno {})", strerror(error), error);
}

// The number after `label` in a file of "label number ..." lines.
std::optional<uint64_t> ReadField(const std::string& path, const std::string& label) {
  std::ifstream file(path);
  std::string word;
  uint64_t value = 0;
  while (file >> word) {
    if (word == label && file >> value) return value;
    file.clear();
  }
  return std::nullopt;
}

// A file that holds one number; nothing if it is absent or says "max".
std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

// What one cgroup leaves: page cache of files gives way, shared memory does not.
uint64_t AvailableInCgroup(const std::string& folder) {
  const std::optional<uint64_t> limit = ReadNumber(folder + "/memory.max");
  const std::optional<uint64_t> current = ReadNumber(folder + "/memory.current");
  if (!limit.has_value() || !current.has_value()) return UINT64_MAX;
  const uint64_t file = ReadField(folder + "/memory.stat", "file").value_or(0);
  const uint64_t shared = ReadField(folder + "/memory.stat", "shmem").value_or(0);
  const uint64_t reclaimable = file > shared ? file - shared : 0;
  const uint64_t used = *current > reclaimable ? *current - reclaimable : 0;
  return *limit > used ? *limit - used : 0;
}

// Maps all of `fd`, not to be inherited by a forked child. Null on failure, with errno.
std::byte* MapShared(int fd, uint64_t size) {
  void* address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (address == MAP_FAILED) return nullptr;
  if (madvise(address, size, MADV_DONTFORK) != 0) {
    const int error = errno;
    munmap(address, size);
    errno = error;
    return nullptr;
  }
  return static_cast<std::byte*>(address);
}

absl::Status OwnerGone(const SharedMemoryId& id) {
  return absl::UnavailableError(fmt::format(
      "process {} (start ticks {}) that owns the shared memory has ended", id.pid, id.start_ticks));
}

// Error if the process that the id names is not there.
absl::Status CheckOwner(const SharedMemoryId& id) {
  switch (ProbeLiveness({.uid = geteuid(), .pid = id.pid, .start_ticks = id.start_ticks})) {
    case Liveness::kAlive:
      return absl::OkStatus();
    case Liveness::kEnding:
    case Liveness::kDead:
      return OwnerGone(id);
    case Liveness::kUnknown:
      break;
  }
  return absl::UnavailableError(
      fmt::format("cannot tell whether process {} lives: /proc/{}/stat is unreadable; mount /proc "
                  "without hidepid, or raise `ulimit -n`",
                  id.pid, id.pid));
}

// Why the owner's descriptor could not be opened.
absl::Status OpenError(const SharedMemoryId& id, int error) {
  if (absl::Status status = CheckOwner(id); !status.ok()) return status;
  if (error == EACCES || error == EPERM) {
    return absl::PermissionDeniedError(fmt::format(
        "not permitted to open /proc/{}/fd/{}: {}. Run process {} and this one as the same user, "
        "leave it dumpable (PR_SET_DUMPABLE), or grant CAP_SYS_PTRACE",
        id.pid, id.fd, ErrnoText(error), id.pid));
  }
  return absl::NotFoundError(
      fmt::format("process {} has no descriptor {} any more: {}", id.pid, id.fd, ErrnoText(error)));
}

absl::Status CheckFile(const SharedMemoryId& id, const struct stat& found) {
  if (!S_ISREG(found.st_mode) || found.st_dev != id.device || found.st_ino != id.inode) {
    return absl::FailedPreconditionError(
        fmt::format("descriptor {} of process {} leads to device {} inode {}, not to the shared "
                    "memory with device {} inode {}: it was closed and used anew",
                    id.fd, id.pid, static_cast<uint64_t>(found.st_dev),
                    static_cast<uint64_t>(found.st_ino), id.device, id.inode));
  }
  if (static_cast<uint64_t>(found.st_size) != id.size) {
    return absl::FailedPreconditionError(
        fmt::format("shared memory of process {} has {} bytes, announced were {}", id.pid,
                    static_cast<uint64_t>(found.st_size), id.size));
  }
  return absl::OkStatus();
}

}  // namespace

uint64_t AvailableMemory() {
  const std::string meminfo = "/proc/meminfo";  // in KiB
  const std::optional<uint64_t> kib = ReadField(meminfo, "MemAvailable:");
  uint64_t available =
      kib.has_value() ? (*kib + ReadField(meminfo, "SwapFree:").value_or(0)) * 1024 : UINT64_MAX;

  // "0::/a/b": each cgroup from b up to the root may set a limit of its own.
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    if (line.rfind("0::/", 0) != 0) continue;
    for (std::string path = line.substr(3); !path.empty(); path.resize(path.rfind('/'))) {
      available = std::min(available, AvailableInCgroup("/sys/fs/cgroup" + path));
    }
    available = std::min(available, AvailableInCgroup("/sys/fs/cgroup"));
  }
  return available;
}

MappedMemory::~MappedMemory() {
  // In a forked child neither the descriptor nor the mapping came along, and the addresses may hold
  // something of the child's.
  if (fd_.valid()) munmap(base_, id_.size);
}

absl::Status MappedMemory::Reserve(uint64_t offset, uint64_t length, uint64_t available) {
  if (offset > id_.size || length > id_.size - offset) {
    return absl::OutOfRangeError(fmt::format("range {}+{} lies outside the {} bytes of the memory",
                                             offset, length, id_.size));
  }
  if (length > available) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes of shared memory needed, {} available: free memory, or raise the "
                    "memory limit of the container",
                    length, available));
  }
  int result = 0;
  do {
    result = fallocate(fd_.get(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
                       static_cast<off_t>(length));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    return absl::ResourceExhaustedError(
        fmt::format("{} bytes of shared memory needed, the kernel has not got them: {}", length,
                    ErrnoText(errno)));
  }
  // Spares the data path its page faults. An older kernel takes them one by one: slower, not wrong.
  madvise(base_ + offset, length, kPopulateWrite);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SharedMemory>> SharedMemory::Create(const char* name,
                                                                   uint64_t size) {
  GuardedFd fd(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (fd.get() < 0) {
    return absl::ResourceExhaustedError(
        fmt::format("memfd_create for {} failed: {}", name, ErrnoText(errno)));
  }
  if (size == 0 || ftruncate(fd.get(), static_cast<off_t>(size)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, kSeals) != 0) {
    return absl::ResourceExhaustedError(fmt::format("no memfd of {} bytes for {}: {}", size, name,
                                                    ErrnoText(size == 0 ? EINVAL : errno)));
  }
  struct stat made {};
  if (fstat(fd.get(), &made) != 0) {
    return absl::InternalError(fmt::format("fstat of a memfd failed: {}", ErrnoText(errno)));
  }
  const absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  if (!self.ok()) return self.status();
  const SharedMemoryId id{.pid = self->pid,
                          .fd = fd.get(),
                          .start_ticks = self->start_ticks,
                          .device = made.st_dev,
                          .inode = made.st_ino,
                          .size = size};
  std::byte* const base = MapShared(fd.get(), size);
  if (base == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot map {} bytes for {}: {}", size, name, ErrnoText(errno)));
  }
  return std::unique_ptr<SharedMemory>(new SharedMemory(base, std::move(fd), id));
}

absl::StatusOr<std::unique_ptr<ImportedMemory>> ImportedMemory::Open(const SharedMemoryId& id) {
  if (absl::Status status = CheckOwner(id); !status.ok()) return status;
  // O_PATH first: the descriptor may lead to anything by now, and opening a pipe or a device acts.
  const std::string path = fmt::format("/proc/{}/fd/{}", id.pid, id.fd);
  GuardedFd place(open(path.c_str(), O_PATH | O_CLOEXEC));
  struct stat found {};
  if (place.get() < 0 || fstat(place.get(), &found) != 0) return OpenError(id, errno);
  if (absl::Status status = CheckFile(id, found); !status.ok()) return status;

  GuardedFd fd(open(fmt::format("/proc/self/fd/{}", place.get()).c_str(), O_RDWR | O_CLOEXEC));
  if (fd.get() < 0) return OpenError(id, errno);
  const int seals = fcntl(fd.get(), F_GET_SEALS);
  if (seals < 0 || (seals & F_SEAL_SHRINK) == 0) {
    return absl::FailedPreconditionError(
        fmt::format("shared memory of process {} is not sealed against shrinking: a store into it "
                    "could kill this process",
                    id.pid));
  }
  // The size may have changed until the seal was seen; from here on it cannot shrink.
  if (fstat(fd.get(), &found) != 0) return OpenError(id, errno);
  if (absl::Status status = CheckFile(id, found); !status.ok()) return status;

  std::byte* const base = MapShared(fd.get(), id.size);
  if (base == nullptr) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot map {} bytes of process {}: {}", id.size, id.pid, ErrnoText(errno)));
  }
  std::unique_ptr<ImportedMemory> memory(new ImportedMemory(base, std::move(fd), id));
  // The process may have ended and its number been given away between the first look and the open.
  if (absl::Status status = CheckOwner(id); !status.ok()) return status;
  return memory;
}

}  // namespace railhop
