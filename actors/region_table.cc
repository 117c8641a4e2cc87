#include "actors/region_table.h"

#include <algorithm>

namespace railhop {
namespace {

bool BaseAfter(const std::byte* address, const Region* region) {
  return address < region->base;
}

}  // namespace

size_t Region::PartOf(uint64_t offset) const {
  return static_cast<size_t>(std::upper_bound(part_ends.begin(), part_ends.end(), offset) -
                             part_ends.begin());
}

bool RegionTable::Add(Region* region) {
  if (regions_.size() == kMaxRegions || region->length == 0) return false;
  if (region->length > UINT64_MAX - reinterpret_cast<uint64_t>(region->base)) return false;
  const auto next = std::upper_bound(regions_.begin(), regions_.end(), region->base, BaseAfter);
  if (next != regions_.end() && region->base + region->length > (*next)->base) return false;
  if (next != regions_.begin()) {
    const Region* previous = *(next - 1);
    if (previous->base + previous->length > region->base) return false;
  }
  regions_.insert(next, region);
  return true;
}

bool RegionTable::Remove(Region* region) {
  const auto found = std::find(regions_.begin(), regions_.end(), region);
  if (found == regions_.end() || region->in_flight != 0) return false;
  regions_.erase(found);
  return true;
}

Region* RegionTable::Find(const std::byte* address, uint64_t bytes) const {
  const auto next = std::upper_bound(regions_.begin(), regions_.end(), address, BaseAfter);
  if (next == regions_.begin()) return nullptr;
  Region* const region = *(next - 1);
  return region->Contains(address, bytes) ? region : nullptr;
}

}  // namespace railhop
