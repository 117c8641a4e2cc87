// A TCP socket that listens on a port drawn at random from a range: where peers learn the port by
// other means, two processes of a host need not be told apart by hand.
//
// Pure set-up; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct ListenOptions {
  std::string address = {};  // numeric; empty: all, of IPv6 too if `use_ipv6`
  bool use_ipv6 = false;
  uint16_t lowest_port = 15000;
  uint16_t highest_port = 17000;
  int backlog = 128;
  int receive_buffer =
      0;  // bytes in the kernel for each connection that is accepted; 0: as it likes
};

struct PortListener {
  GuardedFd fd;  // non-blocking
  uint16_t port = 0;
};

// `who` begins the errors. InvalidArgument: no numeric address, or no range. Unavailable: it cannot
// be had: the address is not this host's, no socket is left, or 500 ports of the range were taken.
absl::StatusOr<PortListener> ListenOnSomePort(const ListenOptions& options, std::string_view who);

}  // namespace railhop
