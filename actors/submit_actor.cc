#include "actors/submit_actor.h"

#include <algorithm>
#include <span>
#include <utility>

#include "runtime/fence.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

constexpr size_t kRouteBudget = 256;  // requests looked at in one pass
constexpr size_t kUnwoken = 16;       // batches that may be looked at later

void Count(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

// Neither end wraps, and the opcode is one that is known.
bool IsSound(const TransferRequest& request) {
  const auto source = reinterpret_cast<uint64_t>(request.source);
  return request.length <= UINT64_MAX - request.target_address &&
         request.length <= UINT64_MAX - source &&
         (request.opcode == Opcode::kWrite || request.opcode == Opcode::kRead);
}

}  // namespace

SubmitActor::SubmitActor(std::string name, RequestTable* table, Options options)
    : Actor(std::move(name)),
      options_(std::move(options)),
      table_(*table),
      planner_(options_.routes),
      paths_(options_.nic_count),
      live_(table->capacity()),
      gate_(options_.fences, table->capacity()) {
  again_.reserve(kDirectWindow);
  unwoken_.reserve(size_t{2} * table->capacity());  // TIMEOUT and the end
  armed_.fill(OutboundLane::kNoDeadline);
  to_arm_.fill(OutboundLane::kNoDeadline);
  AddPoller(this);
}

size_t SubmitActor::Poll(uint64_t now) {
  next_credit_check_ = kNever;
  const bool edge_was_empty = std::exchange(slices_taken_, 0) < InPort::kBudget;
  if (any_opening_ && edge_was_empty) OpenLanes();
  // Before new requests are routed: they would take the spans that these wait for.
  for (uint32_t lane = 0; waiting_pieces_ != 0 && lane < kLaneCount; ++lane) SettleWaiting(lane);
  if (std::exchange(unarmed_, false)) {
    for (uint32_t slot = 0; slot < kDeadlineSlots; ++slot) Arm(slot, to_arm_[slot]);
  }
  size_t work = gate_.empty() ? 0 : LetThrough(now);
  if (!active_.empty()) work += RouteBatches();
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    if (!outlets_[lane].empty()) work += PumpLane(lane, now);
  }
  if (!IsDirectIdle()) work += PumpDirect();
  // The fence that this takes waits for all stores before it: not between a batch and its bytes.
  if (!unwoken_.empty() && (work == 0 || unwoken_.size() >= kUnwoken)) WakeWaiters();
  return work;
}

bool SubmitActor::OnBatchCommand(const BatchCommand& command) {
  const auto index = static_cast<uint32_t>(command.batch.value);
  if (command.kind == BatchCommand::kCancel) {
    if (IsLive(command.batch)) Abandon(index, TransferError::kCanceled);
    return true;
  }
  if (command.kind != BatchCommand::kSubmit) {
    ChangeRegions(command);
    return true;
  }
  StartBatch(index);
  return true;
}

// Whether the id is of a batch that was started and is not over.
bool SubmitActor::IsLive(BatchId id) const {
  return table_.Find(id) != nullptr && live_[static_cast<uint32_t>(id.value)];
}

void SubmitActor::StartBatch(uint32_t index) {
  Batch& batch = table_.at(index);
  live_[index] = true;
  ++batches_;
  if (stopping_) {
    batch.progress.error = TransferError::kStopping;
    return FinishBatch(index);
  }
  Arm(kBatchDeadline, batch.deadline);
  batch.progress.known_bytes = CountBytes(batch);
  if (batch.fence.state != FenceState::kDone) return HoldBack(index);
  active_.PushBack(index);
}

// Nothing of the batch is routed before its fence has completed: it takes no ring slot and no
// place in a window, and nobody reads its source.
void SubmitActor::HoldBack(uint32_t index) {
  const FenceTicket& fence = table_.at(index).fence;
  if (fence.state == FenceState::kPending) return gate_.Hold(index, fence, reactor().now());
  NoteError(index, TransferError::kFence);
  FinishBatch(index);
}

size_t SubmitActor::LetThrough(uint64_t now) {
  const std::span<const FenceGate::Ended> ended = gate_.Poll(now);
  for (const FenceGate::Ended& fence : ended) {
    if (fence.state == FenceState::kDone) {
      active_.PushBack(fence.batch);
    } else {
      NoteError(fence.batch, TransferError::kFence);
      FinishBatch(fence.batch);
    }
  }
  return ended.size();
}

