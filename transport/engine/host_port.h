// "host:port" texts, as segments are named.
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace railhop {

inline constexpr uint16_t kDefaultHandshakePort = 12001;  // MC_HANDSHAKE_PORT

struct HostPort {
  std::string host;  // without brackets; may carry a scope, fe80::1%eth0
  uint16_t port = 0;
  friend bool operator==(const HostPort&, const HostPort&) = default;
};

// "[v6]:port", "[v6]", a bare v6 address, "v6%scope" and "v6%scope:port", else split at the last
// colon; without a port it is `default_port`. INVALID_ARGUMENT: no host, or one with
// a NUL byte, or a port not in 1..65535.
absl::StatusOr<HostPort> ParseHostPort(std::string_view text,
                                       uint16_t default_port = kDefaultHandshakePort);

// The other way round: brackets around a v6 address.
std::string JoinHostPort(std::string_view host, uint16_t port);

}  // namespace railhop
