// The names in a registry directory and the checks of a registry header.
//
// Control path only; pure, no system calls. A published entry is
// `peer.<pid>.<start_ticks>.<epoch>.reg`, an unfinished one `tmp.<pid>.<start_ticks>.<epoch>`, a
// side file `<pid>.<start_ticks>.<epoch>` with its pipes `<side file>.wake<k>` beside it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "transport/ring/control_block.h"
#include "transport/ring/side_file.h"

namespace railhop {

// What a registration is called by. The user is the directory's.
struct EntryKey {
  int32_t pid = 0;
  uint64_t start_ticks = 0;
  uint64_t epoch = 0;
  friend bool operator==(const EntryKey&, const EntryKey&) = default;
};

inline EntryKey MakeKey(const ProcessIdentity& owner, uint64_t epoch) {
  return {owner.pid, owner.start_ticks, epoch};
}

std::string PublishedName(const EntryKey& key);
std::string TemporaryName(const EntryKey& key);
std::string SideName(const EntryKey& key);
std::string WakeName(const EntryKey& key, WakeRole role);

struct ParsedName {
  enum class Kind : uint8_t { kPublished, kTemporary, kSide, kWake };
  Kind kind;
  EntryKey key;
};
// nullopt: a name that no process of this project gives.
std::optional<ParsedName> ParseName(std::string_view name);

// 1..64 characters of A-Z a-z 0-9 _ - . and neither "." nor "..".
absl::Status ValidateGroupId(std::string_view group_id);

// 1..16 names of 1..256 bytes without NUL, each once.
absl::Status ValidateRails(std::span<const std::string> rails);

// Everything that version 1 lays down about a header, except `state`; any heartbeat is accepted.
// FAILED_PRECONDITION names the field that is wrong.
absl::Status ValidateHeader(const RegistryHeader& header, uint32_t uid);

// The same for a side file; it must be `key`'s.
absl::Status ValidateSideHeader(const SideHeader& header, uint32_t uid, const EntryKey& key);

}  // namespace railhop
