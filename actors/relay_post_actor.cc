#include "actors/relay_post_actor.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "runtime/cycle_clock.h"
#include "runtime/fault_point.h"
#include "runtime/log.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

constexpr uint64_t kQuantum = 512 * 1024;  // of the round robin: one turn
constexpr size_t kPostLimit = 128;         // requests in one pass: a few microseconds
constexpr std::chrono::milliseconds kLongestOldPoll{5};

void Count(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

}  // namespace

RelayPostActor::RelayPostActor(std::string name, Options options)
    : Actor(std::move(name)),
      options_(std::move(options)),
      piece_timeout_(ToCycles(options_.piece_timeout)),
      doorbell_poll_(ToCycles(options_.doorbell_poll)),
      poster_(options_.nics, options_.slice),
      rounds_(kQuantum),
      slices_(kDirectJobs),
      jobs_(kMaxJobs),
      target_bytes_(kMaxTargets),
      old_poll_interval_(doorbell_poll_) {
  for (uint32_t i = 0; i < kDirectJobs; ++i) Append(free_slices_, i);
  if (options_.control != nullptr) {
    assert(options_.side != nullptr && options_.arena_lkeys.size() == options_.nics.size());
    lanes_.reserve(kLaneCount);
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
      lanes_.emplace_back(*options_.control, options_.side->file(), options_.epoch, lane);
    }
  }
  AddPoller(this);
}

void RelayPostActor::OnStart() {
  if (options_.side == nullptr) return;
  const auto watch =
      reactor().loop().WatchFd(options_.side->wake_fd(WakeRole::kRelay), Trigger::kEdge,
                               [side = options_.side] { side->DrainWake(WakeRole::kRelay); });
  if (!watch.ok()) {
    Log(LogLevel::kWarning,
        "pieces of other ranks will be noticed late: their wake pipe cannot be "
        "watched: " +
            std::string(watch.status().message()));
  }
}

size_t RelayPostActor::Poll(uint64_t now) {
  size_t work = 0;
  uint32_t waiting = waiting_slices_.head == kNone ? 0 : 1u << kDirectLane;  // sources, as bits
  for (uint32_t lanes = used_lanes_ | ClaimedLanes(); lanes != 0; lanes &= lanes - 1) {
    const auto number = static_cast<uint32_t>(std::countr_zero(lanes));
    InboundLane& lane = lanes_[number];
    if (lane.waiting() != 0) ExpireWaiting(number, now);
    if (lane.HasWork()) work += ReadLane(number, now);
    waiting |= uint32_t{lane.waiting() != 0} << number;
    const uint32_t used = uint32_t{lane.waiting() != 0 || lane.held()} << number;
    used_lanes_ = (used_lanes_ & ~(1u << number)) | used;
  }
  if (unasked_ != 0) work += AskForSessions();
  if (waiting != 0 && inflight_bytes_ < options_.inflight_bytes) {
    rounds_.Run(
        waiting, [this](size_t source) { return NextItem(source); },
        [&](size_t source) {
          return source == kDirectLane ? ServeSlice(now)
                                       : ServePiece(static_cast<uint32_t>(source), now);
        });
  }
  for (uint32_t lane = 0; condemned_ != 0 && lane < kLaneCount; ++lane) {
    work += RefuseCondemned(lane);
  }
  if (has_news_) work += TellPeerActor();
  if (!poster_.idle()) {
    const size_t posted = poster_.Post(kPostLimit);
    if (posted != 0) passed_slice_ = kNone;
    Count(stats_.requests_posted, posted);
    work += posted;
  }
  if (inflight_jobs_ != 0 && now >= next_stuck_check_) CheckStuck(now);
  if (flushing_) flushing_ = !poster_.CloseAll();
  return work;
}

// Most lanes never have a sender: what an idle pass looks at of them is one word each.
uint32_t RelayPostActor::ClaimedLanes() const {
  if (lanes_.empty()) return 0;
  const LaneControl* const lanes = options_.control->lanes;
  uint32_t claimed = 0;
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    claimed |= uint32_t{LoadLaneState(lanes[lane].header) == LaneState::kReady} << lane;
  }
  return claimed;
}

// --- Sharing the budget

bool RelayPostActor::HasBudget(uint64_t bytes) const {
  return inflight_bytes_ == 0 || inflight_bytes_ + bytes <= options_.inflight_bytes;
}

bool RelayPostActor::HasShare(uint32_t target, uint64_t bytes) const {
  return target_bytes_[target] == 0 || target_bytes_[target] + bytes <= options_.inflight_bytes / 2;
}

uint64_t RelayPostActor::NextItem(size_t source) {
  return source == kDirectLane ? NextSlice() : NextPiece(static_cast<uint32_t>(source));
}

