// A directory of a run's own in shared memory: rank configs, the registry, the target's segment.
#pragma once

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

class Workplace {
 public:
  // `kind` is part of its name, /dev/shm/railhop-KIND-PID.START_TICKS.
  explicit Workplace(std::string kind = "demo") : kind_(std::move(kind)) {}
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  // Removes the directory.
  ~Workplace();

  // Makes the directory, and removes those of this kind and user whose processes were killed.
  absl::Status Create();
  // Makes a file in it and returns its path.
  absl::StatusOr<std::string> Write(const std::string& name, const std::string& content) const;
  // "" before Create.
  const std::string& path() const { return path_; }

 private:
  const std::string kind_;
  std::string path_;
};

}  // namespace railhop
