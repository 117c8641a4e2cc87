#include "actors/peer_actor.h"

#include <algorithm>

#include "runtime/cycle_clock.h"
#include "runtime/log.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

using Health = OutboundPeer::Health;
using Phase = OutboundPeer::Phase;

constexpr std::chrono::milliseconds kLeaveRetry{5};
constexpr std::chrono::milliseconds kFarewellLook{20};

}  // namespace

PeerActor::PeerActor(std::string name, Options options)
    : Actor(std::move(name)),
      options_(std::move(options)),
      member_(*options_.member),
      worker_([this] { Post({.kind = ControlMessage::kFirstUserKind}); }),
      inbound_(member_, worker_, options_.lane_grace, cq_poll_, relay_),
      slot_log_(options_.slot_log_every) {
  AddPoller(this);
}

// --- Messages

bool PeerActor::OnLaneClosed(uint32_t user, const LaneClosed& message) {
  lanes_[message.lane].closed |= 1u << user;
  Wake();
  return true;
}

bool PeerActor::OnSenderSeen(const SenderSeen&) {
  inbound_.Nudge();
  Wake();
  return true;
}

bool PeerActor::OnSenderSideTaken(const SenderSideTaken& message) {
  inbound_.OnSenderSideTaken(message);
  Wake();
  return true;
}

bool PeerActor::OnSenderDrained(const SenderDrained& message) {
  inbound_.OnSenderDrained(message);
  Wake();
  return true;
}

void PeerActor::OnStart() {
  inbound_.Start(&reactor().loop(), [this] { Wake(); });
}

// --- Passes

size_t PeerActor::FlushPorts() {
  size_t sent = cq_poll_.Flush() + relay_.Flush();
  for (LanePorts& user : users_) sent += user.Flush();
  return sent;
}

bool PeerActor::Delivered() {
  return std::all_of(users_.begin(), users_.end(),
                     [](LanePorts& user) { return user.Delivered(); });
}

size_t PeerActor::Poll(uint64_t now) {
  size_t work = FlushPorts();
  const bool asked = has_waited_for_.load(std::memory_order_acquire);
  if (!awake_ && now < due_ && !asked) return work;
  awake_ = false;
  if (asked) TakeWaitedFor(now);
  if (now >= heartbeat_at_) {
    member_.self().Beat();
    heartbeat_at_ = now + ToCycles(options_.heartbeat);
  }
  if (now >= inbound_.due()) work += inbound_.Run(now);
  for (Peer& peer : peers_) work += Drive(peer, now);
  std::erase_if(peers_, [](const Peer& peer) { return peer.gone; });
  if (stopping_) {
    work += DriveStop(now);
  } else {
    Search(now);
  }
  if (now >= slot_log_.due()) slot_log_.Run(now, options_.read_slots());

  due_ = std::min({heartbeat_at_, inbound_.due(), scan_at_, stop_at_, slot_log_.due()});
  for (const Peer& peer : peers_) due_ = std::min(due_, peer.outbound->due());
  return work;
}

uint64_t PeerActor::NextPoll(uint64_t now) {
  (void)now;
  return due_;
}

// --- Outbound lanes

size_t PeerActor::Drive(Peer& peer, uint64_t now) {
  const size_t work = peer.outbound->Run(now) ? 1 : 0;
  if (peer.lane != kLaneCount) return work + DriveLane(peer);
  DriveUnopened(peer);
  return work;
}

void PeerActor::DriveUnopened(Peer& peer) {
  OutboundPeer& outbound = *peer.outbound;
  const Phase phase = outbound.phase();
  if (outbound.health() == Health::kDead) {
    outbound.Forget();
    peer.gone = true;
    return;
  }
  const bool leaving = stopping_ || outbound.health() == Health::kStopping;
  if (leaving) {
    if (phase == Phase::kIdle) {
      peer.gone = true;
    } else if (phase != Phase::kReleasing) {
      outbound.Release();
    }
    return;
  }
  if (phase != Phase::kReady || outbound.health() != Health::kGood) return;
  if (peer.used) {
    peer.used = false;
    outbound.Renew();  // where its sequences stopped
  } else {
    OpenLane(peer);
  }
}

