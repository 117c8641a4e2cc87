#include "transport/ring/registry_entry.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace railhop {
namespace {

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (!text->starts_with(prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

// A decimal number without sign or leading zeros, as it is written into names.
template <typename T>
bool TakeNumber(std::string_view* text, T* value) {
  if (text->empty() || text->front() < '1' || text->front() > '9') return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), *value);
  if (error != std::errc()) return false;
  text->remove_prefix(static_cast<size_t>(end - text->data()));
  return true;
}

std::string KeyText(const EntryKey& key) {
  return fmt::format("{}.{}.{}", key.pid, key.start_ticks, key.epoch);
}

bool IsGroupCharacter(char c) {
  return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.';
}

template <typename T>
absl::Status Expect(const char* field, T value, T expected) {
  if (value == expected) return absl::OkStatus();
  return absl::FailedPreconditionError(
      fmt::format("{} is {}, expected {}", field, value, expected));
}

template <typename Range>
bool AllZero(const Range& bytes) {
  return std::all_of(std::begin(bytes), std::end(bytes), [](auto byte) { return byte == 0; });
}

absl::Status CheckOwner(const ProcessIdentity& owner, uint64_t epoch, uint32_t uid) {
  if (absl::Status status = Expect("owner.uid", owner.uid, uid); !status.ok()) return status;
  if (owner.pid <= 0) {
    return absl::FailedPreconditionError(fmt::format("owner.pid is {}", owner.pid));
  }
  if (owner.start_ticks == 0) return absl::FailedPreconditionError("owner.start_ticks is 0");
  if (epoch == 0) return absl::FailedPreconditionError("epoch is 0");
  return absl::OkStatus();
}

// A name of `bytes` bytes in a field of 256, the rest of which is 0.
absl::Status CheckRail(std::span<const char> field, uint32_t bytes) {
  if (bytes < 1 || bytes > kMaxRailBytes) {
    return absl::FailedPreconditionError(fmt::format("rail name of {} bytes", bytes));
  }
  if (!AllZero(field.subspan(bytes))) {
    return absl::FailedPreconditionError("bytes beyond the rail name are not 0");
  }
  return absl::OkStatus();
}

}  // namespace

std::string PublishedName(const EntryKey& key) {
  return fmt::format("peer.{}.reg", KeyText(key));
}
std::string TemporaryName(const EntryKey& key) {
  return fmt::format("tmp.{}", KeyText(key));
}
std::string SideName(const EntryKey& key) {
  return KeyText(key);
}
std::string WakeName(const EntryKey& key, WakeRole role) {
  return fmt::format("{}.wake{}", KeyText(key), static_cast<int>(role));
}

std::optional<ParsedName> ParseName(std::string_view name) {
  using Kind = ParsedName::Kind;
  ParsedName parsed{.kind = Kind::kSide, .key = {}};
  if (TakePrefix(&name, "peer.")) {
    parsed.kind = Kind::kPublished;
  } else if (TakePrefix(&name, "tmp.")) {
    parsed.kind = Kind::kTemporary;
  }
  if (!TakeNumber(&name, &parsed.key.pid) || !TakePrefix(&name, ".") ||
      !TakeNumber(&name, &parsed.key.start_ticks) || !TakePrefix(&name, ".") ||
      !TakeNumber(&name, &parsed.key.epoch)) {
    return std::nullopt;
  }
  if (parsed.kind == Kind::kPublished) {
    if (name != ".reg") return std::nullopt;
  } else if (parsed.kind == Kind::kSide && (name == ".wake0" || name == ".wake1")) {
    parsed.kind = Kind::kWake;
  } else if (!name.empty()) {
    return std::nullopt;
  }
  return parsed;
}

