#include "transport/engine/metadata_store.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>
#include <vector>

#include "transport/engine/etcd_store.h"
#include "transport/engine/host_port.h"
#include "transport/engine/http_store.h"

namespace railhop {
namespace {

constexpr uint16_t kEtcdPort = 2379;
constexpr std::string_view kSchemeEnd = "://";

absl::StatusOr<std::vector<std::string>> ParseEtcdAddresses(std::string_view list) {
  if (list.find(',') != std::string_view::npos) {
    return absl::InvalidArgumentError("addresses are separated by semicolons");
  }
  std::vector<std::string> addresses;
  while (!list.empty()) {
    const size_t end = std::min(list.find(';'), list.size());
    const absl::StatusOr<HostPort> address = ParseHostPort(list.substr(0, end), kEtcdPort);
    if (!address.ok()) return address.status();
    addresses.push_back(JoinHostPort(address->host, address->port));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  if (addresses.empty()) return absl::InvalidArgumentError("there is no address");
  return addresses;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetadataStore>> OpenMetadataStore(const std::string& connection,
                                                                 size_t max_value) {
  const size_t end = connection.find(kSchemeEnd);
  const std::string scheme = end == std::string::npos ? "etcd" : connection.substr(0, end);
  const std::string_view rest =
      std::string_view(connection).substr(end == std::string::npos ? 0 : end + kSchemeEnd.size());
  const auto bad = [&](std::string_view what) {
    return absl::InvalidArgumentError(
        fmt::format("metadata \"{}\": {}; allowed: P2PHANDSHAKE, http://host:port/path, "
                    "https://host:port/path, etcd://host:port[;host:port...]",
                    connection, what));
  };
  if (scheme == "http" || scheme == "https") {
    if (rest.empty()) return bad("there is no host");
    return std::make_unique<HttpStore>(connection, max_value);
  }
  if (scheme != "etcd") return bad(fmt::format("\"{}\" is not supported", scheme));
  absl::StatusOr<std::vector<std::string>> addresses = ParseEtcdAddresses(rest);
  if (!addresses.ok()) return bad(std::string(addresses.status().message()));
  return std::make_unique<EtcdStore>(*std::move(addresses), max_value);
}

}  // namespace railhop
