#include "transport/engine/listener_metadata.h"

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

ListenerMetadata::ListenerMetadata(const EngineEnvironment& environment)
    : client_(ToOptions(environment)) {}

absl::Status ListenerMetadata::Notify(const std::string& name, const Notification& notification) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.SendNotify(*peer, notification.name, notification.message);
}

absl::Status ListenerMetadata::Probe(const std::string& name) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.SendProbe(*peer);
}

absl::StatusOr<std::string> ListenerMetadata::Exchange(const std::string& name,
                                                       const std::string& json) {
  const absl::StatusOr<HostPort> peer = Locate(name);
  if (!peer.ok()) return peer.status();
  return client_.Exchange(*peer, json);
}

}  // namespace railhop
