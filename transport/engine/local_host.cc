#include "transport/engine/local_host.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <memory>

#include "transport/engine/host_port.h"

namespace railhop {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

std::string ToText(const sockaddr& address) {
  char text[INET6_ADDRSTRLEN] = "";
  if (address.sa_family == AF_INET) {
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(address).sin_addr, text, sizeof text);
  } else {
    const in6_addr& v6 = reinterpret_cast<const sockaddr_in6&>(address).sin6_addr;
    // Link-local: of no use without the peer's own name of the interface.
    if (!IN6_IS_ADDR_LINKLOCAL(&v6)) inet_ntop(AF_INET6, &v6, text, sizeof text);
  }
  return text;
}

std::string FirstInterfaceAddress(sa_family_t family) {
  ifaddrs* found = nullptr;
  if (getifaddrs(&found) != 0) return {};
  const std::unique_ptr<ifaddrs, FreeInterfaces> list(found);
  for (const ifaddrs* entry = found; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
    if ((entry->ifa_flags & IFF_UP) == 0 || (entry->ifa_flags & IFF_LOOPBACK) != 0) continue;
    if (std::string text = ToText(*entry->ifa_addr); !text.empty()) return text;
  }
  return {};
}

}  // namespace

bool HasAddress(const std::string& host, bool use_ipv6) {
  addrinfo hints{};
  hints.ai_family = use_ipv6 ? AF_UNSPEC : AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

absl::StatusOr<std::string> FindLocalHost(const std::string& name, const std::string& bind_address,
                                          bool use_ipv6) {
  const absl::StatusOr<HostPort> named = ParseHostPort(name);
  if (named.ok() && HasAddress(named->host, use_ipv6)) return named->host;
  if (!bind_address.empty()) return bind_address;
  std::string address = FirstInterfaceAddress(use_ipv6 ? AF_INET6 : AF_INET);
  if (!address.empty()) return address;
  return absl::NotFoundError(
      fmt::format("peers cannot be told where this host is: \"{}\" has no {} address, and no "
                  "interface has one; use a host's name or an address",
                  name, use_ipv6 ? "IP" : "IPv4"));
}

}  // namespace railhop
