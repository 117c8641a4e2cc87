// How much CPU a process uses. Any thread.
#pragma once

#include <sys/types.h>

#include <chrono>

#include "absl/status/statusor.h"

namespace railhop {

// What all threads of a process have used so far, in nanoseconds: finer than the ticks of
// /proc/PID/stat, of which one percent of a core gives one a second.
absl::StatusOr<std::chrono::nanoseconds> CpuTimeOf(pid_t pid);

// The share of one core that a process uses over the next `period`; more than 1 with several
// threads. Sleeps for the period.
absl::StatusOr<double> CpuShareOf(pid_t pid, std::chrono::nanoseconds period);

}  // namespace railhop
