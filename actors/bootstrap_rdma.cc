#include "actors/bootstrap_rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "actors/bootstrap_settings.h"
#include "runtime/log.h"
#include "transport/setting_text.h"

namespace railhop {
namespace {

absl::Status Filter(std::string_view source, const std::string& names, RankConfig* config) {
  std::string error;
  std::vector<std::string> missing;
  if (!FilterNics(source, names, config, &error, &missing)) return absl::NotFoundError(error);
  for (const std::string& name : missing) {
    Log(LogLevel::kWarning,
        fmt::format("{} = \"{}\" names {}, which is no RDMA device of this engine; it does without",
                    source, names, name));
  }
  return absl::OkStatus();
}

// The optional number of a variable: `text` is one, or empty.
template <typename T>
void Take(const std::string& text, T* value) {
  if (const std::optional<uint64_t> number = ParseNumber(text)) *value = static_cast<T>(*number);
}

// A queue that no completion queue of the device can serve is made shorter.
uint32_t DepthFor(const RdmaDevice& device, const NicConfig& wanted) {
  const uint32_t deepest = RdmaNic::DeepestSendQueue(device);
  if (wanted.queue_depth <= deepest) return wanted.queue_depth;
  Log(LogLevel::kWarning,
      fmt::format(
          "RDMA NIC {}: a send queue of {} requests (MC_MAX_WR, or queue_depth) is more than "
          "its completion queues have room for; {} are used",
          wanted.name, wanted.queue_depth, deepest));
  return deepest;
}

}  // namespace

absl::StatusOr<std::string> AllRdmaNics() {
  const absl::StatusOr<std::vector<std::string>> names = ListRdmaDevices();
  if (!names.ok()) return names.status();
  std::string text;
  for (const std::string& name : *names)
    text += fmt::format("nics {{ name: \"{}\" rdma {{}} }}\n", name);
  return text;
}

bool HasRdmaNic(const RankConfig& config) {
  return std::any_of(config.nics.begin(), config.nics.end(),
                     [](const NicConfig& nic) { return nic.kind == NicKind::kRdma; });
}

void ApplyRdmaEnvironment(const EngineEnvironment& environment, NicConfig* nic) {
  const auto take = [&environment](std::string_view name, uint64_t given, auto* value) {
    using Value = std::remove_reference_t<decltype(*value)>;
    if (environment.Gives(name)) *value = static_cast<Value>(given);
  };
  take("MC_IB_PORT", environment.ib_port, &nic->port);
  take("MC_PKEY_INDEX", environment.pkey_index, &nic->pkey_index);
  take("MC_MAX_EP_PER_CTX", environment.max_endpoints, &nic->max_endpoints);
  take("MC_NUM_QP_PER_EP", environment.queue_pairs, &nic->queue_pairs);
  take("MC_MAX_WR", environment.send_queue_depth, &nic->queue_depth);
  take("MC_ENDPOINT_STORE_TYPE", environment.endpoint_store == "FIFO", &nic->evict_oldest);
  nic->relaxed_ordering = environment.relaxed_ordering != 0;
  Take(environment.gid_index, &nic->gid_index);
  Take(environment.traffic_class, &nic->traffic_class);
  Take(environment.service_level, &nic->service_level);
  Take(environment.mtu, &nic->max_mtu);
}

absl::StatusOr<RdmaDevices> UseRdma(const EngineEnvironment& environment,
                                    const std::string& device_names, RankConfig* config) {
  RankConfig wanted = *config;
  std::erase_if(wanted.nics, [](const NicConfig& nic) { return nic.kind != NicKind::kRdma; });
  const absl::Status filtered = Filter("device_name", device_names, &wanted);
  if (!filtered.ok()) return filtered;
  RdmaDevices devices;
  std::vector<NicConfig> usable;
  absl::Status last = absl::NotFoundError("this machine has no RDMA device");
  for (NicConfig& nic : wanted.nics) {
    ApplyRdmaEnvironment(environment, &nic);
    absl::StatusOr<std::shared_ptr<RdmaDevice>> device =
        RdmaDevice::Open({.name = nic.name,
                          .port = nic.port,
                          .gid_index = nic.gid_index,
                          .pkey_index = nic.pkey_index,
                          .max_mtu = nic.max_mtu,
                          .traffic_class = nic.traffic_class,
                          .service_level = nic.service_level,
                          .max_region_bytes = environment.max_mr_size,
                          .relaxed_ordering = nic.relaxed_ordering});
    if (device.ok()) {
      devices.push_back(*std::move(device));
      usable.push_back(std::move(nic));
    } else {
      last = device.status();
      Log(LogLevel::kWarning, std::string(last.message()) + "; the engine does without it");
    }
  }
  if (devices.empty()) return last;
  config->nics = std::move(usable);
  return devices;
}

void PeerAddresses::Use(const std::shared_ptr<SegmentDirectory>& directory) {
  const std::lock_guard lock(mutex_);
  directory_ = directory;
}

absl::StatusOr<RdmaAddress> PeerAddresses::Find(const NicPath& path) const {
  std::shared_ptr<SegmentDirectory> directory;
  {
    const std::lock_guard lock(mutex_);
    directory = directory_.lock();
  }
  if (directory == nullptr) return absl::UnavailableError("this engine is not up yet, or ends");
  const absl::StatusOr<SegmentDescriptor> segment = directory->metadata().Fetch(
      path.server, {.until = std::chrono::steady_clock::now() + kPatience});
  if (!segment.ok()) {
    return absl::Status(segment.status().code(),
                        fmt::format("its segment {} cannot be read: {}", path.server,
                                    std::string(segment.status().message())));
  }
  const auto device =
      std::find_if(segment->devices.begin(), segment->devices.end(),
                   [&path](const SegmentDevice& each) { return each.name == path.nic; });
  if (device == segment->devices.end()) {
    return absl::NotFoundError(
        fmt::format("its segment {} has no device {}", path.server, path.nic));
  }
  const absl::StatusOr<Gid> gid = ParseGid(device->gid);
  if (!gid.ok()) return gid.status();
  return RdmaAddress{.gid = *gid, .lid = device->lid};
}

absl::StatusOr<std::vector<std::unique_ptr<Nic>>> MakeRdmaNics(const RdmaDevices& devices,
                                                               const RankConfig& config,
                                                               bool one_thread,
                                                               const RdmaExchange& exchange,
                                                               const RdmaAddressOf& address_of) {
  std::vector<std::unique_ptr<Nic>> nics;
  for (size_t i = 0; i < devices.size(); ++i) {
    const NicConfig& wanted = config.nics[i];
    RdmaNicOptions options;
    options.server_name = config.name;
    options.exchange = exchange;
    options.address_of = address_of;
    options.send_queue_depth = DepthFor(*devices[i], wanted);
    options.one_thread = one_thread;
    options.max_endpoints =
        std::min(wanted.max_endpoints,
                 RdmaNic::MostEndpoints(*devices[i], options.send_queue_depth, wanted.queue_pairs));
    options.eviction = wanted.evict_oldest ? EvictionPolicy::kFifo : EvictionPolicy::kSieve;
    options.queue_pairs = wanted.queue_pairs;
    absl::StatusOr<std::unique_ptr<RdmaNic>> nic = RdmaNic::Create(devices[i], std::move(options));
    if (!nic.ok()) return nic.status();
    nics.push_back(*std::move(nic));
  }
  return nics;
}

void Approach(const RouteOptions& routes, const std::vector<Nic*>& nics, const TargetInfo& target) {
  const absl::StatusOr<TargetPlan> plan = PlanTarget(target, routes);
  if (!plan.ok()) return;  // whoever connects says why
  std::vector<bool> reached(nics.size());
  const auto approach = [&](PathId path) {
    nics[OwnNic(path)]->Approach(target, RemoteNicOf(path));
    reached[OwnNic(path)] = true;
  };
  for (const PathPlan& paths : plan->paths) {
    for (const PathId path : paths.first) approach(path);
  }
  for (size_t nic = 0; nic < nics.size(); ++nic) {
    if (!reached[nic]) approach(plan->paths.front().of_own_nic[nic].front());
  }
}

}  // namespace railhop