uint64_t RelayPostActor::NextPiece(uint32_t lane) {
  InboundLane& inbound = lanes_[lane];
  for (uint32_t i = 0; i < inbound.waiting(); ++i) {
    InboundPiece& piece = inbound.piece(inbound.WaitingRecord(i));
    if (piece.route == nullptr || piece.verdict != RelayStatus::kOk) continue;
    const uint64_t bytes = piece.descriptor.piece_length;
    if (!HasShare(piece.route->index, bytes)) continue;
    if (poster_.OpenEndpoint(*piece.route, piece.path) == 0 && !PickPath(piece)) {
      Condemn(piece, RelayStatus::kTransport);
      continue;
    }
    if (!poster_.HasRoom(*piece.route, piece.path)) continue;
    candidate_[lane] = i;
    return bytes;
  }
  return 0;
}

uint64_t RelayPostActor::NextSlice() {
  uint32_t next = passed_slice_ == kNone ? waiting_slices_.head : slices_[passed_slice_].next;
  for (; next != kNone; next = slices_[next].next) {
    const PostSlice& request = slices_[next].request;
    const TargetRoute& route = *targets_.Newest(request.target->index);
    if (HasShare(route.index, request.length) && poster_.HasRoom(route, request.path)) {
      return std::max<uint64_t>(request.length, 1);
    }
    passed_slice_ = next;
  }
  return 0;
}

Served RelayPostActor::ServePiece(uint32_t lane, uint64_t now) {
  InboundLane& inbound = lanes_[lane];
  const uint32_t record = inbound.WaitingRecord(candidate_[lane]);
  InboundPiece& piece = inbound.piece(record);
  if (!HasBudget(piece.descriptor.piece_length)) return Served::kNoRoom;
  if (inbound.Take(candidate_[lane]) == TakeResult::kRevoked) {
    Condemn(piece, RelayStatus::kRevoked);
    return Served::kDropped;
  }
  RAILHOP_FAULT_POINT("relay.taken");
  StartPiece(lane, record, now);
  return Served::kSent;
}

Served RelayPostActor::ServeSlice(uint64_t now) {
  const uint32_t slice =
      passed_slice_ == kNone ? waiting_slices_.head : slices_[passed_slice_].next;
  if (!HasBudget(slices_[slice].request.length)) return Served::kNoRoom;
  const uint32_t next = slices_[slice].next;
  (passed_slice_ == kNone ? waiting_slices_.head : slices_[passed_slice_].next) = next;
  if (next == kNone) waiting_slices_.tail = passed_slice_;
  StartSlice(slice, now);
  return Served::kSent;
}

// --- Jobs

void RelayPostActor::StartPiece(uint32_t lane, uint32_t record, uint64_t now) {
  const InboundPiece& piece = lanes_[lane].piece(record);
  const TargetRoute& route = *piece.route;
  if (trace.Samples(piece.id.sequence)) Record(lane, piece.id, PieceStage::kPosted);
  Start(PieceJob(lane, record),
        {.opcode = FabricOpcode::kWrite,
         .path = piece.path,
         .lkey = options_.arena_lkeys[OwnNic(piece.path)],
         .route = &route,
         .endpoint = poster_.OpenEndpoint(route, piece.path),
         .local = options_.arena + SlotOffset(lane, piece.id.slot()),
         .plan = piece.descriptor.plan()},
        {.token = 0,
         .sequence = piece.id.sequence,
         .sender_epoch = piece.id.sender_epoch,
         .length = piece.descriptor.piece_length,
         .job = 0,
         .lane = lane,
         .lane_generation = piece.id.generation,
         .target = route.index,
         .target_version = route.version,
         .path = piece.path},
        now);
}

// The newest connection counts; if it does not know the range any more, the keys are those that the
// slice was made with, and the target refuses them as it must.
void RelayPostActor::StartSlice(uint32_t slice, uint64_t now) {
  const PostSlice& request = slices_[slice].request;
  const PlanEntry& plan = slices_[slice].plan;
  const TargetRoute& newest = *targets_.Newest(request.target->index);
  const bool covered = InsideRegistrations(newest, {&plan, 1});
  Start(kRelayJobs + slice,
        {.opcode = request.opcode,
         .path = request.path,
         .lkey = request.lkey,
         .route = covered ? &newest : request.target,
         .endpoint = flushing_ ? 0 : poster_.OpenEndpoint(newest, request.path),
         .local = request.local,
         .plan = {&plan, 1}},
        {.token = request.token,
         .sequence = 0,
         .sender_epoch = 0,
         .length = request.length,
         .job = 0,
         .lane = kDirectLane,
         .lane_generation = 0,
         .target = newest.index,
         .target_version = newest.version,
         .path = request.path,
         .flush_gpu = request.flush_gpu},
        now);
}

