// How peers reach this host, where nobody has said so.
//
// May block for as long as the resolver does (resolv.conf).
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace railhop {

// Whether the resolver knows an address of `host`, of IPv4 unless `use_ipv6`.
bool HasAddress(const std::string& host, bool use_ipv6);

// The host of `name` ("host", "host:port") if it has an address; else `bind_address` if it is not
// empty; else the first address of an interface that is up and no loopback, of IPv4 unless
// `use_ipv6`. NOT_FOUND: there is none.
absl::StatusOr<std::string> FindLocalHost(const std::string& name, const std::string& bind_address,
                                          bool use_ipv6);

}  // namespace railhop
