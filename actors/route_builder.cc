#include "actors/route_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace railhop {
namespace {

using Positions = std::vector<uint32_t>;  // of NICs, own or the target's

Positions UpTo(size_t count) {
  Positions all(count);
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

size_t UsedNics(const TargetInfo& info) {
  return std::min<size_t>(info.nics.size(), kMaxRemoteNics);
}

std::vector<std::string> RailsOf(const RailMap& rail_map, const std::vector<std::string>& nics) {
  std::vector<std::string> rails;
  for (const std::string& nic : nics) rails.push_back(RailOf(rail_map, nic));
  std::sort(rails.begin(), rails.end());
  rails.erase(std::unique(rails.begin(), rails.end()), rails.end());
  return rails;
}

// The own NICs that send to such a buffer first.
Positions SendersFor(const std::vector<std::string>& rails,
                     const std::vector<std::string>& own_rails) {
  Positions nics;
  for (uint32_t i = 0; i < own_rails.size(); ++i) {
    if (std::binary_search(rails.begin(), rails.end(), own_rails[i])) nics.push_back(i);
  }
  std::stable_sort(nics.begin(), nics.end(),
                   [&](uint32_t a, uint32_t b) { return own_rails[a] < own_rails[b]; });
  return nics.empty() ? UpTo(own_rails.size()) : nics;
}

// The target's NICs that a buffer prefers, of those that are used; all, if none of them is.
Positions PreferredOf(const TargetInfo& info, const std::vector<std::string>& names) {
  const size_t count = UsedNics(info);
  Positions preferred;
  for (const std::string& name : names) {
    for (uint32_t i = 0; i < count; ++i) {
      if (info.nics[i].name == name) preferred.push_back(i);
    }
  }
  return preferred.empty() ? UpTo(count) : preferred;
}

// The target's NICs in the order in which one own NIC wants them, and how many of them it wants to
// alternate over.
class RemoteOrder {
 public:
  RemoteOrder(const TargetInfo& info, const Positions& preferred, const RouteOptions& options)
      : info_(info), preferred_(preferred), options_(options) {}

  // `place`: that of the own NIC among `senders` of them, over which preferred NICs are dealt out.
  void Make(const std::string& own_rail, size_t place, size_t senders) {
    const size_t count = UsedNics(info_);
    const auto on_rail = [&](uint32_t remote) {
      return RailOf(options_.rail_map, info_.nics[remote].name) == own_rail;
    };
    for (const uint32_t remote : preferred_) {
      if (on_rail(remote)) Add(remote);
    }
    first = order.size();
    for (uint32_t remote = 0; options_.destination_affinity && remote < count; ++remote) {
      if (on_rail(remote)) Add(remote);
    }
    if (first == 0) first = order.size();
    for (size_t i = place % preferred_.size(); i < preferred_.size(); i += senders) {
      Add(preferred_[i]);
    }
    if (first == 0) first = order.size();
    for (const uint32_t remote : preferred_) Add(remote);
    for (uint32_t remote = 0; remote < count; ++remote) Add(remote);
  }

  Positions order;
  size_t first = 0;

 private:
  void Add(uint32_t remote) {
    if (std::find(order.begin(), order.end(), remote) == order.end()) order.push_back(remote);
  }

  const TargetInfo& info_;
  const Positions& preferred_;
  const RouteOptions& options_;
};

std::string RangeText(const TargetBuffer& buffer) {
  return fmt::format("[{:#x}, +{} bytes]", buffer.address, buffer.length);
}

absl::Status CheckRanges(const std::string& target, const std::vector<TargetBuffer>& buffers) {
  for (size_t i = 0; i < buffers.size(); ++i) {
    if (buffers[i].address + buffers[i].length - 1 < buffers[i].address) {
      return absl::FailedPreconditionError(
          fmt::format("the metadata of target {} has a buffer {} that wraps around the address "
                      "space; the target must register it anew",
                      target, RangeText(buffers[i])));
    }
    if (i == 0 || buffers[i].address - buffers[i - 1].address >= buffers[i - 1].length) continue;
    return absl::FailedPreconditionError(fmt::format(
        "the metadata of target {} has buffers that overlap: {} and {}; the target must register "
        "disjoint ranges",
        target, RangeText(buffers[i - 1]), RangeText(buffers[i])));
  }
  return absl::OkStatus();
}

}  // namespace

const std::string& RailOf(const RailMap& rail_map, const std::string& nic) {
  const auto found = rail_map.find(nic);
  return found == rail_map.end() ? nic : found->second;
}

PathPlan PlanPaths(const TargetInfo& info, const std::vector<std::string>& preferred_nics,
                   const RouteOptions& options) {
  const std::vector<std::string>& own_rails = options.own_rails;
  const Positions preferred = PreferredOf(info, preferred_nics);
  const Positions senders = SendersFor(RailsOf(options.rail_map, preferred_nics), own_rails);
  PathPlan plan;
  plan.of_own_nic.resize(own_rails.size());
  std::vector<RemoteOrder> orders(own_rails.size(), RemoteOrder(info, preferred, options));
  for (uint32_t own = 0; own < own_rails.size(); ++own) {
    const auto place = std::find(senders.begin(), senders.end(), own);
    orders[own].Make(own_rails[own],
                     place == senders.end() ? own : static_cast<size_t>(place - senders.begin()),
                     senders.size());
    for (const uint32_t remote : orders[own].order) {
      plan.of_own_nic[own].push_back(MakePath(own, remote));
    }
  }
  // Own NICs in turn, however many of the target's each of them alternates over.
  size_t rounds = 0;
  for (const uint32_t own : senders) rounds = std::max(rounds, orders[own].first);
  for (size_t round = 0; round < rounds; ++round) {
    for (const uint32_t own : senders) {
      plan.first.push_back(plan.of_own_nic[own][round % orders[own].first]);
    }
  }
  return plan;
}

absl::StatusOr<TargetPlan> PlanTarget(const TargetInfo& info, const RouteOptions& options) {
  if (info.nics.empty()) {
    return absl::FailedPreconditionError(fmt::format(
        "the metadata of target {} names no NIC; the target must be started anew", info.name));
  }
  TargetPlan plan;
  std::map<std::vector<std::string>, size_t> known;  // by preferred NICs: position of their plan
  const auto plan_for = [&](const std::vector<std::string>& preferred) -> PathPlan& {
    const auto [entry, fresh] = known.try_emplace(preferred, plan.paths.size());
    if (fresh) plan.paths.push_back(PlanPaths(info, preferred, options));
    return plan.paths[entry->second];
  };
  for (const RemoteBuffer& remote : info.buffers) {
    if (remote.length == 0) continue;
    TargetBuffer& buffer = plan.buffers.emplace_back();
    buffer.address = remote.address;
    buffer.length = remote.length;
    std::copy_n(remote.rkeys.begin(), std::min(remote.rkeys.size(), buffer.rkeys.size()),
                buffer.rkeys.begin());
    buffer.paths = plan_for(remote.preferred_nics).first;
    buffer.rails = RailsOf(options.rail_map, remote.preferred_nics);
  }
  std::sort(plan.buffers.begin(), plan.buffers.end(),
            [](const TargetBuffer& a, const TargetBuffer& b) { return a.address < b.address; });
  if (absl::Status status = CheckRanges(info.name, plan.buffers); !status.ok()) return status;
  // So that it shows whether the target can be reached at all.
  if (plan.paths.empty()) plan_for({}).first.clear();
  return plan;
}

}  // namespace railhop
