// The NICs of an engine over RDMA: which devices, opened, and a NIC on each.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "actors/bootstrap_config.h"
#include "actors/route_builder.h"
#include "transport/engine/environment.h"
#include "transport/engine/segment_directory.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_nic.h"

namespace railhop {

using RdmaDevices = std::vector<std::shared_ptr<RdmaDevice>>;

// Config text with a NIC on each device of this machine, for an engine whose config names none.
absl::StatusOr<std::string> AllRdmaNics();
bool HasRdmaNic(const RankConfig& config);

// What the variables say of an RDMA NIC, where they are given. They win over the config.
void ApplyRdmaEnvironment(const EngineEnvironment& environment, NicConfig* nic);

// Opens the devices of the config's NICs of kind "rdma"; of these only those in `device_names`,
// unless that is empty ("mlx5_0,mlx5_1"). Leaves the config with a NIC for each that opened, and no
// other. One that does not open costs a warning (field fault T8). NotFound or Unavailable: that
// leaves none, and the config is unchanged.
absl::StatusOr<RdmaDevices> UseRdma(const EngineEnvironment& environment,
                                    const std::string& device_names, RankConfig* config);

// Where NICs of peers are, for those whose handshakes do not say it: from the descriptors of their
// segments, which are read anew each time. Any thread.
class PeerAddresses {
 public:
  // From now on; the segment that needs it is there before the directory.
  void Use(const std::shared_ptr<SegmentDirectory>& directory);
  // As RdmaAddressOf. NotFound: the segment has no such NIC; or the error of reading it.
  absl::StatusOr<RdmaAddress> Find(const NicPath& path) const;

 private:
  static constexpr std::chrono::milliseconds kPatience{1000};

  mutable std::mutex mutex_;
  std::weak_ptr<SegmentDirectory> directory_;
};

// A NIC on each device, by position those of the config. `one_thread`: as of RdmaNicOptions.
absl::StatusOr<std::vector<std::unique_ptr<Nic>>> MakeRdmaNics(const RdmaDevices& devices,
                                                               const RankConfig& config,
                                                               bool one_thread,
                                                               const RdmaExchange& exchange,
                                                               const RdmaAddressOf& address_of);

// Connects, beside the control reactor, what EndpointActor connects first of a target: a peer whose
// link is dead holds up this thread and nobody else.
void Approach(const RouteOptions& routes, const std::vector<Nic*>& nics, const TargetInfo& target);

}  // namespace railhop
