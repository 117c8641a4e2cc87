#include "transport/port_listener.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

namespace railhop {
namespace {

constexpr int kTries = 500;

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;

  int family() const { return storage.ss_family; }
  void SetPort(uint16_t port) {
    if (family() == AF_INET6) {
      reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port = htons(port);
    } else {
      reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
    }
  }
};

absl::StatusOr<Address> FindAddress(const ListenOptions& options, std::string_view who) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICHOST | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  // With an address given, that says the family.
  if (options.address.empty()) hints.ai_family = options.use_ipv6 ? AF_INET6 : AF_INET;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(options.address.empty() ? nullptr : options.address.c_str(), "0", &hints, &found);
  if (error != 0) {
    return absl::InvalidArgumentError(
        fmt::format("{}: \"{}\" is no address to bind to ({}); give an IPv4 or IPv6 address", who,
                    options.address, gai_strerror(error)));
  }
  Address address;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.length = found->ai_addrlen;
  freeaddrinfo(found);
  return address;
}

}  // namespace

absl::StatusOr<PortListener> ListenOnSomePort(const ListenOptions& options, std::string_view who) {
  absl::StatusOr<Address> address = FindAddress(options, who);
  if (!address.ok()) return address.status();
  if (options.lowest_port == 0 || options.lowest_port > options.highest_port) {
    return absl::InvalidArgumentError(
        fmt::format("{}: no port range: {}..{}", who, options.lowest_port, options.highest_port));
  }
  std::mt19937 random{std::random_device{}()};
  std::uniform_int_distribution<unsigned> ports(options.lowest_port, options.highest_port);
  int error = 0;
  for (int i = 0; i < kTries; ++i) {
    GuardedFd fd(socket(address->family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) {
      return absl::UnavailableError(fmt::format("{}: no socket: {}", who, std::strerror(errno)));
    }
    if (address->family() == AF_INET6) {
      const int v4_too = 0;
      setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &v4_too, sizeof v4_too);
    }
    // A port on which connections of an earlier process linger may be used; one on which another
    // process listens may not, listen() refuses it.
    const int reuse = 1;
    setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof reuse);
    if (options.receive_buffer != 0) {
      // Accepted connections inherit it.
      setsockopt(fd.get(), SOL_SOCKET, SO_RCVBUF, &options.receive_buffer,
                 sizeof options.receive_buffer);
    }
    const auto port = static_cast<uint16_t>(ports(random));
    address->SetPort(port);
    if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address->storage), address->length) ==
            0 &&
        listen(fd.get(), options.backlog) == 0) {
      return PortListener{.fd = std::move(fd), .port = port};
    }
    error = errno;
    if (error != EADDRINUSE && error != EACCES) break;  // another port would not help
  }
  return absl::UnavailableError(fmt::format(
      "{}: cannot listen on {} with a port of {}..{}: {}. Choose others with MC_MIN_RPC_PORT, "
      "MC_MAX_RPC_PORT or MC_TCP_BIND_ADDRESS",
      who, options.address.empty() ? "all addresses" : options.address, options.lowest_port,
      options.highest_port, std::strerror(error)));
}

}  // namespace railhop
