#include "actors/outbound_peer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/cycle_clock.h"
#include "runtime/fault_point.h"
#include "runtime/fence.h"
#include "runtime/log.h"

namespace railhop {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr microseconds kFirstProbePoll{100};
constexpr milliseconds kLastProbePoll{5};
constexpr milliseconds kLateProbePoll{250};
// After so many probe timeouts without an answer it is news: where a whole group starts on a few
// cores, a relay may be quiet for a second as well.
constexpr int kSilentTimeouts = 20;

}  // namespace

OutboundPeer::OutboundPeer(GroupMember& member, EventLoop& loop, BackgroundWorker& worker,
                           PeerInfo info, const Options& options, std::function<void()> wake)
    : member_(member),
      loop_(loop),
      worker_(worker),
      info_(std::move(info)),
      options_(options),
      wake_(std::move(wake)) {}

bool OutboundPeer::OnRail(const std::string& rail) const {
  return std::find(info_.rails.begin(), info_.rails.end(), rail) != info_.rails.end();
}

void OutboundPeer::Attach() {
  phase_ = Phase::kAttaching;
  Next(Step::kMap);
}

void OutboundPeer::Renew() {
  phase_ = Phase::kAttaching;
  lane_.reset();
  Next(Step::kClaim);
}

// The probe of a lane that never answered keeps it from being drained: it is left to the relay,
// which gets it back when this process ends.
void OutboundPeer::Release() {
  const bool unanswered = phase_ == Phase::kProbing;
  const bool reserving = phase_ == Phase::kAttaching && step_ == Step::kReserve && job_ != nullptr;
  lane_.reset();
  memory_.reset();
  if (!reserving) job_.reset();
  if (!claimed_ || unanswered) return Forget();
  phase_ = Phase::kReleasing;
  Next(reserving ? Step::kSettle : Step::kUnmark);
}

void OutboundPeer::Forget() {
  phase_ = Phase::kIdle;
  due_ = kNever;
  late_ = claimed_ = false;
  lane_.reset();
  memory_.reset();
  job_.reset();
  process_.reset();
  mapping_.reset();
}

bool OutboundPeer::Run(uint64_t now) {
  if (mapping_ != nullptr) Observe(now);
  const bool working = phase_ != Phase::kIdle && phase_ != Phase::kReady;
  const bool due = now >= due_ || (job_ != nullptr && job_->done());
  if (!working || !due || health_ == Health::kDead) return false;
  if (phase_ == Phase::kProbing) {
    CheckProbe(now);
    return phase_ != Phase::kProbing;
  }
  const absl::Status status = TakeStep(now);
  if (status.ok()) {
    lock_retry_ = kFirstLockRetry;
  } else if (absl::IsDeadlineExceeded(status)) {
    due_ = now + ToCycles(lock_retry_);
    lock_retry_ = std::min(2 * lock_retry_, kLastLockRetry);
  } else {
    Fail(status, now);
  }
  return true;
}

// Everything about the peer that is read and not told.
void OutboundPeer::Observe(uint64_t now) {
  if (dead_since_ == 0 && process_ != nullptr && process_->Ended()) dead_since_ = now;
  if (dead_since_ != 0) {
    const uint64_t quiet_at = dead_since_ + ToCycles(options_.fabric_drain);
    if (now >= quiet_at) health_ = Health::kDead;
    due_ = health_ == Health::kDead ? kNever : std::min(due_, quiet_at);
    return;
  }
  const RegistryHeader& header = mapping_->block().header;
  if (LoadAcquire(header.state) == static_cast<uint32_t>(RegistryState::kStopping)) {
    health_ = Health::kStopping;
    return;
  }
  const uint64_t heartbeat = mapping_->heartbeat();
  if (heartbeat != heartbeat_) {
    heartbeat_ = heartbeat;
    heartbeat_at_ = now;
  }
  const bool silent = heartbeat_ != 0 && now - heartbeat_at_ > ToCycles(options_.heartbeat_timeout);
  health_ = silent ? Health::kSilent : Health::kGood;
}

