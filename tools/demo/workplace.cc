#include "tools/demo/workplace.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <vector>

#include "transport/ring/process_identity.h"

namespace railhop {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRoot = "/dev/shm";

// With the owner's start, so that a later run can tell whether it still lives.
std::string NameOf(const std::string& kind, const ProcessIdentity& owner) {
  return fmt::format("railhop-{}-{}.{}", kind, owner.pid, owner.start_ticks);
}

std::optional<ProcessIdentity> OwnerOf(const std::string& kind, const fs::path& path) {
  struct stat entry {};
  if (lstat(path.c_str(), &entry) != 0 || !S_ISDIR(entry.st_mode)) return std::nullopt;
  ProcessIdentity owner{.uid = entry.st_uid, .pid = 0, .start_ticks = 0};
  const std::string name = path.filename();
  const size_t last_dash = name.rfind('-');
  if (last_dash == std::string::npos ||
      std::sscanf(&name[last_dash + 1], "%d.%lu", &owner.pid, &owner.start_ticks) != 2 ||
      name != NameOf(kind, owner)) {
    return std::nullopt;
  }
  return owner;
}

void RemoveThoseOfDeadOwners(const std::string& kind, uint32_t uid) {
  std::error_code ignored;
  std::vector<fs::path> dead;
  for (const fs::directory_entry& entry : fs::directory_iterator(kRoot, ignored)) {
    const std::optional<ProcessIdentity> owner = OwnerOf(kind, entry.path());
    if (owner && owner->uid == uid && IsDead(*owner)) dead.push_back(entry.path());
  }
  for (const fs::path& path : dead) fs::remove_all(path, ignored);
}

}  // namespace

absl::Status Workplace::Create() {
  const absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  if (!self.ok()) return self.status();
  RemoveThoseOfDeadOwners(kind_, self->uid);
  const std::string path = fmt::format("{}/{}", kRoot, NameOf(kind_, *self));
  if (mkdir(path.c_str(), 0700) != 0) {
    return absl::ErrnoToStatus(errno, fmt::format("the directory {} cannot be made", path));
  }
  path_ = path;
  return absl::OkStatus();
}

absl::StatusOr<std::string> Workplace::Write(const std::string& name,
                                             const std::string& content) const {
  std::string path = fmt::format("{}/{}", path_, name);
  std::ofstream file(path);
  file << content;
  if (file.flush()) return path;
  return absl::ErrnoToStatus(
      errno,
      fmt::format("the file {} cannot be written; make room in {} (df {} shows what is free)", path,
                  kRoot, kRoot));
}

Workplace::~Workplace() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace railhop
