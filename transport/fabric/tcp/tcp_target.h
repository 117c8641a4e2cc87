// Whom a TCP NIC connects to: the text in TargetInfo::connection, and the socket addresses behind
// it.
//
//   HOST:PORT:VERSION   10.0.0.7:15674:2    [fd00::7]:15674:1    node7:15674:2+drain@railhop-3f
//
// VERSION is the highest version of the data protocol that the target advertises, 1 or 2; "2+drain"
// a Railhop target, which confirms that a failed write can land no more (tcp_protocol.h), and
// "@NAME" its local socket (local_socket.h). Control path only.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

inline constexpr std::string_view kTcpFabricKind = "tcp";

struct TcpTarget {
  std::string host;  // name or address, without brackets
  uint16_t port = 0;
  int version = 2;     // 1 or 2
  bool drain = false;  // only with version 2
  std::string local;   // only with `drain`: name of its local socket, or empty
};

std::string FormatTcpTarget(const TcpTarget& target);
// InvalidArgument: not of the form above; the message shows the text.
absl::StatusOr<TcpTarget> ParseTcpTarget(std::string_view text);

struct TcpAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

// All stream addresses of a host, in the resolver's order, at least one. May ask a name server,
// unless `host` is an address. NotFound: there is none.
absl::StatusOr<std::vector<TcpAddress>> ResolveTcpHost(const std::string& host, uint16_t port);

}  // namespace railhop
