#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <utility>

#include "actors/bootstrap.h"
#include "actors/bootstrap_config.h"
#include "actors/bootstrap_layout.h"
#include "actors/bootstrap_rank.h"
#include "actors/bootstrap_rdma.h"
#include "actors/bootstrap_settings.h"
#include "actors/bootstrap_staging.h"
#include "runtime/log.h"
#include "transport/engine/environment.h"
#include "transport/engine/local_host.h"
#include "transport/engine/metadata_store.h"
#include "transport/engine/p2p_metadata.h"
#include "transport/engine/rdma_segment.h"
#include "transport/engine/segment_directory.h"
#include "transport/engine/sim_segment.h"
#include "transport/engine/stored_metadata.h"
#include "transport/engine/tcp_segment.h"
#include "transport/topology/memory_location.h"
#include "transport/topology/priority_matrix.h"

namespace railhop {
namespace {

// TCP has no work requests to spread: a slice is what one connection carries at a time.
constexpr uint64_t kTcpSliceBytes = 1 << 20;
constexpr uint32_t kEngineBatches = 4096;
constexpr std::string_view kP2pHandshake = "P2PHANDSHAKE";

bool Fail(const absl::Status& status, std::string* error) {
  if (!status.ok()) *error = std::string(status.message());
  return status.ok();
}

struct SegmentAndMetadata {
  std::unique_ptr<LocalSegment> segment;
  std::unique_ptr<Metadata> metadata;  // must not outlive the segment
};

// Starts the engine's own segment on a host, under a name ("": that of its listener).
using StartLocal = std::function<absl::StatusOr<std::unique_ptr<LocalSegment>>(
    const std::string& host, const std::string& name)>;

absl::StatusOr<SegmentAndMetadata> StartSegment(const EngineOptions& options,
                                                const EngineEnvironment& environment,
                                                const StartLocal& start_local) {
  SegmentAndMetadata started;
  const auto start = [&](const std::string& host, const std::string& name) -> absl::Status {
    auto segment = start_local(host, name);
    if (!segment.ok()) return segment.status();
    started.segment = *std::move(segment);
    return absl::OkStatus();
  };
  const auto encoded = [&started] {
    return [own = started.segment.get()] { return own->Encoded(); };
  };
  if (options.metadata == kP2pHandshake) {
    // The port in a host's name is the caller's guess: peers get the one that was drawn.
    const absl::StatusOr<HostPort> host = ParseHostPort(options.host);
    if (!host.ok()) return host.status();
    // Not an error: peers may know the name though this host does not.
    if (!HasAddress(host->host, environment.use_ipv6)) {
      Log(LogLevel::kWarning,
          fmt::format(
              "host \"{}\" has no {} address that this host knows of: peers that know none, "
              "either, cannot open this engine's segment; use a host's name or an address",
              host->host, environment.use_ipv6 ? "IP" : "IPv4 (MC_USE_IPV6 is off)"));
    }
    if (absl::Status status = start(host->host, ""); !status.ok()) return status;
    started.metadata = std::make_unique<P2pMetadata>(environment, encoded());
    return started;
  }
  auto store = OpenMetadataStore(options.metadata, environment.handshake_max_length);
  if (!store.ok()) return store.status();
  const absl::StatusOr<std::string> host =
      FindLocalHost(options.host, environment.tcp_bind_address, environment.use_ipv6);
  if (!host.ok()) return host.status();
  if (absl::Status status = start(*host, options.host); !status.ok()) return status;
  started.metadata = std::make_unique<StoredMetadata>(
      *std::move(store), environment,
      OwnSegment{
          .name = options.host, .listener = started.segment->listener(), .descriptor = encoded()});
  return started;
}

// MC_LOG_LEVEL.
void SetLevel(const std::string& level) {
  if (level == "TRACE" || level == "INFO") SetDefaultLogLevel(LogLevel::kInfo);
  if (level == "WARNING") SetDefaultLogLevel(LogLevel::kWarning);
  if (level == "ERROR") SetDefaultLogLevel(LogLevel::kError);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, std::string_view variable) {
  std::ifstream file(path);
  std::ostringstream text;
  if (file && text << file.rdbuf()) return text.str();
  return absl::NotFoundError(
      fmt::format("{} = \"{}\": the file cannot be read, or is empty", variable, path));
}

// `nics`: config text of NICs beside those that the config names.
bool LoadEngineConfig(const EngineOptions& options, const EngineEnvironment& environment,
                      const std::string& nics, RankConfig* config, std::string* error) {
  std::string text = options.config_text;
  std::string name = "engine";
  if (text.empty() && !environment.config_file.empty()) {
    name = environment.config_file;
    absl::StatusOr<std::string> read = ReadFile(name, "RAILHOP_CONFIG");
    if (!Fail(read.status(), error)) return false;
    text = *std::move(read);
  }
  text += "\n" + nics;
  if (!LoadRankConfig(text, name, std::getenv, config, error, "engine")) return false;
  config->max_batches = kEngineBatches;
  return true;
}

// The one NIC of an engine over TCP. What the config says of others is for "sim".
void UseTcp(const EngineEnvironment& environment, RankConfig* config) {
  NicConfig nic;
  nic.name = nic.rail = "tcp0";
  nic.kind = NicKind::kTcp;
  nic.queue_depth = 1024;
  nic.connections = static_cast<uint32_t>(environment.tcp_lanes_per_peer);
  nic.status_timeout_s = environment.tcp_status_timeout_s;
  config->nics = {nic};
  config->slice_size = kTcpSliceBytes;
  SwitchPxnOff("TCP has no rails", config);
}

// Which of the engine's NICs are near which memory: as MC_CUSTOM_TOPO_JSON has it, else all of
// them.
absl::StatusOr<PriorityMatrix> MakeMatrix(const EngineEnvironment& environment,
                                          const RankConfig& config) {
  PriorityMatrix::Rows rows;
  if (!environment.custom_topology_file.empty()) {
    const absl::StatusOr<std::string> text =
        ReadFile(environment.custom_topology_file, "MC_CUSTOM_TOPO_JSON");
    if (!text.ok()) return text.status();
    const absl::StatusOr<PriorityMatrix> matrix = PriorityMatrix::Decode(*text);
    if (!matrix.ok()) {
      return absl::InvalidArgumentError(fmt::format("MC_CUSTOM_TOPO_JSON = \"{}\": {}",
                                                    environment.custom_topology_file,
                                                    std::string(matrix.status().message())));
    }
    rows = matrix->rows();
  }
  const auto is_foreign = [&](const std::string& name) {
    return std::none_of(config.nics.begin(), config.nics.end(),
                        [&](const NicConfig& nic) { return nic.name == name; });
  };
  for (auto& [location, row] : rows) {
    std::erase_if(row.preferred, is_foreign);
    std::erase_if(row.available, is_foreign);
  }
  PriorityMatrix::Row& any = rows.try_emplace(std::string(kAnyLocation)).first->second;
  if (any.preferred.empty() && any.available.empty()) {
    for (const NicConfig& nic : config.nics) any.preferred.push_back(nic.name);
  }
  return PriorityMatrix::Create(std::move(rows));
}

// How peers reach this engine's memory, and over what.
struct LocalFabric {
  SegmentProtocol protocol = SegmentProtocol::kTcp;
  RdmaDevices devices = {};
};

// Those that the config names, or all of this machine. Its rails, and with them whether it relays,
// are those of the NICs: with others the config is read anew.
absl::StatusOr<RdmaDevices> OpenRdma(const EngineOptions& options,
                                     const EngineEnvironment& environment, RankConfig* config) {
  if (HasRdmaNic(*config)) return UseRdma(environment, options.device_names, config);
  const absl::StatusOr<std::string> nics = AllRdmaNics();
  if (!nics.ok()) return nics.status();
  RankConfig all;
  std::string error;
  if (!LoadEngineConfig(options, environment, *nics, &all, &error)) {
    return absl::NotFoundError(error);
  }
  absl::StatusOr<RdmaDevices> devices = UseRdma(environment, options.device_names, &all);
  if (devices.ok()) *config = std::move(all);
  return devices;
}

// As in Mooncake the protocol is a hint: callers that say "rdma" run where there is none, too.
LocalFabric ChooseFabric(const EngineOptions& options, const EngineEnvironment& environment,
                         RankConfig* config) {
  if (options.protocol == "sim" && !environment.force_tcp) {
    return {.protocol = SegmentProtocol::kSim};
  }
  if (options.protocol == "rdma" && !environment.force_tcp) {
    absl::StatusOr<RdmaDevices> devices = OpenRdma(options, environment, config);
    if (devices.ok()) {
      return {.protocol = SegmentProtocol::kRdma, .devices = *std::move(devices)};
    }
    LogOnce(LogLevel::kWarning, "rdma",
            fmt::format("RDMA cannot be used, TCP is (MC_FORCE_TCP=1 asks for that): {}",
                        std::string(devices.status().message())));
  }
  UseTcp(environment, config);
  return {};
}

absl::StatusOr<StartLocal> ChooseLocalSegment(const LocalFabric& fabric,
                                              const EngineEnvironment& environment,
                                              const RankConfig& config,
                                              const std::shared_ptr<TcpBounces>& bounces,
                                              RdmaAddressOf address_of) {
  using Started = absl::StatusOr<std::unique_ptr<LocalSegment>>;
  if (fabric.protocol == SegmentProtocol::kTcp) {
    return [&environment, bounces](const std::string& host, const std::string& name) -> Started {
      return TcpSegment::Start(host, name, environment, bounces);
    };
  }
  if (config.nics.empty()) {
    return absl::InvalidArgumentError(
        "protocol \"sim\" needs simulated NICs in the config: give the engine a config text, or "
        "set RAILHOP_CONFIG to a file with one");
  }
  absl::StatusOr<PriorityMatrix> matrix = MakeMatrix(environment, config);
  if (!matrix.ok()) return matrix.status();
  if (fabric.protocol == SegmentProtocol::kSim) {
    return [&environment, options = SimSegment::Options{config.sim_directory, *std::move(matrix)}](
               const std::string& host, const std::string& name) -> Started {
      return SimSegment::Start(host, name, options, environment);
    };
  }
  RdmaSegment::Options options;
  for (const std::string& nic : matrix->nics()) {
    const auto device = std::find_if(fabric.devices.begin(), fabric.devices.end(),
                                     [&nic](const auto& each) { return each->name() == nic; });
    options.devices.push_back(*device);
  }
  options.matrix = *std::move(matrix);
  options.address_of = std::move(address_of);
  return [&environment, options = std::move(options)](const std::string& host,
                                                      const std::string& name) -> Started {
    return RdmaSegment::Start(host, name, options, environment);
  };
}

}  // namespace

// The segment and its listener first, since its name is how everybody knows the rank.
std::unique_ptr<TransferEngine> MakeTransferEngine(const EngineOptions& options,
                                                   std::string* error) {
  constexpr std::string_view kProtocols[] = {"tcp", "rdma", "sim"};
  if (std::find(std::begin(kProtocols), std::end(kProtocols), options.protocol) ==
      std::end(kProtocols)) {
    *error = fmt::format("protocol \"{}\" is not known: use \"tcp\", \"rdma\" or \"sim\"",
                         options.protocol);
    return nullptr;
  }
  const EngineEnvironment environment = ReadEngineEnvironment(std::getenv);
  SetLevel(environment.log_level);
  RankConfig config;
  if (!LoadEngineConfig(options, environment, "", &config, error)) return nullptr;
  const LocalFabric fabric = ChooseFabric(options, environment, &config);
  RankStaging staging = MakeStaging(&config);
  const auto addresses = std::make_shared<PeerAddresses>();
  const auto address_of = [addresses](const NicPath& path) { return addresses->Find(path); };
  const absl::StatusOr<StartLocal> start_local =
      ChooseLocalSegment(fabric, environment, config, staging.bounces, address_of);
  if (!Fail(start_local.status(), error)) return nullptr;
  auto found = StartSegment(options, environment, *start_local);
  if (!Fail(found.status(), error)) return nullptr;

  config.name = found->segment->name();
  ResolvedLayout layout;
  if (!ResolveLayout(config, DetectHostCores(), &layout, error)) return nullptr;
  auto directory = std::make_shared<SegmentDirectory>(
      found->segment->name(), std::move(found->metadata),
      SegmentAccess{.protocol = fabric.protocol,
                    .tcp_version = static_cast<int>(environment.tcp_protocol_version),
                    .tcp_local = environment.tcp_local,
                    .sim_directory = config.sim_directory,
                    .cached = !environment.disable_metacache});
  addresses->Use(directory);
  auto nics = MakeRdmaNics(
      fabric.devices, config, layout.IsOneReactor(ActorKind::kRelayPost, ActorKind::kCqPoll),
      [directory](const std::string& server, const std::string& json) {
        return directory->metadata().Exchange(server, json);
      },
      address_of);
  if (!Fail(nics.status(), error)) return nullptr;
  std::vector<Nic*> approaching;
  for (const std::unique_ptr<Nic>& nic : *nics) approaching.push_back(nic.get());
  const RouteOptions routes = RoutesOf(config);
  auto rank = MakeRank(
      std::move(config), layout, std::move(staging),
      [directory, approaching, routes](const std::string& target, std::stop_token stop) {
        absl::StatusOr<TargetInfo> info = directory->Resolve(target, std::move(stop));
        if (info.ok() && !approaching.empty()) Approach(routes, approaching, *info);
        return info;
      },
      *std::move(nics), error);
  if (rank == nullptr) return nullptr;
  auto engine = std::make_unique<TransferEngine>(std::move(rank), std::move(directory),
                                                 std::move(found->segment),
                                                 std::chrono::seconds(environment.slice_timeout_s));
  if (engine->Publish() == EngineError::kOk) return engine;
  *error = TransferEngine::last_error();
  return nullptr;
}

}  // namespace railhop
