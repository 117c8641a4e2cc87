// Whole ranks on GPUs: a target and a relay in processes of their own, and the config of a rank.
//
//   RelaySite site({.target_bytes = ...});        // target, relay
//   auto sender = site.MakeSender(true);          // a rank of this process, on the first GPU
//
// With two GPUs the relay and the target have the second one; with one GPU all share it. The
// simulated NICs move the bytes by their GPUs, or keep the clock alone.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/gpu/gpu_support.h"
#include "tools/demo/device_memory.h"

namespace railhop {

// This program once more, as a process that serves questions on a socket. Killed at the end.
class RoleProcess {
 public:
  // Adds "--role=fd" to the arguments.
  RoleProcess(const std::string& role, std::vector<std::string> arguments);
  ~RoleProcess();
  RoleProcess(const RoleProcess&) = delete;
  RoleProcess& operator=(const RoleProcess&) = delete;

  bool Send(const void* bytes, size_t size) const;
  // False: the process is gone.
  bool Receive(void* bytes, size_t size) const;
  void Kill();
  // Closes the socket, which ends it, and waits; true if it ended well.
  bool Leave();

 private:
  int fd_ = -1;
  int pid_ = -1;
};

struct RelaySiteOptions {
  uint64_t target_bytes = 0;
  std::string copy = "";  // of the ranks' config: the inside of a copy block
  double gb_per_s = 25;   // of each NIC
  bool move = true;       // the NICs move the bytes
  uint64_t base_delay_ns = 3000;
  uint64_t max_piece_bytes = 8 << 20;
};

class RelaySite {
 public:
  explicit RelaySite(const RelaySiteOptions& options);
  ~RelaySite();
  RelaySite(const RelaySite&) = delete;
  RelaySite& operator=(const RelaySite&) = delete;

  // A rank on the first GPU; with `relayed` in the relay's group, and attached to it. nullptr: it
  // could not be had, and standard error says why.
  std::unique_ptr<Rank> MakeSender(bool relayed) const;
  // Where the target's memory begins.
  uint64_t target_address() const { return target_address_; }
  void ClearTarget() const;
  // Of the first bytes of the target's memory, a multiple of 8, as its GPU sees them.
  uint64_t TargetChecksum(uint64_t bytes) const;
  RoleProcess& relay() { return *relay_; }
  void StartRelay();
  // What the relay has recorded of one piece in 8 since the last call.
  PieceTrace RelayTrace() const;

  static constexpr const char* kTarget = "decode";

 private:
  std::string Config(int device, const std::string& name, bool relayed) const;

  const RelaySiteOptions options_;
  std::string folder_;
  std::unique_ptr<RoleProcess> target_, relay_;
  uint64_t target_address_ = 0;
};

// Of main(), after GpuTestMain: in a process with a role serves it and returns its exit status,
// else -1.
int RelayRoleMain(int argc, char** argv);

}  // namespace railhop
