#include "transport/fabric/sim/sim_target.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <new>
#include <utility>

#include "transport/ring/guarded_fd.h"
#include "transport/ring/process_identity.h"

namespace railhop {
namespace {

constexpr std::chrono::milliseconds kDeregisterTimeout{1000};

// AlreadyExists if a live process serves the segment.
absl::Status CheckNotServed(const std::string& directory, const std::string& name) {
  const absl::StatusOr<TargetInfo> other = LoadSimTarget(directory, name);
  if (!other.ok()) return absl::OkStatus();  // absent, stale or no segment file: to be replaced
  return absl::AlreadyExistsError(
      fmt::format("segment {} is already served from {} by a live process; choose another name",
                  name, directory));
}

absl::Status WriteNewFile(const std::string& path, const std::string& text) {
  GuardedFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (fd.get() < 0 ||
      write(fd.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int error = errno;
    if (fd.get() >= 0) unlink(path.c_str());
    return absl::FailedPreconditionError(fmt::format("cannot write {}: {}", path, strerror(error)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimTarget>> SimTarget::Create(const std::string& directory,
                                                             const std::string& name) {
  absl::StatusOr<std::string> path = SegmentPath(directory, name);
  if (!path.ok()) return path.status();
  struct stat found {};
  if (stat(directory.c_str(), &found) != 0 || !S_ISDIR(found.st_mode)) {
    return absl::NotFoundError(
        fmt::format("segment {}: there is no directory {}; create it first", name, directory));
  }
  if (absl::Status status = CheckNotServed(directory, name); !status.ok()) return status;
  absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  if (!self.ok()) return self.status();
  absl::StatusOr<std::unique_ptr<SharedMemory>> table =
      SharedMemory::Create("railhop-sim-keys", sizeof(KeyTable));
  if (!table.ok()) return table.status();
  if (absl::Status status = (*table)->Reserve(0, sizeof(KeyTable)); !status.ok()) return status;

  SegmentRecord record;
  record.name = name;
  record.owner = *self;
  record.key_table = (*table)->id();
  return std::unique_ptr<SimTarget>(
      new SimTarget(directory, *path, std::move(record), *std::move(table)));
}

SimTarget::SimTarget(std::string directory, std::string path, SegmentRecord record,
                     std::unique_ptr<SharedMemory> table_memory)
    : directory_(std::move(directory)),
      path_(std::move(path)),
      record_(std::move(record)),
      table_memory_(std::move(table_memory)),
      table_(new (table_memory_->base()) KeyTable) {}

SimTarget::~SimTarget() {
  if (record_.owner.pid != getpid()) return;  // a forked child's copy serves nothing
  if (published_) {
    // Not by the file's inode: its number is given anew as soon as the file is gone.
    const absl::StatusOr<SegmentRecord> found = ReadSegment(directory_, record_.name, nullptr);
    if (found.ok() && found->key_table == record_.key_table) unlink(path_.c_str());
  }
  for (const RemoteBuffer& buffer : record_.buffers) {
    table_->Remove(buffer.rkeys.front(), kDeregisterTimeout).IgnoreError();
  }
}

absl::StatusOr<std::span<std::byte>> SimTarget::AllocateMemory(uint64_t bytes) {
  absl::StatusOr<std::unique_ptr<SharedMemory>> memory =
      SharedMemory::Create("railhop-sim-target", bytes);
  if (!memory.ok()) return memory.status();
  if (absl::Status status = (*memory)->Reserve(0, bytes); !status.ok()) return status;
  record_.memories.push_back(
      {.address = reinterpret_cast<uint64_t>((*memory)->base()), .id = (*memory)->id()});
  memories_.push_back(*std::move(memory));
  return std::span<std::byte>(memories_.back()->base(), bytes);
}

void SimTarget::AddDeviceMemory(void* address, uint64_t bytes, const DeviceHandle& handle) {
  record_.memories.push_back({.address = reinterpret_cast<uint64_t>(address),
                              .id = {.fd = 0, .size = bytes},
                              .device = handle});
}

absl::StatusOr<RemoteBuffer> SimTarget::Register(void* address, uint64_t length,
                                                 std::vector<std::string> preferred_nics) {
  const auto start = reinterpret_cast<uint64_t>(address);
  uint32_t memory = KeyTable::kNoMemory;
  for (size_t i = 0; i < record_.memories.size(); ++i) {
    const SharedRange& range = record_.memories[i];
    if (start >= range.address && start - range.address <= range.id.size &&
        length <= range.id.size - (start - range.address)) {
      memory = static_cast<uint32_t>(i);
    }
  }
  absl::StatusOr<uint32_t> key = table_->Add(start, length, memory);
  if (!key.ok()) return key.status();
  return record_.buffers.emplace_back(RemoteBuffer{.address = start,
                                                   .length = length,
                                                   .rkeys = {*key},
                                                   .preferred_nics = std::move(preferred_nics)});
}

absl::Status SimTarget::Deregister(uint32_t rkey) {
  std::erase_if(record_.buffers, [rkey](const RemoteBuffer& b) { return b.rkeys.front() == rkey; });
  return table_->Remove(rkey, kDeregisterTimeout);
}

absl::Status SimTarget::Publish() {
  const std::string temporary =
      fmt::format("{}/.{}.{}.tmp", directory_, record_.owner.pid, record_.key_table.inode);
  unlink(temporary.c_str());  // of an earlier process with these numbers
  if (absl::Status status = WriteNewFile(temporary, EncodeSegment(record_)); !status.ok()) {
    return status;
  }

  // The first time, two targets of one name may be at it: the file that is there must be stale.
  if (!published_) {
    if (renameat2(AT_FDCWD, temporary.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) {
      published_ = true;
      return absl::OkStatus();
    }
    if (absl::Status status = CheckNotServed(directory_, record_.name); !status.ok()) {
      unlink(temporary.c_str());
      return status;
    }
  }
  if (rename(temporary.c_str(), path_.c_str()) != 0) {
    const int error = errno;
    unlink(temporary.c_str());
    return absl::FailedPreconditionError(
        fmt::format("cannot publish {}: {}", path_, strerror(error)));
  }
  published_ = true;
  return absl::OkStatus();
}

TargetInfo SimTarget::info() const {
  return TargetInfo{.name = record_.name,
                    .kind = kSimFabricKind,
                    .buffers = record_.buffers,
                    .nics = {{.name = record_.name, .connection = EncodeSegment(record_)}}};
}

}  // namespace railhop
