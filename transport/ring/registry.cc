#include "transport/ring/registry.h"

#include <fmt/format.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "runtime/log.h"
#include "transport/ring/shared_file.h"

namespace railhop {
namespace {

constexpr size_t kMaxProcesses = kLaneCount + 1;

absl::StatusOr<uint64_t> RandomEpoch() {
  uint64_t epoch = 0;
  while (epoch == 0) {
    if (getrandom(&epoch, sizeof(epoch), 0) != ssize_t{sizeof(epoch)} && errno != EINTR) {
      return absl::InternalError(fmt::format("no random numbers: {}", strerror(errno)));
    }
  }
  return epoch;
}

PeerInfo MakeInfo(const RegistryDirectory::Entry& entry) {
  PeerInfo info;
  info.owner = entry.header.owner;
  info.epoch = entry.header.epoch;
  info.rails = {std::string(entry.header.rail, entry.header.rail_bytes)};
  std::memcpy(info.arena_handle.data(), entry.header.arena_handle, kArenaHandleBytes);
  info.visible = entry.visible;
  return info;
}

std::string UnsoundSide(const absl::Status& status) {
  return fmt::format("{}; its owner is treated as a version-1 process",
                     std::string(status.message()));
}

}  // namespace

// --- Registration

Registration::~Registration() {
  // A forked child has a copy of this object, but the entry is its parent's.
  if (owner_.pid != getpid()) return;
  if (absl::Status status = Unpublish(); !status.ok()) {
    Log(LogLevel::kWarning, fmt::format("leaving the group: {}", std::string(status.message())));
  }
}

void Registration::FillHeader(std::span<const std::string> rails, const HandleBytes& handle) {
  RegistryHeader& header = block().header;
  header.magic = kRegistryMagic;
  header.abi_version = kAbiVersion;
  header.header_bytes = sizeof(RegistryHeader);
  header.mapping_bytes = sizeof(ControlBlock);
  header.rail_bytes = static_cast<uint32_t>(rails[0].size());
  header.owner = owner_;
  header.epoch = epoch_;
  header.lane_count = kLaneCount;
  header.slots_per_lane = kSlotsPerLane;
  header.slot_size = kSlotBytes;
  header.arena_size = kArenaBytes;
  header.ipc_handle_bytes = kArenaHandleBytes;
  std::memcpy(header.rail, rails[0].data(), rails[0].size());
  std::memcpy(header.arena_handle, handle.data(), handle.size());
}

absl::Status Registration::Publish() {
  const EntryKey key = MakeKey(owner_, epoch_);
  if (name_ != TemporaryName(key)) {
    return absl::FailedPreconditionError("this registration was published before");
  }
  absl::StatusOr<FileLock> lock = directory_->LockGroup();
  if (!lock.ok()) return lock.status();
  absl::StatusOr<std::vector<RegistryDirectory::Entry>> entries = directory_->Scan();
  if (!entries.ok()) return entries.status();

  std::string pids;
  for (const RegistryDirectory::Entry& entry : *entries) {
    if (entry.visible && entry.key.pid == owner_.pid &&
        entry.key.start_ticks == owner_.start_ticks) {
      return absl::AlreadyExistsError(
          fmt::format("process {} is already in group {}: a second engine of one process runs "
                      "without relaying",
                      owner_.pid, directory_->group_id()));
    }
    pids += fmt::format("{}{}", pids.empty() ? "" : " ", entry.key.pid);
  }
  if (entries->size() >= kMaxProcesses) {
    return absl::ResourceExhaustedError(fmt::format(
        "group {} ({}) is full: it has {} processes ({}) and can have no more. Process {} neither "
        "relays nor is relayed for, its transfers go direct; give it another MC_PXN_GROUP_ID",
        directory_->group_id(), directory_->path(), entries->size(), pids, owner_.pid));
  }

  const std::string published = PublishedName(key);
  StoreRelease(block().header.state, static_cast<uint32_t>(RegistryState::kReady));
  if (renameat2(directory_->fd(), name_.c_str(), directory_->fd(), published.c_str(),
                RENAME_NOREPLACE) != 0) {
    const int error = errno;
    StoreRelease(block().header.state, static_cast<uint32_t>(RegistryState::kInitializing));
    return absl::FailedPreconditionError(fmt::format(
        "cannot publish {}/{} as {}: {}", directory_->path(), name_, published, strerror(error)));
  }
  name_ = published;
  return absl::OkStatus();
}

absl::Status Registration::Unpublish() {
  if (name_.empty()) return absl::OkStatus();
  absl::StatusOr<FileLock> group_lock = directory_->LockGroup();
  absl::StatusOr<FileLock> entry_lock = LockEntry();
  StoreRelease(block().header.state, static_cast<uint32_t>(RegistryState::kStopping));
  if (!group_lock.ok()) return group_lock.status();
  if (!entry_lock.ok()) return entry_lock.status();
  // The name may have been removed, and even taken by another file, since.
  if (NamesFile(directory_->fd(), name_, fd_.get())) {
    if (unlinkat(directory_->fd(), name_.c_str(), 0) != 0) {
      return absl::FailedPreconditionError(
          fmt::format("cannot unlink {}/{}: {}", directory_->path(), name_, strerror(errno)));
    }
  }
  directory_->side().Remove(MakeKey(owner_, epoch_));
  name_.clear();
  return absl::OkStatus();
}

absl::StatusOr<FileLock> Registration::LockEntry() const {
  return FileLock::Acquire(fd_.get(), fmt::format("{}/{}", directory_->path(), name_),
                           directory_->lock_timeout());
}

// --- PeerMapping

absl::StatusOr<FileLock> PeerMapping::LockEntry() const {
  return FileLock::Acquire(
      fd_.get(),
      fmt::format("{}/{}", directory_->path(), PublishedName(MakeKey(info_.owner, info_.epoch))),
      directory_->lock_timeout());
}

// --- Registry

absl::StatusOr<std::unique_ptr<Registry>> Registry::Open(const RegistryOptions& options) {
  absl::StatusOr<std::shared_ptr<RegistryDirectory>> directory = RegistryDirectory::Open(options);
  if (!directory.ok()) return directory.status();
  return std::unique_ptr<Registry>(new Registry(std::move(*directory)));
}

absl::StatusOr<std::unique_ptr<Registration>> Registry::CreateLocal(
    std::span<const std::string> rails, const HandleBytes& arena_handle) {
  if (absl::Status status = ValidateRails(rails); !status.ok()) return status;
  absl::StatusOr<uint64_t> epoch = RandomEpoch();
  if (!epoch.ok()) return epoch.status();

  std::unique_ptr<Registration> self(new Registration);
  self->directory_ = directory_;
  self->owner_ = directory_->self();
  self->epoch_ = *epoch;
  const EntryKey key = MakeKey(self->owner_, self->epoch_);
  const std::string name = TemporaryName(key);
  const std::string path = fmt::format("{}/{}", directory_->path(), name);

  // Under the group lock, so that no scanner meets the files before they bear the owner's mark;
  // after a scan, because what dead processes left may fill the file system.
  {
    absl::StatusOr<FileLock> lock = directory_->LockGroup();
    if (!lock.ok()) return lock.status();
    absl::StatusOr<std::vector<RegistryDirectory::Entry>> entries = directory_->Scan();
    if (!entries.ok()) return entries.status();

    absl::StatusOr<GuardedFd> fd =
        CreatePrivateFile(directory_->fd(), directory_->path(), name, sizeof(ControlBlock));
    if (!fd.ok()) return fd.status();
    self->fd_ = std::move(*fd);
    absl::Status status = HoldMark(self->fd_.get(), path);
    if (status.ok()) {
      absl::StatusOr<SharedMapping> mapping =
          SharedMapping::Map(self->fd_.get(), sizeof(ControlBlock), path);
      status = mapping.status();
      if (status.ok()) self->mapping_ = std::move(*mapping);
    }
    if (status.ok()) {
      absl::StatusOr<LocalSide> side = directory_->side().Create(self->owner_, *epoch, rails);
      status = side.status();
      if (status.ok()) self->side_ = std::move(*side);
    }
    if (!status.ok()) {
      unlinkat(directory_->fd(), name.c_str(), 0);
      return status;
    }
    self->name_ = name;
  }
  self->FillHeader(rails, arena_handle);
  return self;
}

absl::StatusOr<std::vector<PeerInfo>> Registry::Discover() {
  absl::StatusOr<FileLock> lock = directory_->LockGroup();
  if (!lock.ok()) return lock.status();
  absl::StatusOr<std::vector<RegistryDirectory::Entry>> entries = directory_->Scan();
  if (!entries.ok()) return entries.status();
  std::vector<PeerInfo> peers;
  for (const RegistryDirectory::Entry& entry : *entries) {
    if (entry.header.owner == self() && entry.visible) continue;
    PeerInfo info = MakeInfo(entry);
    absl::StatusOr<std::vector<std::string>> rails = directory_->side().ReadRails(entry.key);
    if (rails.ok()) {
      info.rails = std::move(*rails);
    } else if (!absl::IsNotFound(rails.status())) {
      directory_->WarnOnce(SideName(entry.key), UnsoundSide(rails.status()));
    }
    if (!info.visible) {
      directory_->WarnOnce(
          PublishedName(entry.key) + " namespace",
          fmt::format("{} of group {} runs in another PID namespace: it cannot be watched, so "
                      "nothing is relayed through it. Let the containers share one (--pid=host, "
                      "shareProcessNamespace)",
                      ToString(info.owner), directory_->group_id()));
    }
    peers.push_back(std::move(info));
  }
  return peers;
}

absl::StatusOr<std::shared_ptr<PeerMapping>> Registry::MapPeer(const PeerInfo& peer) {
  if (peer.owner == self()) return absl::InvalidArgumentError("a process does not map itself");
  const EntryKey key = MakeKey(peer.owner, peer.epoch);
  const std::string name = PublishedName(key);
  absl::StatusOr<FileLock> lock = directory_->LockGroup();
  if (!lock.ok()) return lock.status();
  absl::StatusOr<GuardedFd> fd =
      OpenPrivateFile(directory_->fd(), directory_->path(), name, int64_t{sizeof(ControlBlock)});
  if (!fd.ok()) return fd.status();

  RegistryDirectory::Entry entry{.key = key, .header = {}};
  if (pread(fd->get(), &entry.header, sizeof(entry.header), 0) != ssize_t{sizeof(entry.header)}) {
    return absl::FailedPreconditionError(
        fmt::format("cannot read {}/{}: {}", directory_->path(), name, strerror(errno)));
  }
  absl::Status status = ValidateHeader(entry.header, geteuid());
  if (status.ok() && MakeKey(entry.header.owner, entry.header.epoch) != key) {
    status = absl::FailedPreconditionError("owner or epoch are another's");
  }
  if (status.ok() && entry.header.state != static_cast<uint32_t>(RegistryState::kReady)) {
    status = absl::NotFoundError("its owner is stopping");
  }
  if (!status.ok()) {
    return absl::Status(status.code(), fmt::format("cannot map {}/{}: {}", directory_->path(), name,
                                                   std::string(status.message())));
  }
  const Liveness liveness = ProbeLiveness(entry.header.owner);
  if (liveness == Liveness::kEnding) return absl::NotFoundError("its owner is ending");
  entry.visible = liveness == Liveness::kAlive;
  if (!entry.visible) {
    return absl::FailedPreconditionError(
        fmt::format("{} is not seen in this PID namespace; it is dead, or lives in another one",
                    ToString(entry.header.owner)));
  }

  absl::StatusOr<SharedMapping> mapping = SharedMapping::Map(
      fd->get(), sizeof(ControlBlock), fmt::format("{}/{}", directory_->path(), name));
  if (!mapping.ok()) return mapping.status();
  std::shared_ptr<PeerMapping> result(new PeerMapping);
  result->directory_ = directory_;
  result->info_ = MakeInfo(entry);
  result->fd_ = std::move(*fd);
  result->mapping_ = std::move(*mapping);
  absl::StatusOr<PeerSide> side = directory_->side().OpenPeer(key);
  if (side.ok()) {
    result->info_.rails = side->rails();
    result->side_ = std::move(*side);
  } else if (!absl::IsNotFound(side.status())) {
    directory_->WarnOnce(SideName(key), UnsoundSide(side.status()));
  }
  return result;
}

}  // namespace railhop