absl::Status OutboundPeer::TakeStep(uint64_t now) {
  switch (step_) {
    case Step::kMap:
      return Map(now);
    case Step::kOpen:
      return InBackground(
          [memory = memory_, staging = member_.staging()]() -> absl::Status {
            const PeerInfo& peer = memory->mapping->info();
            auto arena = staging->OpenArena(peer.arena_handle, peer.owner, peer.epoch);
            if (!arena.ok()) return arena.status();
            memory->arena = *std::move(arena);
            memory->doorbells =
                staging->ShareDoorbells(&memory->mapping->block(), sizeof(ControlBlock));
            return absl::OkStatus();
          },
          Step::kClaim);
    case Step::kClaim: {
      const absl::StatusOr<LaneClaim> claim = ClaimLane(*mapping_, member_.sender());
      if (!claim.ok()) return claim.status();
      claim_ = *claim;
      claimed_ = true;
      RAILHOP_FAULT_POINT("sender.claimed");
      Next(Step::kReserve);
      return absl::OkStatus();
    }
    case Step::kReserve:
      return InBackground(
          [memory = memory_, lane = claim_.lane] { return memory->arena->ReserveLane(lane); },
          Step::kMark);
    case Step::kMark: {
      absl::Status status = MarkAttached(*mapping_, member_.sender(), claim_.lane, true);
      if (!status.ok()) return status;
      RAILHOP_FAULT_POINT("sender.attached");
      lane_ = std::make_unique<LaneMapping>(mapping_, claim_, memory_->arena->base());
      if (claim_.reused) {
        next_sequence_ = claim_.first_sequence;
        phase_ = Phase::kReady;
        due_ = kNever;
      } else {
        StartProbe(now);
      }
      return absl::OkStatus();
    }
    // Whoever has the lane next must not find this process's copies in it.
    case Step::kSettle: {
      if (!job_->done()) {
        due_ = kNever;
        return absl::OkStatus();
      }
      absl::Status status = std::exchange(job_, nullptr)->status();
      if (absl::IsAborted(status)) return status;
      Next(Step::kUnmark);
      return absl::OkStatus();
    }
    case Step::kUnmark: {
      absl::Status status = MarkAttached(*mapping_, member_.sender(), claim_.lane, false);
      if (!status.ok()) return status;
      RAILHOP_FAULT_POINT("sender.detached");
      Next(Step::kRelease);
      return absl::OkStatus();
    }
    case Step::kRelease: {
      absl::Status status = ReleaseLane(*mapping_, member_.sender(), claim_.lane);
      RAILHOP_FAULT_POINT("sender.lane_released");
      if (status.ok()) Forget();
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status OutboundPeer::Map(uint64_t now) {
  absl::StatusOr<std::shared_ptr<PeerMapping>> mapping = member_.registry().MapPeer(info_);
  if (!mapping.ok()) return mapping.status();
  auto process = std::make_unique<WatchedProcess>(loop_, info_.owner, wake_);
  if (process->Ended()) return absl::NotFoundError("it has ended");
  mapping_ = *std::move(mapping);
  process_ = std::move(process);
  health_ = Health::kGood;
  dead_since_ = 0;
  heartbeat_ = mapping_->heartbeat();
  heartbeat_at_ = now;
  memory_ = std::make_shared<Memory>();
  memory_->mapping = mapping_;
  Next(Step::kOpen);
  return absl::OkStatus();
}

// The job keeps the memory mapped, even if the peer is forgotten meanwhile.
absl::Status OutboundPeer::InBackground(std::function<absl::Status()> work, Step next) {
  if (job_ == nullptr) {
    job_ = worker_.Start(std::move(work));
    due_ = kNever;
    return absl::OkStatus();
  }
  absl::Status status = std::exchange(job_, nullptr)->status();
  if (status.ok()) Next(next);
  return status;
}

void OutboundPeer::StartProbe(uint64_t now) {
  DescriptorWriter writer;
  RingCredit credit(claim_.first_sequence);
  answers_ = std::make_unique<CompletionReader>(claim_.first_sequence);
  SendProbe(*lane_, writer, credit);
  FullFence();
  lane_->WakeRelay();
  RAILHOP_FAULT_POINT("sender.probe_sent");
  phase_ = Phase::kProbing;
  next_sequence_ = claim_.first_sequence + 1;
  probed_at_ = now;
  probe_poll_ = ToCycles(kFirstProbePoll);
  due_ = now + probe_poll_;
}

// No answer in time: the lane is left alone. An answer that comes late is as good: it shows that
// the relay reads the lane from its start.
void OutboundPeer::CheckProbe(uint64_t now) {
  const SentCompletion answer = answers_->Poll(lane_->control());
  if (IsProbeAnswer(answer)) {
    RAILHOP_FAULT_POINT("sender.probe_answered");
    phase_ = Phase::kReady;
    late_ = false;
    retry_ = kFirstRetry;
    due_ = kNever;
    return;
  }
  if (answer.state != CompletionState::kPending) {
    WarnOnce("probe", fmt::format("{} answered a probe that nobody may accept; its lane {} is left "
                                  "alone and everything goes direct",
                                  ToString(info_.owner), claim_.lane));
    Forget();
    retry_at_ = kNever;
    return;
  }
  const uint64_t silent = now - probed_at_;
  late_ = late_ || silent >= ToCycles(options_.probe_timeout);
  if (silent >= kSilentTimeouts * ToCycles(options_.probe_timeout)) {
    WarnOnce("late", fmt::format("{} did not answer the probe of its lane {} within {} ms; until "
                                 "it does, everything goes direct",
                                 ToString(info_.owner), claim_.lane,
                                 kSilentTimeouts * options_.probe_timeout.count()));
  }
  probe_poll_ =
      late_ ? ToCycles(kLateProbePoll) : std::min(2 * probe_poll_, ToCycles(kLastProbePoll));
  due_ = now + probe_poll_;
}

void OutboundPeer::Fail(const absl::Status& status, uint64_t now) {
  const std::string text(status.message());
  if (absl::IsAborted(status)) {
    WarnOnce("aborted", fmt::format("nothing is relayed through {}, and its lane {} is left alone: "
                                    "{}",
                                    ToString(info_.owner), claim_.lane, text));
    Forget();
    retry_at_ = kNever;
    return;
  }
  if (phase_ == Phase::kReleasing) {
    if (absl::IsUnavailable(status)) {  // not drained yet
      due_ = now + ToCycles(lock_retry_);
      lock_retry_ = std::min(2 * lock_retry_, kLastLockRetry);
      return;
    }
    WarnOnce("release",
             fmt::format("a lane of {} cannot be given back: {}", ToString(info_.owner), text));
    return Forget();
  }
  // It left just now: no news.
  if (!absl::IsNotFound(status)) {
    WarnOnce(fmt::format("{} {}", static_cast<int>(step_), static_cast<int>(status.code())),
             fmt::format("nothing is relayed through {}: {}", ToString(info_.owner), text));
  }
  retry_at_ = now + ToCycles(retry_);
  retry_ = std::min(2 * retry_, kLastRetry);
  Release();
}

void OutboundPeer::WarnOnce(const std::string& key, const std::string& what) {
  if (warned_.insert(key).second) Log(LogLevel::kWarning, what);
}

}  // namespace railhop
