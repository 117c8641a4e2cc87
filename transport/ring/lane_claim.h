// Who owns a lane: claiming, attaching and releasing it as a sender, and, as the relay, taking over
// the lane of a sender that died.
//
// Control path, one thread; each call takes the entry lock of the relay for its length, waiting at
// most the registry's lock timeout. States and rules: docs/ring.md.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/ring/control_block.h"
#include "transport/ring/registry.h"

namespace railhop {

// A sender as lanes know it: a process, and which of its registrations.
struct LaneSender {
  ProcessIdentity identity;
  uint64_t epoch;
  friend bool operator==(const LaneSender&, const LaneSender&) = default;
};

struct LaneClaim {
  uint32_t lane = 0;
  uint64_t first_sequence = 1;
  // One's own lane of before, which goes on where it was; it needs no probe.
  bool reused = false;
};

// RESOURCE_EXHAUSTED: no lane is free. UNAVAILABLE: one's own lane of before is not drained yet, or
// the relay is stopping; try again later.
absl::StatusOr<LaneClaim> ClaimLane(PeerMapping& relay, const LaneSender& sender);

// Tells the relay whether the sender has its arena mapped.
absl::Status MarkAttached(PeerMapping& relay, const LaneSender& sender, uint32_t lane,
                          bool attached);

// Gives a lane back. UNAVAILABLE while a piece of it is not completed: the relay may still read its
// slot.
absl::Status ReleaseLane(PeerMapping& relay, const LaneSender& sender, uint32_t lane);

// Who holds a lane; nullopt if nobody does, or it changes just now. Without the lock: for looking.
std::optional<LaneSender> ReadSender(const LaneHeader& header);

// Relay: the sender died and nothing more will be posted from its lane. Makes the relay itself the
// sender, so that nobody claims the lane. FAILED_PRECONDITION if the lane is no longer `dead`'s, or
// `dead` is alive.
absl::Status TakeOverLane(Registration& relay, uint32_t lane, const LaneSender& dead);

// Relay: frees a lane it took over, once (a) the old sender's watch has ended, (b) its own posts
// from the lane are drained and (c) QuietDoorbell says so.
absl::Status FreeTakenLane(Registration& relay, uint32_t lane);

// Tells when the doorbell of a taken lane has not moved for the grace time: GPU work of a dead
// process may outlive it.
class QuietDoorbell {
 public:
  using Time = std::chrono::steady_clock::time_point;
  explicit QuietDoorbell(std::chrono::milliseconds grace) : grace_(grace) {}

  bool Observe(const LaneHeader& header, Time now);

 private:
  std::chrono::milliseconds grace_;
  std::optional<Time> since_;
  uint64_t doorbell_ = 0;
};

}  // namespace railhop
