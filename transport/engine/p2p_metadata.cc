#include "transport/engine/p2p_metadata.h"

#include <utility>

namespace railhop {

P2pMetadata::P2pMetadata(const EngineEnvironment& environment, std::function<std::string()> own)
    : ListenerMetadata(environment),
      default_port_(static_cast<uint16_t>(environment.handshake_port)),
      own_(std::move(own)) {}

absl::StatusOr<SegmentDescriptor> P2pMetadata::Fetch(const std::string& name,
                                                     const Patience& patience) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client().FetchDescriptor(*peer, own_(), patience);
}

absl::StatusOr<HostPort> P2pMetadata::Locate(const std::string& name) {
  return ParseHostPort(name, default_port_);
}

}  // namespace railhop
