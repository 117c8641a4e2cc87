// RelayPostActor, the half that deals with inbound lanes and the sessions their pieces name.
#include <algorithm>
#include <cassert>
#include <cstring>

#include "actors/relay_post_actor.h"
#include "runtime/fault_point.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

// Read from one lane in one pass, in plan entries: copying 1024 of them takes a few microseconds.
constexpr size_t kReadLimit = 1024;

void Count(std::atomic<uint64_t>& counter) {
  counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

RelayStatus ToRelayStatus(TransferError error) {
  switch (error) {
    case TransferError::kUnknownTarget:
      return RelayStatus::kUnknownTarget;
    case TransferError::kRemoteAccess:
      return RelayStatus::kRemoteAccess;
    case TransferError::kStopping:
      return RelayStatus::kStopping;
    default:
      return RelayStatus::kTransport;
  }
}

}  // namespace

size_t RelayPostActor::ReadLane(uint32_t lane, uint64_t now) {
  InboundLane& inbound = lanes_[lane];
  size_t pieces = 0;
  for (size_t entries = 0; entries < kReadLimit && refused_out.Room() != 0;) {
    uint32_t record = 0;
    LanePiece bad;
    bool changed_hands = false;
    const InboundLane::Result result = inbound.ReadNext(&record, &bad, &changed_hands);
    if (changed_hands) {
      // All but the one just read, which is the last.
      for (uint32_t i = inbound.waiting(); i-- > 0;) {
        if (!inbound.IsOfThisClaim(inbound.piece(inbound.WaitingRecord(i)))) DropPiece(lane, i);
      }
    }
    switch (result) {
      case InboundLane::Result::kNothing:
        return pieces;
      case InboundLane::Result::kPiece:
        RAILHOP_FAULT_POINT("relay.descriptor_read");
        entries += AcceptPiece(lane, record, now);
        break;
      case InboundLane::Result::kBadPiece:
        Refuse(lane, bad, RelayStatus::kBadDescriptor);
        ++entries;
        break;
      case InboundLane::Result::kUnknownSender:
        RAILHOP_FAULT_POINT("relay.sender_seen");
        news_[lane].seen_epoch = inbound.sender_epoch();
        has_news_ = true;
        return pieces + 1;
      case InboundLane::Result::kQuarantined:
        Count(stats_.lanes_quarantined);
        return pieces + 1;
    }
    Count(stats_.pieces_read);
    ++pieces;
    old_poll_interval_ = doorbell_poll_;
    old_poll_at_ = 0;
  }
  return pieces;
}

// Returns the plan entries that were looked at.
size_t RelayPostActor::AcceptPiece(uint32_t lane, uint32_t record, uint64_t now) {
  InboundPiece& piece = lanes_[lane].piece(record);
  piece.deadline = now + piece_timeout_;
  if (trace.Samples(piece.id.sequence)) Record(lane, piece.id, PieceStage::kDoorbellSeen);
  ++unasked_;
  const TargetRoute* route = targets_.Find(piece.descriptor.session_name());
  if (stopping_) {
    Condemn(piece, RelayStatus::kStopping);
  } else if (route != nullptr) {
    SetRoute(piece, *route);
  }
  return piece.descriptor.plan_count;
}

void RelayPostActor::Record(uint32_t lane, const LanePiece& piece, PieceStage stage) {
  trace.RecordInbound({.at = reactor().clock().Now(),
                       .sender_epoch = piece.sender_epoch,
                       .sequence = piece.sequence,
                       .lane = lane,
                       .stage = stage});
}

// Only with room in the edge.
void RelayPostActor::Refuse(uint32_t lane, const LanePiece& piece, RelayStatus status) {
  refused_out.Send({.sequence = piece.sequence,
                    .sender_epoch = piece.sender_epoch,
                    .lane = lane,
                    .lane_generation = piece.generation,
                    .status = status});
}

// The piece stays where it is until there is room to tell; it must be waiting.
void RelayPostActor::Condemn(InboundPiece& piece, RelayStatus verdict) {
  if (piece.verdict != RelayStatus::kOk) return;
  if (piece.unasked()) --unasked_;
  piece.verdict = verdict;
  ++condemned_;
}

void RelayPostActor::ExpireWaiting(uint32_t lane, uint64_t now) {
  InboundLane& inbound = lanes_[lane];
  for (uint32_t i = 0; i < inbound.waiting(); ++i) {
    InboundPiece& piece = inbound.piece(inbound.WaitingRecord(i));
    if (piece.deadline > now) break;
    Condemn(piece, RelayStatus::kDeadline);
  }
}

size_t RelayPostActor::RefuseCondemned(uint32_t lane) {
  InboundLane& inbound = lanes_[lane];
  size_t refused = 0;
  for (uint32_t i = 0; i < inbound.waiting();) {
    const InboundPiece& piece = inbound.piece(inbound.WaitingRecord(i));
    if (piece.verdict == RelayStatus::kOk) {
      ++i;
      continue;
    }
    if (refused_out.Room() == 0) break;
    Refuse(lane, piece.id, piece.verdict);
    --condemned_;
    inbound.Drop(i);
    ++refused;
  }
  return refused;
}

void RelayPostActor::DropPiece(uint32_t lane, uint32_t position) {
  InboundPiece& piece = lanes_[lane].piece(lanes_[lane].WaitingRecord(position));
  Condemn(piece, RelayStatus::kRevoked);  // for the counts
  --condemned_;
  lanes_[lane].Drop(position);
  Count(stats_.pieces_dropped);
}

