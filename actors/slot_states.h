// What the ring slots of an outbound lane are doing, read beside the actors that use them.
//
// Sender's own words say which slots are taken and copied (OutboundLane), the claim words and the
// completion ring of the relay what became of them there (docs/ring.md). Only loads: any thread,
// as long as the relay's block stays mapped. Each slot is told as it was at some moment of the
// call; a piece that moves on meanwhile is counted once.
#pragma once

#include <span>

#include "actors/bootstrap.h"
#include "actors/outbound_lane.h"
#include "transport/ring/completion.h"
#include "transport/ring/side_file.h"

namespace railhop {

// `side`: nullptr for a version-1 relay. Fills in the five states alone; they add up to 18.
LaneSlots CountSlots(const SlotWords& words, std::span<const Completion, kSlotsPerLane> completions,
                     const SideLane* side);

}  // namespace railhop
