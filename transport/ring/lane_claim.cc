#include "transport/ring/lane_claim.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>

namespace railhop {
namespace {

// The lane as plain words, whatever the type of its fields.
using Word [[gnu::may_alias]] = uint64_t;

// State "claiming", zero everything, state "free". Every store is a release: whoever sees one of
// the zeros sees, looking again, that the lane is no longer ready.
void ClearLane(LaneControl& lane) {
  StoreLaneState(lane.header, LaneState::kClaiming);
  StoreRelease(lane.header.arena_attached, 0);
  auto* words = reinterpret_cast<Word*>(&lane);
  constexpr size_t kFirst = offsetof(LaneHeader, sender) / sizeof(Word);
  for (size_t i = kFirst; i < sizeof(LaneControl) / sizeof(Word); ++i) {
    __atomic_store_n(&words[i], uint64_t{0}, __ATOMIC_RELEASE);
  }
  StoreLaneState(lane.header, LaneState::kFree);
}

ProcessIdentity LoadIdentity(const ProcessIdentity& identity) {
  return {LoadAcquire(identity.uid), LoadAcquire(identity.pid), LoadAcquire(identity.start_ticks)};
}

// The epoch first: who reads the new identity finds the epoch changed when it looks again.
void StoreSender(LaneHeader& header, const LaneSender& sender) {
  StoreRelease(header.sender_epoch, sender.epoch);
  StoreRelease(header.sender.uid, sender.identity.uid);
  StoreRelease(header.sender.pid, sender.identity.pid);
  StoreRelease(header.sender.start_ticks, sender.identity.start_ticks);
}

// Sure only under the entry lock.
LaneSender LoadSender(const LaneHeader& header) {
  const uint64_t epoch = LoadAcquire(header.sender_epoch);
  return {LoadIdentity(header.sender), epoch};
}

// No piece is in the ring: none published, none announced by its doorbell alone.
bool IsDrained(const LaneHeader& header) {
  const uint64_t head = LoadAcquire(header.head);
  return LoadAcquire(header.completed) == head && LoadAcquire(header.doorbell) <= head;
}

std::string Undrained(const PeerMapping& relay, uint32_t lane) {
  const LaneHeader& header = relay.block().lanes[lane].header;
  return fmt::format("lane {} of relay {} still holds pieces (head {}, doorbell {}, completed {})",
                     lane, relay.info().owner.pid, LoadAcquire(header.head),
                     LoadAcquire(header.doorbell), LoadAcquire(header.completed));
}

// Whether a claimer may clear this lane and have it, one's own lane of the same epoch aside.
bool MayTake(PeerMapping& relay, const LaneHeader& header, const LaneSender& sender) {
  switch (LoadLaneState(header)) {
    case LaneState::kFree:
    case LaneState::kClaiming:  // under the lock: whoever was claiming is dead
      return true;
    case LaneState::kReady:
      break;
    default:
      return false;
  }
  const LaneSender holder = LoadSender(header);
  if (holder.identity == sender.identity) {
    // An older registration of this process. What it left in the ring the relay may still read.
    return LoadAcquire(header.arena_attached) == 0 && IsDrained(header);
  }
  return !relay.drains_dead_lanes() && relay.directory().IsGone(holder.identity, holder.epoch);
}

absl::Status CheckHeld(PeerMapping& relay, const LaneSender& sender, uint32_t lane) {
  if (lane < kLaneCount) {
    const LaneHeader& header = relay.block().lanes[lane].header;
    if (LoadLaneState(header) == LaneState::kReady && LoadSender(header) == sender) {
      return absl::OkStatus();
    }
  }
  return absl::FailedPreconditionError(fmt::format("lane {} of relay {} is not held by {}", lane,
                                                   relay.info().owner.pid,
                                                   ToString(sender.identity)));
}

void TakeLane(PeerMapping& relay, uint32_t index, const LaneSender& sender) {
  LaneControl& lane = relay.block().lanes[index];
  ClearLane(lane);
  StoreLaneState(lane.header, LaneState::kClaiming);
  if (const PeerSide* side = relay.side(); side != nullptr) {
    SideLane& words = side->file().lanes[index];
    for (uint64_t& claim : words.claims) StoreRelease(claim, 0);
    StoreRelease(words.sender_epoch, sender.epoch);
    StoreRelease(words.claim_count, LoadRelaxed(words.claim_count) + 1);
  }
  StoreSender(lane.header, sender);
  StoreLaneState(lane.header, LaneState::kReady);
}

}  // namespace

absl::StatusOr<LaneClaim> ClaimLane(PeerMapping& relay, const LaneSender& sender) {
  if (sender.identity == relay.info().owner) {
    return absl::InvalidArgumentError("a process does not claim a lane of its own");
  }
  absl::StatusOr<FileLock> lock = relay.LockEntry();
  if (!lock.ok()) return lock.status();
  ControlBlock& block = relay.block();
  if (LoadAcquire(block.header.state) != static_cast<uint32_t>(RegistryState::kReady)) {
    return absl::UnavailableError(fmt::format("relay {} is stopping", relay.info().owner.pid));
  }

  for (uint32_t i = 0; i < kLaneCount; ++i) {
    if (!CheckHeld(relay, sender, i).ok()) continue;
    if (!IsDrained(block.lanes[i].header)) return absl::UnavailableError(Undrained(relay, i));
    return LaneClaim{
        .lane = i, .first_sequence = LoadAcquire(block.lanes[i].header.head) + 1, .reused = true};
  }
  for (uint32_t i = 0; i < kLaneCount; ++i) {
    if (!MayTake(relay, block.lanes[i].header, sender)) continue;
    TakeLane(relay, i, sender);
    return LaneClaim{.lane = i};
  }

  std::string holders;
  for (const LaneControl& lane : block.lanes) {
    holders += fmt::format(" {}", LoadAcquire(lane.header.sender.pid));
  }
  return absl::ResourceExhaustedError(
      fmt::format("all {} lanes of relay {} are taken, by the processes{}", kLaneCount,
                  relay.info().owner.pid, holders));
}

absl::Status MarkAttached(PeerMapping& relay, const LaneSender& sender, uint32_t lane,
                          bool attached) {
  absl::StatusOr<FileLock> lock = relay.LockEntry();
  if (!lock.ok()) return lock.status();
  if (absl::Status status = CheckHeld(relay, sender, lane); !status.ok()) return status;
  StoreRelease(relay.block().lanes[lane].header.arena_attached, attached ? 1 : 0);
  return absl::OkStatus();
}

absl::Status ReleaseLane(PeerMapping& relay, const LaneSender& sender, uint32_t lane) {
  absl::StatusOr<FileLock> lock = relay.LockEntry();
  if (!lock.ok()) return lock.status();
  if (absl::Status status = CheckHeld(relay, sender, lane); !status.ok()) return status;
  if (!IsDrained(relay.block().lanes[lane].header)) {
    return absl::UnavailableError(Undrained(relay, lane));
  }
  ClearLane(relay.block().lanes[lane]);
  return absl::OkStatus();
}

std::optional<LaneSender> ReadSender(const LaneHeader& header) {
  if (LoadLaneState(header) != LaneState::kReady) return std::nullopt;
  const LaneSender sender = LoadSender(header);
  if (LoadLaneState(header) != LaneState::kReady ||
      LoadAcquire(header.sender_epoch) != sender.epoch) {
    return std::nullopt;
  }
  return sender;
}

absl::Status TakeOverLane(Registration& relay, uint32_t lane, const LaneSender& dead) {
  absl::StatusOr<FileLock> lock = relay.LockEntry();
  if (!lock.ok()) return lock.status();
  LaneHeader& header = relay.block().lanes[lane].header;
  if (LoadLaneState(header) != LaneState::kReady || LoadSender(header) != dead) {
    return absl::FailedPreconditionError(
        fmt::format("lane {} is no longer held by {}", lane, ToString(dead.identity)));
  }
  if (!relay.directory().IsGone(dead.identity, dead.epoch)) {
    return absl::FailedPreconditionError(
        fmt::format("lane {} is not taken over: {} lives", lane, ToString(dead.identity)));
  }
  StoreSender(header, {relay.owner(), relay.epoch()});
  return absl::OkStatus();
}

absl::Status FreeTakenLane(Registration& relay, uint32_t lane) {
  absl::StatusOr<FileLock> lock = relay.LockEntry();
  if (!lock.ok()) return lock.status();
  LaneHeader& header = relay.block().lanes[lane].header;
  if (LoadLaneState(header) != LaneState::kReady ||
      LoadSender(header) != LaneSender{relay.owner(), relay.epoch()}) {
    return absl::FailedPreconditionError(fmt::format("lane {} was not taken over", lane));
  }
  ClearLane(relay.block().lanes[lane]);
  return absl::OkStatus();
}

bool QuietDoorbell::Observe(const LaneHeader& header, Time now) {
  const uint64_t doorbell = LoadAcquire(header.doorbell);
  if (!since_.has_value() || doorbell != doorbell_) {
    doorbell_ = doorbell;
    since_ = now;
    return false;
  }
  return now - *since_ >= grace_;
}

}  // namespace railhop
