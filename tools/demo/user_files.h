// The files that a user named for a run: no two of them may be one, and what is to be written is
// open from the start on.
#pragma once

#include <functional>
#include <iosfwd>
#include <span>
#include <string>

#include "absl/status/status.h"

namespace railhop {

struct UserFile {
  std::string path;    // empty: the option was not given
  const char* option;  // "--json"
  bool is_output = false;
};

// An error where an output is the same file as another output or as an input, by whatever names or
// links; files that are not there yet count. Devices do not: there is nothing to destroy. Opens
// nothing.
absl::Status CheckApart(std::span<const UserFile> files);

// Opening and writing block where the file is a pipe, as long as nobody reads.
class OutputFile {
 public:
  explicit OutputFile(const char* option) : option_(option) {}
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  ~OutputFile();

  // Empties the file, so that results of a run before do not outlive this one. What is standard
  // output or standard error already goes on where that is. Nothing to do for an empty path.
  absl::Status Open(const std::string& path);
  bool is_open() const { return descriptor_ >= 0; }
  absl::Status Write(const std::function<void(std::ostream&)>& write) const;

 private:
  const char* const option_;
  std::string path_;
  int descriptor_ = -1;
};

}  // namespace railhop
