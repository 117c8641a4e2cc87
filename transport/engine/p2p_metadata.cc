#include "transport/engine/p2p_metadata.h"

#include <utility>

namespace railhop {
namespace {

HandshakeClientOptions ToOptions(const EngineEnvironment& environment) {
  HandshakeClientOptions options;
  options.connect_timeout = std::chrono::seconds(environment.handshake_connect_timeout_s);
  options.max_frame_length = environment.handshake_max_length;
  options.use_ipv6 = environment.use_ipv6;
  return options;
}

}  // namespace

P2pMetadata::P2pMetadata(const EngineEnvironment& environment, std::function<std::string()> own)
    : client_(ToOptions(environment)),
      default_port_(static_cast<uint16_t>(environment.handshake_port)),
      own_(std::move(own)) {}

absl::StatusOr<HostPort> P2pMetadata::Locate(const std::string& name) const {
  return ParseHostPort(name, default_port_);
}

absl::StatusOr<SegmentDescriptor> P2pMetadata::Fetch(const std::string& name) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.FetchDescriptor(*peer, own_());
}

absl::Status P2pMetadata::Notify(const std::string& name, const Notification& notification) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.SendNotify(*peer, notification.name, notification.message);
}

absl::Status P2pMetadata::Probe(const std::string& name) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.SendProbe(*peer);
}

}  // namespace railhop
