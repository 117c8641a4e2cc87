#include "tests/bench/cpu_time.h"

#include <time.h>

#include <cerrno>
#include <thread>

#include "fmt/format.h"

namespace railhop {

using std::chrono::steady_clock;

absl::StatusOr<std::chrono::nanoseconds> CpuTimeOf(pid_t pid) {
  clockid_t clock;
  timespec used;
  int error = clock_getcpuclockid(pid, &clock);
  if (error == 0 && clock_gettime(clock, &used) != 0) error = errno;
  if (error != 0) return absl::ErrnoToStatus(error, fmt::format("CPU time of process {}", pid));
  return std::chrono::seconds(used.tv_sec) + std::chrono::nanoseconds(used.tv_nsec);
}

absl::StatusOr<double> CpuShareOf(pid_t pid, std::chrono::nanoseconds period) {
  const auto start = steady_clock::now();
  const absl::StatusOr<std::chrono::nanoseconds> before = CpuTimeOf(pid);
  if (!before.ok()) return before.status();
  std::this_thread::sleep_for(period);
  const absl::StatusOr<std::chrono::nanoseconds> after = CpuTimeOf(pid);
  if (!after.ok()) return after.status();
  return std::chrono::duration<double>(*after - *before) /
         std::chrono::duration<double>(steady_clock::now() - start);
}

}  // namespace railhop
