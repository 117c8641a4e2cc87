// SubmitActor, the half that deals with lanes and direct slices.
#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/submit_actor.h"
#include "runtime/fault_point.h"
#include "runtime/reactor.h"
#include "transport/ring/side_directory.h"

namespace railhop {
namespace {

constexpr uint32_t kSlotsPerTarget = kSlotsPerLane / 2;

void Count(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// RingPiece::status of a piece that no relay will ever answer; any other comes from the relay.
constexpr int32_t kRelayLost = INT32_MIN + 1;

}  // namespace

bool SubmitActor::OnLaneReady(const LaneReady& ready) {
  Opening& opening = openings_[ready.lane];
  opening = {.ready = ready, .generation = opening.generation + 1, .waits = true};
  any_opening_ = true;
  return true;
}

void SubmitActor::OpenLanes() {
  for (Opening& opening : openings_) {
    if (!std::exchange(opening.waits, false)) continue;
    const LaneReady& ready = opening.ready;
    lanes_[ready.lane].Open(ready.mapping, ready.next_sequence, opening.generation);
    planner_.OpenLane(ready.lane, ready.mapping->relay().info().rails);
  }
  any_opening_ = false;
}

bool SubmitActor::OnCloseLane(const CloseLane& close) {
  OutboundLane& book = lanes_[close.lane];
  if (std::exchange(openings_[close.lane].waits, false)) lane_closed_out.Send({close.lane});
  if (book.mapping() == nullptr) return true;  // let go of already: a stale lane's peer has died
  closing_[close.lane] = true;
  planner_.CloseLane(close.lane);
  book.CloseOffers();
  MoveLaneToDirect(close.lane, DirectReason::kLaneLost);
  if (close.end == LaneEnd::kPeerDead) {
    // Its NICs are quiet: whatever it has not completed may go another way.
    book.EachInFlight([&](RingPiece& piece) {
      book.NoteCompleted(piece, kRelayLost);
      SettlePiece(close.lane, piece);
    });
  }
  TryForgetLane(close.lane);
  return true;
}

void SubmitActor::TryForgetLane(uint32_t lane) {
  if (!closing_[lane] || lanes_[lane].in_flight() != 0) return;
  closing_[lane] = false;
  lanes_[lane].Forget();
  lane_closed_out.Send({lane});
}

// A piece at a time for each target in turn, as long as one of them gets on.
size_t SubmitActor::PumpLane(uint32_t lane, uint64_t now) {
  size_t pieces = 0;
  for (size_t before = SIZE_MAX; before != pieces;) {
    before = pieces;
    outlets_[lane].EachFlow([&](uint32_t target, Flow& flow) {
      if (OfferPiece(lane, target, flow, now)) ++pieces;
    });
  }
  return pieces;
}

bool SubmitActor::OfferPiece(uint32_t lane, uint32_t target, Flow& flow, uint64_t now) {
  OutboundLane& book = lanes_[lane];
  if (const TransferError error = targets_[target].failed(); error != TransferError::kNone) {
    FailFlow(flow, error);
    return false;
  }
  if (book.offer() != OutboundLane::Offer::kOpen) {
    MoveFlowToDirect(target, flow, DirectReason::kLaneLost);
    return false;
  }
  if (targets_[target].suspect) {
    MoveFlowToDirect(target, flow, DirectReason::kTargetSuspect);
    return false;
  }
  const bool has_room =
      book.HasCredit() && copy_out.Room() != 0 && flow.in_flight < kSlotsPerTarget;
  const uint64_t bytes = !has_room ? 0
                                   : PieceTarget({.waiting = flow.queue.bytes,
                                                  .at_relay = book.bytes_at_relay(),
                                                  .under_way = flow.piece_bytes,
                                                  .copying = flow.copying},
                                                 options_.job_sizes, options_.max_piece_bytes);
  if (bytes == 0) {
    // A wait for the copies before it is none for credit.
    if (flow.blocked_since == 0 || flow.gathers != has_room) flow.blocked_since = now;
    flow.gathers = has_room;
    if (now - flow.blocked_since < options_.credit_timeout) {
      next_credit_check_ =
          std::min(next_credit_check_, flow.blocked_since + options_.credit_timeout);
    } else {
      MoveFlowToDirect(target, flow,
                       has_room ? DirectReason::kSlowCopies : DirectReason::kCreditTimeout);
    }
    return false;
  }
  flow.blocked_since = 0;
  CutPiece(pool_, flow.queue,
           {.target = bytes, .whole = options_.job_sizes.whole, .max = options_.max_piece_bytes},
           &book.NextSlot().content);
  const RingPiece& piece = book.Take(targets_[target].route, now + options_.piece_timeout);
  ++flow.in_flight;
  ++flow.copying;
  flow.piece_bytes += piece.content.length;
  if (trace.Samples(piece.sequence)) RecordSliced(*book.mapping(), piece);
  copy_out.Send({&piece.content, piece.target, piece.sequence, lane, book.generation()});
  Arm(lane, piece.deadline);
  return true;
}

void SubmitActor::RecordSliced(const LaneMapping& mapping, const RingPiece& piece) {
  uint64_t submitted = UINT64_MAX;
  for (const Span& span : piece.content.spans) {
    submitted = std::min(submitted, table_.at(span.batch).submitted);
  }
  trace.RecordOutbound({.at = reactor().clock().Now(),
                        .submitted = submitted,
                        .relay_epoch = mapping.relay_epoch(),
                        .sequence = piece.sequence,
                        .lane = mapping.claim().lane,
                        .stage = PieceStage::kSliced,
                        .bytes = static_cast<uint32_t>(piece.content.length)});
}

void SubmitActor::RecordReaped(const LaneMapping& mapping, const SliceDone& done) {
  trace.RecordOutbound({.at = reactor().clock().Now(),
                        .relay_epoch = mapping.relay_epoch(),
                        .sequence = done.sequence,
                        .lane = mapping.claim().lane,
                        .stage = PieceStage::kReaped,
                        .status = done.status});
}

void SubmitActor::CheckPieceDeadlines(uint32_t lane, uint64_t now) {
  uint64_t next = OutboundLane::kNoDeadline;
  lanes_[lane].EachInFlight([&](RingPiece& piece) {
    CheckPieceDeadline(lane, piece, now);
    if (piece.sequence != 0 && piece.deadline > now) next = std::min(next, piece.deadline);
  });
  Arm(lane, next);
}

// Past its deadline a piece is taken back if it can be. If it cannot, or if the relay has answered
// nothing for as long as a piece may take, the relay is stuck: nothing more is offered to it until
// it has let go of everything. (One that only left this piece aside goes on being used.)
void SubmitActor::CheckPieceDeadline(uint32_t lane, RingPiece& piece, uint64_t now) {
  if (piece.deadline > now || !piece.copied || piece.completed) return;
  piece.deadline = OutboundLane::kNoDeadline;
  TryRevoke(lane, piece, DirectReason::kPieceDeadline);
  OutboundLane& book = lanes_[lane];
  if (piece.revoked && now - book.last_answer() < options_.piece_timeout) return;
  book.Quarantine();
  planner_.CloseLane(lane);
  MoveLaneToDirect(lane, DirectReason::kPieceDeadline);
}

bool SubmitActor::CarriesAbandoned(const RingPiece& piece) const {
  if (abandoned_ == 0 || piece.ended) return false;
  // A batch whose spans have ended may belong to the application again: not to be looked at.
  return std::any_of(piece.content.spans.begin() + piece.next_span, piece.content.spans.end(),
                     [this](const Span& span) {
                       return table_.at(span.batch).progress.abandoned != TransferError::kNone;
                     });
}

// With a version-1 relay, which has no claim words, every piece counts as taken.
void SubmitActor::TryRevoke(uint32_t lane, RingPiece& piece, DirectReason reason) {
  if (!piece.copied || piece.completed || piece.revoked) return;
  if (!lanes_[lane].mapping()->Revoke(piece.sequence)) return;
  piece.revoked = true;
  piece.detour = reason;
  SettlePiece(lane, piece);
}

bool SubmitActor::OnPieceCopied(const PieceCopied& done) {
  RingPiece* piece = lanes_[done.lane].Find(done.sequence);
  assert(piece != nullptr);
  lanes_[done.lane].NoteCopied(*piece);
  --outlets_[done.lane].flow(piece->target->index).copying;
  if (done.outcome == CopyOutcome::kRefused) {
    // The sequence will never be published, so the ring cannot go on.
    lanes_[done.lane].Break();
    planner_.CloseLane(done.lane);
    lanes_[done.lane].NoteCompleted(*piece, kRelayLost);
  }
  if (CarriesAbandoned(*piece)) TryRevoke(done.lane, *piece, DirectReason::kPieceRevoked);
  if (piece->sequence != done.sequence) return true;
  CheckPieceDeadline(done.lane, *piece, reactor().now());
  if (piece->sequence == done.sequence) SettlePiece(done.lane, *piece);
  return true;
}

bool SubmitActor::OnSliceDone(const SliceDone& done) {
  ++slices_taken_;
  if (done.lane == kDirectLane) {
    OnDirectDone(done);
    return true;
  }
  RingPiece* piece = lanes_[done.lane].Find(done.sequence);
  if (piece == nullptr || piece->completed) return true;
  // Before its batch can be over: who sees that finds the piece's last record.
  if (trace.Samples(done.sequence)) RecordReaped(*lanes_[done.lane].mapping(), done);
  if (done.status == kMalformedCompletion) {
    // Whether the piece has landed is not known: it stays until the lane is closed.
    lanes_[done.lane].Break();
    planner_.CloseLane(done.lane);
    return true;
  }
  lanes_[done.lane].mapping()->PrefetchForOffer(lanes_[done.lane].next_sequence());
  lanes_[done.lane].NoteAnswer(reactor().now());
  lanes_[done.lane].NoteCompleted(*piece, done.status);
  SettlePiece(done.lane, *piece);
  return true;
}

// Does what the piece's state allows by now. It may be gone afterwards (sequence 0).
void SubmitActor::SettlePiece(uint32_t lane, RingPiece& piece) {
  if (!piece.copied || !(piece.completed || piece.revoked)) return;
  if (!piece.ended && !EndContent(piece)) return;
  if (!piece.completed) return;
  Flow& flow = outlets_[lane].flow(piece.target->index);
  --flow.in_flight;
  flow.piece_bytes -= piece.content.length;
  OutboundLane& book = lanes_[lane];
  const bool was_open = book.offer() == OutboundLane::Offer::kOpen;
  book.Release(piece);
  RAILHOP_FAULT_POINT("sender.slot_released");
  if (!was_open && book.offer() == OutboundLane::Offer::kOpen) planner_.ReopenLane(lane);
  TryForgetLane(lane);
}

void SubmitActor::SettleWaiting(uint32_t lane) {
  lanes_[lane].EachInFlight([&](RingPiece& piece) {
    if (piece.waiting) SettlePiece(lane, piece);
  });
}

// Finishes each span of the piece or sends it another way. False: not all yet.
bool SubmitActor::EndContent(RingPiece& piece) {
  if (piece.completed && !piece.revoked && piece.status == 0) {
    for (const Span& span : piece.content.spans) EndSpan(span, TransferError::kNone, true);
    Count(stats_.pieces_relayed, 1);
    return piece.ended = true;
  }
  if (piece.completed && piece.status == static_cast<int32_t>(RelayStatus::kTransport)) {
    targets_[piece.target->index].suspect = true;
  }
  if (!piece.revoked) {
    piece.detour = piece.status == kRelayLost ? DirectReason::kLaneLost : DirectReason::kRelayError;
  }
  return SendAnotherWay(piece);
}

bool SubmitActor::SendAnotherWay(RingPiece& piece) {
  const auto& spans = piece.content.spans;
  for (; piece.next_span < spans.size(); ++piece.next_span) {
    const Span& span = spans[piece.next_span];
    const TransferError abandoned = table_.at(span.batch).progress.abandoned;
    if (abandoned != TransferError::kNone) {
      EndSpan(span, abandoned, false);
      continue;
    }
    if (!outlets_[kDirectLane].Push(pool_, piece.target->index, span)) {
      if (!piece.waiting) ++waiting_pieces_;
      piece.waiting = true;
      return false;
    }
    Count(stats_.direct[static_cast<size_t>(piece.detour)], 1);
  }
  if (piece.waiting) --waiting_pieces_;
  piece.waiting = false;
  return piece.ended = true;
}

void SubmitActor::MoveFlowToDirect(uint32_t target, Flow& flow, DirectReason reason) {
  flow.blocked_since = 0;
  Count(stats_.direct[static_cast<size_t>(reason)], flow.queue.count);
  while (!flow.queue.empty()) {
    const Span span = pool_.Front(flow.queue);
    pool_.PopFront(flow.queue);
    outlets_[kDirectLane].Push(pool_, target, span);  // into the node that has just come free
  }
}

void SubmitActor::MoveLaneToDirect(uint32_t lane, DirectReason reason) {
  outlets_[lane].EachFlow(
      [&](uint32_t target, Flow& flow) { MoveFlowToDirect(target, flow, reason); });
}

// The target cannot be reached: what waits for it ends.
void SubmitActor::FailFlow(Flow& flow, TransferError error) {
  flow.blocked_since = 0;
  while (!flow.queue.empty()) {
    const Span span = pool_.Front(flow.queue);
    pool_.PopFront(flow.queue);
    EndSpan(span, error, false);
  }
}

size_t SubmitActor::PumpDirect() {
  // What has failed before comes first: its batch has waited longest.
  size_t slices = std::erase_if(again_, [this](SlabHandle handle) { return PostAgain(handle); });
  for (size_t before = SIZE_MAX; before != slices;) {
    before = slices;
    outlets_[kDirectLane].EachFlow([&](uint32_t target, Flow& flow) {
      if (PostDirect(target, flow)) ++slices;
    });
  }
  return slices;
}

bool SubmitActor::PostDirect(uint32_t index, Flow& flow) {
  Target& target = targets_[index];
  if (target.failed() != TransferError::kNone) {
    FailFlow(flow, target.failed());
    return false;
  }
  // A target may have as many slices under way as it leaves to others.
  if (flow.in_flight >= direct_.capacity() - direct_.in_use()) return false;
  if (post_out.Room() == 0) return false;
  Span span = pool_.Front(flow.queue);
  // The target may have been connected anew since the span was cut, with other buffers; outside of
  // them the post fails as it must.
  const TargetBuffer* buffer = target.route->Find(span.destination);
  const PathId path = paths_.Choose(*target.route, buffer, target.path_turn);
  if (path == kNoPath) return false;  // until the target is connected anew, or fails
  uint64_t length = std::min(span.length, options_.max_piece_bytes);
  if (buffer != nullptr) {
    if (SlicePaths::Spreads(*buffer)) length = std::min(length, options_.slice.Next(span.length));
    length = std::min(length, buffer->length - (span.destination - buffer->address));
  }
  if (span.length > length) {
    span.length = length;
    pool_.ShortenFront(flow.queue, length);
  } else {
    pool_.PopFront(flow.queue);
  }
  ++target.path_turn;
  ++flow.in_flight;
  const SlabHandle handle = direct_.Allocate();
  DirectSlice& slice = *direct_.Get(handle);
  slice = {.span = span, .target = index};
  Post(handle, slice, path);
  Count(stats_.slices_direct, 1);
  return true;
}

void SubmitActor::Post(SlabHandle handle, DirectSlice& slice, PathId path) {
  const TargetRoute* const route = targets_[slice.target].route;
  slice.path = path;
  slice.endpoint = route->endpoints[path];
  ++slice.attempts;
  const Span& span = slice.span;
  post_out.Send({.local = span.source,
                 .remote_address = span.destination,
                 .length = span.length,
                 .token = handle.ToWord(),
                 .target = route,
                 .lkey = span.region->Lkey(span.source, OwnNic(path)),
                 .path = path,
                 .opcode = span.is_read ? FabricOpcode::kRead : FabricOpcode::kWrite,
                 .flush_gpu = span.is_read ? span.region->flush_gpu : uint8_t{0}});
}

// True: it waits no longer. It keeps its place in the window meanwhile.
bool SubmitActor::PostAgain(SlabHandle handle) {
  DirectSlice& slice = *direct_.Get(handle);
  Target& target = targets_[slice.target];
  if (target.failed() != TransferError::kNone) {
    EndDirect(handle, target.failed());
    return true;
  }
  if (post_out.Room() == 0) return false;
  const TargetBuffer* buffer = target.route->Find(slice.span.destination);
  const PathId path = paths_.Choose(*target.route, buffer, target.path_turn, slice.path);
  if (path == kNoPath) return false;
  ++target.path_turn;
  Post(handle, slice, path);
  Count(stats_.slices_again, 1);
  return true;
}

// The slices of an abandoned batch that wait: nothing of them is under way.
void SubmitActor::EndAgain(uint32_t batch, TransferError error) {
  std::erase_if(again_, [&](SlabHandle handle) {
    if (direct_.Get(handle)->span.batch != batch) return false;
    EndDirect(handle, error);
    return true;
  });
}

void SubmitActor::OnDirectDone(const SliceDone& done) {
  const SlabHandle handle = SlabHandle::FromWord(done.token);
  const DirectSlice* slice = direct_.Get(handle);
  assert(slice != nullptr);
  const auto error = static_cast<TransferError>(done.status);
  if (error == TransferError::kNone) targets_[slice->target].suspect = false;
  if (error == TransferError::kTransport || error == TransferError::kHungUp) {
    paths_.NoteBroken(slice->target, slice->path, slice->endpoint);
  }
  if (MayGoAgain(*slice, error)) {
    again_.push_back(handle);
  } else {
    EndDirect(handle, error);
  }
}

// A transport error is one of the path, and comes once nothing of the slice can land any more (see
// kExposed for one that may): every other error would meet it on the next path as well. A target
// that hung up was either about to end or refuses: once more tells which.
bool SubmitActor::MayGoAgain(const DirectSlice& slice, TransferError error) const {
  uint32_t attempts = 0;
  if (error == TransferError::kTransport) attempts = options_.slice_attempts;
  if (error == TransferError::kHungUp) attempts = std::min(2u, options_.slice_attempts);
  return slice.attempts < attempts &&
         table_.at(slice.span.batch).progress.abandoned == TransferError::kNone;
}

void SubmitActor::EndDirect(SlabHandle handle, TransferError error) {
  const DirectSlice slice = *direct_.Get(handle);
  --outlets_[kDirectLane].flow(slice.target).in_flight;
  direct_.Free(handle);
  EndSpan(slice.span, error, false);
}

}  // namespace railhop
