// Writing, copying and judging the descriptor of a piece.
//
// The sender's submit side owns one DescriptorWriter per lane. The relay's post side copies a
// descriptor out of shared memory once, judges the copy, and never looks at the original again: a
// sender that scribbles over it can hurt nobody. Data path: no allocation, no system call; errors
// are DescriptorError.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "transport/ring/control_block.h"

namespace railhop {

enum class DescriptorError : uint8_t {
  kNone,
  kSequence,       // commit_sequence is not the expected one
  kEpoch,          // not meant for this registration of the relay (a probe, for one)
  kPieceLength,    // 0 or more than a slot
  kPlanCount,      // 0 or more than 4096
  kSessionLength,  // 0 or more than 256
  kReserved,       // reserved field not 0
  kSession,        // a NUL inside the session's name
  kEntryLength,    // a plan entry of 0 bytes
  kEntryWrap,      // address + length beyond 64 bits
  kLengthSum,      // plan entries do not add up to piece_length
};
const char* DescriptorErrorName(DescriptorError error);

// Fills descriptors of one lane. Remembers what each slot's last use left behind and clears only
// the excess. One thread; made anew with each claim of a lane, the reuse of one's own included.
class DescriptorWriter {
 public:
  // Everything but commit_sequence; piece_length becomes the sum of the plans. On an error the
  // descriptor is untouched. `epoch` is the relay's.
  DescriptorError Prepare(Descriptor& descriptor, uint32_t slot, uint64_t epoch,
                          std::string_view session, std::span<const PlanEntry> plans);

  // Makes it valid, as the piece with this sequence.
  static void Commit(Descriptor& descriptor, uint64_t sequence) {
    StoreRelease(descriptor.commit_sequence, sequence);
  }

 private:
  struct Leftover {
    bool known = false;  // false: the slot was never used, and all of it is cleared
    uint32_t plan_count = 0;
    uint32_t session_length = 0;
  };
  std::array<Leftover, kSlotsPerLane> leftovers_{};
};

// A private copy, 66 KB: allocate it at set-up and reuse it. Beyond the counts the arrays hold
// bytes of earlier pieces.
struct DescriptorCopy {
  uint64_t sequence;
  uint64_t epoch;
  uint32_t piece_length;
  uint32_t plan_count;
  uint32_t session_length;
  uint32_t reserved;
  std::array<char, kMaxSessionBytes> session;
  std::array<PlanEntry, kMaxPlanEntries> plans;

  // Only of a copy that Validate accepted.
  std::string_view session_name() const { return {session.data(), session_length}; }
  std::span<const PlanEntry> plan() const { return {plans.data(), plan_count}; }
};

// Reads each word once, with acquire order: loads that follow are not done earlier, so a lane that
// is looked at again afterwards shows whether it changed under the copy (docs/ring.md, rule 1).
void CopyDescriptor(const Descriptor& source, DescriptorCopy& copy);

DescriptorError Validate(const DescriptorCopy& copy, uint64_t sequence, uint64_t epoch);

}  // namespace railhop