absl::Status ValidateGroupId(std::string_view group_id) {
  constexpr size_t kMaxBytes = 64;
  const char* allowed = "allowed are 1 to 64 characters of A-Z a-z 0-9 _ - .";
  if (group_id.empty()) {
    return absl::InvalidArgumentError(fmt::format("the group id is empty; {}", allowed));
  }
  if (group_id.size() > kMaxBytes) {
    return absl::InvalidArgumentError(fmt::format("the group id \"{}...\" has {} characters; {}",
                                                  group_id.substr(0, kMaxBytes), group_id.size(),
                                                  allowed));
  }
  for (size_t i = 0; i < group_id.size(); ++i) {
    if (IsGroupCharacter(group_id[i])) continue;
    const auto code = static_cast<unsigned char>(group_id[i]);
    const bool printable = code >= 0x20 && code < 0x7f;
    return absl::InvalidArgumentError(fmt::format(
        "the group id{} has {} at position {}; {}",
        printable ? fmt::format(" \"{}\"", group_id) : std::string(),
        printable ? fmt::format("'{}'", group_id[i]) : fmt::format("the byte 0x{:02x}", code),
        i + 1, allowed));
  }
  if (group_id == "." || group_id == "..") {
    return absl::InvalidArgumentError(
        fmt::format("the group id must not be \"{}\"; {}", group_id, allowed));
  }
  return absl::OkStatus();
}

absl::Status ValidateRails(std::span<const std::string> rails) {
  if (rails.empty()) return absl::InvalidArgumentError("a process of a PXN group needs a rail");
  if (rails.size() > kMaxRails) {
    return absl::InvalidArgumentError(
        fmt::format("{} rails; one process can own at most {}", rails.size(), kMaxRails));
  }
  for (size_t i = 0; i < rails.size(); ++i) {
    const std::string& rail = rails[i];
    if (rail.empty() || rail.size() > kMaxRailBytes) {
      return absl::InvalidArgumentError(fmt::format(
          "rail name {} has {} bytes; allowed are 1 to {}", i + 1, rail.size(), kMaxRailBytes));
    }
    if (rail.find('\0') != std::string::npos) {
      return absl::InvalidArgumentError(fmt::format("rail name {} has a NUL byte", i + 1));
    }
    if (std::find(rails.begin(), rails.begin() + static_cast<ptrdiff_t>(i), rail) !=
        rails.begin() + static_cast<ptrdiff_t>(i)) {
      return absl::InvalidArgumentError(
          fmt::format("two NICs of this process are on rail \"{}\"; each needs its own", rail));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateHeader(const RegistryHeader& header, uint32_t uid) {
  absl::Status status;
  status.Update(Expect("magic", header.magic, kRegistryMagic));
  status.Update(Expect("abi_version", header.abi_version, kAbiVersion));
  status.Update(Expect("header_bytes", header.header_bytes, uint32_t{sizeof(RegistryHeader)}));
  status.Update(Expect("mapping_bytes", header.mapping_bytes, uint64_t{sizeof(ControlBlock)}));
  status.Update(CheckOwner(header.owner, header.epoch, uid));
  status.Update(Expect("lane_count", header.lane_count, kLaneCount));
  status.Update(Expect("slots_per_lane", header.slots_per_lane, kSlotsPerLane));
  status.Update(Expect("slot_size", header.slot_size, kSlotBytes));
  status.Update(Expect("arena_size", header.arena_size, kArenaBytes));
  status.Update(Expect("ipc_handle_bytes", header.ipc_handle_bytes, kArenaHandleBytes));
  status.Update(Expect("reserved", header.reserved, 0u));
  status.Update(CheckRail(header.rail, header.rail_bytes));
  if (!AllZero(header.padding)) {
    status.Update(absl::FailedPreconditionError("padding is not 0"));
  }
  return status;
}

absl::Status ValidateSideHeader(const SideHeader& header, uint32_t uid, const EntryKey& key) {
  absl::Status status;
  status.Update(Expect("magic", header.magic, kSideMagic));
  status.Update(Expect("version", header.version, kSideVersion));
  status.Update(Expect("header_bytes", header.header_bytes, uint32_t{sizeof(SideHeader)}));
  status.Update(Expect("file_bytes", header.file_bytes, uint64_t{sizeof(SideFile)}));
  status.Update(CheckOwner(header.owner, header.epoch, uid));
  if (MakeKey(header.owner, header.epoch) != key) {
    status.Update(absl::FailedPreconditionError("owner or epoch is another's"));
  }
  if (header.rail_count < 1 || header.rail_count > kMaxRails) {
    status.Update(
        absl::FailedPreconditionError(fmt::format("rail_count is {}", header.rail_count)));
    return status;
  }
  for (uint32_t i = 0; i < header.rail_count; ++i) {
    status.Update(CheckRail(header.rails[i].name, header.rails[i].bytes));
  }
  return status;
}

}  // namespace railhop
