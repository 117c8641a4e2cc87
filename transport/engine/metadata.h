// How engines find each other: where segment descriptors are read, and who can be spoken to.
//
// One implementation per way (P2PHANDSHAKE, an HTTP service, etcd). Calls block, for a bounded
// time; any thread. Errors: NotFound and Unavailable mean that the engine of that name is not there
// (any more).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/engine/segment_descriptor.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class Metadata {
 public:
  virtual ~Metadata() = default;
  virtual absl::StatusOr<SegmentDescriptor> Fetch(const std::string& name) = 0;
  virtual absl::Status Notify(const std::string& name, const Notification& notification) = 0;
  virtual absl::Status Probe(const std::string& name) = 0;
};

}  // namespace railhop
