#include "actors/path_round.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace railhop {
namespace {

using std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLongRound{500};

class Round {
 public:
  Round(std::span<Nic* const> nics, const TargetInfo& info, std::vector<EndpointId>* endpoints)
      : nics_(nics), info_(info), endpoints_(*endpoints), tried_(endpoints->size()) {}

  void Want(PathId path) {
    if (!Try(path)) result_.complete = false;
  }
  // For an own NIC without a path.
  void StandIn(const std::vector<PathId>& paths) {
    for (const PathId path : paths) {
      if (over_ || steady_clock::now() - begin_ > kLongRound) return;
      if (!tried_[path] && Try(path)) return;
    }
  }
  bool IsConnected(uint32_t nic) const {
    const auto first = endpoints_.begin() + MakePath(nic);
    return std::any_of(first, first + kMaxRemoteNics,
                       [](EndpointId endpoint) { return endpoint != 0; });
  }
  bool IsTried(uint32_t nic) const {
    const auto first = tried_.begin() + MakePath(nic);
    return std::find(first, first + kMaxRemoteNics, true) != first + kMaxRemoteNics;
  }
  PathRound Finish() {
    result_.took = steady_clock::now() - begin_;
    return std::move(result_);
  }

 private:
  // True: it is connected.
  bool Try(PathId path) {
    tried_[path] = true;
    if (endpoints_[path] != 0) return true;
    if (over_) return false;
    Nic& nic = *nics_[OwnNic(path)];
    const absl::StatusOr<EndpointId> endpoint = nic.Connect(info_, RemoteNicOf(path));
    if (endpoint.ok()) {
      endpoints_[path] = *endpoint;
      result_.made.push_back(path);
      return true;
    }
    const absl::Status& status = endpoint.status();
    over_ =
        absl::IsUnavailable(status) || absl::IsNotFound(status) || absl::IsDeadlineExceeded(status);
    result_.errors.emplace_back(
        status.code(),
        fmt::format("NIC {} cannot connect to {} of target {}: {}", std::string(nic.name()),
                    info_.nics[RemoteNicOf(path)].name, info_.name, std::string(status.message())));
    return false;
  }

  const std::span<Nic* const> nics_;
  const TargetInfo& info_;
  std::vector<EndpointId>& endpoints_;
  std::vector<bool> tried_;
  const steady_clock::time_point begin_ = steady_clock::now();
  bool over_ = false;  // the target's listener does not answer
  PathRound result_;
};

}  // namespace

PathRound ConnectPaths(std::span<Nic* const> nics, const TargetInfo& info,
                       const std::vector<PathPlan>& plans, std::vector<EndpointId>* endpoints) {
  Round round(nics, info, endpoints);
  for (const PathPlan& plan : plans) {
    for (const PathId path : plan.first) round.Want(path);
  }
  for (uint32_t nic = 0; nic < nics.size(); ++nic) {
    if (!round.IsTried(nic)) round.Want(plans.front().of_own_nic[nic].front());
  }
  for (uint32_t nic = 0; nic < nics.size(); ++nic) {
    if (!round.IsConnected(nic)) round.StandIn(plans.front().of_own_nic[nic]);
  }
  return round.Finish();
}

}  // namespace railhop