void RelayPostActor::Start(uint32_t index, const JobPoster::Job& job, JobPosted message,
                           uint64_t now) {
  if (inflight_jobs_++ == 0) next_stuck_check_ = now + StuckCheckInterval();
  jobs_[index] = {.target = message.target, .length = message.length};
  inflight_bytes_ += message.length;
  target_bytes_[message.target] += message.length;
  message.job = poster_.Start(index, job, now);
  posted_out.Send(message);
}

bool RelayPostActor::OnPostSlice(const PostSlice& request) {
  const uint32_t slice = free_slices_.head;
  if (slice == kNone) return false;
  targets_.Put(*request.target);
  free_slices_.head = slices_[slice].next;
  if (free_slices_.head == kNone) free_slices_.tail = kNone;
  slices_[slice].request = request;
  slices_[slice].plan = {request.remote_address, request.length};
  Append(waiting_slices_, slice);
  return true;
}

bool RelayPostActor::OnJobDone(const JobDone& done) {
  const uint32_t index = JobTag::Index(done.job);
  const Job& job = jobs_[index];
  poster_.End(index, reactor().now());
  inflight_bytes_ -= job.length;
  target_bytes_[job.target] -= job.length;
  --inflight_jobs_;
  passed_slice_ = kNone;
  if (index < kRelayJobs) {
    lanes_[index / kRecordsPerLane].Free(index % kRecordsPerLane);
  } else {
    Append(free_slices_, index - kRelayJobs);
  }
  return true;
}

// The poll that follows makes use of it.
bool RelayPostActor::OnRoomReturned(const RoomReturned&) {
  passed_slice_ = kNone;
  return true;
}

bool RelayPostActor::OnCloseEndpoint(const CloseEndpoint& close) {
  return poster_.CloseEndpoint(close.target, close.path, close.endpoint);
}

void RelayPostActor::CheckStuck(uint64_t now) {
  next_stuck_check_ = now + StuckCheckInterval();
  poster_.EachStuck(now, piece_timeout_, [this](const TargetRoute& route, PathId path) {
    if (!error_out.TrySend({.target = route.index,
                            .target_version = route.version,
                            .path = path,
                            .status = FabricStatus::kTransport})) {
      return false;
    }
    Log(LogLevel::kWarning,
        fmt::format("nothing has completed on the connection to {} for {} ms: it is closed, and "
                    "what was under way fails or goes another way; for a slower network set a "
                    "longer piece_timeout_ms",
                    route.name, options_.piece_timeout.count() / 1'000'000));
    return true;
  });
}

void RelayPostActor::Append(SliceList& list, uint32_t slice) {
  slices_[slice].next = kNone;
  (list.head == kNone ? list.head : slices_[list.tail].next) = slice;
  list.tail = slice;
}

// --- Stopping

void RelayPostActor::OnStop() {
  stopping_ = true;
  EachWaitingPiece([this](InboundPiece& piece) { Condemn(piece, RelayStatus::kStopping); });
}

bool RelayPostActor::Drained() const {
  uint32_t waiting = 0;
  for (const InboundLane& lane : lanes_) waiting += lane.waiting();
  return inflight_jobs_ == 0 && waiting == 0 && waiting_slices_.head == kNone;
}

void RelayPostActor::OnFlush() {
  if (!stopping_) OnStop();
  flushing_ = true;
  passed_slice_ = kNone;
  while (waiting_slices_.head != kNone) {
    const uint32_t slice = waiting_slices_.head;
    waiting_slices_.head = slices_[slice].next;
    StartSlice(slice, reactor().now());
  }
  waiting_slices_.tail = kNone;
}

// --- Parking

void RelayPostActor::OnPark() {
  if (options_.side != nullptr) options_.side->Park(WakeRole::kRelay);
}

void RelayPostActor::OnUnpark() {
  if (options_.side != nullptr) options_.side->Unpark(WakeRole::kRelay);
}

// Room in send queues and shares of the budget come back by message.
uint64_t RelayPostActor::NextPoll(uint64_t now) {
  uint64_t next = inflight_jobs_ == 0 ? kNever : next_stuck_check_;
  bool old = false;
  for (InboundLane& lane : lanes_) {
    // A GPU rings the doorbell and wakes nobody.
    if (lane.HasAnnounced()) next = std::min(next, now + doorbell_poll_);
    if (lane.waiting() != 0) next = std::min(next, lane.piece(lane.WaitingRecord(0)).deadline);
    old = old || lane.IsVersionOne();
  }
  if (!old) return next;
  if (now >= old_poll_at_) {
    old_poll_at_ = now + old_poll_interval_;
    old_poll_interval_ = std::min(2 * old_poll_interval_, ToCycles(kLongestOldPoll));
  }
  return std::min(next, old_poll_at_);
}

}  // namespace railhop
