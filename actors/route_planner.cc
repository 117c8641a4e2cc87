#include "actors/route_planner.h"

#include <algorithm>
#include <utility>

namespace railhop {
namespace {

bool Intersects(std::span<const std::string> a, std::span<const std::string> b) {
  return std::any_of(a.begin(), a.end(), [b](const std::string& name) {
    return std::find(b.begin(), b.end(), name) != b.end();
  });
}

// Whether a descriptor can carry it: one that cannot breaks the lane for everybody.
bool IsSessionName(const std::string& name) {
  return !name.empty() && name.size() <= kMaxSessionBytes && name.find('\0') == std::string::npos;
}

}  // namespace

const char* DirectReasonName(DirectReason reason) {
  switch (reason) {
    case DirectReason::kNone:
      return "relayed";
    case DirectReason::kPxnOff:
      return "PXN off";
    case DirectReason::kNotWrite:
      return "not a write";
    case DirectReason::kNotStaging:
      return "source not in staging memory";
    case DirectReason::kSmallBatch:
      return "small batch";
    case DirectReason::kSessionName:
      return "target name does not fit a descriptor";
    case DirectReason::kOwnRail:
      return "own rail";
    case DirectReason::kNoPeer:
      return "no peer on the rail";
    case DirectReason::kTargetSuspect:
      return "target had a transport error";
    case DirectReason::kCreditTimeout:
      return "no ring credit";
    case DirectReason::kSlowCopies:
      return "slow copies";
    case DirectReason::kPieceDeadline:
      return "piece deadline";
    case DirectReason::kPieceRevoked:
      return "piece taken back";
    case DirectReason::kRelayError:
      return "relay error";
    case DirectReason::kLaneLost:
      return "relay lost";
    case DirectReason::kCount:
      break;
  }
  return "unknown";
}

RoutePlanner::RoutePlanner(Options options) : options_(std::move(options)), cache_(kMaxTargets) {}

void RoutePlanner::OpenLane(uint32_t lane, std::vector<std::string> rails) {
  lanes_[lane] = {.rails = std::move(rails), .open = true};
  ++lanes_version_;
}

void RoutePlanner::CloseLane(uint32_t lane) {
  lanes_[lane].open = false;
  ++lanes_version_;
}

void RoutePlanner::ReopenLane(uint32_t lane) {
  lanes_[lane].open = true;
  ++lanes_version_;
}

void RoutePlanner::SetTarget(const TargetRoute& target) {
  cache_[target.index].assign(target.buffers.size(), {});
}

const RoutePlanner::Route& RoutePlanner::Plan(const TargetRoute& target, const TargetBuffer& buffer,
                                              Opcode opcode, bool staging, uint64_t batch_bytes) {
  static constexpr Route kPxnOff{.reason = DirectReason::kPxnOff};
  static constexpr Route kNotWrite{.reason = DirectReason::kNotWrite};
  static constexpr Route kNotStaging{.reason = DirectReason::kNotStaging};
  static constexpr Route kSmallBatch{.reason = DirectReason::kSmallBatch};
  if (!options_.pxn) return kPxnOff;
  if (opcode != Opcode::kWrite) return kNotWrite;
  if (!staging) return kNotStaging;
  if (batch_bytes < options_.min_relay_bytes) return kSmallBatch;
  const auto position = static_cast<size_t>(&buffer - target.buffers.data());
  CachedRoute& cached = cache_[target.index][position];
  if (cached.lanes_version != lanes_version_) {
    cached = {PlanBuffer(target, buffer), lanes_version_};
  }
  return cached.route;
}

RoutePlanner::Route RoutePlanner::PlanBuffer(const TargetRoute& target,
                                             const TargetBuffer& buffer) const {
  if (!IsSessionName(target.name)) return {.reason = DirectReason::kSessionName};
  if (Intersects(buffer.rails, options_.own_rails)) return {.reason = DirectReason::kOwnRail};
  Route route{.reason = DirectReason::kNone};
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    if (lanes_[lane].open && Intersects(buffer.rails, lanes_[lane].rails)) {
      route.lanes[route.lane_count++] = static_cast<uint8_t>(lane);
    }
  }
  if (route.lane_count == 0) route.reason = DirectReason::kNoPeer;
  return route;
}

}  // namespace railhop
