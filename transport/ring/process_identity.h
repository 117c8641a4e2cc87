// Which process, beyond the reuse of process ids: {uid, pid, start ticks}, as it stands in the
// shared-memory block, and the two ways to learn of its death.
//
// Control path only; every call may read /proc. A process of another PID namespace looks dead from
// here (see the owner's mark, registry_entry.h). "Not known" (no descriptors left, /proc
// unreadable) counts neither as alive nor as dead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct ProcessIdentity {
  uint32_t uid;
  int32_t pid;
  uint64_t start_ticks;  // field 22 of /proc/PID/stat
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

// The fields of /proc/PID/stat that matter here.
struct ProcessStat {
  char state = 0;
  int64_t threads = 0;
  uint64_t start_ticks = 0;
};

// Counts fields after the last ')': the command's name may hold blanks and parentheses.
std::optional<ProcessStat> ParseProcessStat(std::string_view text);

absl::StatusOr<ProcessIdentity> SelfIdentity();

enum class Liveness : uint8_t {
  kAlive,
  kEnding,  // its main thread has ended; others still hold its descriptors
  kDead,    // absent, a zombie, or another process under the same id
  kUnknown,
};
Liveness ProbeLiveness(const ProcessIdentity& identity);

inline bool IsAlive(const ProcessIdentity& identity) {
  return ProbeLiveness(identity) == Liveness::kAlive;
}
inline bool IsDead(const ProcessIdentity& identity) {
  return ProbeLiveness(identity) == Liveness::kDead;
}

std::string ToString(const ProcessIdentity& identity);

// Watches one process until it ends. "Ended" means that all its threads are gone, hence all its
// descriptors closed and its queue pairs with them.
class ProcessWatch {
 public:
  // How Open may get at the process; kProcOnly is what kernels without pidfds do.
  enum class Method : uint8_t { kPidfd, kProcOnly };

  explicit ProcessWatch(const ProcessIdentity& identity, Method method = Method::kPidfd);

  const ProcessIdentity& identity() const { return identity_; }
  // Readable once the process ended. -1: there is no pidfd (or it had ended before); ask Ended()
  // now and then.
  int fd() const { return pidfd_.get(); }
  bool Ended();

 private:
  ProcessIdentity identity_;
  GuardedFd pidfd_;
  bool ended_ = false;
};

}  // namespace railhop
