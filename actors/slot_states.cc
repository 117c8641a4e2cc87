#include "actors/slot_states.h"

namespace railhop {

LaneSlots CountSlots(const SlotWords& words, std::span<const Completion, kSlotsPerLane> completions,
                     const SideLane* side) {
  LaneSlots counts;
  for (uint32_t slot = 0; slot < kSlotsPerLane; ++slot) {
    const uint64_t word = words[slot].load(std::memory_order_relaxed);
    const uint64_t sequence = word >> 1;
    if (word == 0) {
      ++counts.free;
    } else if (LoadAcquire(completions[slot].commit_sequence) == sequence) {
      ++counts.completed;
    } else if (side != nullptr &&
               LoadAcquire(side->claims[slot]) == ClaimWord(sequence, ClaimState::kTaken)) {
      ++counts.posted;
    } else {
      // SubmitActor hears of the copy after the relay could see the doorbell: it is asked last.
      ++((word & 1) != 0 ? counts.rung : counts.copying);
    }
  }
  return counts;
}

}  // namespace railhop
