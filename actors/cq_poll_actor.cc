#include "actors/cq_poll_actor.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <utility>

#include "runtime/cache_line.h"
#include "runtime/cycle_clock.h"
#include "runtime/fault_point.h"
#include "runtime/fence.h"
#include "runtime/log.h"
#include "runtime/reactor.h"

namespace railhop {
namespace {

constexpr std::chrono::microseconds kFirstOldPoll{50};
constexpr std::chrono::milliseconds kLongestOldPoll{5};

void Count(std::atomic<uint64_t>& counter, uint64_t n) {
  counter.store(counter.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
}

TransferError ToTransferError(FabricStatus status) {
  switch (status) {
    case FabricStatus::kOk:
      return TransferError::kNone;
    case FabricStatus::kLocalProtection:
      return TransferError::kNotRegistered;
    case FabricStatus::kRemoteAccess:
      return TransferError::kRemoteAccess;
    case FabricStatus::kTargetDead:
      return TransferError::kTargetDead;
    case FabricStatus::kExposed:
      return TransferError::kExposed;
    case FabricStatus::kHungUp:
      return TransferError::kHungUp;
    case FabricStatus::kDevice:
      return TransferError::kDevice;
    case FabricStatus::kTransport:
    case FabricStatus::kFlushed:
      break;
  }
  return TransferError::kTransport;
}

RelayStatus ToRelayStatus(FabricStatus status) {
  if (status == FabricStatus::kOk) return RelayStatus::kOk;
  return status == FabricStatus::kRemoteAccess ? RelayStatus::kRemoteAccess
                                               : RelayStatus::kTransport;
}

}  // namespace

CqPollActor::CqPollActor(std::string name, Options options)
    : Actor(std::move(name)),
      options_(std::move(options)),
      jobs_(kMaxJobs),
      failed_(size_t{kMaxTargets} * PathCount(options_.nics.size())),
      old_poll_interval_(ToCycles(kFirstOldPoll)),
      stats_(options_.nics.size()) {
  if (options_.control != nullptr) {
    for (LaneControl& lane : options_.control->lanes) inbound_.emplace_back(lane);
  }
  AddPoller(this);
}

void CqPollActor::OnStart() {
  absl::Status status;
  if (options_.side != nullptr) {
    status.Update(reactor()
                      .loop()
                      .WatchFd(options_.side->wake_fd(WakeRole::kCompletion), Trigger::kEdge,
                               [side = options_.side] { side->DrainWake(WakeRole::kCompletion); })
                      .status());
  }
  for (const Nic* nic : options_.nics) {
    status.Update(reactor().loop().WatchFd(nic->fd(), Trigger::kEdge, [] {}).status());
  }
  if (!status.ok()) {
    Log(LogLevel::kWarning,
        "completions will be noticed late: a descriptor that tells of them "
        "cannot be watched: " +
            std::string(status.message()));
  }
}

size_t CqPollActor::Poll(uint64_t) {
  if (unwoken_ != 0) WakeUnwoken();
  size_t work = 0;
  // Without a job under way there is nothing to come, but a NIC wants to be asked now and then to
  // let go of endpoints that were disconnected.
  if (active_jobs_ != 0 || passes_without_jobs_++ % kIdleNicInterval == 0) {
    for (uint32_t nic = 0; nic < options_.nics.size(); ++nic) work += PollNic(nic);
  }
  for (uint32_t lanes = rung_lanes_; lanes != 0; lanes &= lanes - 1) {
    work += ScanLane(static_cast<uint32_t>(std::countr_zero(lanes)));
  }
  if (wakes_ != 0) WakeSenders();
  return work;
}

// --- Jobs

bool CqPollActor::OnJobPosted(const JobPosted& posted) {
  Job& job = jobs_[JobTag::Index(posted.job)];
  assert(!job.active);
  job = {.posted = posted, .status = FabricStatus::kOk, .active = true};
  Count(stats_.nics[OwnNic(posted.path)].posted, posted.length);
  ++active_jobs_;
  return true;
}

size_t CqPollActor::PollNic(uint32_t nic_index) {
  Nic& nic = *options_.nics[nic_index];
  const size_t shown = nic.Peek(completions_);
  size_t taken = 0;
  size_t slices = 0;
  while (taken < shown && TakeCompletion(completions_[taken], &slices)) ++taken;
  if (taken == 0) return 0;
  // Their room is back before anybody is told.
  nic.Advance(taken);
  if (to_flush_ != 0) FlushReads({completions_.data(), taken});
  size_t ended = 0;
  for (size_t i = 0; i < taken; ++i) {
    const JobTag tag = JobTag::FromWord(completions_[i].user_data);
    if (!tag.last) continue;
    EndJob(jobs_[JobTag::Index(tag.job)]);
    ++ended;
  }
  // When it is full, the poster has reason enough to look.
  if (ended != taken) room_out.TrySend({nic_index});
  return taken;
}

// False: not now. `*slices` counts direct slices that end.
bool CqPollActor::TakeCompletion(const NicCompletion& completion, size_t* slices) {
  const JobTag tag = JobTag::FromWord(completion.user_data);
  Job& job = jobs_[JobTag::Index(tag.job)];
  if (!job.active || job.posted.job != tag.job) return false;
  const bool direct = tag.last && job.posted.lane == kDirectLane;
  if (direct && slice_out.Room(*slices + 1) <= *slices) return false;
  if (completion.status != FabricStatus::kOk && !NoteError(job, completion.status)) return false;
  if (tag.cut && job.status == FabricStatus::kOk) job.status = FabricStatus::kFlushed;
  if (direct) ++*slices;
  if (tag.last && job.posted.flush_gpu != 0) to_flush_ |= uint64_t{1} << (job.posted.flush_gpu - 1);
  return true;
}

// Once for all reads that have ended in this drain, before any of them is told.
void CqPollActor::FlushReads(std::span<const NicCompletion> taken) {
  Count(stats_.flushes, 1);
  const uint64_t failed = options_.flush->Flush(std::exchange(to_flush_, 0));
  if (failed == 0) return;
  for (const NicCompletion& completion : taken) {
    const JobTag tag = JobTag::FromWord(completion.user_data);
    Job& job = jobs_[JobTag::Index(tag.job)];
    const uint8_t gpu = job.posted.flush_gpu;
    if (!tag.last || gpu == 0 || (failed >> (gpu - 1) & 1) == 0) continue;
    if (job.status == FabricStatus::kOk) job.status = FabricStatus::kDevice;
  }
}

// The endpoint's error is told with the first completion that shows it. False: no room to tell.
bool CqPollActor::NoteError(Job& job, FabricStatus status) {
  if (status != FabricStatus::kFlushed) {
    const JobPosted& posted = job.posted;
    uint32_t& failed = failed_[posted.target * PathCount(options_.nics.size()) + posted.path];
    if (failed < posted.target_version) {
      if (!error_out.TrySend({posted.target, posted.target_version, posted.path, status})) {
        return false;
      }
      failed = posted.target_version;
    }
  }
  if (job.status == FabricStatus::kOk || job.status == FabricStatus::kFlushed ||
      status == FabricStatus::kExposed) {
    job.status = status;
  }
  return true;
}

void CqPollActor::EndJob(Job& job) {
  job.active = false;
  --active_jobs_;
  const JobPosted& posted = job.posted;
  const bool done = job.status == FabricStatus::kOk;
  const bool direct = posted.lane == kDirectLane;
  Count(stats_.nics[OwnNic(posted.path)].ended, posted.length);
  if (direct) {
    slice_out.Send({.token = posted.token,
                    .sequence = 0,
                    .lane = kDirectLane,
                    .status = static_cast<int32_t>(ToTransferError(job.status))});
  } else {
    Complete(posted.lane,
             {.sequence = posted.sequence,
              .sender_epoch = posted.sender_epoch,
              .generation = posted.lane_generation},
             ToRelayStatus(job.status));
  }
  if (done) {
    Count(direct ? stats_.bytes_direct : stats_.bytes_relayed, posted.length);
    Count(direct ? stats_.slices_direct : stats_.pieces_relayed, 1);
  } else {
    Count(stats_.jobs_failed, 1);
  }
  job_out.Send({.job = posted.job, .status = job.status});
}

// --- Inbound lanes

bool CqPollActor::OnPieceRefused(const PieceRefused& refused) {
  Complete(refused.lane,
           {.sequence = refused.sequence,
            .sender_epoch = refused.sender_epoch,
            .generation = refused.lane_generation},
           refused.status);
  Count(stats_.pieces_refused[-static_cast<int32_t>(refused.status)], 1);
  return true;
}

void CqPollActor::Complete(uint32_t lane, const LanePiece& piece, RelayStatus status) {
  // Before it is written: its sender may see it, and read its own clock, before this one is read.
  if (trace.Samples(piece.sequence)) {
    trace.RecordInbound({.at = reactor().clock().Now(),
                         .sender_epoch = piece.sender_epoch,
                         .sequence = piece.sequence,
                         .lane = lane,
                         .stage = PieceStage::kCompleted,
                         .status = static_cast<int32_t>(status)});
  }
  if (!inbound_[lane].writer.Complete(piece, status)) return;
  DemoteLine(&options_.control->lanes[lane].completions[piece.slot()]);  // for its sender
  wakes_ |= 1u << lane;
}

bool CqPollActor::OnSenderSide(const SenderSide& side) {
  if (!side_taken_out.TrySend({side.sender_epoch, side.lane})) return false;
  inbound_[side.lane].sender = side.side;
  // A completion of the sender may have been written before it was known whom to wake.
  if (side.side != nullptr) wakes_ |= 1u << side.lane;
  return true;
}

void CqPollActor::WakeSenders() {
  for (; wakes_ != 0; wakes_ &= wakes_ - 1) {
    const int lane = std::countr_zero(wakes_);
    const PeerSide* sender = inbound_[lane].sender;
    if (sender != nullptr && !sender->Wake(WakeRole::kCompletion)) unwoken_ |= 1u << lane;
  }
}

// As CopyActor::WakeRelays: whether they were about to park shows after a fence, which at once
// would have to wait for the completions to leave this core.
void CqPollActor::WakeUnwoken() {
  FullFence();
  for (; unwoken_ != 0; unwoken_ &= unwoken_ - 1) {
    const PeerSide* sender = inbound_[std::countr_zero(unwoken_)].sender;
    if (sender != nullptr) sender->Wake(WakeRole::kCompletion);
  }
}

// --- Outbound lanes

bool CqPollActor::OnPieceRung(const PieceRung& rung) {
  OutboundLane& lane = outbound_[rung.lane];
  const uint32_t slot = SlotIndex(rung.sequence);
  if ((lane.rung >> slot & 1) == 0) ++rung_pieces_;
  lane.rung |= 1u << slot;
  rung_lanes_ |= 1u << rung.lane;
  lane.sequences[slot] = rung.sequence;
  old_poll_interval_ = ToCycles(kFirstOldPoll);
  old_poll_at_ = 0;
  return true;
}

bool CqPollActor::OnLaneReady(const LaneReady& ready) {
  outbound_[ready.lane].mapping = ready.mapping;
  return true;
}

// What a stale peer still completes is still passed on; the mapping stays at least until
// SubmitActor has heard of all of it, and without rung pieces it is not touched.
bool CqPollActor::OnCloseLane(const CloseLane& close) {
  if (lane_closed_out.Room() == 0) return false;
  OutboundLane& lane = outbound_[close.lane];
  if (close.end == LaneEnd::kPeerDead) {
    ScanLane(close.lane);
    rung_pieces_ -= static_cast<uint32_t>(std::popcount(lane.rung));
    lane.rung = 0;
    rung_lanes_ &= ~(1u << close.lane);
    lane.mapping = nullptr;
  }
  lane_closed_out.Send({close.lane});
  return true;
}

size_t CqPollActor::ScanLane(uint32_t number) {
  OutboundLane& lane = outbound_[number];
  if (lane.mapping == nullptr) return 0;
  size_t found = 0;
  for (uint32_t left = lane.rung; left != 0; left &= left - 1) {
    const auto slot = static_cast<uint32_t>(std::countr_zero(left));
    const uint64_t sequence = lane.sequences[slot];
    int32_t status = 0;
    const CompletionState state =
        TryLoadCompletion(lane.mapping->control().completions[slot], sequence, &status);
    if (state == CompletionState::kPending) continue;
    if (state == CompletionState::kMalformed) status = kMalformedCompletion;
    RAILHOP_FAULT_POINT("sender.completion_seen");
    if (!slice_out.TrySend({.token = 0, .sequence = sequence, .lane = number, .status = status})) {
      break;
    }
    lane.rung &= ~(1u << slot);
    --rung_pieces_;
    ++found;
  }
  if (lane.rung == 0) rung_lanes_ &= ~(1u << number);
  return found;
}

// --- Parking

void CqPollActor::OnPark() {
  if (options_.side != nullptr) options_.side->Park(WakeRole::kCompletion);
  nic_deadline_ = kNever;
  for (Nic* nic : options_.nics) nic_deadline_ = std::min(nic_deadline_, nic->PrepareToPark());
}

void CqPollActor::OnUnpark() {
  for (Nic* nic : options_.nics) nic->FinishPark();
  if (options_.side != nullptr) options_.side->Unpark(WakeRole::kCompletion);
}

uint64_t CqPollActor::NextPoll(uint64_t now) {
  const bool old = std::any_of(outbound_.begin(), outbound_.end(), [](const OutboundLane& lane) {
    return lane.rung != 0 && lane.mapping != nullptr && lane.mapping->relay().side() == nullptr;
  });
  if (!old) return nic_deadline_;
  if (now >= old_poll_at_) {
    old_poll_at_ = now + old_poll_interval_;
    old_poll_interval_ = std::min(2 * old_poll_interval_, ToCycles(kLongestOldPoll));
  }
  return std::min(nic_deadline_, old_poll_at_);
}

}  // namespace railhop
