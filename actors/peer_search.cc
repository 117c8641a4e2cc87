// PeerActor: which peers there are, which rails are wanted, and whom to attach to for them.

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "actors/peer_actor.h"
#include "runtime/cycle_clock.h"
#include "runtime/log.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

using Health = OutboundPeer::Health;
using Phase = OutboundPeer::Phase;

bool Contains(const std::vector<std::string>& rails, const std::string& rail) {
  return std::find(rails.begin(), rails.end(), rail) != rails.end();
}

}  // namespace

bool PeerActor::WaitForRail(const std::string& rail, std::chrono::nanoseconds timeout) {
  {
    std::lock_guard lock(mutex_);
    waited_for_.emplace_back(rail, std::chrono::steady_clock::now() + timeout);
    has_waited_for_.store(true, std::memory_order_release);
  }
  // Only a wake: if the control lane is full, the reactor is awake.
  Post({.kind = ControlMessage::kFirstUserKind});
  return attached_.WaitFor(rail, timeout);
}

void PeerActor::TakeWaitedFor(uint64_t now) {
  decltype(waited_for_) waited_for;
  {
    std::lock_guard lock(mutex_);
    waited_for.swap(waited_for_);
    has_waited_for_.store(false, std::memory_order_relaxed);
  }
  const auto time = std::chrono::steady_clock::now();
  for (const auto& [rail, until] : waited_for) {
    if (until > time) Want(rail, now + ToCycles(until - time));
  }
}

bool PeerActor::OnWantRail(const WantRail& message) {
  Want(std::string(message.rail, message.length), reactor().now() + ToCycles(kWantedFor));
  Wake();
  return true;
}

void PeerActor::Want(const std::string& rail, uint64_t until) {
  const auto [wanted, is_new] = wanted_.try_emplace(rail, until);
  wanted->second = std::max(wanted->second, until);
  if (is_new) scan_interval_ = kFirstScan;
}

// A rail is missing while nobody on it is attached or about to be. While one is, the group is
// scanned again and again, more and more rarely: its owner may join at any time.
void PeerActor::Search(uint64_t now) {
  std::vector<std::string> missing = MissingRails(now);
  const bool search = !missing.empty() || options_.preattach;
  if (search && now >= scan_at_) {
    if (Scan()) {
      scanned_at_ = now;
      missing = MissingRails(now);
    }
    scan_at_ = now + ToCycles(scan_interval_);
    scan_interval_ = std::min(2 * scan_interval_, missing.empty() ? kPreattachScan : kLastScan);
  }
  for (const std::string& rail : missing) {
    if (!IsServed(rail)) AttachFor(rail, now);
  }
  if (!search) {
    scan_at_ = kNever;
  } else if (scan_at_ == kNever) {
    scan_at_ = std::max(now, scanned_at_ + ToCycles(kFirstScan));
  }
}

bool PeerActor::Scan() {
  const absl::StatusOr<std::vector<PeerInfo>> found = member_.registry().Discover();
  if (!found.ok()) {
    if (!absl::IsDeadlineExceeded(found.status())) {
      LogOnce(
          LogLevel::kWarning, "peer scan",
          fmt::format("the group cannot be scanned: {}", std::string(found.status().message())));
    }
    return false;
  }
  const auto same = [](const PeerInfo& a, const PeerInfo& b) {
    return a.owner == b.owner && a.epoch == b.epoch;
  };
  std::erase_if(peers_, [&](const Peer& peer) {
    if (peer.outbound->phase() != Phase::kIdle) return false;
    return std::none_of(found->begin(), found->end(),
                        [&](const PeerInfo& info) { return same(info, peer.outbound->info()); });
  });
  for (const PeerInfo& info : *found) {
    const bool known = std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
      return same(info, peer.outbound->info());
    });
    if (known || !info.visible) continue;
    peers_.push_back({.outbound = std::make_unique<OutboundPeer>(
                          member_, reactor().loop(), worker_, info,
                          OutboundPeer::Options{.heartbeat_timeout = options_.heartbeat_timeout,
                                                .probe_timeout = options_.probe_timeout,
                                                .fabric_drain = options_.fabric_drain},
                          [this] { Wake(); })});
  }
  return true;
}

bool PeerActor::IsServed(const std::string& rail) const {
  return std::any_of(peers_.begin(), peers_.end(), [&](const Peer& peer) {
    const OutboundPeer& outbound = *peer.outbound;
    const bool under_way = outbound.phase() == Phase::kAttaching ||
                           outbound.phase() == Phase::kProbing || outbound.phase() == Phase::kReady;
    return under_way && !outbound.late() && outbound.health() == Health::kGood &&
           outbound.OnRail(rail);
  });
}

std::vector<std::string> PeerActor::MissingRails(uint64_t now) {
  std::erase_if(wanted_, [now](const auto& wanted) { return wanted.second <= now; });
  std::vector<std::string> missing;
  const auto consider = [&](const std::string& rail) {
    if (!IsServed(rail) && !Contains(missing, rail)) missing.push_back(rail);
  };
  for (const auto& [rail, until] : wanted_) consider(rail);
  if (!options_.preattach) return missing;
  for (const Peer& peer : peers_) {
    for (const std::string& rail : peer.outbound->info().rails) {
      if (!Contains(member_.rails(), rail)) consider(rail);
    }
  }
  return missing;
}

// Of several owners of a rail each rank starts with another one.
void PeerActor::AttachFor(const std::string& rail, uint64_t now) {
  std::vector<OutboundPeer*> owners;
  for (const Peer& peer : peers_) {
    if (peer.outbound->OnRail(rail) && peer.outbound->MayAttach(now)) {
      owners.push_back(peer.outbound.get());
    }
  }
  if (owners.empty()) return;
  owners[static_cast<size_t>(member_.sender().identity.pid) % owners.size()]->Attach();
  Wake();
}

}  // namespace railhop
