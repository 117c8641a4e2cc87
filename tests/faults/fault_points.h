// Every named protocol point (runtime/fault_point.h): whose it is, and what makes a process pass
// it. tests/faults/fault_points_test.py holds this list against the sources and the binaries.
#pragma once

#include <string_view>

namespace railhop {

enum class PassedWhen {
  kAttaching,   // the victim starts: ranks attach to each other
  kLoaded,      // pieces go from sender to relay
  kLeaving,     // the victim is told to stop while it has work
  kSenderDies,  // the sender of a lane of the victim is killed
};

struct NamedPoint {
  std::string_view name;  // "sender.x" | "relay.x": the role of the process that passes it
  PassedWhen when;
};

inline constexpr NamedPoint kNamedPoints[] = {
    // Sender: the lane
    {"sender.claimed", PassedWhen::kAttaching},         // the lane is ours, its arena not attached
    {"sender.attached", PassedWhen::kAttaching},        // marked as attached
    {"sender.probe_sent", PassedWhen::kAttaching},      // and the relay was woken
    {"sender.probe_answered", PassedWhen::kAttaching},  // the lane is good, no actor knows of it
    {"sender.detached", PassedWhen::kLeaving},          // no longer marked as attached
    {"sender.lane_released", PassedWhen::kLeaving},     // the lane is free
    // Sender: a piece
    {"sender.offered", PassedWhen::kLoaded},          // claim word set, descriptor not committed
    {"sender.committed", PassedWhen::kLoaded},        // descriptor committed, nothing copied
    {"sender.copied", PassedWhen::kLoaded},           // bytes in the slot, doorbell not rung
    {"sender.doorbell_rung", PassedWhen::kLoaded},    // the relay may take it
    {"sender.head_stored", PassedWhen::kLoaded},      // the relay is not woken yet
    {"sender.completion_seen", PassedWhen::kLoaded},  // nobody is told yet
    {"sender.slot_released", PassedWhen::kLoaded},    // its spans have ended, the slot is free
    // Relay: the lane
    {"relay.sender_seen", PassedWhen::kAttaching},       // a lane has a new sender
    {"relay.sender_admitted", PassedWhen::kAttaching},   // its death would be noticed from now on
    {"relay.lane_taken_over", PassedWhen::kSenderDies},  // the dead sender's lane is the relay's
    {"relay.lane_freed", PassedWhen::kSenderDies},       // anybody may claim it
    // Relay: a piece
    {"relay.descriptor_read", PassedWhen::kLoaded},       // it waits
    {"relay.taken", PassedWhen::kLoaded},                 // claim word moved, nothing posted
    {"relay.first_prepared", PassedWhen::kLoaded},        // its first request is in the send queue
    {"relay.last_prepared", PassedWhen::kLoaded},         // all of them are
    {"relay.posted", PassedWhen::kLoaded},                // the NIC knows
    {"relay.status_written", PassedWhen::kLoaded},        // completion written, not committed
    {"relay.completion_committed", PassedWhen::kLoaded},  // committed; `completed` has not moved
    {"relay.completed_moved", PassedWhen::kLoaded},       // the sender is not woken yet
};

}  // namespace railhop
