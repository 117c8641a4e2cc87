// The registered memory of a rank, as SubmitActor sees it: which region an address lies in, with
// which keys its bytes are sent, and whether a transfer may still read it.
//
// One owner, SubmitActor; regions are made and destroyed by the rank's set-up calls, which hand
// them over and take them back by control message.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace railhop {

struct Region {
  std::byte* base = nullptr;
  uint64_t length = 0;
  bool staging = false;  // its bytes may be relayed: GPU memory, or host in host-staging mode
  std::vector<uint32_t> lkeys;  // one per NIC of the rank
  uint64_t in_flight = 0;       // bytes that are queued or moving; SubmitActor's

  bool Contains(const std::byte* address, uint64_t bytes) const {
    return address >= base && bytes <= length &&
           static_cast<uint64_t>(address - base) <= length - bytes;
  }
};

class RegionTable {
 public:
  static constexpr size_t kMaxRegions = 16384;

  RegionTable() { regions_.reserve(kMaxRegions); }

  // False if it is empty, wraps, overlaps another region, or the table is full.
  bool Add(Region* region);
  // False, and nothing happens, if the region is not here or still in use.
  bool Remove(Region* region);
  // The region that the whole range lies in, or nullptr.
  Region* Find(const std::byte* address, uint64_t bytes) const;

 private:
  std::vector<Region*> regions_;  // sorted by base, disjoint
};

}  // namespace railhop
