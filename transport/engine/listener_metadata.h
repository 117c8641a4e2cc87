// The part of Metadata that is the same wherever descriptors are kept: words go to the handshake
// listener that Locate names.
#pragma once

#include <string>

#include "transport/engine/environment.h"
#include "transport/engine/handshake_client.h"
#include "transport/engine/metadata.h"

namespace railhop {

class ListenerMetadata : public Metadata {
 public:
  explicit ListenerMetadata(const EngineEnvironment& environment);

  absl::Status Notify(const std::string& name, const Notification& notification) final;
  absl::Status Probe(const std::string& name) final;
  absl::StatusOr<std::string> Exchange(const std::string& name, const std::string& json) final;

 protected:
  const HandshakeClient& client() const { return client_; }

 private:
  const HandshakeClient client_;
};

}  // namespace railhop
