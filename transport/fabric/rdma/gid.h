// GIDs: the addresses of an RDMA port, and which of its table is used (field faults T4).
//
// A port of a RoCE device has several: per IP address of its interface one of RoCE v1, which no
// router passes on, and one of RoCE v2. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace railhop {

using Gid = std::array<uint8_t, 16>;

// As the handshake has it: 16 lower-case hex bytes, separated by colons (mooncake-compat (h) 9).
std::string FormatGid(const Gid& gid);
absl::StatusOr<Gid> ParseGid(std::string_view text);

enum class GidType { kInfiniBand, kRoceV1, kRoceV2 };

struct GidEntry {
  uint32_t index = 0;
  Gid gid{};
  GidType type = GidType::kRoceV2;
  uint32_t interface = 0;  // number of the network interface that it is an address of; 0: none
};

inline constexpr int kAnyGidIndex = -1;  // MC_GID_INDEX

// The entry at `index`, whatever it is; or, for kAnyGidIndex, the first of
//   1. InfiniBand, or RoCE v2 of an IPv4 address      (::ffff:10.0.0.1)
//   2. RoCE v2 of an IPv6 address
//   3. RoCE v2 of a link-local address, IPv4 or IPv6  (fe80::, ::ffff:169.254.0.0/16): good within
//      one network only
// the lowest index of each first. RoCE v1 is used only if its index is asked for. NotFound: there
// is none; the text begins with `port`, a name for errors, and lists the table.
absl::StatusOr<GidEntry> ChooseGid(std::span<const GidEntry> table, int index,
                                   std::string_view port);

}  // namespace railhop
