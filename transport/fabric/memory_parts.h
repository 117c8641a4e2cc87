// A range that several NICs have registered, each in parts of its own, cut so that whoever sends
// from it or to it has one key of each NIC. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "transport/fabric/fabric.h"

namespace railhop {

struct CommonPart {
  uint64_t offset = 0;  // in the range
  uint64_t length = 0;
  std::vector<MemoryKey> keys;  // one per NIC
};

// In order of address. `by_nic`: for each NIC what RegisterParts gave, all of the same range.
std::vector<CommonPart> CommonParts(std::span<const std::vector<MemoryPart>> by_nic);

}  // namespace railhop
