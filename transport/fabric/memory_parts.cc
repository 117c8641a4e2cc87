#include "transport/fabric/memory_parts.h"

#include <algorithm>
#include <utility>

namespace railhop {

std::vector<CommonPart> CommonParts(std::span<const std::vector<MemoryPart>> by_nic) {
  struct Position {
    const MemoryPart* part;
    const MemoryPart* end;
    uint64_t left;  // of `part`
  };
  std::vector<Position> positions;
  for (const std::vector<MemoryPart>& parts : by_nic) {
    positions.push_back({parts.data(), parts.data() + parts.size(), parts.front().length});
  }
  std::vector<CommonPart> common;
  uint64_t offset = 0;
  while (!positions.empty() && positions.front().part != positions.front().end) {
    CommonPart next{.offset = offset, .length = UINT64_MAX, .keys = {}};
    for (const Position& position : positions) {
      next.length = std::min(next.length, position.left);
      next.keys.push_back(position.part->key);
    }
    for (Position& position : positions) {
      position.left -= next.length;
      if (position.left == 0 && ++position.part != position.end) {
        position.left = position.part->length;
      }
    }
    offset += next.length;
    common.push_back(std::move(next));
  }
  return common;
}

}  // namespace railhop
