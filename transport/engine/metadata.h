// How engines find each other: where segment descriptors are read and published, and who can be
// spoken to.
//
// Two implementations: P2pMetadata asks the engine that owns a segment, StoredMetadata a service
// that all of them know. Calls block, for a bounded time (docs/handshake.md); any thread but a
// reactor's.
// Errors: NotFound and Unavailable mean that the engine of that name is not there (any more).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/engine/host_port.h"
#include "transport/engine/patience.h"
#include "transport/engine/segment_descriptor.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class Metadata {
 public:
  virtual ~Metadata() = default;
  // `patience` bounds the wait for a peer; that for a service has its own, shorter bound.
  virtual absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name,
                                                  const Patience& patience) = 0;
  // The handshake listener of that engine; its data port is on the same host.
  virtual absl::StatusOr<HostPort> Locate(const std::string& name) = 0;
  virtual absl::Status Notify(const std::string& name, const Notification& notification) = 0;
  virtual absl::Status Probe(const std::string& name) = 0;
  // An RDMA handshake with that engine: JSON for JSON.
  virtual absl::StatusOr<std::string> Exchange(const std::string& name,
                                               const std::string& json) = 0;
  // From now on peers find the own segment as it is now.
  virtual absl::Status Publish() = 0;
  // They do not find it any more.
  virtual absl::Status Withdraw() = 0;
};

}  // namespace railhop
