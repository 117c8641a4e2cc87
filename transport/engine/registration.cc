#include "transport/engine/registration.h"

#include <fmt/format.h>

#include <iterator>

namespace railhop {
namespace {

uint64_t ToAddress(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

RegistrationTable::Ranges::const_iterator RegistrationTable::FindOverlap(uint64_t address,
                                                                         uint64_t length) const {
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first - address < length) return next;
  if (next == ranges_.begin()) return ranges_.end();
  const auto before = std::prev(next);
  return address - before->first < before->second.length ? before : ranges_.end();
}

EngineError RegistrationTable::Reserve(std::span<const BufferEntry> entries, std::string* error) {
  const std::lock_guard lock(mutex_);
  EngineError code = EngineError::kOk;
  size_t taken = 0;
  for (; taken < entries.size(); ++taken) {
    const uint64_t address = ToAddress(entries[taken].address);
    const uint64_t length = entries[taken].length;
    if (length == 0 || address == 0 || address + length < address) {
      code = EngineError::kInvalidArgument;
      *error =
          fmt::format("range {:#x} of {} bytes is empty, at address 0, or wraps", address, length);
      break;
    }
    if (const auto other = FindOverlap(address, length); other != ranges_.end()) {
      code = EngineError::kAddressOverlapped;
      *error = fmt::format(
          "range {:#x} of {} bytes overlaps {:#x} of {} bytes, which is registered already, or by "
          "the same call: unregister that one, or register what is not covered yet",
          address, length, other->first, other->second.length);
      break;
    }
    ranges_.emplace(address, Range{.length = length});
  }
  if (code == EngineError::kOk) return code;
  while (taken-- > 0) ranges_.erase(ToAddress(entries[taken].address));
  return code;
}

EngineError RegistrationTable::BeginRelease(void* address, bool* half_done) {
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(ToAddress(address));
  if (found == ranges_.end() || found->second.releasing) return EngineError::kAddressNotRegistered;
  found->second.releasing = true;
  *half_done = found->second.half_done;
  return EngineError::kOk;
}

void RegistrationTable::EndRelease(void* address) {
  const std::lock_guard lock(mutex_);
  ranges_.erase(ToAddress(address));
}

void RegistrationTable::KeepAfterAll(void* address, bool half_done) {
  const std::lock_guard lock(mutex_);
  Range& range = ranges_.at(ToAddress(address));
  range.releasing = false;
  range.half_done = half_done;
}

}  // namespace railhop
