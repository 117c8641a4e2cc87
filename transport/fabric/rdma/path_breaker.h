// Circuit breakers of one NIC, one for each remote NIC: a path that fails again and again is left
// alone for a while, so that nobody waits for it.
//
//   closed --`failures` in a row--> open, for a pause --it passed--> one connect, the probe
//     ^                              ^---------it fails: twice the pause, up to the longest---|
//     |-----------------it connects, and the connection lasts `early`-------------------------|
//
// A failure is a connect that fails, or an error of a connection not older than `early`: where a
// handshake goes another way than the data, connecting says little.
// Pure: the caller hands in the time, which never runs backwards. One thread at a time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"

namespace railhop {

struct PathBreakerOptions {
  uint32_t failures = 3;  // in a row, until it opens; 1 or more
  std::chrono::milliseconds first_pause{500};
  std::chrono::milliseconds longest_pause{8000};
  std::chrono::milliseconds early{2000};
};

class PathBreakers {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit PathBreakers(const PathBreakerOptions& options) : options_(options) {}

  // Whether to connect now; if so, Failed, Connected or Withdraw has to follow.
  // FailedPrecondition: the path is left alone; the text says why, and until when. (Unavailable
  // would be a target that is gone, by any path.)
  absl::Status Admit(const std::string& remote, Time now);
  void Failed(const std::string& remote, Time now, const std::string& reason);
  void Connected(const std::string& remote, Time now);
  // The connect has shown nothing about the path.
  void Withdraw(const std::string& remote);
  // An error ended a connection that was made at `connected`.
  void Broke(const std::string& remote, Time connected, Time now, const std::string& reason);

  // Forgets what is no news any more.
  void Prune(Time now);
  // Forgets all: the NIC itself was the reason, and is back.
  void Clear() { paths_.clear(); }
  size_t size() const { return paths_.size(); }

 private:
  struct Path {
    uint32_t failures = 0;  // in a row
    std::chrono::milliseconds pause{0};
    Time retry_at;    // while open
    Time changed_at;  // last failure or connection
    bool probing = false;
    bool connected = false;  // since the last failure
    std::string reason;      // of the last failure
  };

  void Count(Path& path, Time now, const std::string& reason);

  const PathBreakerOptions options_;
  std::map<std::string, Path> paths_;  // with at least one failure
};

}  // namespace railhop