void PeerActor::OpenLane(Peer& peer) {
  uint32_t number = kLaneCount;
  for (uint32_t i = 0; i < kLaneCount && number == kLaneCount; ++i) {
    const uint32_t candidate = (next_lane_ + i) % kLaneCount;
    if (lanes_[candidate].state == Lane::State::kFree) number = candidate;
  }
  if (number == kLaneCount) return;  // until one is closed
  next_lane_ = (number + 1) % kLaneCount;
  peer.lane = number;
  peer.used = true;
  lanes_[number] = {.state = Lane::State::kOpening};
  Tell(peer, kCopy);
  Tell(peer, kCqPoll);
  Wake();
}

void PeerActor::Tell(Peer& peer, uint32_t user) {
  users_[user].Send(LaneReady{.mapping = peer.outbound->lane(),
                              .next_sequence = peer.outbound->next_sequence(),
                              .lane = peer.lane});
  lanes_[peer.lane].users |= 1u << user;
}

size_t PeerActor::DriveLane(Peer& peer) {
  Lane& lane = lanes_[peer.lane];
  const OutboundPeer& outbound = *peer.outbound;
  const bool dead = outbound.health() == Health::kDead;
  if (dead && (lane.state != Lane::State::kClosing || lane.end != LaneEnd::kPeerDead)) {
    Announce(peer, LaneEnd::kPeerDead);
  } else if (lane.state != Lane::State::kClosing &&
             (stopping_ || outbound.health() != Health::kGood)) {
    Announce(peer, LaneEnd::kStale);
  }
  if (lane.state == Lane::State::kOpening) {
    if (!Delivered()) {
      Wake();
    } else if ((lane.users & 1u << kSubmit) == 0) {
      // Last, so that what it sends on finds the others ready.
      Tell(peer, kSubmit);
      Wake();
    } else {
      lane.state = Lane::State::kOpen;
      attached_.Add({.pid = outbound.info().owner.pid,
                     .lane = peer.lane,
                     .rails = outbound.info().rails,
                     .relay = outbound.lane()->KeepRelay(),
                     .relay_lane = outbound.lane()->claim().lane});
    }
  }
  return lane.state == Lane::State::kClosing ? FinishClosing(peer) : 0;
}

void PeerActor::Announce(Peer& peer, LaneEnd end) {
  Lane& lane = lanes_[peer.lane];
  attached_.Remove(peer.lane);
  lane.state = Lane::State::kClosing;
  lane.end = end;
  lane.told = false;
  for (uint32_t user = 0; user < kUsers; ++user) {
    if ((lane.users >> user & 1) != 0) users_[user].Send(CloseLane{.lane = peer.lane, .end = end});
  }
}

// A lane is closed when every user has answered and has handled all announcements. One may answer
// each of them, so one more pass lets in what was sent before the last was handled: after it
// nothing about this lane can come any more, and its number may be used again.
size_t PeerActor::FinishClosing(Peer& peer) {
  Lane& lane = lanes_[peer.lane];
  if (lane.closed != lane.users) return 0;  // the answer wakes us
  if (!Delivered()) {
    Wake();
    return 0;
  }
  if (!lane.told) {
    lane.told = true;
    Wake();
    return 1;
  }
  lane = {};
  peer.lane = kLaneCount;
  Wake();
  return 1;
}

// --- Stop

void PeerActor::OnStop() {
  stopping_ = true;
  attached_.Close();
  scan_at_ = kNever;
  stop_at_ = 0;
  Wake();
}

// Outbound lanes first: another rank that stops waits for ours as little as we for its.
size_t PeerActor::DriveStop(uint64_t now) {
  if (!peers_.empty()) {
    stop_at_ = kNever;  // their steps bring us back
    return 0;
  }
  if (farewell_) {
    stop_at_ = kNever;
    return 0;
  }
  if (!left_) {
    left_ = member_.Leave().ok();
    farewell_until_ = now + ToCycles(kFarewell);
    stop_at_ = left_ ? 0 : now + ToCycles(kLeaveRetry);
    return left_ ? 1 : 0;
  }
  farewell_ = now >= farewell_until_ || member_.HeldLanes() == 0;
  stop_at_ = farewell_ ? kNever : now + ToCycles(kFarewellLook);
  return farewell_ ? 1 : 0;
}

bool PeerActor::Drained() const {
  return flushed_ || farewell_;
}

void PeerActor::OnFlush() {
  // Whatever is still mapped stays so until the actors are destroyed.
  flushed_ = true;
  if (!left_) left_ = member_.Leave().ok();
}

}  // namespace railhop
