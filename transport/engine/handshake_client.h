// Asks the handshake listener of a peer (handshake_server.h, or Mooncake's): one exchange, one
// connection, closed as soon as the reply is there, because a Mooncake listener serves no one else
// before that.
//
// Threads: any, at once; a call blocks until it is done or its time is over. Never on a reactor.
// The resolver of host names has time limits of its own, those of resolv.conf, and cannot be
// stopped. Errors, and what HandshakeErrorCode makes of them:
//   NOT_FOUND            -101  the host has no address
//   UNAVAILABLE,
//   DEADLINE_EXCEEDED    -102  no connection, or no (whole) reply of the right type
//   INVALID_ARGUMENT     -103  the reply is not the JSON that it should be; names the key
//   FAILED_PRECONDITION  -200  no segment there; a notification refused, or too long to be sent
//   UNIMPLEMENTED        -200  the peer's segment has a protocol that is not spoken here
//   CANCELLED            -102  it was asked to stop (patience.h)
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/engine/handshake_frame.h"
#include "transport/engine/host_port.h"
#include "transport/engine/patience.h"
#include "transport/engine/segment_descriptor.h"

namespace railhop {

struct HandshakeClientOptions {
  std::chrono::milliseconds connect_timeout{5000};     // each address; MC_HANDSHAKE_CONNECT_TIMEOUT
  std::chrono::milliseconds reply_timeout{5000};       // from connected to the whole reply
  uint64_t max_frame_length = kDefaultMaxFrameLength;  // MC_HANDSHAKE_MAX_LENGTH
  bool use_ipv6 = false;                               // MC_USE_IPV6; else IPv4 only
};

class HandshakeClient {
 public:
  explicit HandshakeClient(const HandshakeClientOptions& options) : options_(options) {}

  // `own` is this process' descriptor, encoded: the peer may want to know who asks.
  absl::StatusOr<SegmentDescriptor> FetchDescriptor(const HostPort& peer, std::string_view own,
                                                    const Patience& patience = {}) const;
  absl::Status SendNotify(const HostPort& peer, std::string_view name,
                          std::string_view message) const;
  // OK: the process answers.
  absl::Status SendProbe(const HostPort& peer) const;
  // An RDMA handshake: JSON for JSON.
  absl::StatusOr<std::string> Exchange(const HostPort& peer, std::string_view connection) const;

 private:
  absl::StatusOr<std::string> Call(const HostPort& peer, FrameType type, std::string_view json,
                                   const Patience& patience = {}) const;

  const HandshakeClientOptions options_;
};

// Mooncake's error code for a status that a HandshakeClient gave; 0 if it is OK.
int HandshakeErrorCode(const absl::Status& status);

}  // namespace railhop
