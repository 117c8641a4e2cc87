// P2PHANDSHAKE: the metadata of a segment is asked from the engine that owns it; its name says
// where that is. Nothing is published: the own listener answers who asks.
#pragma once

#include <functional>
#include <string>

#include "transport/engine/environment.h"
#include "transport/engine/listener_metadata.h"

namespace railhop {

class P2pMetadata final : public ListenerMetadata {
 public:
  // `own` gives the engine's own descriptor, encoded; any thread calls it.
  P2pMetadata(const EngineEnvironment& environment, std::function<std::string()> own);

  absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name,
                                          const Patience& patience) override;
  absl::StatusOr<HostPort> Locate(const std::string& name) override;
  absl::Status Publish() override { return absl::OkStatus(); }
  absl::Status Withdraw() override { return absl::OkStatus(); }

 private:
  const uint16_t default_port_;
  const std::function<std::string()> own_;
};

}  // namespace railhop
