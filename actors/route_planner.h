// Which way a request goes: over a peer's NIC (relayed) or over one of our own (direct).
//
// Pure logic, one owner (SubmitActor). The answer belongs to the remote buffer, so it is cached per
// (target, buffer) and dropped when the target is connected anew or a lane comes or goes.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "actors/target_route.h"
#include "transport/engine/data_path.h"
#include "transport/ring/control_block.h"

namespace railhop {

// Why bytes go direct. The first group is decided per request, the second takes pieces off a lane.
enum class DirectReason : uint8_t {
  kNone,  // relayed
  kPxnOff,
  kNotWrite,
  kNotStaging,     // source not in memory that peers can read through a staging arena
  kSmallBatch,     // below min_relay_bytes
  kSessionName,    // target name does not fit a descriptor
  kOwnRail,        // one of our NICs is on a rail the buffer prefers
  kNoPeer,         // no ready lane leads to a peer on such a rail
  kTargetSuspect,  // a relayed piece to it failed, and no direct slice has completed since
  kCreditTimeout,  // no ring slot for longer than the credit timeout
  kSlowCopies,     // copies before it took longer than that, although there were slots
  kPieceDeadline,  // the relay did not take the piece in time
  kPieceRevoked,   // the piece was taken back for another batch, which was given up
  kRelayError,     // the relay answered with an error
  kLaneLost,       // the relay died or fell silent
  kCount
};
const char* DirectReasonName(DirectReason reason);

class RoutePlanner {
 public:
  struct Options {
    bool pxn = false;
    std::vector<std::string> own_rails;
    uint64_t min_relay_bytes = 0;
  };
  struct Route {
    DirectReason reason = DirectReason::kPxnOff;
    uint8_t lane_count = 0;  // lanes to alternate over, if the reason is kNone
    std::array<uint8_t, kLaneCount> lanes{};
  };

  explicit RoutePlanner(Options options);

  // Control path: a lane became ready; it leads to these rails.
  void OpenLane(uint32_t lane, std::vector<std::string> rails);
  // It must not be offered anything for now, or for good.
  void CloseLane(uint32_t lane);
  // It may be offered something again.
  void ReopenLane(uint32_t lane);
  // Control path: makes room for the answers about this target.
  void SetTarget(const TargetRoute& target);

  // The facts of the request first, then those of the buffer (cached). `batch_bytes` is the total.
  // Until the next call.
  const Route& Plan(const TargetRoute& target, const TargetBuffer& buffer, Opcode opcode,
                    bool staging, uint64_t batch_bytes);

 private:
  struct CachedRoute {
    Route route;
    uint32_t lanes_version = 0;
  };
  struct Lane {
    std::vector<std::string> rails;
    bool open = false;
  };
  Route PlanBuffer(const TargetRoute& target, const TargetBuffer& buffer) const;

  const Options options_;
  std::array<Lane, kLaneCount> lanes_;
  uint32_t lanes_version_ = 1;                   // of the lanes that are open
  std::vector<std::vector<CachedRoute>> cache_;  // by target, by buffer
};

}  // namespace railhop
