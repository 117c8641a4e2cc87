#include "tools/demo/user_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <sstream>

namespace railhop {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLinks = 40;  // as the kernel follows

bool IsOne(const struct stat& file, const struct stat& other) {
  return file.st_dev == other.st_dev && file.st_ino == other.st_ino;
}

// Where a file would be made: links that lead nowhere are followed as open() does.
fs::path WhereItWouldBe(const std::string& path) {
  std::error_code none;
  fs::path at = fs::absolute(path, none);
  for (int i = 0; i < kMaxLinks && fs::is_symlink(fs::symlink_status(at, none)); ++i) {
    at = at.parent_path() / fs::read_symlink(at, none);
  }
  return fs::weakly_canonical(at, none);
}

bool AreOne(const std::string& path, const std::string& other) {
  struct stat file {};
  struct stat other_file {};
  const bool exists = stat(path.c_str(), &file) == 0;
  if (exists != (stat(other.c_str(), &other_file) == 0)) return false;
  if (exists) return IsOne(file, other_file) && !S_ISCHR(file.st_mode);
  return WhereItWouldBe(path) == WhereItWouldBe(other);
}

}  // namespace

absl::Status CheckApart(std::span<const UserFile> files) {
  for (const UserFile& output : files) {
    if (!output.is_output || output.path.empty()) continue;
    for (const UserFile& other : files) {
      if (&other == &output || other.path.empty() || !AreOne(output.path, other.path)) continue;
      return absl::InvalidArgumentError(fmt::format(
          "{} {} and {} {} are the same file, which {} would overwrite; give {} "
          "another file",
          output.option, output.path, other.option, other.path, output.option, output.option));
    }
  }
  return absl::OkStatus();
}

OutputFile::~OutputFile() {
  if (is_open()) close(descriptor_);
}

absl::Status OutputFile::Open(const std::string& path) {
  if (path.empty()) return absl::OkStatus();
  path_ = path;
  struct stat named {};
  if (stat(path.c_str(), &named) == 0) {
    for (const int standard : {STDOUT_FILENO, STDERR_FILENO}) {
      struct stat open_already {};
      if (fstat(standard, &open_already) != 0 || !IsOne(named, open_already)) continue;
      descriptor_ = fcntl(standard, F_DUPFD_CLOEXEC, 0);
      break;
    }
  }
  if (!is_open()) {
    descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  }
  if (is_open()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("the file {} cannot be written: {}; give another "
                  "with {}",
                  path, strerror(errno), option_));
}

absl::Status OutputFile::Write(const std::function<void(std::ostream&)>& write) const {
  std::ostringstream text;
  write(text);
  const std::string content = text.str();
  for (size_t at = 0; at < content.size();) {
    const ssize_t put = ::write(descriptor_, content.data() + at, content.size() - at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) {
      return absl::UnavailableError(
          fmt::format("the results cannot be written to {}: {}; give another file with {}", path_,
                      strerror(errno), option_));
    }
    at += static_cast<size_t>(put);
  }
  return absl::OkStatus();
}

}  // namespace railhop
