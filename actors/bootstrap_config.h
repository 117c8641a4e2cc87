// The configuration of a rank as plain values, and how it is read.
//
//   RankConfig config;
//   if (!LoadRankConfig(text, "rank0.textproto", getenv, &config, &error)) ...
//
// Fields, defaults and ranges are explained in docs/configuration.md; the text form is
// proto/runtime_config.proto. Neither protobuf nor Abseil shows here.
// Threads: pure functions, no state; nothing is logged. Errors are a false return and a text that
// says where, what and what would be right. What only switches relaying off is not an error: see
// PxnConfig::off_reason and RankConfig::warnings.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/copy/copy_cost.h"

namespace railhop {

enum class StagingKind { kHost, kCuda };

// How the GPU of a rank copies. Unset: the best there is.
struct CopyConfig {
  std::optional<CudaDoorbell> doorbell;
  std::optional<CopyWay> way;
  std::optional<CopyCosts> costs;  // unset: measured
  int stream_priority = 0;
  uint32_t gather_max_blocks = 32;
};

enum class NicKind { kSim, kTcp, kRdma };

struct NicConfig {
  std::string name;
  std::string rail;    // after the rail map; never empty in a loaded config
  int numa_node = -1;  // -1: unknown
  NicKind kind = NicKind::kSim;
  uint64_t line_rate_bytes_per_s = 25'000'000'000;
  uint64_t base_delay_ns = 3000;
  bool model_only = false;  // keeps the clock, moves no bytes
  uint32_t queue_depth = 256;
  uint32_t connections = 4;        // kTcp: to each target
  uint64_t status_timeout_s = 30;  // kTcp: for an answer

  // kRdma.
  uint8_t port = 1;
  int gid_index = -1;             // -1: the one that suits best
  uint32_t max_endpoints = 4000;  // or what its device has room for
  bool evict_oldest = false;      // whether it was used lately or not
  uint32_t queue_pairs = 2;
  uint32_t max_mtu = 4096;
  uint8_t traffic_class = 0;
  uint8_t service_level = 0;
  uint16_t pkey_index = 0;
  bool relaxed_ordering = true;
};

struct PxnConfig {
  bool enable = false;
  std::string group_id;
  std::map<std::string, std::string> rail_map;  // NIC name -> rail name, of any host
  uint64_t inflight_depth = 4;                  // pieces of 8 MiB
  uint64_t credit_timeout_ms = 1000;
  uint64_t heartbeat_timeout_ms = 3000;
  bool preattach = false;
  uint64_t min_relay_bytes = 0;
  uint64_t max_piece_bytes = 8 << 20;
  uint64_t heartbeat_ms = 500;
  uint64_t lane_grace_ms = 200;
  uint64_t probe_timeout_ms = 100;
  uint64_t fabric_drain_ms = 10;
  uint64_t doorbell_poll_us = 50;

  // Why this rank takes no part in relaying; empty when it does. Every value above may then be a
  // default instead of what was asked for.
  std::string off_reason;
};

enum class ActorKind { kSubmit, kCopy, kRelayPost, kCqPoll, kPeer, kWatchdog, kEndpoint };
inline constexpr int kActorKinds = 7;
const char* ActorKindName(ActorKind kind);  // "submit", ..., "endpoint"

enum class LayoutPreset { kAuto, kOneCore, kTwoCore, kFourCore, kPerNic };
// "auto", "one_core", "two_core", "four_core", "per_nic".
const char* LayoutPresetName(LayoutPreset preset);
bool ParseLayoutPreset(std::string_view name, LayoutPreset* preset);

enum class ReactorIdle { kBusy, kAdaptive, kEvent };

struct ReactorConfig {
  std::string name = {};
  int core = -1;             // -1: not pinned
  bool pin_required = true;  // false: not being pinned is only a warning
  ReactorIdle idle = ReactorIdle::kAdaptive;
  std::optional<uint32_t> spin_us =
      {};                  // RankConfig::spin_us if unset; always set by ResolveLayout
  std::string where = {};  // "FILE:LINE: ", for messages
};

struct PlacementConfig {
  ActorKind actor = ActorKind::kSubmit;
  std::string reactor = {};
  std::string where = {};
};

struct RankConfig {
  std::string name;
  std::vector<NicConfig> nics;
  std::string sim_directory;
  std::string registry_root = "/dev/shm";
  StagingKind staging = StagingKind::kHost;
  std::string gpu;  // PCI address; empty: the first that is visible
  CopyConfig copy;
  PxnConfig pxn;

  uint64_t batch_timeout_ms = 30'000;
  uint64_t piece_timeout_ms = 5'000;
  uint64_t slice_size = 65'536;
  uint64_t fragment_ratio = 4;  // a tail of slice_size / this goes with the slice before it
  uint64_t slice_attempts = 9;
  bool destination_affinity = false;  // MC_ENABLE_DEST_DEVICE_AFFINITY

  LayoutPreset layout = LayoutPreset::kAuto;
  uint32_t ranks_on_host = 1;
  std::optional<uint32_t> local_rank;
  std::optional<uint32_t> spin_us;  // unset: 50, or 2000 when virtualised
  std::vector<ReactorConfig> reactors;
  std::vector<PlacementConfig> placement;

  uint32_t max_batches = 1024;  // from submission to free
  uint32_t trace_sample_every = 64;
  bool histograms = true;
  bool trace_pieces = true;
  uint64_t slot_log_every_ms = 0;  // 0: no slot log

  // For the log, one line each: what was asked for and is not done.
  std::vector<std::string> warnings;
  // Of the process's environment, which its ranks share: each is logged once per process.
  std::vector<std::string> environment_warnings;
};

// Like std::getenv: nullptr for a variable that is not set.
using GetEnvironment = std::function<const char*(const char* name)>;

// Reads the text, lets the environment (MC_PXN_*, and the engine's that concern a rank) override
// it, and checks everything that does not depend on the machine. `name` stands for the text in
// messages. `default_name`: of a rank whose text gives it none.
bool LoadRankConfig(std::string_view text, std::string_view name, const GetEnvironment& environment,
                    RankConfig* config, std::string* error, std::string_view default_name = {});

// The name of the registry group: that of the config, marked for ranks that stage in host memory.
std::string RegistryGroup(const RankConfig& config);

}  // namespace railhop
