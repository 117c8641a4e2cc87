#include "actors/bootstrap_rdma.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/log.h"

namespace railhop {
namespace {

// Targets that a NIC may be connected to at once; its completion queue has room for all.
constexpr uint32_t kRdmaEndpoints = 256;

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

absl::StatusOr<RdmaDevices> UseRdma(RankConfig* config) {
  RdmaDevices devices;
  std::vector<NicConfig> usable;
  absl::Status last = absl::NotFoundError("this machine has no RDMA device");
  for (const NicConfig& nic : config->nics) {
    if (nic.kind != NicKind::kRdma) continue;
    absl::StatusOr<std::shared_ptr<RdmaDevice>> device =
        RdmaDevice::Open({.name = nic.name, .port = nic.port, .gid_index = nic.gid_index});
    if (device.ok()) {
      devices.push_back(*std::move(device));
      usable.push_back(nic);
    } else {
      last = device.status();
      Log(LogLevel::kWarning, std::string(last.message()) + "; the engine does without it");
    }
  }
  if (devices.empty()) return last;
  config->nics = std::move(usable);
  return devices;
}

absl::StatusOr<std::vector<std::unique_ptr<Nic>>> MakeRdmaNics(const RdmaDevices& devices,
                                                               const RankConfig& config,
                                                               const RdmaExchange& exchange) {
  std::vector<std::unique_ptr<Nic>> nics;
  for (size_t i = 0; i < devices.size(); ++i) {
    const uint32_t depth = config.nics[i].queue_depth;
    RdmaNicOptions options;
    options.server_name = config.name;
    options.exchange = exchange;
    options.send_queue_depth = depth;
    options.max_endpoints =
        std::min(kRdmaEndpoints, static_cast<uint32_t>(devices[i]->max_completions()) / depth);
    absl::StatusOr<std::unique_ptr<RdmaNic>> nic = RdmaNic::Create(devices[i], std::move(options));
    if (!nic.ok()) return nic.status();
    nics.push_back(*std::move(nic));
  }
  return nics;
}

}  // namespace railhop
