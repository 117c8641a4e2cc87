// A child process of a benchmark, and how much CPU a process uses. Control path, one thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

// Owns the process: the destructor sends SIGTERM, waits, and after two seconds sends SIGKILL. The
// child gets SIGTERM as well when this process dies.
class ChildProcess {
 public:
  // `command` is a path and its arguments. The child's standard output is read by ReadLine, its
  // standard input is empty, its standard error is ours.
  static absl::StatusOr<ChildProcess> Start(const std::vector<std::string>& command);
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&&) = delete;
  ~ChildProcess();

  pid_t pid() const { return pid_; }
  // The next line of its standard output, without the newline. An error when it ends before one, or
  // when `timeout` has passed.
  absl::StatusOr<std::string> ReadLine(std::chrono::milliseconds timeout);

 private:
  ChildProcess(pid_t pid, int output) : pid_(pid), output_(output) {}

  pid_t pid_;
  int output_;  // read end of its standard output
  std::string unread_;
};

// What all threads of a process have used so far, in nanoseconds: finer than the ticks of
// /proc/PID/stat, of which one percent of a core gives one a second.
absl::StatusOr<std::chrono::nanoseconds> CpuTimeOf(pid_t pid);

// The share of one core that a process uses over the next `period`; more than 1 with several
// threads. Sleeps for the period.
absl::StatusOr<double> CpuShareOf(pid_t pid, std::chrono::nanoseconds period);

}  // namespace railhop