// A batch can have hundreds of thousands of requests: they are not all looked at to learn whether
// it is a small one.
uint64_t SubmitActor::CountBytes(const Batch& batch) const {
  uint64_t bytes = 0;
  for (const TransferRequest& request : batch.requests) {
    if (bytes >= options_.routes.min_relay_bytes) break;
    bytes += std::min(request.length, UINT64_MAX - bytes);
  }
  return bytes;
}

// One turn for each batch that has something left to route. Those that got nothing this time, for
// want of room, come first next time, and those that did come last: what comes free goes round.
size_t SubmitActor::RouteBatches() {
  size_t budget = kRouteBudget;
  size_t work = 0;
  BatchList served(&table_);
  const uint32_t last = active_.last();
  while (!active_.empty() && budget != 0) {
    const uint32_t index = active_.PopFront();
    const size_t before = budget;
    const bool routed = RouteSome(index, &budget);
    work += before - budget;
    if (!routed) {
      (before == budget ? active_ : served).PushBack(index);
      if (before == budget) --budget;  // a look costs something, too
    }
    if (index == last) break;
  }
  active_.Append(served);
  return work;
}

// True when every request of the batch has been routed; it may be over then, and not ours any more.
bool SubmitActor::RouteSome(uint32_t index, size_t* budget) {
  Batch& batch = table_.at(index);
  Batch::Progress& progress = batch.progress;
  while (progress.next_request < batch.requests.size()) {
    if (*budget == 0) return false;
    const TransferRequest& request = batch.requests[progress.next_request];
    if (progress.next_offset < request.length && !RoutePart(index, request)) return false;
    --*budget;
    if (progress.next_offset < request.length) continue;
    progress.next_offset = 0;
    ++progress.next_request;
  }
  if (IsOver(batch)) FinishBatch(index);
  return true;
}

// Routes the request from next_offset to where a registration ends, the target's or a part of our
// own, or fails the rest of the request. False: no span is free; nothing happened.
bool SubmitActor::RoutePart(uint32_t index, const TransferRequest& request) {
  Batch::Progress& progress = table_.at(index).progress;
  const uint64_t offset = progress.next_offset;
  const uint64_t left = request.length - offset;
  const auto fail = [&](TransferError error) {
    progress.next_offset = request.length;
    NoteError(index, error);
    return true;
  };
  if (!IsSound(request)) return fail(TransferError::kInvalidRequest);
  if (request.target == 0 || request.target > kMaxTargets)
    return fail(TransferError::kUnknownTarget);
  Target& target = targets_[request.target - 1];
  if (target.failed() != TransferError::kNone) return fail(target.failed());
  auto* source = static_cast<std::byte*>(request.source);
  Region* region = regions_.Find(source, request.length);
  if (region == nullptr) return fail(TransferError::kNotRegistered);
  const uint64_t address = request.target_address + offset;
  // A request that does not fit is refused whole, before any of it is sent.
  const TargetBuffer* buffer = target.route->Find(address);
  if (buffer == nullptr ||
      (offset == 0 && !target.route->Covers(*buffer, address, request.length))) {
    return fail(TransferError::kRemoteAccess);
  }

  Span span{.source = source + offset,
            .destination = address,
            .length = std::min({left, buffer->length - (address - buffer->address),
                                region->LeftInPart(source + offset)}),
            .region = region,
            .batch = index,
            .request = static_cast<uint32_t>(progress.next_request),
            .is_read = request.opcode == Opcode::kRead};
  const RoutePlanner::Route& route =
      planner_.Plan(*target.route, *buffer, request.opcode, region->staging, progress.known_bytes);
  // With several lanes to alternate over, a request is dealt out in pieces.
  if (route.lane_count > 1) span.length = std::min(span.length, options_.max_piece_bytes);
  const bool relayed = route.reason == DirectReason::kNone && !target.suspect;
  const DirectReason reason =
      route.reason == DirectReason::kNone ? DirectReason::kTargetSuspect : route.reason;
  if (!(relayed ? PushRelayed(route, target, span) : PushDirect(target, span, reason)))
    return false;
  progress.next_offset += span.length;
  progress.bytes_moving += span.length;
  region->in_flight += span.length;
  return true;
}

// A flow may hold as many spans as it leaves free: one that does not move keeps half of the pool at
// most, a second one a quarter, and the other targets go on.
bool SubmitActor::Push(uint32_t outlet, uint32_t target, const Span& span) {
  return outlets_[outlet].flow(target).queue.count < pool_.available() &&
         outlets_[outlet].Push(pool_, target, span);
}

