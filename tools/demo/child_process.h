// A child process of the demo that is spoken to in JSON lines: one request on its standard input,
// one reply on its standard output. Its standard error is ours.
//
// One thread. The child is killed when this object or the parent goes away.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

class ChildProcess {
 public:
  // Runs this very program with `arguments`. `name` is for messages.
  static absl::StatusOr<ChildProcess> Spawn(std::string name, std::vector<std::string> arguments);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  const std::string& name() const { return name_; }
  pid_t pid() const { return pid_; }

  absl::Status Send(const nlohmann::json& request);
  // The next reply. A reply with an "error" member, the child's death and `timeout` are errors.
  absl::StatusOr<nlohmann::json> Receive(std::chrono::milliseconds timeout);
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& request,
                                     std::chrono::milliseconds timeout);
  // "the process NAME was killed by signal 9", say; empty: it lives, or its end was told of before.
  std::string HowItDied() const;
  // Closes its standard input, which ends it, and waits; kills it after `timeout`.
  absl::Status Finish(std::chrono::milliseconds timeout);

 private:
  ChildProcess(std::string name, pid_t pid, int to_child, int from_child)
      : name_(std::move(name)), pid_(pid), to_child_(to_child), from_child_(from_child) {}
  absl::Status Died();
  void Kill();

  std::string name_;
  pid_t pid_ = -1;
  int to_child_ = -1;
  int from_child_ = -1;
  std::string buffer_;  // received and not yet a whole line
};

// The child's side: hands each request to `handle` and writes what it returns; ends at end of file.
// Returns the process's exit code.
int ServeRequests(const std::function<nlohmann::json(const nlohmann::json&)>& handle);

}  // namespace railhop
