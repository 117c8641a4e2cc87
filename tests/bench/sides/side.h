// A process of a benchmark: runs a script (side.py, perftest.py) and speaks with it over pipes.
#pragma once

#include <sys/types.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace railhop {

struct SideProgram {
  std::string python;                    // that runs it
  std::string script;                    // side.py
  std::string kind;                      // "railhop", "mooncake", "stream"
  std::vector<std::string> environment;  // "NAME=value", besides this process' own
};

class Side {
 public:
  // Waits until it is up.
  static absl::StatusOr<std::unique_ptr<Side>> Start(const SideProgram& program);
  ~Side();
  Side(const Side&) = delete;
  Side& operator=(const Side&) = delete;

  const std::string& name() const { return name_; }
  const std::string& address() const { return address_; }
  pid_t pid() const { return pid_; }
  // The numbers that it answers an order with. Aborted: what it was to do has failed. Unavailable:
  // it has ended; its words are on stderr.
  absl::StatusOr<std::vector<double>> Ask(const std::string& order);

 private:
  Side() = default;
  absl::StatusOr<std::string> ReadLine();

  std::string kind_;
  pid_t pid_ = -1;
  FILE* orders_ = nullptr;
  FILE* answers_ = nullptr;
  std::string name_;
  std::string address_;
};

}  // namespace railhop
