// The engine's own segment: makes registered memory reachable for peers, and says so.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "transport/engine/host_port.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class LocalSegment {
 public:
  virtual ~LocalSegment() = default;
  // What peers open.
  virtual const std::string& name() const = 0;
  // Where its engine answers.
  virtual HostPort listener() const = 0;
  // The descriptor as peers get it.
  virtual std::string Encoded() const = 0;
  // NIC priority matrix of the engine, as JSON.
  virtual std::string Topology() const = 0;
  // From now on peers may read and write the range, and find it in the descriptor (once that is
  // published, see Metadata).
  virtual absl::Status Add(void* address, size_t length, std::string_view location) = 0;
  // When it returns, no peer can reach the range any more.
  virtual absl::Status Remove(void* address) = 0;
  virtual std::vector<Notification> TakeNotifications() = 0;
};

}  // namespace railhop
