#include "transport/engine/environment.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <optional>
#include <string_view>

#include "transport/setting_text.h"

namespace railhop {
namespace {

using Type = EngineSetting::Type;

constexpr uint64_t kTransferTimeoutFloorS = 5;
// Where Linux takes the ports of outgoing connections from: a listener there may find its port
// taken at any time.
constexpr uint64_t kEphemeralMin = 32768;
constexpr uint64_t kEphemeralMax = 60999;

constexpr EngineSetting kSettings[] = {
    {.name = "MC_TRANSFER_TIMEOUT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 31536000,
     .default_value = "30",
     .help =
         "seconds until a batch's deadline, to which 1 ns per byte is added; below 5 counts as 5",
     .number = &EngineEnvironment::transfer_timeout_s},
    {.name = "MC_SLICE_SIZE",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 512,
     .max = 8388608,
     .default_value = "65536",
     .help = "bytes of one slice; over TCP a request is cut by connections instead",
     .number = &EngineEnvironment::slice_size},
    {.name = "MC_FRAGMENT_RATIO",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 65536,
     .default_value = "4",
     .help = "a tail of at most MC_SLICE_SIZE divided by this goes with the slice before it",
     .number = &EngineEnvironment::fragment_ratio},
    {.name = "MC_RETRY_CNT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 127,
     .default_value = "9",
     .help = "attempts for a slice, on one path after the other, before it fails",
     .number = &EngineEnvironment::retry_count},
    {.name = "MC_SLICE_TIMEOUT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = 65535,
     .default_value = "0",
     .help = "seconds until a task that has not ended shows as TIMEOUT; 0: at its deadline only",
     .number = &EngineEnvironment::slice_timeout_s},
    {.name = "MC_HANDSHAKE_PORT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 65535,
     .default_value = "12001",
     .help = "port of a peer whose name has none",
     .number = &EngineEnvironment::handshake_port},
    {.name = "MC_HANDSHAKE_LISTEN_BACKLOG",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 65535,
     .default_value = "128",
     .help = "connections that wait to be accepted",
     .number = &EngineEnvironment::handshake_listen_backlog},
    {.name = "MC_HANDSHAKE_CONNECT_TIMEOUT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 3599,
     .default_value = "5",
     .help = "seconds to connect to one address of a peer",
     .number = &EngineEnvironment::handshake_connect_timeout_s},
    {.name = "MC_HANDSHAKE_MAX_LENGTH",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1 << 20,
     .max = 128 << 20,
     .default_value = "1048576",
     .help =
         "bytes of a handshake message, at most; some 10,000 buffers need more than the default",
     .number = &EngineEnvironment::handshake_max_length},
    {.name = "MC_MIN_RPC_PORT",
     .alias = "MC_MIN_PRC_PORT",
     .type = Type::kNumber,
     .min = 1024,
     .max = 65535,
     .default_value = "15000",
     .help = "first of the ports to listen on; the range must keep clear of 32768..60999",
     .number = &EngineEnvironment::min_rpc_port},
    {.name = "MC_MAX_RPC_PORT",
     .alias = "MC_MAX_PRC_PORT",
     .type = Type::kNumber,
     .min = 1024,
     .max = 65535,
     .default_value = "17000",
     .help = "last of the ports to listen on",
     .number = &EngineEnvironment::max_rpc_port},
    {.name = "MC_USE_IPV6",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "listen on and connect to IPv6 addresses",
     .flag = &EngineEnvironment::use_ipv6},
    {.name = "MC_DISABLE_METACACHE",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "ask a peer for its descriptor at each submission",
     .flag = &EngineEnvironment::disable_metacache},
    {.name = "MC_METADATA_CLUSTER_ID",
     .alias = nullptr,
     .type = Type::kText,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "comes before the keys in a metadata service, so that clusters can share one",
     .text = &EngineEnvironment::metadata_cluster_id},
    {.name = "MC_FORCE_TCP",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "TCP even where RDMA devices are",
     .flag = &EngineEnvironment::force_tcp},
    {.name = "MC_FORCE_HCA",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "RDMA even where no device was found: no effect, an engine without one uses TCP and "
             "says so",
     .flag = &EngineEnvironment::force_hca},
    {.name = "MC_CUSTOM_TOPO_JSON",
     .alias = nullptr,
     .type = Type::kText,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "file with a NIC priority matrix in place of the discovered one; TCP needs none",
     .text = &EngineEnvironment::custom_topology_file},
    {.name = "MC_TE_FILTERS",
     .alias = nullptr,
     .type = Type::kText,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "names of the NICs to use, separated by commas; none: all. TCP has none to choose",
     .text = &EngineEnvironment::device_filters},
    {.name = "MC_PATH_ROUNDROBIN",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "accepted without effect: the preferred NICs are always taken in turn",
     .flag = &EngineEnvironment::path_round_robin},
    {.name = "MC_ENABLE_DEST_DEVICE_AFFINITY",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "a NIC of the target on the rail of the own one, by default that of the same name, is "
             "used "
             "even if the target's memory prefers others",
     .flag = &EngineEnvironment::destination_device_affinity},
    {.name = "MC_IB_PORT",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 255,
     .default_value = "1",
     .help = "port of the RDMA devices",
     .number = &EngineEnvironment::ib_port},
    {.name = "MC_GID_INDEX",
     .alias = "NCCL_IB_GID_INDEX",
     .type = Type::kOptional,
     .min = 0,
     .max = 255,
     .default_value = "",
     .help = "entry of the GID table of RDMA ports; none: the one that suits best",
     .text = &EngineEnvironment::gid_index},
    {.name = "MC_PKEY_INDEX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = 65535,
     .default_value = "0",
     .help = "entry of the partition key table of RDMA ports",
     .number = &EngineEnvironment::pkey_index},
    {.name = "MC_IB_TC",
     .alias = nullptr,
     .type = Type::kOptional,
     .min = 0,
     .max = 255,
     .default_value = "",
     .help = "traffic class of RDMA packets; none: 0",
     .text = &EngineEnvironment::traffic_class},
    {.name = "MC_IB_SL",
     .alias = nullptr,
     .type = Type::kOptional,
     .min = 0,
     .max = 15,
     .default_value = "",
     .help = "service level of RDMA packets; none: 0",
     .text = &EngineEnvironment::service_level},
    {.name = "MC_MTU",
     .alias = nullptr,
     .type = Type::kChoice,
     .min = 0,
     .max = 0,
     .default_value = "4096",
     .help = "bytes of an RDMA packet, at most; what the port has, if that is less",
     .text = &EngineEnvironment::mtu,
     .choices = "512, 1024, 2048, 4096"},
    {.name = "MC_MAX_MR_SIZE",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 4096,
     .max = uint64_t{1} << 40,
     .default_value = "1099511627776",
     .help =
         "bytes that are registered with an RDMA device at once, if it does not take less; larger "
         "memory is registered in parts",
     .number = &EngineEnvironment::max_mr_size},
    {.name = "MC_IB_PCI_RELAXED_ORDERING",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = 2,
     .default_value = "1",
     .help = "1 or 2: RDMA devices that can may write registered memory in any order",
     .number = &EngineEnvironment::relaxed_ordering},
    {.name = "MC_MAX_EP_PER_CTX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 65536,
     .default_value = "65536",
     .help = "RDMA connections of one NIC, 4000 or what its device has room for at most; one more "
             "evicts another",
     .number = &EngineEnvironment::max_endpoints},
    {.name = "MC_ENDPOINT_STORE_TYPE",
     .alias = nullptr,
     .type = Type::kChoice,
     .min = 0,
     .max = 0,
     .default_value = "SIEVE",
     .help = "which one goes: FIFO takes the oldest, SIEVE the oldest that was not used lately",
     .text = &EngineEnvironment::endpoint_store,
     .choices = "SIEVE, FIFO"},
    {.name = "MC_NUM_QP_PER_EP",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 255,
     .default_value = "2",
     .help = "queue pairs of an RDMA connection, as many as a Mooncake at the other end has; "
             "requests go over the first",
     .number = &EngineEnvironment::queue_pairs},
    {.name = "MC_MAX_WR",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 2,
     .max = 16384,
     .default_value = "256",
     .help = "requests that one RDMA connection may have under way",
     .number = &EngineEnvironment::send_queue_depth},
    {.name = "MC_NUM_CQ_PER_CTX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 255,
     .default_value = "1",
     .help = "accepted without effect: an RDMA NIC has one completion queue",
     .number = &EngineEnvironment::completion_queues},
    {.name = "MC_NUM_COMP_CHANNELS_PER_CTX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 255,
     .default_value = "1",
     .help = "accepted without effect, as the one before",
     .number = &EngineEnvironment::completion_channels},
    {.name = "MC_MAX_CQE_PER_CTX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 65535,
     .default_value = "4096",
     .help = "accepted without effect: it has room for all that may be under way",
     .number = &EngineEnvironment::completion_entries},
    {.name = "MC_MAX_SGE",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 255,
     .default_value = "4",
     .help = "accepted without effect: a request has one range",
     .number = &EngineEnvironment::max_sge},
    {.name = "MC_MAX_INLINE",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = 65535,
     .default_value = "64",
     .help = "accepted without effect: nothing is sent inline",
     .number = &EngineEnvironment::max_inline},
    {.name = "MC_WORKERS_PER_CTX",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 8,
     .default_value = "2",
     .help = "accepted without effect: the layout of the config says which threads there are",
     .number = &EngineEnvironment::workers},
    {.name = "MC_AUTO_GID_MAX_RETRIES",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 0,
     .max = 16,
     .default_value = "2",
     .help = "accepted without effect: a path is tried anew until it works",
     .number = &EngineEnvironment::gid_retries},
    {.name = "MC_RDMA_RAIL_PAUSE_SECONDS",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 3599,
     .default_value = "30",
     .help = "accepted without effect: a path that fails is left alone for 0.5 s, then twice as "
             "long each time, up to 8 s",
     .number = &EngineEnvironment::rail_pause_s},
    {.name = "MC_TCP_BIND_ADDRESS",
     .alias = nullptr,
     .type = Type::kAddress,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "address that TCP listeners bind to; none: all",
     .text = &EngineEnvironment::tcp_bind_address},
    {.name = "MC_TCP_PROTO",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 2,
     .default_value = "2",
     .help = "1: TCP writes are not acknowledged, as before version 2",
     .number = &EngineEnvironment::tcp_protocol_version},
    {.name = "MC_TCP_STATUS_TIMEOUT_SEC",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 3600,
     .default_value = "30",
     .help = "seconds for the answer to a TCP request",
     .number = &EngineEnvironment::tcp_status_timeout_s},
    {.name = "MC_TCP_SLICE_SIZE",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 4096,
     .max = 64 << 20,
     .default_value = "65536",
     .help = "accepted without effect: as much as the socket takes is read or written at once",
     .number = &EngineEnvironment::tcp_slice_size},
    {.name = "MC_TCP_ENABLE_CONNECTION_POOL",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "false",
     .help = "accepted without effect: connections are always kept",
     .flag = &EngineEnvironment::tcp_connection_pool},
    {.name = "MC_TCP_LANES_PER_PEER",
     .alias = "MC_TCP_MAX_CONNECTIONS_PER_PEER",
     .type = Type::kNumber,
     .min = 1,
     .max = 16,
     .default_value = "4",
     .help = "TCP connections to one peer",
     .number = &EngineEnvironment::tcp_lanes_per_peer},
    {.name = "MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 1048576,
     .default_value = "1024",
     .help = "accepted without effect: a full queue is the caller's answer",
     .number = &EngineEnvironment::tcp_max_queued_transfers_per_peer},
    {.name = "MC_TCP_MAX_PENDING_ADMISSIONS_PER_PEER",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 1048576,
     .default_value = "1024",
     .help = "accepted without effect, as the one before",
     .number = &EngineEnvironment::tcp_max_pending_admissions_per_peer},
    {.name = "MC_TCP_ADMISSION_TIMEOUT_MS",
     .alias = nullptr,
     .type = Type::kNumber,
     .min = 1,
     .max = 600000,
     .default_value = "1000",
     .help = "accepted without effect, as the one before",
     .number = &EngineEnvironment::tcp_admission_timeout_ms},
    {.name = "MC_LOG_LEVEL",
     .alias = nullptr,
     .type = Type::kLogLevel,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "lines below it are dropped; none: what RAILHOP_LOG_LEVEL says",
     .text = &EngineEnvironment::log_level},
    {.name = "RAILHOP_TCP_LOCAL",
     .alias = nullptr,
     .type = Type::kBool,
     .min = 0,
     .max = 0,
     .default_value = "true",
     .help =
         "protocol tcp within a host, both ends Railhop and of one user: a local socket carries "
         "the bytes",
     .flag = &EngineEnvironment::tcp_local},
    {.name = "RAILHOP_CONFIG",
     .alias = nullptr,
     .type = Type::kText,
     .min = 0,
     .max = 0,
     .default_value = "",
     .help = "file with a RankConfig, for engines that the application gives none; none: defaults",
     .text = &EngineEnvironment::config_file},
};

bool IsAddress(const std::string& text) {
  in6_addr address{};
  return inet_pton(AF_INET, text.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, text.c_str(), &address) == 1;
}

std::string Upper(std::string_view text) {
  std::string upper;
  std::transform(text.begin(), text.end(), std::back_inserter(upper),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

bool IsInRange(const EngineSetting& setting, std::string_view value) {
  const std::optional<uint64_t> number = ParseNumber(value);
  return number.has_value() && *number >= setting.min && *number <= setting.max;
}

bool IsAmong(std::string_view choices, std::string_view value) {
  for (size_t first = 0; first < choices.size();) {
    const size_t comma = std::min(choices.find(", ", first), choices.size());
    if (choices.substr(first, comma - first) == value) return true;
    first = comma + 2;
  }
  return false;
}

bool ParseLogLevel(std::string_view text, std::string* value) {
  constexpr std::array<std::string_view, 4> kLevels = {"TRACE", "INFO", "WARNING", "ERROR"};
  *value = Upper(text);
  return std::find(kLevels.begin(), kLevels.end(), *value) != kLevels.end();
}

// False: `value` is not valid, and the member is undefined.
bool Set(const EngineSetting& setting, const std::string& value, EngineEnvironment* environment) {
  switch (setting.type) {
    case Type::kNumber:
      environment->*setting.number = ParseNumber(value).value_or(0);
      return IsInRange(setting, value);
    case Type::kOptional:
      environment->*setting.text = value;
      return value.empty() || IsInRange(setting, value);
    case Type::kChoice:
      environment->*setting.text = Upper(value);
      return IsAmong(setting.choices, environment->*setting.text);
    case Type::kBool: {
      const std::optional<bool> flag = ParseBool(value);
      environment->*setting.flag = flag.value_or(false);
      return flag.has_value();
    }
    case Type::kAddress:
      environment->*setting.text = value;
      return value.empty() || IsAddress(value);
    case Type::kLogLevel:
      return ParseLogLevel(value, &(environment->*setting.text)) || value.empty();
    case Type::kText:
      environment->*setting.text = value;
      return true;
  }
  return false;
}

void CheckPortRange(EngineEnvironment* environment) {
  const uint64_t min = environment->min_rpc_port;
  const uint64_t max = environment->max_rpc_port;
  if (min <= max && (max < kEphemeralMin || min > kEphemeralMax)) return;
  for (const EngineSetting& setting : kSettings) {
    if (setting.number == &EngineEnvironment::min_rpc_port ||
        setting.number == &EngineEnvironment::max_rpc_port) {
      Set(setting, setting.default_value, environment);
    }
  }
  environment->warnings.push_back(fmt::format(
      "MC_MIN_RPC_PORT..MC_MAX_RPC_PORT = {}..{} is not valid; allowed: a range within 1024..{} or "
      "{}..65535. {}..{} is used",
      min, max, kEphemeralMin - 1, kEphemeralMax + 1, environment->min_rpc_port,
      environment->max_rpc_port));
}

}  // namespace

bool EngineEnvironment::Gives(std::string_view name) const {
  return std::find(given.begin(), given.end(), name) != given.end();
}

std::span<const EngineSetting> EngineSettings() {
  return kSettings;
}

const char* SettingTypeName(Type type) {
  switch (type) {
    case Type::kNumber:
    case Type::kOptional:
      return "number";
    case Type::kBool:
      return "boolean";
    case Type::kAddress:
      return "address";
    case Type::kChoice:
      return "choice";
    case Type::kLogLevel:
      return "level";
    case Type::kText:
      return "text";
  }
  return "?";
}

std::string AllowedValues(const EngineSetting& setting) {
  switch (setting.type) {
    case Type::kNumber:
    case Type::kOptional:
      return fmt::format("{}..{}", setting.min, setting.max);
    case Type::kChoice:
      return setting.choices;
    case Type::kBool:
      return kBoolValues;
    case Type::kAddress:
      return "an IPv4 or IPv6 address";
    case Type::kLogLevel:
      return "TRACE, INFO, WARNING or ERROR";
    case Type::kText:
      return "any text";
  }
  return {};
}

std::string ValueOf(const EngineSetting& setting, const EngineEnvironment& environment) {
  if (setting.number != nullptr) return std::to_string(environment.*setting.number);
  if (setting.flag != nullptr) return environment.*setting.flag ? "true" : "false";
  return environment.*setting.text;
}

EngineEnvironment ReadEngineEnvironment(const std::function<const char*(const char*)>& lookup) {
  EngineEnvironment environment;
  for (const EngineSetting& setting : kSettings) {
    const char* name = setting.name;
    const char* value = lookup(name);
    if (value == nullptr && setting.alias != nullptr) {
      name = setting.alias;
      value = lookup(name);
    }
    if (value != nullptr && Set(setting, value, &environment)) {
      environment.given.push_back(setting.name);
      continue;
    }
    // The default of each setting is valid: a test reads them all.
    Set(setting, setting.default_value, &environment);
    if (value == nullptr) continue;
    environment.warnings.push_back(
        fmt::format("{} = \"{}\" is not valid; allowed: {}. It counts as not given", name,
                    ShownValue(value), AllowedValues(setting)));
  }
  environment.transfer_timeout_s = std::max(environment.transfer_timeout_s, kTransferTimeoutFloorS);
  CheckPortRange(&environment);
  return environment;
}

}  // namespace railhop
