#include "transport/engine/host_port.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>

#include <charconv>

namespace railhop {
namespace {

bool IsV6Address(std::string_view text) {
  in6_addr address{};
  return inet_pton(AF_INET6, std::string(text).c_str(), &address) == 1;
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(std::string_view text, uint16_t default_port) {
  constexpr size_t kNone = std::string_view::npos;
  const auto bad = [text](const char* what) {
    constexpr size_t kShown = 256;
    return absl::InvalidArgumentError(
        fmt::format("\"{}\": {}; allowed: host:port, [IPv6 address]:port, a host or an address",
                    text.substr(0, kShown), what));
  };
  std::string_view host = text;
  std::string_view port;
  bool has_port = false;
  const auto split = [&](size_t colon) {
    host = text.substr(0, colon);
    port = text.substr(colon + 1);
    has_port = true;
  };
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == kNone) return bad("the bracket is not closed");
    if (end + 1 < text.size()) {
      if (text[end + 1] != ':') return bad("a colon must follow the bracket");
      split(end + 1);
    }
    host = text.substr(1, end - 1);
  } else if (const size_t scope = text.find('%');
             scope != kNone && IsV6Address(text.substr(0, scope))) {
    // The address has colons of its own; the scope, an interface's name or number, has none.
    const size_t colon = text.find(':', scope);
    if (colon != kNone) split(colon);
  } else if (!IsV6Address(text)) {
    const size_t colon = text.rfind(':');
    if (colon != kNone) split(colon);
  }
  if (host.empty()) return bad("there is no host");
  if (host.find('\0') != kNone) return bad("a NUL byte is in the host");
  HostPort result{.host = std::string(host), .port = default_port};
  if (has_port) {
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), result.port);
    if (error != std::errc() || end != port.data() + port.size() || result.port == 0) {
      return bad("the port is not in 1..65535");
    }
  }
  return result;
}

std::string JoinHostPort(std::string_view host, uint16_t port) {
  return host.find(':') == std::string_view::npos ? fmt::format("{}:{}", host, port)
                                                  : fmt::format("[{}]:{}", host, port);
}

}  // namespace railhop
