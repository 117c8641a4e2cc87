#include "actors/bootstrap_layout.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "runtime/cpu_placement.h"

namespace railhop {
namespace {

constexpr char kControl[] = "control";
constexpr uint32_t kSpinUs = 50;
// A hypervisor may hold a halted core back for long; spinning keeps it.
constexpr uint32_t kSpinUsVirtualised = 2000;
// About what parking and waking cost: ranks that share cores give theirs up soon.
constexpr uint32_t kSpinUsShared = 20;

bool IsControlActor(ActorKind kind) {
  return kind == ActorKind::kPeer || kind == ActorKind::kEndpoint;
}

// A reactor of a preset, and the data actors on it.
struct PresetReactor {
  const char* name;
  std::vector<ActorKind> actors;
  bool near_nic = false;
};

std::vector<PresetReactor> DataReactors(LayoutPreset preset, size_t nics) {
  using enum ActorKind;
  switch (preset) {
    case LayoutPreset::kTwoCore:
      return {{"sender", {kSubmit, kCopy}}, {"relay", {kRelayPost, kCqPoll}}};
    case LayoutPreset::kFourCore:
      return {{"submit", {kSubmit}},
              {"copy", {kCopy}},
              {"relay_post", {kRelayPost}},
              {"cq_poll", {kCqPoll}}};
    case LayoutPreset::kPerNic:
      // One NIC keeps one core; several share a posting and a polling core. They choose first.
      if (nics <= 1) {
        return {{"nic", {kRelayPost, kCqPoll}, true}, {"submit", {kSubmit}}, {"copy", {kCopy}}};
      }
      return {{"nic_post", {kRelayPost}, true},
              {"nic_poll", {kCqPoll}, true},
              {"submit", {kSubmit}},
              {"copy", {kCopy}}};
    default:
      return {{"main", {kSubmit, kCopy, kRelayPost, kCqPoll}}};
  }
}

// The physical cores that are this rank's own, one hyper-thread of each; empty when it shares them
// with other ranks or cannot know which are its own.
std::vector<HostCores::Core> OwnCores(const RankConfig& config, const HostCores& host) {
  std::vector<HostCores::Core> physical;
  for (const HostCores::Core& core : host.allowed) {
    const bool seen = std::any_of(physical.begin(), physical.end(), [&](const auto& other) {
      return core.physical >= 0 && other.physical == core.physical;
    });
    if (!seen) physical.push_back(core);
  }
  if (config.ranks_on_host == 1) return physical;
  const size_t share = physical.size() / config.ranks_on_host;
  if (share == 0 || !config.local_rank.has_value()) return {};
  const auto first = physical.begin() + static_cast<std::ptrdiff_t>(share * *config.local_rank);
  return {first, first + static_cast<std::ptrdiff_t>(share)};
}

// One core is left to the application and the control reactor.
LayoutPreset PresetThatFits(size_t own_cores) {
  if (own_cores > 4) return LayoutPreset::kFourCore;
  if (own_cores > 2) return LayoutPreset::kTwoCore;
  return LayoutPreset::kOneCore;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const RankConfig& config, const HostCores& host, ResolvedLayout* layout)
      : config_(config), host_(host), layout_(*layout) {
    layout_ = ResolvedLayout();
    layout_.reactor_of.fill(-1);
  }

  bool Build() {
    if (config_.reactors.empty()) {
      AddPreset();
    } else {
      layout_.reactors = config_.reactors;
    }
    ApplyPlacement();
    AddControl();
    if (Place(ActorKind::kWatchdog) < 0) Place(ActorKind::kWatchdog) = Place(ActorKind::kSubmit);
    DropUnused();
    CheckPlaces();
    CheckCores();
    SetSpin();
    return error_.empty();
  }
  const std::string& error() const { return error_; }

 private:
  int& Place(ActorKind kind) { return layout_.reactor_of[static_cast<size_t>(kind)]; }
  void Fail(const std::string& error) {
    if (error_.empty()) error_ = error;
  }
  int FindReactor(const std::string& name) const {
    for (size_t i = 0; i < layout_.reactors.size(); ++i) {
      if (layout_.reactors[i].name == name) return static_cast<int>(i);
    }
    return -1;
  }
  std::string ReactorNames() const {
    std::vector<std::string> names;
    for (const ReactorConfig& reactor : layout_.reactors) names.push_back(reactor.name);
    return fmt::format("{}", fmt::join(names, ", "));
  }

  void AddPreset();
  void ApplyPlacement();
  void AddControl();
  void DropUnused();
  void CheckPlaces();
  void CheckCores();
  void SetSpin();

