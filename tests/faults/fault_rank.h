// The rank process of the fault trials: submits what it is told to, and says how it went. Spoken to
// in JSON lines (tools/demo/child_process.h).
//
//   {"command": "submit", "slot": 0, "seed": 7, "address": 140230..., "timeout_ms": 1000} -> {}
//   {"command": "poll"} -> {"batches": [{"slot": 0, "state": "PENDING", "overdue_ms": -830, ...}]}
//   {"command": "cancel" | "free", "slot": 0} -> {}
//   {"command": "wait_relay", "rail": "sim1", "timeout_ms": 1000} -> {"ready": true}
//   {"command": "leave"} -> {}: stops the rank
#pragma once

#include <cstdint>
#include <string>

namespace railhop {

inline constexpr uint32_t kBatchSlots = 6;                 // batches at a time
inline constexpr uint64_t kBatchBytes = 2 << 20;           // each
inline constexpr uint64_t kBatchRequestBytes = 128 << 10;  // of each of its requests
inline constexpr const char* kFaultTarget = "decode-0";

struct FaultRankOptions {
  uint32_t number = 0;  // it owns the NIC "simNUMBER", which is a rail of its own
  std::string folder;   // registry, simulated targets, log
};
// Until end of file on standard input; the process's exit code.
int RunFaultRank(const FaultRankOptions& options);

}  // namespace railhop
