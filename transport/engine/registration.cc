#include "transport/engine/registration.h"

#include <iterator>

namespace railhop {
namespace {

uint64_t ToAddress(const void* pointer) {
  return reinterpret_cast<uint64_t>(pointer);
}

}  // namespace

bool RegistrationTable::IsFree(uint64_t address, uint64_t length) const {
  const auto next = ranges_.lower_bound(address);
  if (next != ranges_.end() && next->first - address < length) return false;
  if (next == ranges_.begin()) return true;
  const auto& [first, range] = *std::prev(next);
  return address - first >= range.length;
}

EngineError RegistrationTable::Reserve(std::span<const BufferEntry> entries) {
  const std::lock_guard lock(mutex_);
  EngineError error = EngineError::kOk;
  size_t taken = 0;
  for (; taken < entries.size(); ++taken) {
    const uint64_t address = ToAddress(entries[taken].address);
    const uint64_t length = entries[taken].length;
    if (length == 0 || address == 0 || address + length < address) {
      error = EngineError::kInvalidArgument;
      break;
    }
    if (!IsFree(address, length)) {
      error = EngineError::kAddressOverlapped;
      break;
    }
    ranges_.emplace(address, Range{.length = length});
  }
  if (error == EngineError::kOk) return error;
  while (taken-- > 0) ranges_.erase(ToAddress(entries[taken].address));
  return error;
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
