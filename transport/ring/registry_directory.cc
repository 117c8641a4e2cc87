#include "transport/ring/registry_directory.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transport/ring/shared_file.h"

namespace railhop {
namespace {

constexpr char kLockName[] = ".lock";

absl::StatusOr<GuardedFd> OpenLockFile(int directory, const std::string& path) {
  absl::StatusOr<GuardedFd> made = CreatePrivateFile(directory, path, kLockName, 0);
  if (made.ok() || !absl::IsAlreadyExists(made.status())) return made;
  return OpenPrivateFile(directory, path, kLockName, kAnySize);
}

}  // namespace

absl::StatusOr<std::shared_ptr<RegistryDirectory>> RegistryDirectory::Open(
    const RegistryOptions& options) {
  if (absl::Status status = ValidateGroupId(options.group_id); !status.ok()) return status;
  absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  if (!self.ok()) return self.status();

  const std::string name = fmt::format("mooncake-pxn-{}-{}", geteuid(), options.group_id);
  absl::StatusOr<GuardedFd> fd = OpenPrivateDirectory(options.root, name);
  if (!fd.ok()) return fd.status();
  auto directory = std::make_shared<RegistryDirectory>();
  directory->options_ = options;
  directory->path_ = fmt::format("{}/{}", options.root, name);
  directory->self_ = *self;
  directory->fd_ = std::move(*fd);

  absl::StatusOr<GuardedFd> lock = OpenLockFile(directory->fd(), directory->path_);
  if (!lock.ok()) return lock.status();
  directory->lock_fd_ = std::move(*lock);

  absl::StatusOr<SideDirectory> side = SideDirectory::Open(options.root, options.group_id);
  if (!side.ok()) return side.status();
  directory->side_ = std::move(*side);
  return directory;
}

absl::StatusOr<FileLock> RegistryDirectory::LockGroup() {
  const std::string path = fmt::format("{}/{}", path_, kLockName);
  absl::StatusOr<FileLock> lock = FileLock::Acquire(lock_fd_.get(), path, options_.lock_timeout);
  if (lock.ok() && !NamesFile(fd_.get(), kLockName, lock_fd_.get())) {
    return absl::FailedPreconditionError(fmt::format(
        "{} was removed or replaced while in use: processes that start now do not see this one. "
        "Restart the processes of group {}",
        path, options_.group_id));
  }
  return lock;
}

absl::StatusOr<std::vector<RegistryDirectory::Entry>> RegistryDirectory::Scan() {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(fd_.get(), path_);
  if (!names.ok()) return names.status();
  std::vector<Entry> entries;
  std::vector<EntryKey> present;
  for (const std::string& name : *names) {
    if (name == kLockName) continue;
    const std::optional<ParsedName> parsed = ParseName(name);
    if (!parsed.has_value() || (parsed->kind != ParsedName::Kind::kPublished &&
                                parsed->kind != ParsedName::Kind::kTemporary)) {
      WarnOnce(name, fmt::format("{}/{} does not belong here and is ignored", path_, name));
      continue;
    }
    Entry entry{.key = parsed->key, .header = {}};
    switch (Judge(name, *parsed, &entry)) {
      case Verdict::kLive:
        entries.push_back(entry);
        present.push_back(parsed->key);
        break;
      case Verdict::kSkip:
        present.push_back(parsed->key);
        break;
      case Verdict::kStale:
        unlinkat(fd_.get(), name.c_str(), 0);  // its side file is stale with it
        break;
    }
  }
  side_.RemoveStale(present);
  return entries;
}

RegistryDirectory::Verdict RegistryDirectory::Judge(const std::string& name,
                                                    const ParsedName& parsed, Entry* entry) {
  const bool temporary = parsed.kind == ParsedName::Kind::kTemporary;
  const auto skip = [&](std::string_view reason) {
    WarnOnce(name, fmt::format("skipping the entry {}/{}: {}", path_, name, reason));
    return Verdict::kSkip;
  };
  // A temporary one may have died at any size.
  const absl::StatusOr<GuardedFd> fd =
      OpenPrivateFile(fd_.get(), path_, name, temporary ? kAnySize : int64_t{sizeof(ControlBlock)});
  if (absl::IsNotFound(fd.status())) return Verdict::kSkip;  // just unpublished
  if (!fd.ok()) return skip(std::string(fd.status().message()));

  const ProcessIdentity named{geteuid(), parsed.key.pid, parsed.key.start_ticks};
  const Liveness liveness = ProbeLiveness(named);
  if (temporary) {
    const bool stale = liveness == Liveness::kDead && !IsMarkHeld(fd->get());
    return stale ? Verdict::kStale : Verdict::kSkip;
  }

  RegistryHeader& header = entry->header;
  if (pread(fd->get(), &header, sizeof(header), 0) != ssize_t{sizeof(header)}) {
    return skip(fmt::format("cannot be read: {}", strerror(errno)));
  }
  if (absl::Status status = ValidateHeader(header, geteuid()); !status.ok()) {
    return skip(std::string(status.message()));
  }
  if (MakeKey(header.owner, header.epoch) != parsed.key) {
    return skip("owner or epoch in its header are not those of its name");
  }
  if (header.state > static_cast<uint32_t>(RegistryState::kStopping)) {
    return skip(fmt::format("its state is {}", header.state));
  }
  if (liveness == Liveness::kEnding) return Verdict::kSkip;  // a look from now it is stale
  if (liveness == Liveness::kDead && !IsMarkHeld(fd->get())) return Verdict::kStale;
  entry->visible = liveness == Liveness::kAlive;
  return header.state == static_cast<uint32_t>(RegistryState::kReady) ? Verdict::kLive
                                                                      : Verdict::kSkip;
}

bool RegistryDirectory::IsGone(const ProcessIdentity& owner, uint64_t epoch) {
  if (!IsDead(owner)) return false;
  const absl::StatusOr<GuardedFd> fd = OpenPrivateFile(
      fd_.get(), path_, PublishedName(MakeKey(owner, epoch)), int64_t{sizeof(ControlBlock)});
  return fd.ok() ? !IsMarkHeld(fd->get()) : absl::IsNotFound(fd.status());
}

void RegistryDirectory::WarnOnce(const std::string& key, const std::string& message) {
  if (warned_.insert(key).second) Log(LogLevel::kWarning, message);
}

}  // namespace railhop