// --- Senders

bool RelayPostActor::OnSenderAdmitted(const SenderAdmitted& admitted) {
  lanes_[admitted.lane].Admit(admitted.sender_epoch);
  RAILHOP_FAULT_POINT("relay.sender_admitted");
  return true;
}

bool RelayPostActor::OnSenderLost(const SenderLost& lost) {
  if (news_[lost.lane].lost_epoch != 0) return false;  // after the one before
  InboundLane& inbound = lanes_[lost.lane];
  inbound.Lose(lost.sender_epoch);
  for (uint32_t i = inbound.waiting(); i-- > 0;) {
    const InboundPiece& piece = inbound.piece(inbound.WaitingRecord(i));
    if (piece.id.sender_epoch == lost.sender_epoch) DropPiece(lost.lane, i);
  }
  for (uint32_t record = 0; record < kRecordsPerLane; ++record) {
    const uint32_t index = PieceJob(lost.lane, record);
    const bool of_sender = inbound.piece(record).id.sender_epoch == lost.sender_epoch;
    if (poster_.IsUsed(index) && of_sender) poster_.Cut(index);
  }
  news_[lost.lane].lost_epoch = lost.sender_epoch;
  has_news_ = true;
  return true;
}

size_t RelayPostActor::TellPeerActor() {
  size_t told = 0;
  has_news_ = false;
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    PeerNews& news = news_[lane];
    if (news.seen_epoch != 0 && seen_out.TrySend({news.seen_epoch, lane})) {
      news.seen_epoch = 0;
      ++told;
    }
    if (news.lost_epoch != 0 && !lanes_[lane].IsPosted(news.lost_epoch) &&
        drained_out.TrySend({news.lost_epoch, lane})) {
      news.lost_epoch = 0;
      ++told;
    }
    has_news_ = has_news_ || news.seen_epoch != 0 || news.lost_epoch != 0;
  }
  return told;
}

// --- Targets

// A range that the route does not cover may have been registered since, or its target may have
// started anew: that is asked once before the piece is refused.
void RelayPostActor::SetRoute(InboundPiece& piece, const TargetRoute& route) {
  const bool covered = InsideRegistrations(route, piece.descriptor.plan());
  if (piece.unasked()) --unasked_;
  piece.name = InboundPiece::kNoName;
  piece.route = covered || piece.was_asked ? &route : nullptr;
  if (piece.route == nullptr) {
    ++unasked_;
  } else if (!covered) {
    Condemn(piece, RelayStatus::kRemoteAccess);
  } else if (!PickPath(piece)) {
    Condemn(piece, RelayStatus::kTransport);
  }
}

// The own NIC is the one that sender and relay agree on, if that is connected.
bool RelayPostActor::PickPath(InboundPiece& piece) const {
  const TargetRoute& route = *piece.route;
  piece.path = route.ChoosePath(
      route.Find(piece.descriptor.plans[0].final_destination), piece.id.sequence,
      [&](PathId path, EndpointId) { return poster_.OpenEndpoint(route, path) != 0; });
  return piece.path != kNoPath;
}

size_t RelayPostActor::AskForSessions() {
  const uint32_t before = unasked_;
  EachWaitingPiece([this](InboundPiece& piece) {
    if (piece.unasked()) AskForSession(piece);
  });
  return before - unasked_;
}

void RelayPostActor::AskForSession(InboundPiece& piece) {
  const std::string_view session = piece.descriptor.session_name();
  uint32_t free = kNone;
  for (uint32_t i = 0; i < kNames; ++i) {
    if (!names_[i].asked) {
      free = i;
    } else if (names_[i].view() == session) {
      piece.name = i;
      piece.was_asked = true;
      --unasked_;
      return;
    }
  }
  if (free == kNone || resolve_out.Room() == 0) return;
  Name& name = names_[free];
  name.asked = true;
  name.length = static_cast<uint32_t>(session.size());
  std::memcpy(name.bytes.data(), session.data(), session.size());
  resolve_out.Send({.session = name.bytes.data(), .length = name.length, .token = free});
  piece.name = free;
  piece.was_asked = true;
  --unasked_;
}

bool RelayPostActor::OnTargetReady(const TargetReady& ready) {
  targets_.Put(*ready.route);
  if (ready.token != kNoToken) names_[ready.token].asked = false;
  const TargetRoute& route = *ready.route;
  EachWaitingPiece([&](InboundPiece& piece) {
    if (piece.verdict != RelayStatus::kOk) return;
    const bool asked = piece.name != InboundPiece::kNoName && piece.name == ready.token;
    const bool older = piece.route != nullptr && piece.route->index == route.index &&
                       piece.route->version < route.version;
    if (asked || older) SetRoute(piece, route);
  });
  return true;
}

bool RelayPostActor::OnTargetFailed(const TargetFailed& failed) {
  if (failed.target < kMaxTargets) targets_.Fail(failed.target, failed.version);
  if (failed.token != kNoToken) names_[failed.token].asked = false;
  EachWaitingPiece([&](InboundPiece& piece) {
    if (piece.verdict != RelayStatus::kOk) return;
    const bool asked = piece.name != InboundPiece::kNoName && piece.name == failed.token;
    const bool ended = piece.route != nullptr && piece.route->index == failed.target &&
                       piece.route->version <= failed.version;
    if (asked || ended) Condemn(piece, ToRelayStatus(failed.error));
  });
  return true;
}

}  // namespace railhop
