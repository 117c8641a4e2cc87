#include "transport/ring/shared_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

namespace railhop {
namespace {

constexpr off_t kMarkByte = off_t{1} << 62;

// Why a descriptor does not lead to what it should; empty if it does.
std::string Objection(const struct stat& info, mode_t type, mode_t mode, const char* kind) {
  if ((info.st_mode & S_IFMT) != type) return fmt::format("is not a {}", kind);
  if (info.st_uid != geteuid()) {
    return fmt::format("belongs to uid {}, not to uid {}", info.st_uid, geteuid());
  }
  if ((info.st_mode & 07777) != mode) {
    return fmt::format("has mode {:04o}, must have exactly {:04o}", info.st_mode & 07777, mode);
  }
  return "";
}

// Reserves pages by fallocate or, on a file system without it, by writing them. 0 or an errno.
int ReservePages(int fd, uint64_t bytes) {
  int result;
  do {
    result = fallocate(fd, 0, 0, static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0) return 0;
  if (errno != EOPNOTSUPP && errno != ENOSYS) return errno;
  static constexpr std::array<char, 65536> kZeros{};
  for (uint64_t offset = 0; offset < bytes;) {
    const ssize_t count =
        pwrite(fd, kZeros.data(), std::min<uint64_t>(kZeros.size(), bytes - offset),
               static_cast<off_t>(offset));
    if (count < 0 && errno != EINTR) return errno;
    if (count > 0) offset += static_cast<uint64_t>(count);
  }
  return 0;
}

absl::Status NoSpace(int directory, const std::string& path, uint64_t bytes, int error) {
  struct statvfs info {};
  if (fstatvfs(directory, &info) != 0) info = {};
  return absl::ResourceExhaustedError(fmt::format(
      "cannot reserve {}: {} bytes needed, {} bytes free of {} on its file system ({}). Enlarge it "
      "(mount -o remount,size=1g /dev/shm; for a container: --shm-size=1g) or remove what fills it",
      path, bytes, info.f_bavail * info.f_frsize, info.f_blocks * info.f_frsize, strerror(error)));
}

}  // namespace

absl::StatusOr<GuardedFd> OpenPrivateDirectory(const std::string& root, const std::string& name) {
  const std::string path = fmt::format("{}/{}", root, name);
  const GuardedFd root_fd(open(root.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!root_fd.valid()) {
    return absl::FailedPreconditionError(
        fmt::format("cannot open the registry's root {}: {}", root, strerror(errno)));
  }
  const bool made = mkdirat(root_fd.get(), name.c_str(), 0700) == 0;
  if (!made && errno != EEXIST) {
    return absl::FailedPreconditionError(
        fmt::format("cannot make directory {}: {}", path, strerror(errno)));
  }
  GuardedFd fd(
      openat(root_fd.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!fd.valid()) {
    return absl::FailedPreconditionError(
        fmt::format("cannot open {} as a directory (a symbolic link is not followed): {}. Remove "
                    "it, or use another group id",
                    path, strerror(errno)));
  }
  // A group bit inherited from the root, or an odd umask.
  if (made) fchmod(fd.get(), 0700);
  struct stat info {};
  const std::string objection = fstat(fd.get(), &info) != 0
                                    ? fmt::format("cannot be examined: {}", strerror(errno))
                                    : Objection(info, S_IFDIR, 0700, "directory");
  if (!objection.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "{} {}. Nobody else may look into it; correct or remove it, or use another group id", path,
        objection));
  }
  return fd;
}

absl::StatusOr<GuardedFd> CreatePrivateFile(int directory, const std::string& directory_path,
                                            const std::string& name, uint64_t bytes) {
  const std::string path = fmt::format("{}/{}", directory_path, name);
  GuardedFd fd(
      openat(directory, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!fd.valid()) {
    if (errno == EEXIST) return absl::AlreadyExistsError(fmt::format("{} exists already", path));
    if (errno == ENOSPC) return NoSpace(directory, path, bytes, errno);
    return absl::FailedPreconditionError(fmt::format("cannot make {}: {}", path, strerror(errno)));
  }
  int error = fchmod(fd.get(), 0600) != 0 ? errno : 0;
  if (error == 0 && bytes > 0) error = ReservePages(fd.get(), bytes);
  if (error == 0) return fd;
  unlinkat(directory, name.c_str(), 0);
  if (error == ENOSPC || error == EDQUOT || error == ENOMEM) {
    return NoSpace(directory, path, bytes, error);
  }
  return absl::FailedPreconditionError(
      fmt::format("cannot set up {} with {} bytes: {}", path, bytes, strerror(error)));
}

absl::StatusOr<GuardedFd> OpenPrivateFile(int directory, const std::string& directory_path,
                                          const std::string& name, int64_t bytes) {
  const std::string path = fmt::format("{}/{}", directory_path, name);
  // Not blocking: what lies there may be a pipe, and is found out only once it is open.
  GuardedFd fd(openat(directory, name.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!fd.valid()) {
    if (errno == ENOENT) return absl::NotFoundError(fmt::format("{} does not exist", path));
    if (errno == ELOOP) {
      return absl::FailedPreconditionError(fmt::format("{} is a symbolic link", path));
    }
    return absl::FailedPreconditionError(fmt::format("cannot open {}: {}", path, strerror(errno)));
  }
  struct stat info {};
  std::string objection;
  if (fstat(fd.get(), &info) != 0) {
    objection = fmt::format("cannot be examined: {}", strerror(errno));
  } else {
    objection = Objection(info, S_IFREG, 0600, "regular file");
    if (objection.empty() && info.st_nlink != 1) {
      objection = fmt::format("has {} links, must have 1", info.st_nlink);
    }
    if (objection.empty() && bytes != kAnySize && info.st_size != bytes) {
      objection = fmt::format("is {} bytes long, must be {}", info.st_size, bytes);
    }
  }
  if (!objection.empty()) {
    return absl::FailedPreconditionError(fmt::format("{} {}", path, objection));
  }
  return fd;
}

bool NamesFile(int directory, const std::string& name, int fd) {
  struct stat named {};
  struct stat opened {};
  return fstat(fd, &opened) == 0 &&
         fstatat(directory, name.c_str(), &named, AT_SYMLINK_NOFOLLOW) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

absl::Status HoldMark(int fd, const std::string& path) {
  struct flock mark {};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  mark.l_start = kMarkByte;
  mark.l_len = 1;
  if (fcntl(fd, F_OFD_SETLK, &mark) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("cannot mark {} as in use: {}", path, strerror(errno)));
}

bool IsMarkHeld(int fd) {
  struct flock mark {};
  mark.l_type = F_WRLCK;
  mark.l_whence = SEEK_SET;
  mark.l_start = kMarkByte;
  mark.l_len = 1;
  return fcntl(fd, F_OFD_GETLK, &mark) != 0 || mark.l_type != F_UNLCK;
}

absl::StatusOr<SharedMapping> SharedMapping::Map(int fd, uint64_t bytes, const std::string& path) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        fmt::format("cannot map {} ({} bytes): {}", path, bytes, strerror(errno)));
  }
  madvise(data, bytes, MADV_DONTFORK);
  SharedMapping mapping;
  mapping.data_ = data;
  mapping.bytes_ = bytes;
  mapping.mapped_by_ = getpid();
  return mapping;
}

SharedMapping& SharedMapping::operator=(SharedMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  std::swap(mapped_by_, other.mapped_by_);
  return *this;
}

SharedMapping::~SharedMapping() {
  if (data_ != nullptr && mapped_by_ == getpid()) munmap(data_, bytes_);
}

}  // namespace railhop
