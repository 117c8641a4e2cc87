// OutboundPeer: one other process of the group, and the way to a proved lane of it.
//
//   kIdle -Attach-> kAttaching: map the entry, open its memory (arena, doorbells), claim a lane,
//                   reserve its pages, mark it attached -> kProbing: sequence 1 answered with an
//                   error -> kReady
//   kReady -Renew-> kAttaching    claims again, at the sequence where it stopped
//   any    -Release-> kReleasing: let a job settle that may write to the lane, unmap, unmark, give
//                   the lane back -> kIdle
//   any    -Forget-> kIdle        the peer is dead, or there is no time left
//
// Part of PeerActor, on its thread. Each Run takes one step, so that nothing else of the reactor
// waits for more than that; memory is opened and its pages are reserved by the background worker. A
// lock that somebody holds is asked for again soon, what fails otherwise later and later; each
// reason is logged once.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "actors/group_member.h"
#include "actors/watched_process.h"
#include "runtime/background_worker.h"
#include "transport/ring/lane.h"
#include "transport/staging/staging.h"

namespace railhop {

class OutboundPeer {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;
  static constexpr std::chrono::milliseconds kFirstRetry{100};
  static constexpr std::chrono::milliseconds kLastRetry{10'000};
  static constexpr std::chrono::milliseconds kFirstLockRetry{2};
  static constexpr std::chrono::milliseconds kLastLockRetry{64};

  struct Options {
    std::chrono::milliseconds heartbeat_timeout{3000};
    std::chrono::milliseconds probe_timeout{100};
    std::chrono::milliseconds fabric_drain{10};
  };
  enum class Phase : uint8_t { kIdle, kAttaching, kProbing, kReady, kReleasing };
  enum class Health : uint8_t {
    kGood,
    kSilent,    // its heartbeat, once seen, has stopped
    kStopping,  // it said so
    kDead,      // and what it had posted has ended
  };

  // `member`, `loop` and `worker` outlive it. `wake` makes the reactor call Run, and so does the
  // end of a job of `worker`.
  OutboundPeer(GroupMember& member, EventLoop& loop, BackgroundWorker& worker, PeerInfo info,
               const Options& options, std::function<void()> wake);

  const PeerInfo& info() const { return info_; }
  bool OnRail(const std::string& rail) const;
  Phase phase() const { return phase_; }
  Health health() const { return health_; }
  // Proving takes longer than it should: do not count on it.
  bool late() const { return late_; }
  // kIdle, and worth an attempt now.
  bool MayAttach(uint64_t now) const { return phase_ == Phase::kIdle && now >= retry_at_; }

  void Attach();
  void Renew();
  void Release();
  void Forget();

  // One step, if one is due. Returns whether there was.
  bool Run(uint64_t now);
  uint64_t due() const { return due_; }

  // While kReady. Stays as it is until Renew, Release or Forget.
  const LaneMapping* lane() const { return lane_.get(); }
  uint64_t next_sequence() const { return next_sequence_; }

 private:
  enum class Step : uint8_t { kMap, kOpen, kClaim, kReserve, kMark, kSettle, kUnmark, kRelease };

  // What this process has of the peer's memory; closed from the last to the first.
  struct Memory {
    std::shared_ptr<PeerMapping> mapping;
    std::shared_ptr<void> doorbells;
    std::shared_ptr<ImportedArena> arena;
  };

  void Observe(uint64_t now);
  absl::Status TakeStep(uint64_t now);
  absl::Status Map(uint64_t now);
  // Has the worker do it, and goes on to `next` once that went well.
  absl::Status InBackground(std::function<absl::Status()> work, Step next);
  void StartProbe(uint64_t now);
  void CheckProbe(uint64_t now);
  void Fail(const absl::Status& status, uint64_t now);
  void WarnOnce(const std::string& key, const std::string& what);
  void Next(Step step) {
    step_ = step;
    due_ = 0;
  }

  GroupMember& member_;
  EventLoop& loop_;
  BackgroundWorker& worker_;
  const PeerInfo info_;
  const Options options_;
  const std::function<void()> wake_;

  Phase phase_ = Phase::kIdle;
  Step step_ = Step::kMap;
  Health health_ = Health::kGood;
  uint64_t due_ = kNever;  // cycles
  uint64_t retry_at_ = 0;  // kIdle: not before
  std::chrono::milliseconds retry_ = kFirstRetry;
  std::chrono::milliseconds lock_retry_ = kFirstLockRetry;
  std::set<std::string> warned_;

  std::shared_ptr<PeerMapping> mapping_;
  std::shared_ptr<Memory> memory_;
  std::unique_ptr<WatchedProcess> process_;
  std::shared_ptr<BackgroundWorker::Job> job_;
  bool claimed_ = false;
  LaneClaim claim_;
  std::unique_ptr<LaneMapping> lane_;
  uint64_t next_sequence_ = 0;

  // kProbing
  std::unique_ptr<CompletionReader> answers_;
  uint64_t probed_at_ = 0;
  uint64_t probe_poll_ = 0;  // cycles between two looks
  bool late_ = false;

  // Health
  uint64_t dead_since_ = 0;  // cycles; 0: alive
  uint64_t heartbeat_ = 0;   // the last one seen
  uint64_t heartbeat_at_ = 0;
};

}  // namespace railhop