bool SubmitActor::PushRelayed(const RoutePlanner::Route& route, Target& target, const Span& span) {
  const uint32_t turn = route.lane_count == 1 ? 0 : target.lane_turn % route.lane_count;
  const uint32_t lane = route.lanes[turn];
  if (!Push(lane, target.route->index, span)) return false;
  ++target.lane_turn;
  return true;
}

bool SubmitActor::PushDirect(Target& target, const Span& span, DirectReason reason) {
  if (!Push(kDirectLane, target.route->index, span)) return false;
  Count(stats_.direct[static_cast<size_t>(reason)], 1);
  if (reason != DirectReason::kNoPeer || !want_out.connected()) return true;
  // Ask for a peer once a second at most, and never wait for the answer.
  const uint64_t now = reactor().now();
  if (target.wanted_at != 0 && now - target.wanted_at < ToCycles(std::chrono::seconds(1)))
    return true;
  target.wanted_at = now;
  const TargetBuffer* buffer = target.route->Find(span.destination);
  for (const std::string& rail : buffer->rails) {
    want_out.TrySend({rail.data(), static_cast<uint32_t>(rail.size())});
  }
  return true;
}

bool SubmitActor::IsOver(const Batch& batch) const {
  return batch.progress.next_request == batch.requests.size() && batch.progress.bytes_moving == 0;
}

void SubmitActor::NoteError(uint32_t index, TransferError error) {
  TransferError& first = table_.at(index).progress.error;
  if (first == TransferError::kNone) first = error;
}

void SubmitActor::EndSpan(const Span& span, TransferError error, bool relayed) {
  Batch& batch = table_.at(span.batch);
  span.region->in_flight -= span.length;
  batch.progress.bytes_moving -= span.length;
  if (error == TransferError::kNone) {
    batch.progress.bytes_done += span.length;
    batch.NoteDone(span.request, span.length);
    if (relayed) batch.progress.bytes_relayed += span.length;
    Count(relayed ? stats_.bytes_relayed : stats_.bytes_direct, span.length);
  } else {
    NoteError(span.batch, error);
  }
  if (IsOver(batch)) FinishBatch(span.batch);
}

// Nothing of the batch can land any more and its source is no longer read.
void SubmitActor::FinishBatch(uint32_t index) {
  Batch& batch = table_.at(index);
  live_[index] = false;
  --batches_;
  if (batch.progress.abandoned != TransferError::kNone) --abandoned_;
  switch (batch.progress.error) {
    case TransferError::kNone:
      return Publish(batch, BatchState::kCompleted);
    case TransferError::kCanceled:
      return Publish(batch, BatchState::kCanceled);
    default:
      return Publish(batch, BatchState::kFailed);
  }
}

// A thread that begins to wait just now shows after a full fence: one for several batches, when
// there is time, and before the reactor parks.
void SubmitActor::Publish(Batch& batch, BatchState state) {
  // Read before: whoever sees the state may free the batch and fill it anew.
  BatchListener* const listener = batch.listener;
  const uint64_t cookie = batch.cookie;
  RequestTable::Publish(batch, state);
  if (!RequestTable::WakeWaiters(batch)) unwoken_.push_back(&batch);
  if (listener != nullptr) listener->OnBatchState(cookie);
}

void SubmitActor::WakeWaiters() {
  FullFence();
  for (Batch* batch : unwoken_) RequestTable::WakeWaiters(*batch);
  unwoken_.clear();
}

// The watchdog is told of a deadline only if it is earlier than what it has: those after it are
// looked at when that one has passed.
void SubmitActor::Arm(uint32_t slot, uint64_t deadline) {
  deadline = std::min(deadline, to_arm_[slot]);
  if (deadline >= armed_[slot]) return;
  const bool sent = deadline_out.TrySend({deadline, slot});
  if (sent) armed_[slot] = deadline;
  to_arm_[slot] = sent ? OutboundLane::kNoDeadline : deadline;
  unarmed_ = unarmed_ || !sent;
}

bool SubmitActor::OnDeadlineExpired(const DeadlineExpired& expired) {
  armed_[expired.slot] = OutboundLane::kNoDeadline;
  if (expired.slot == kBatchDeadline) {
    CheckBatchDeadlines(reactor().now());
  } else {
    CheckPieceDeadlines(expired.slot, reactor().now());
  }
  return true;
}

