// A folder in shared memory where the processes of a benchmark find each other.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>
#include <system_error>

namespace railhop {

class SharedFolder {
 public:
  explicit SharedFolder(const std::string& name) : path_("/dev/shm/railhop-" + name + "-XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  // Removes it.
  ~SharedFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  SharedFolder(const SharedFolder&) = delete;
  SharedFolder& operator=(const SharedFolder&) = delete;
  // Empty: it could not be made.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace railhop
