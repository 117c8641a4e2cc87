// Private directories, files and mappings that processes of one user share: made and checked so
// that nothing surprising can be met later, a fault for want of a page least of all.
//
// Control path only. Errors name the path, what is wrong with it and what to do.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

// `<root>/<name>`, made if it is missing: a directory of our own, no symbolic link, mode exactly
// 0700.
absl::StatusOr<GuardedFd> OpenPrivateDirectory(const std::string& root, const std::string& name);

// A new file of `bytes` zero bytes, mode 0600, every page of which is reserved: a store into it
// cannot end in SIGBUS. `directory_path` is for messages. ALREADY_EXISTS if the name is taken.
absl::StatusOr<GuardedFd> CreatePrivateFile(int directory, const std::string& directory_path,
                                            const std::string& name, uint64_t bytes);

// Opens an existing file that must be ours, regular, with one link, mode 0600 and, unless it is
// kAnySize, of this size. NOT_FOUND if there is none; FAILED_PRECONDITION says what is wrong.
inline constexpr int64_t kAnySize = -1;
absl::StatusOr<GuardedFd> OpenPrivateFile(int directory, const std::string& directory_path,
                                          const std::string& name, int64_t bytes);

// True if `name` still leads to the file that `fd` has open.
bool NamesFile(int directory, const std::string& name, int fd);

// The owner's mark: a lock of the open file description on one byte far beyond the file, held until
// the last copy of `fd` is closed. It tells a scanner in any PID namespace that the owner lives.
absl::Status HoldMark(int fd, const std::string& path);
// Whether anyone holds it through another open file description. True when it cannot be found out.
bool IsMarkHeld(int fd);

// MAP_SHARED, readable and writable; not inherited by forked children, where it unmaps nothing.
class SharedMapping {
 public:
  static absl::StatusOr<SharedMapping> Map(int fd, uint64_t bytes, const std::string& path);

  SharedMapping() = default;
  SharedMapping(SharedMapping&& other) noexcept { *this = std::move(other); }
  SharedMapping& operator=(SharedMapping&& other) noexcept;
  ~SharedMapping();

  void* data() const { return data_; }

 private:
  void* data_ = nullptr;
  uint64_t bytes_ = 0;
  pid_t mapped_by_ = 0;
};

}  // namespace railhop
