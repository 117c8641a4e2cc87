// The environment variables of the Transfer Engine: one table of names, types, ranges and defaults,
// those of Mooncake (mooncake-compat (d), (e)), so that a job keeps its settings.
//
// A value that is not valid counts as not given, with one warning that names variable, value and
// what is allowed. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace railhop {

// What the table's variables say. Sizes are bytes unless the name has another unit.
struct EngineEnvironment {
  uint64_t transfer_timeout_s = 0;
  uint64_t slice_size = 0;
  uint64_t fragment_ratio = 0;
  uint64_t retry_count = 0;
  uint64_t slice_timeout_s = 0;  // 0: none

  uint64_t handshake_port = 0;
  uint64_t handshake_listen_backlog = 0;
  uint64_t handshake_connect_timeout_s = 0;
  uint64_t handshake_max_length = 0;
  uint64_t min_rpc_port = 0;
  uint64_t max_rpc_port = 0;
  bool use_ipv6 = false;
  bool disable_metacache = false;
  std::string metadata_cluster_id;

  bool force_tcp = false;
  bool force_hca = false;
  std::string custom_topology_file;
  std::string device_filters;
  bool path_round_robin = false;
  bool destination_device_affinity = false;
  uint64_t max_mr_size = 0;

  uint64_t ib_port = 0;
  std::string gid_index;  // "": the one that suits best
  uint64_t pkey_index = 0;
  std::string traffic_class;  // "": 0, as the next one
  std::string service_level;
  std::string mtu;
  uint64_t relaxed_ordering = 0;  // 0: off
  uint64_t max_endpoints = 0;
  std::string endpoint_store;  // "SIEVE" or "FIFO"
  uint64_t queue_pairs = 0;
  uint64_t send_queue_depth = 0;
  // Without effect.
  uint64_t completion_queues = 0;
  uint64_t completion_channels = 0;
  uint64_t completion_entries = 0;
  uint64_t max_sge = 0;
  uint64_t max_inline = 0;
  uint64_t workers = 0;
  uint64_t gid_retries = 0;
  uint64_t rail_pause_s = 0;

  std::string tcp_bind_address;
  uint64_t tcp_protocol_version = 0;
  uint64_t tcp_status_timeout_s = 0;
  uint64_t tcp_slice_size = 0;
  bool tcp_connection_pool = false;
  uint64_t tcp_lanes_per_peer = 0;
  uint64_t tcp_max_queued_transfers_per_peer = 0;
  uint64_t tcp_max_pending_admissions_per_peer = 0;
  uint64_t tcp_admission_timeout_ms = 0;
  bool tcp_local = false;

  std::string log_level;
  std::string config_file;

  std::vector<std::string> warnings;  // one per variable that is not valid
  std::vector<const char*> given;     // names of the settings that are set, and valid

  // Whether the setting of that name is, so that its value is not merely the default.
  bool Gives(std::string_view name) const;
};

struct EngineSetting {
  // kOptional: a number as text, or "" for none. kChoice: one of `choices`.
  enum class Type { kNumber, kOptional, kBool, kAddress, kChoice, kLogLevel, kText };

  const char* name;
  const char* alias;  // older name, read if `name` is not set; nullptr: none
  Type type;
  uint64_t min, max;          // of a kNumber or kOptional
  const char* default_value;  // as one would write it; "" for none
  const char* help;
  // The member it sets: the one of its type.
  uint64_t EngineEnvironment::*number = nullptr;
  bool EngineEnvironment::*flag = nullptr;
  std::string EngineEnvironment::*text = nullptr;
  const char* choices = nullptr;  // of a kChoice: "SIEVE, FIFO"
};

std::span<const EngineSetting> EngineSettings();
const char* SettingTypeName(EngineSetting::Type type);
// "1..64", "true or false ...", ...
std::string AllowedValues(const EngineSetting& setting);
// The value of that setting in `environment`, as text.
std::string ValueOf(const EngineSetting& setting, const EngineEnvironment& environment);

// `lookup` gives a variable's value or nullptr, as getenv does.
EngineEnvironment ReadEngineEnvironment(const std::function<const char*(const char*)>& lookup);

}  // namespace railhop
