#include "transport/copy/copy_cost_book.h"

#include "transport/ring/control_block.h"

namespace railhop {

void CopyCostBook::Set(const std::byte* arena, const CopyCosts& costs) {
  std::lock_guard lock(mutex_);
  costs_[arena] = costs;
}

void CopyCostBook::Erase(const std::byte* arena) {
  std::lock_guard lock(mutex_);
  costs_.erase(arena);
}

std::optional<CopyCosts> CopyCostBook::Find(const std::byte* address) const {
  std::lock_guard lock(mutex_);
  auto next = costs_.upper_bound(address);
  if (next == costs_.begin()) return std::nullopt;
  const auto& [arena, costs] = *--next;
  return address - arena < static_cast<std::ptrdiff_t>(kArenaBytes) ? std::optional(costs)
                                                                    : std::nullopt;
}

}  // namespace railhop