// Once per batch timeout, or nearly so: most batches that were live when it was armed are over.
void SubmitActor::CheckBatchDeadlines(uint64_t now) {
  uint64_t next = OutboundLane::kNoDeadline;
  for (uint32_t index = 0; index < table_.capacity(); ++index) {
    if (!live_[index]) continue;
    const uint64_t deadline = table_.at(index).deadline;
    if (deadline <= now) {
      GiveUp(index, TransferError::kDeadline);
    } else {
      next = std::min(next, deadline);
    }
  }
  Arm(kBatchDeadline, next);
}

// Starts nothing new of the batch and takes back what can be taken back. What cannot, a slice on
// the wire or a piece the relay has taken, ends by its completion.
void SubmitActor::Abandon(uint32_t index, TransferError error) {
  Batch::Progress& progress = table_.at(index).progress;
  if (progress.abandoned != TransferError::kNone) return;
  progress.abandoned = error;
  ++abandoned_;
  ++progress.bytes_moving;  // it cannot be over while we are at it
  gate_.Remove(index);
  active_.Remove(index);
  DropUnrouted(index, error);
  for (Outlet& outlet : outlets_) {
    outlet.EachFlow([&](uint32_t, Flow& flow) {
      pool_.RemoveIf(flow.queue, [&](const Span& span) {
        if (span.batch == index) EndSpan(span, error, false);
        return span.batch == index;
      });
      if (flow.queue.empty()) flow.blocked_since = 0;
    });
  }
  EndAgain(index, error);
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    lanes_[lane].EachInFlight([&](RingPiece& piece) {
      if (CarriesAbandoned(piece)) TryRevoke(lane, piece, DirectReason::kPieceRevoked);
    });
  }
  --progress.bytes_moving;
  if (IsOver(table_.at(index))) FinishBatch(index);
}

// Its caller waits no longer, whatever happened to it before: a batch that can still land shows
// TIMEOUT until it is over.
void SubmitActor::GiveUp(uint32_t index, TransferError error) {
  Abandon(index, error);
  if (!live_[index]) return;
  Batch& batch = table_.at(index);
  const TransferError first = std::exchange(batch.progress.error, error);
  Publish(batch, BatchState::kTimeout);
  batch.progress.error = first;
}

// What was never routed ends here.
void SubmitActor::DropUnrouted(uint32_t index, TransferError error) {
  Batch& batch = table_.at(index);
  const auto first = batch.requests.begin() + static_cast<ptrdiff_t>(batch.progress.next_request);
  const bool dropped = std::any_of(first, batch.requests.end(), [](const TransferRequest& request) {
    return request.length != 0;
  });
  batch.progress.next_request = batch.requests.size();
  batch.progress.next_offset = 0;
  if (dropped) NoteError(index, error);
}

void SubmitActor::ChangeRegions(const BatchCommand& command) {
  Region* const region = command.region;
  const bool done = command.kind == BatchCommand::kAddRegion
                        ? regions_.Add(region)
                        : !IsStillToRoute(*region) && regions_.Remove(region);
  command.reply->answer.store(done ? 1 : 2, std::memory_order_release);
  command.reply->answer.notify_all();
}

// Whether a batch that was accepted has yet to send something from there. Not the data path: looks
// at every request that was not routed yet.
bool SubmitActor::IsStillToRoute(const Region& region) const {
  for (uint32_t index = 0; index < table_.capacity(); ++index) {
    if (!live_[index]) continue;
    const Batch& batch = table_.at(index);
    for (size_t i = batch.progress.next_request; i < batch.requests.size(); ++i) {
      const TransferRequest& request = batch.requests[i];
      if (region.Contains(static_cast<const std::byte*>(request.source), request.length))
        return true;
    }
  }
  return false;
}

bool SubmitActor::OnTargetReady(const TargetReady& ready) {
  Target& target = targets_[ready.route->index];
  target.route = ready.route;
  planner_.SetTarget(*ready.route);
  return true;
}

bool SubmitActor::OnTargetFailed(const TargetFailed& failed) {
  if (failed.target >= kMaxTargets) return true;
  Target& target = targets_[failed.target];
  target.failure = failed.error;
  target.failed_version = std::max(target.failed_version, failed.version);
  return true;
}

void SubmitActor::OnFlush() {
  stopping_ = true;
  for (uint32_t index = 0; index < table_.capacity(); ++index) {
    if (live_[index]) GiveUp(index, TransferError::kStopping);
  }
  WakeWaiters();
  flushed_ = true;
}

}  // namespace railhop
