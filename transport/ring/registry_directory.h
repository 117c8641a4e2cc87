// The directory in which the processes of one PXN group find each other, its lock and its scan.
//
// Control path, one thread: flock knows processes, not threads. Shared by the registry, its
// registrations and its peer mappings (registry.h), which keep it alive.
#pragma once

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/control_block.h"
#include "transport/ring/file_lock.h"
#include "transport/ring/guarded_fd.h"
#include "transport/ring/process_identity.h"
#include "transport/ring/registry_entry.h"
#include "transport/ring/side_directory.h"

namespace railhop {

struct RegistryOptions {
  std::string root = "/dev/shm";
  std::string group_id;
  // How long any call waits for a lock that another process holds. 0: not at all.
  std::chrono::milliseconds lock_timeout{1000};
};

class RegistryDirectory {
 public:
  // A published entry whose owner lives.
  struct Entry {
    EntryKey key;
    RegistryHeader header;  // a copy, checked
    // The owner is seen in our own PID namespace. If not, its mark alone says that it lives, and it
    // can be neither watched nor mapped.
    bool visible = false;
  };

  static absl::StatusOr<std::shared_ptr<RegistryDirectory>> Open(const RegistryOptions& options);

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  const ProcessIdentity& self() const { return self_; }
  std::chrono::milliseconds lock_timeout() const { return options_.lock_timeout; }
  const std::string& group_id() const { return options_.group_id; }
  SideDirectory& side() { return side_; }

  // The group lock: publish, unpublish, discover, map.
  absl::StatusOr<FileLock> LockGroup();

  // Under the group lock. Ready entries in the order of their names. Skips what is malformed, of
  // another version or not ours, with one warning each; unlinks what dead owners left.
  absl::StatusOr<std::vector<Entry>> Scan();

  // Dead as far as one can know: not to be seen, and no mark on its entry either.
  bool IsGone(const ProcessIdentity& owner, uint64_t epoch);

  // Logs a warning the first time it is called with this `key`.
  void WarnOnce(const std::string& key, const std::string& message);

 private:
  enum class Verdict { kLive, kStale, kSkip };
  Verdict Judge(const std::string& name, const ParsedName& parsed, Entry* entry);

  RegistryOptions options_;
  std::string path_;
  ProcessIdentity self_{};
  GuardedFd fd_;
  GuardedFd lock_fd_;
  SideDirectory side_;
  std::set<std::string> warned_;
};

}  // namespace railhop
