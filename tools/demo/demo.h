// `railhop demo`: a target process and N rank processes on this machine replay real KV-cache
// batches over simulated NICs, relayed and direct in turn, with every byte checked at the target.
//
// With GPUs the ranks share those that there are, in turn; the bytes are moved and checked once,
// and after that NICs that keep the clock alone give the figures.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace railhop {

struct DemoOptions {
  uint32_t ranks = 4;
  uint32_t rails_per_rank = 1;
  std::string layout = "auto";
  std::string staging = "host";  // or "cuda"
  std::string target = "cuda";   // with cuda: where the target's memory is; else "host"
  double line_rate = 0;  // GB/s of one NIC; 0: a quarter of memcpy's rate over all active NICs,
                         // with cuda 25
  std::string batches;   // file; empty: those of tests/data/kv_batches.json
  std::string config;    // text config that every rank starts from
  double duration = 20;  // seconds of replaying, at least one round
  std::string json;
  std::string trace;  // file; not empty: every piece is recorded
};

// Adds the subcommand and its hidden siblings, the children's programs. `*run` is set to what must
// run after parsing; it returns the exit code.
void AddDemoCommands(CLI::App& app, std::function<int()>* run);

int RunDemo(const DemoOptions& options);

// The children, spoken to by RunDemo (child_process.h).
struct TargetOptions {
  std::string directory;
  std::string name;
  uint64_t area_bytes = 0;             // of each area
  std::vector<std::string> preferred;  // per area: NIC names, separated by commas
  std::vector<std::string> gpus;  // per area: whose memory it is, by PCI address; empty: host's
};
int RunTargetProcess(const TargetOptions& options);

struct RankProcessOptions {
  std::string config_file;  // of the rank that relays
  std::string direct_config_file;
  std::string target;
  std::string wanted_rails;  // separated by commas: the rails it must be relayed by
  uint64_t source_bytes = 0;
  std::string gpu;  // of the source, by PCI address; empty: in host memory
};
int RunRankProcess(const RankProcessOptions& options);

}  // namespace railhop