  const RankConfig& config_;
  const HostCores& host_;
  ResolvedLayout& layout_;
  bool shares_cores_ = false;
  std::string error_;
};

void LayoutBuilder::AddPreset() {
  std::vector<HostCores::Core> cores = OwnCores(config_, host_);
  layout_.preset =
      config_.layout == LayoutPreset::kAuto ? PresetThatFits(cores.size()) : config_.layout;
  const std::vector<PresetReactor> data = DataReactors(layout_.preset, config_.nics.size());
  // Only where a core is left for the application and the control reactor: the first, which often
  // serves the machine's interrupts too.
  const bool pin = cores.size() > data.size();
  if (pin) cores.erase(cores.begin());
  shares_cores_ = host_.allowed.size() < config_.ranks_on_host * (data.size() + 1);

  const int nic_node = config_.nics.empty() ? -1 : config_.nics.front().numa_node;
  for (const PresetReactor& reactor : data) {
    ReactorConfig added;
    added.name = reactor.name;
    // The cores come from the allowed set, so pinning fails only where the kernel refuses it.
    added.pin_required = false;
    if (pin) {
      auto chosen = cores.begin();
      if (reactor.near_nic && nic_node >= 0) {
        const auto near = std::find_if(cores.begin(), cores.end(), [&](const auto& core) {
          return core.numa_node == nic_node;
        });
        if (near != cores.end()) chosen = near;
      }
      added.core = chosen->core;
      cores.erase(chosen);
    }
    for (const ActorKind kind : reactor.actors)
      Place(kind) = static_cast<int>(layout_.reactors.size());
    layout_.reactors.push_back(std::move(added));
  }
}

void LayoutBuilder::ApplyPlacement() {
  for (const PlacementConfig& placement : config_.placement) {
    int reactor = FindReactor(placement.reactor);
    if (reactor < 0 && placement.reactor == kControl) {
      AddControl();
      reactor = FindReactor(kControl);
    }
    if (reactor < 0) {
      Fail(fmt::format(
          "{}actor \"{}\" is placed on reactor \"{}\", which does not exist; there are: "
          "{}",
          placement.where, ActorKindName(placement.actor), placement.reactor, ReactorNames()));
      return;
    }
    Place(placement.actor) = reactor;
  }
}

void LayoutBuilder::AddControl() {
  int control = FindReactor(kControl);
  for (int i = 0; i < kActorKinds; ++i) {
    const auto kind = static_cast<ActorKind>(i);
    if (!IsControlActor(kind) || Place(kind) >= 0) continue;
    if (control < 0) {
      control = static_cast<int>(layout_.reactors.size());
      ReactorConfig added;
      added.name = kControl;
      added.idle = ReactorIdle::kEvent;
      layout_.reactors.push_back(std::move(added));
    }
    Place(kind) = control;
  }
}

void LayoutBuilder::DropUnused() {
  std::vector<ReactorConfig> used;
  std::vector<int> moved(layout_.reactors.size(), -1);
  for (size_t i = 0; i < layout_.reactors.size(); ++i) {
    const auto& places = layout_.reactor_of;
    if (std::find(places.begin(), places.end(), static_cast<int>(i)) == places.end()) {
      if (config_.reactors.empty()) continue;  // a preset's, emptied by a placement
      Fail(fmt::format("{}reactor \"{}\" has no actor: place one on it, or leave it out",
                       layout_.reactors[i].where, layout_.reactors[i].name));
    }
    moved[i] = static_cast<int>(used.size());
    used.push_back(std::move(layout_.reactors[i]));
  }
  layout_.reactors = std::move(used);
  for (int& place : layout_.reactor_of) {
    if (place >= 0) place = moved[static_cast<size_t>(place)];
  }
}

void LayoutBuilder::CheckPlaces() {
  for (int i = 0; i < kActorKinds; ++i) {
    const auto kind = static_cast<ActorKind>(i);
    if (Place(kind) < 0) {
      Fail(
          fmt::format("actor \"{}\" is on no reactor: add  placement {{ actor: ... reactor: "
                      "\"...\" }}  for it",
                      ActorKindName(kind)));
      return;
    }
  }
  for (int i = 0; i < kActorKinds; ++i) {
    const auto data = static_cast<ActorKind>(i);
    if (IsControlActor(data)) continue;
    for (int j = 0; j < kActorKinds; ++j) {
      const auto control = static_cast<ActorKind>(j);
      if (!IsControlActor(control) || Place(control) != Place(data)) continue;
      Fail(fmt::format(
          "actors \"{}\" and \"{}\" are both on reactor \"{}\": \"{}\" may block for "
          "milliseconds and must not share a reactor with the data path or its deadlines",
          ActorKindName(data), ActorKindName(control), layout_.ReactorOf(data).name,
          ActorKindName(control)));
      return;
    }
  }
}

void LayoutBuilder::CheckCores() {
  std::vector<int> allowed;
  for (const HostCores::Core& core : host_.allowed) allowed.push_back(core.core);
  for (const ReactorConfig& reactor : layout_.reactors) {
    // A merely preferred core is the reactor's own affair: it warns and runs unpinned.
    if (reactor.core < 0 || !reactor.pin_required) continue;
    const absl::Status status = CheckCoreAllowed(reactor.core, allowed);
    if (status.ok()) continue;
    Fail(fmt::format("{}reactor \"{}\": {}", reactor.where, reactor.name,
                     std::string(status.message())));
  }
}

void LayoutBuilder::SetSpin() {
  const uint32_t alone = host_.virtualised ? kSpinUsVirtualised : kSpinUs;
  const uint32_t spin = config_.spin_us.value_or(shares_cores_ ? kSpinUsShared : alone);
  for (ReactorConfig& reactor : layout_.reactors) {
    if (!reactor.spin_us.has_value()) reactor.spin_us = spin;
  }
}

}  // namespace

HostCores DetectHostCores() {
  const CoreTopology topology;
  HostCores host;
  for (const int core : AllowedCores()) {
    host.allowed.push_back({.core = core,
                            .numa_node = topology.NumaNode(core),
                            .physical = topology.Siblings(core).front()});
  }
  host.virtualised = IsVirtualised();
  return host;
}

bool ResolveLayout(const RankConfig& config, const HostCores& host, ResolvedLayout* layout,
                   std::string* error) {
  LayoutBuilder builder(config, host, layout);
  if (builder.Build()) return true;
  *error = builder.error();
  return false;
}

}  // namespace railhop
