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
  // Of a read into it, GPU memory: whose writes have to be flushed (ReadFlush); 0: nobody's.
  uint8_t flush_gpu = 0;
  std::vector<uint32_t> lkeys;  // one per NIC of the rank, for each part
  // Where its parts end, in bytes from `base`; none: it is one. What a NIC sends from lies in one.
  std::vector<uint64_t> part_ends;
  uint64_t in_flight = 0;  // bytes that are queued or moving; SubmitActor's

  bool Contains(const std::byte* address, uint64_t bytes) const {
    return address >= base && bytes <= length &&
           static_cast<uint64_t>(address - base) <= length - bytes;
  }
  // Of an address in it: bytes to the end of the part, and the key of the part.
  uint64_t LeftInPart(const std::byte* address) const {
    const auto offset = static_cast<uint64_t>(address - base);
    return (part_ends.empty() ? length : part_ends[PartOf(offset)]) - offset;
  }
  uint32_t Lkey(const std::byte* address, uint32_t nic) const {
    if (part_ends.empty()) return lkeys[nic];
    const size_t nics = lkeys.size() / part_ends.size();
    return lkeys[PartOf(static_cast<uint64_t>(address - base)) * nics + nic];
  }

 private:
  size_t PartOf(uint64_t offset) const;
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
