#include "transport/fabric/tcp/tcp_target.h"

#include <fmt/format.h>
#include <netdb.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

#include "transport/fabric/tcp/local_socket.h"

namespace railhop {
namespace {

constexpr std::string_view kDrainSuffix = "+drain";

bool ParseNumber(std::string_view text, unsigned lowest, unsigned highest, unsigned* value) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end && *value >= lowest && *value <= highest;
}

}  // namespace

std::string FormatTcpTarget(const TcpTarget& target) {
  const bool brackets = target.host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}:{}{}{}{}", brackets ? "[" : "", target.host, brackets ? "]" : "",
                     target.port, target.version, target.drain ? kDrainSuffix : "",
                     target.local.empty() ? "" : "@", target.local);
}

absl::StatusOr<TcpTarget> ParseTcpTarget(std::string_view text) {
  const auto error = [text] {
    return absl::InvalidArgumentError(
        fmt::format("\"{}\" is no TCP target: HOST:PORT:VERSION with an IPv6 address in brackets "
                    "and version 1, 2, 2+drain or 2+drain@LOCAL-SOCKET",
                    text));
  };
  std::string_view rest = text;
  TcpTarget target;
  if (const size_t at = rest.rfind('@'); at != std::string_view::npos) {
    target.local = std::string(rest.substr(at + 1));
    rest = rest.substr(0, at);
    if (!IsLocalSocketName(target.local) || !rest.ends_with(kDrainSuffix)) return error();
  }
  if (rest.ends_with(kDrainSuffix)) {
    target.drain = true;
    rest.remove_suffix(kDrainSuffix.size());
  }
  const size_t last = rest.rfind(':');
  if (last == std::string_view::npos || last == 0) return error();
  const size_t middle = rest.rfind(':', last - 1);
  if (middle == std::string_view::npos) return error();
  unsigned version = 0;
  unsigned port = 0;
  if (!ParseNumber(rest.substr(last + 1), target.drain ? 2 : 1, 2, &version) ||
      !ParseNumber(rest.substr(middle + 1, last - middle - 1), 1, 65535, &port)) {
    return error();
  }
  std::string_view host = rest.substr(0, middle);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return error();
  }
  if (host.empty()) return error();
  target.host = std::string(host);
  target.port = static_cast<uint16_t>(port);
  target.version = static_cast<int>(version);
  return target;
}

absl::StatusOr<std::vector<TcpAddress>> ResolveTcpHost(const std::string& host, uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (error != 0) {
    return absl::NotFoundError(
        fmt::format("host \"{}\" has no address: {}", host, gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  std::vector<TcpAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    TcpAddress& address = addresses.emplace_back();
    address.length = std::min<socklen_t>(info->ai_addrlen, sizeof(address.storage));
    memcpy(&address.storage, info->ai_addr, address.length);
  }
  return addresses;
}

}  // namespace railhop
