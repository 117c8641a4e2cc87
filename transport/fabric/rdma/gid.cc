#include "transport/fabric/rdma/gid.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>

namespace railhop {
namespace {

constexpr int kUnusable = 4;

const char* TypeName(GidType type) {
  switch (type) {
    case GidType::kInfiniBand:
      return "InfiniBand";
    case GidType::kRoceV1:
      return "RoCE v1";
    case GidType::kRoceV2:
      return "RoCE v2";
  }
  return "unknown";
}

bool IsIpv4(const Gid& gid) {
  constexpr std::array<uint8_t, 12> kMapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  return std::equal(kMapped.begin(), kMapped.end(), gid.begin());
}

bool IsLinkLocal(const Gid& gid) {
  if (IsIpv4(gid)) return gid[12] == 169 && gid[13] == 254;
  return gid[0] == 0xfe && (gid[1] & 0xc0) == 0x80;
}

// The smaller the better.
int Rank(const GidEntry& entry) {
  if (entry.gid == Gid{} || entry.type == GidType::kRoceV1) return kUnusable;
  if (entry.type == GidType::kInfiniBand) return 1;
  if (IsLinkLocal(entry.gid)) return 3;
  return IsIpv4(entry.gid) ? 1 : 2;
}

std::string Listed(std::span<const GidEntry> table) {
  if (table.empty()) return "its GID table is empty: give its interface an IPv4 address";
  std::string text = "there are:";
  for (const GidEntry& entry : table) {
    text += fmt::format(" {} = {} ({})", entry.index, FormatGid(entry.gid), TypeName(entry.type));
  }
  return text;
}

}  // namespace

std::string FormatGid(const Gid& gid) {
  return fmt::format("{:02x}", fmt::join(gid, ":"));
}

absl::StatusOr<Gid> ParseGid(std::string_view text) {
  constexpr size_t kStep = 3;
  Gid gid{};
  bool good = text.size() == gid.size() * kStep - 1;
  for (size_t i = 0; good && i < gid.size(); ++i) {
    const char* const first = text.data() + i * kStep;
    const auto [end, error] = std::from_chars(first, first + 2, gid[i], 16);
    good = error == std::errc() && end == first + 2 && (i + 1 == gid.size() || *end == ':');
  }
  if (good) return gid;
  return absl::InvalidArgumentError(fmt::format(
      "\"{}\" is no GID, which is 16 hex bytes separated by colons", text.substr(0, 64)));
}

absl::StatusOr<GidEntry> ChooseGid(std::span<const GidEntry> table, int index,
                                   std::string_view port) {
  if (index != kAnyGidIndex) {
    const auto found = std::find_if(table.begin(), table.end(), [index](const GidEntry& entry) {
      return static_cast<int64_t>(entry.index) == index;
    });
    if (found != table.end()) return *found;
    return absl::NotFoundError(
        fmt::format("{} has no GID index {}; {}", port, index, Listed(table)));
  }
  const GidEntry* best = nullptr;
  for (const GidEntry& entry : table) {
    if (Rank(entry) == kUnusable) continue;
    if (best == nullptr || Rank(entry) < Rank(*best) ||
        (Rank(entry) == Rank(*best) && entry.index < best->index)) {
      best = &entry;
    }
  }
  if (best != nullptr) return *best;
  return absl::NotFoundError(fmt::format(
      "{} has no GID to use by itself, InfiniBand or RoCE v2; {}", port, Listed(table)));
}

}  // namespace railhop
