// P2PHANDSHAKE: the metadata of a segment is asked from the engine that owns it; its name says
// where that is.
#pragma once

#include <functional>
#include <string>

#include "transport/engine/environment.h"
#include "transport/engine/handshake_client.h"
#include "transport/engine/metadata.h"

namespace railhop {

class P2pMetadata final : public Metadata {
 public:
  // `own` gives the engine's own descriptor, encoded; any thread calls it.
  P2pMetadata(const EngineEnvironment& environment, std::function<std::string()> own);

  absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name) override;
  absl::Status Notify(const std::string& name, const Notification& notification) override;
  absl::Status Probe(const std::string& name) override;

 private:
  absl::StatusOr<HostPort> Locate(const std::string& name) const;

  const HandshakeClient client_;
  const uint16_t default_port_;
  const std::function<std::string()> own_;
};

}  // namespace railhop
