// A directory of the demo's own in shared memory: rank configs, the registry, the target's segment.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

class Workplace {
 public:
  Workplace() = default;
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  // Removes the directory.
  ~Workplace();

  // Makes the directory, and removes those of this user's demos that were killed.
  absl::Status Create();
  // Makes a file in it and returns its path.
  absl::StatusOr<std::string> Write(const std::string& name, const std::string& content) const;
  // "" before Create.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace railhop
