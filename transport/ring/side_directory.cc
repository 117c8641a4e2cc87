#include "transport/ring/side_directory.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "transport/ring/process_identity.h"

namespace railhop {
namespace {

constexpr std::array kRoles = {WakeRole::kRelay, WakeRole::kCompletion};
static_assert(kRoles.size() == kWakeRoles);

std::vector<std::string> RailNames(const SideHeader& header) {
  std::vector<std::string> rails;
  for (uint32_t i = 0; i < header.rail_count; ++i) {
    rails.emplace_back(header.rails[i].name, header.rails[i].bytes);
  }
  return rails;
}

}  // namespace

void LocalSide::DrainWake(WakeRole role) {
  std::array<char, 64> bytes;
  while (read(wake_fd(role), bytes.data(), bytes.size()) > 0) {
  }
}

bool PeerSide::Wake(WakeRole role) const {
  const auto index = static_cast<size_t>(role);
  if (LoadAcquire(file().parked[index].parked) == 0) return false;
  const char byte = 1;
  // EAGAIN: the pipe is full of wakes already.
  [[maybe_unused]] const ssize_t written = write(pipes_[index].get(), &byte, 1);
  return true;
}

absl::StatusOr<SideDirectory> SideDirectory::Open(const std::string& root,
                                                  const std::string& group_id) {
  const std::string name = fmt::format("railhop-{}-{}", geteuid(), group_id);
  absl::StatusOr<GuardedFd> fd = OpenPrivateDirectory(root, name);
  if (!fd.ok()) return fd.status();
  SideDirectory directory;
  directory.path_ = fmt::format("{}/{}", root, name);
  directory.fd_ = std::move(*fd);
  return directory;
}

absl::StatusOr<LocalSide> SideDirectory::Create(const ProcessIdentity& owner, uint64_t epoch,
                                                std::span<const std::string> rails) {
  const EntryKey key = MakeKey(owner, epoch);
  const std::string path = fmt::format("{}/{}", path_, SideName(key));
  LocalSide side;
  absl::StatusOr<GuardedFd> fd =
      CreatePrivateFile(fd_.get(), path_, SideName(key), sizeof(SideFile));
  if (!fd.ok()) return fd.status();
  side.fd_ = std::move(*fd);
  absl::Status status = HoldMark(side.fd_.get(), path);
  if (status.ok()) {
    absl::StatusOr<SharedMapping> mapping =
        SharedMapping::Map(side.fd_.get(), sizeof(SideFile), path);
    status = mapping.status();
    if (status.ok()) side.mapping_ = std::move(*mapping);
  }
  for (size_t i = 0; i < kRoles.size() && status.ok(); ++i) {
    const std::string name = WakeName(key, kRoles[i]);
    if (mkfifoat(fd_.get(), name.c_str(), 0600) != 0 ||
        fchmodat(fd_.get(), name.c_str(), 0600, 0) != 0) {
      status = absl::FailedPreconditionError(
          fmt::format("cannot make the named pipe {}/{}: {}", path_, name, strerror(errno)));
      break;
    }
    absl::StatusOr<GuardedFd> pipe = OpenPipe(key, kRoles[i]);
    status = pipe.status();
    if (status.ok()) side.pipes_[i] = std::move(*pipe);
  }
  if (!status.ok()) {
    Remove(key);
    return status;
  }

  SideHeader& header = side.file().header;
  header.version = kSideVersion;
  header.header_bytes = sizeof(SideHeader);
  header.file_bytes = sizeof(SideFile);
  header.owner = owner;
  header.epoch = epoch;
  header.rail_count = static_cast<uint32_t>(rails.size());
  for (size_t i = 0; i < rails.size(); ++i) {
    header.rails[i].bytes = static_cast<uint32_t>(rails[i].size());
    std::memcpy(header.rails[i].name, rails[i].data(), rails[i].size());
  }
  StoreRelease(header.magic, kSideMagic);
  return side;
}

absl::StatusOr<GuardedFd> SideDirectory::OpenPipe(const EntryKey& key, WakeRole role) {
  const std::string name = WakeName(key, role);
  // Both ends at once, on either side: a pipe without a reader would raise SIGPIPE in the peer that
  // wakes a process which has just died.
  GuardedFd fd(openat(fd_.get(), name.c_str(), O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
  struct stat info {};
  if (!fd.valid() || fstat(fd.get(), &info) != 0) {
    return absl::FailedPreconditionError(
        fmt::format("cannot open the named pipe {}/{}: {}", path_, name, strerror(errno)));
  }
  if (!S_ISFIFO(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 07777) != 0600) {
    return absl::FailedPreconditionError(
        fmt::format("{}/{} is not a named pipe of our own with mode 0600", path_, name));
  }
  return fd;
}

absl::StatusOr<SideHeader> SideDirectory::ReadHeader(int fd, const EntryKey& key) {
  SideHeader header;
  const ssize_t count = pread(fd, &header, sizeof(header), 0);
  absl::Status status;
  if (count != ssize_t{sizeof(header)}) {
    status = absl::FailedPreconditionError("cannot be read");
  } else {
    status = ValidateSideHeader(header, geteuid(), key);
  }
  if (status.ok()) return header;
  return absl::FailedPreconditionError(fmt::format("the side file {}/{} is not sound: {}", path_,
                                                   SideName(key), std::string(status.message())));
}

absl::StatusOr<PeerSide> SideDirectory::OpenPeer(const EntryKey& key) {
  absl::StatusOr<GuardedFd> fd = OpenPrivateFile(fd_.get(), path_, SideName(key), sizeof(SideFile));
  if (!fd.ok()) return fd.status();
  absl::StatusOr<SideHeader> header = ReadHeader(fd->get(), key);
  if (!header.ok()) return header.status();
  PeerSide side;
  for (size_t i = 0; i < kRoles.size(); ++i) {
    absl::StatusOr<GuardedFd> pipe = OpenPipe(key, kRoles[i]);
    if (!pipe.ok()) return pipe.status();
    side.pipes_[i] = std::move(*pipe);
  }
  absl::StatusOr<SharedMapping> mapping =
      SharedMapping::Map(fd->get(), sizeof(SideFile), fmt::format("{}/{}", path_, SideName(key)));
  if (!mapping.ok()) return mapping.status();
  side.mapping_ = std::move(*mapping);
  side.rails_ = RailNames(*header);
  side.capabilities_ = header->capabilities;
  return side;
}

absl::StatusOr<std::vector<std::string>> SideDirectory::ReadRails(const EntryKey& key) {
  absl::StatusOr<GuardedFd> fd = OpenPrivateFile(fd_.get(), path_, SideName(key), sizeof(SideFile));
  if (!fd.ok()) return fd.status();
  absl::StatusOr<SideHeader> header = ReadHeader(fd->get(), key);
  if (!header.ok()) return header.status();
  return RailNames(*header);
}

void SideDirectory::Remove(const EntryKey& key) {
  unlinkat(fd_.get(), SideName(key).c_str(), 0);
  for (const WakeRole role : kRoles) unlinkat(fd_.get(), WakeName(key, role).c_str(), 0);
}

void SideDirectory::RemoveStale(std::span<const EntryKey> registered) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(fd_.get(), path_);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::optional<ParsedName> parsed = ParseName(name);
    if (!parsed.has_value()) continue;
    if (parsed->kind != ParsedName::Kind::kSide && parsed->kind != ParsedName::Kind::kWake) {
      continue;
    }
    const EntryKey& key = parsed->key;
    if (std::find(registered.begin(), registered.end(), key) != registered.end()) continue;
    if (!IsDead({geteuid(), key.pid, key.start_ticks})) continue;
    const absl::StatusOr<GuardedFd> fd = OpenPrivateFile(fd_.get(), path_, SideName(key), kAnySize);
    if (fd.ok() ? IsMarkHeld(fd->get()) : !absl::IsNotFound(fd.status())) continue;
    Remove(key);
  }
}

absl::StatusOr<std::vector<std::string>> ListDirectory(int directory, const std::string& path) {
  const int fd = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* stream = fd < 0 ? nullptr : fdopendir(fd);
  if (stream == nullptr) {
    const int error = errno;
    if (fd >= 0) close(fd);
    return absl::FailedPreconditionError(fmt::format("cannot list {}: {}", path, strerror(error)));
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = readdir(stream)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
    errno = 0;
  }
  const int error = errno;
  closedir(stream);
  if (error != 0) {
    return absl::FailedPreconditionError(fmt::format("cannot list {}: {}", path, strerror(error)));
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace railhop
