// RdmaNic as a store of endpoints: who gets a slot, who has to go, and what the device tells.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/fence.h"
#include "runtime/log.h"
#include "transport/fabric/rdma/rdma_nic.h"
#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kEvicted = "evicted, since another endpoint needed the room";
constexpr const char* kRefused = "the target has given up the connection before it was used";
constexpr const char* kPortChanged = "its NIC's port went down, or has another address now";

// Whether the error says that the path is bad: the other ones are the request's or the peer's.
bool IsOfThePath(int status) {
  switch (status) {
    case IBV_WC_SUCCESS:
    case IBV_WC_WR_FLUSH_ERR:
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
    case IBV_WC_REM_ACCESS_ERR:
    case IBV_WC_REM_INV_REQ_ERR:
      return false;
    default:
      return true;
  }
}

// Nobody listens at the target: that is its process, gone or about to start anew, and no path.
bool IsOfTheProcess(const absl::Status& status) {
  return absl::IsUnavailable(status);
}

}  // namespace

absl::StatusOr<uint32_t> RdmaNic::TakeSlot(const std::string& remote, Time now) {
  if (absl::Status usable = device_->usable(); !usable.ok()) return usable;
  const std::lock_guard lock(store_mutex_);
  Sweep(now);
  const auto free = std::find_if(slots_.begin() + 1, slots_.end(),
                                 [](const Slot& slot) { return slot.stage() == kUnused; });
  if (free == slots_.end()) {
    return absl::ResourceExhaustedError(fmt::format(
        "all places are taken, by {} endpoints (its limit is {}) and those that are being drained",
        order_.size(), limit_));
  }
  const auto index = static_cast<uint32_t>(free - slots_.begin());
  if (absl::Status room = MakeRoom(index, now); !room.ok()) return room;
  if (absl::Status admitted = breakers_.Admit(remote, now); !admitted.ok()) return admitted;
  free->port_changes = device_->port_changes();
  free->word.store(Word(kTaken, free->id()), std::memory_order_relaxed);
  return index;
}

// Where the queue cannot grow the store is as large as its room, from now on: the newcomer finds a
// place once those have drained that are evicted for it.
absl::Status RdmaNic::MakeRoom(uint32_t index, Time now) {
  if (index <= room_) return absl::OkStatus();
  const uint32_t wanted = std::min(2 * room_, static_cast<uint32_t>(slots_.size() - 1));
  absl::Status grown = queue_->Grow(static_cast<int>(wanted * options_.send_queue_depth));
  if (grown.ok()) {
    room_ = wanted;
    return grown;
  }
  limit_ = std::min(limit_, EndpointsFor(room_));
  while (order_.size() >= limit_) Evict(now);
  return grown;
}

void RdmaNic::NoteOutcome(uint32_t index, const std::string& remote, const absl::Status& outcome,
                          Time now) {
  const std::lock_guard lock(store_mutex_);
  if (outcome.ok()) return breakers_.Connected(remote, now);
  Slot& slot = slots_[index];
  slot.word.store(Word(kUnused, slot.id()), std::memory_order_relaxed);
  if (IsOfTheProcess(outcome)) {
    breakers_.Withdraw(remote);
  } else {
    breakers_.Failed(remote, now, std::string(outcome.message()));
  }
}

void RdmaNic::Approach(const TargetInfo& target, size_t remote_nic) {
  if (!CheckTarget(target, remote_nic).ok()) return;
  const std::string& remote = target.nics[remote_nic].connection;
  {
    const std::lock_guard lock(store_mutex_);
    Sweep(Clock::now());
    if (Works(remote) || !approached_.try_emplace(remote).second) return;
  }
  std::optional<Acknowledgement> acknowledgement;
  absl::StatusOr<Connection> outcome = Establish(remote, &acknowledgement);
  const std::lock_guard lock(store_mutex_);
  if (acknowledgement.has_value()) unacknowledged_.push_back(*std::move(acknowledgement));
  Approached& approached = approached_[remote];
  approached.outcome = std::move(outcome);
  approached.under_way = false;
  approached.at = Clock::now();
  approach_ended_.notify_all();
}

// Requests flow without the acknowledgement: a target can receive before it answers. A connection
// ends here only where the target says that it has none such.
void RdmaNic::Settle() {
  std::vector<Acknowledgement> left;
  {
    const std::lock_guard lock(store_mutex_);
    left.swap(unacknowledged_);
  }
  for (const Acknowledgement& each : left) {
    const absl::Status told = Acknowledge(each);
    if (absl::IsFailedPrecondition(told)) EndRefused(each.message.qp_numbers.front());
  }
  EndOld();
}

// One that nobody has come for yet shows it in its first request, as the others do.
void RdmaNic::EndRefused(uint32_t queue_pair) {
  const auto is_it = [queue_pair](const QueuePairs& queue_pairs) {
    return !queue_pairs.empty() && queue_pairs.front()->number() == queue_pair;
  };
  const std::lock_guard lock(store_mutex_);
  for (uint32_t i = 1; i < slots_.size(); ++i) {
    if (is_it(slots_[i].queue_pairs)) EndSlot(i, kRefused);
  }
  for (auto& [remote, approached] : approached_) {
    if (approached.under_way || !approached.outcome.ok()) continue;
    if (is_it(approached.outcome->queue_pairs)) approached.outcome->queue_pairs.front()->Fail();
  }
}

std::optional<absl::StatusOr<RdmaNic::Connection>> RdmaNic::TakeApproached(
    const std::string& remote) {
  std::unique_lock lock(store_mutex_);
  const auto under_way = [&] {
    const auto found = approached_.find(remote);
    return found != approached_.end() && found->second.under_way;
  };
  approach_ended_.wait(lock, [&] { return !under_way(); });
  auto taken = approached_.extract(remote);
  if (taken.empty()) return std::nullopt;
  return std::move(taken.mapped().outcome);
}

bool RdmaNic::Works(const std::string& remote) const {
  return std::any_of(slots_.begin() + 1, slots_.end(), [&](const Slot& slot) {
    return slot.stage() == kLive && slot.remote == remote &&
           slot.first_error.load(std::memory_order_relaxed) == IBV_WC_SUCCESS;
  });
}

// What was approached before, and nobody has come for.
void RdmaNic::Forsake(Time before) {
  for (auto entry = approached_.begin(); entry != approached_.end();) {
    Approached& approached = entry->second;
    if (approached.under_way || approached.at >= before) {
      ++entry;
      continue;
    }
    if (approached.outcome.ok()) {
      Slot& slot = slots_[approached.outcome->slot];
      slot.word.store(Word(kUnused, slot.id()), std::memory_order_relaxed);
      old_.push_back(std::move(approached.outcome->queue_pairs));
    }
    entry = approached_.erase(entry);
  }
}

EndpointId RdmaNic::Publish(Connection made, const std::string& remote, Time now) {
  const std::lock_guard lock(store_mutex_);
  const uint32_t index = made.slot;
  Sweep(now);
  // Not before: a target that is not reached costs nobody his connection.
  while (order_.size() >= limit_) Evict(now);
  Slot& slot = slots_[index];
  if (slot.requests.empty()) MakeRings(index);
  slot.queue_pairs = std::move(made.queue_pairs);
  slot.remote = remote;
  slot.connected_at = now;
  slot.judged = false;
  slot.why.store(nullptr, std::memory_order_relaxed);
  slot.disconnected.store(false, std::memory_order_relaxed);
  slot.visited.store(false, std::memory_order_relaxed);
  slot.refused.store(Slot::kNever, std::memory_order_relaxed);
  slot.first_error.store(IBV_WC_SUCCESS, std::memory_order_relaxed);
  const EndpointId id = (slot.id() == 0 ? index : slot.id()) + (1u << kIndexBits);
  slot.word.store(Word(kLive, id), std::memory_order_release);
  order_.Add(index);
  if (slot.port_changes != device_->port_changes()) EndSlot(index, kPortChanged);
  return id;
}

// Its queue pairs end in a later Sweep, when all that was posted has completed.
void RdmaNic::Evict(Time now) {
  const uint32_t index = order_.Evict([this](uint32_t place) {
    return slots_[place].visited.exchange(false, std::memory_order_relaxed);
  });
  Slot& slot = slots_[index];
  slot.why.store(kEvicted, std::memory_order_relaxed);
  slot.drain_until = now + kDrainTime;
  uint64_t live = Word(kLive, slot.id());
  slot.word.compare_exchange_strong(live, Word(kDraining, slot.id()), std::memory_order_acq_rel);
}

// Ended by the NIC: its owner hears of it by the first request that fails.
void RdmaNic::EndSlot(uint32_t index, const char* why) {
  Slot& slot = slots_[index];
  if (!End(slot, slot.id())) return;
  slot.why.store(why, std::memory_order_relaxed);
  slot.judged = true;
}

// --- Upkeep.

void RdmaNic::Tend(Time now) {
  // A port that is down is looked at each time: the event that it is back may have been lost.
  bool port_told = !device_->usable().ok();
  while (const std::optional<RdmaEvent> event = device_->TakeEvent()) {
    switch (event->kind) {
      case RdmaEvent::Kind::kPort:
        port_told = true;
        break;
      case RdmaEvent::Kind::kDevice:
        device_->Break(event->text);
        break;
      case RdmaEvent::Kind::kCompletionQueue:
        if (event->completions == queue_->get()) device_->Break(event->text);
        break;
      case RdmaEvent::Kind::kQueuePair:
        EndQueuePair(*event);
        break;
      case RdmaEvent::Kind::kOther:
        break;
    }
  }
  if (port_told) device_->ReadPortAnew();
  const std::lock_guard lock(store_mutex_);
  FollowPort();
  Forsake(now - kApproachTime);
  Sweep(now);
  breakers_.Prune(now);
}

void RdmaNic::EndOld() {
  std::vector<QueuePairs> old;  // they end outside the lock
  const std::lock_guard lock(store_mutex_);
  old.swap(old_);
}

// One that is not found belongs to a target of this process: its initiator sees the error himself.
void RdmaNic::EndQueuePair(const RdmaEvent& event) {
  const std::lock_guard lock(store_mutex_);
  for (uint32_t i = 1; i < slots_.size(); ++i) {
    const QueuePairs& queue_pairs = slots_[i].queue_pairs;
    const bool is_it = std::any_of(queue_pairs.begin(), queue_pairs.end(), [&](const auto& pair) {
      return pair->number() == event.queue_pair;
    });
    if (!is_it) continue;
    const std::string path = fmt::format("{} -> {}", name(), slots_[i].remote);
    LogRarely(LogLevel::kWarning, path, fmt::format("RDMA NIC {}: {}", path, event.text));
    EndSlot(i, event.text);
  }
}

// Connections of before a change do not work any more, or not from the address they were made with.
void RdmaNic::FollowPort() {
  const uint64_t changes = device_->port_changes();
  if (changes == port_changes_) return;
  port_changes_ = changes;
  for (uint32_t i = 1; i < slots_.size(); ++i) {
    if (slots_[i].port_changes != changes) EndSlot(i, kPortChanged);
  }
  const absl::Status usable = device_->usable();
  if (usable.ok()) breakers_.Clear();
  const std::string news = usable.ok()
                               ? fmt::format("is used again, with GID {} (index {})",
                                             FormatGid(device_->gid().gid), device_->gid().index)
                               : fmt::format("is not used for now, its connections end: {}",
                                             std::string(usable.message()));
  LogRarely(LogLevel::kWarning, fmt::format("{} {}", name(), usable.ok()),
            fmt::format("RDMA NIC {} {}", name(), news));
}

void RdmaNic::Sweep(Time now) {
  for (uint32_t i = 1; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.stage() < kLive) continue;
    Judge(slot, now);
    const bool drained = slot.Idle() || now >= slot.drain_until;
    if (slot.stage() == kDraining && drained) End(slot, slot.id());
    if (slot.stage() >= kClosing && order_.Holds(i)) order_.Remove(i);
    if (Reclaim(slot)) old_.push_back(std::exchange(slot.queue_pairs, {}));
  }
}

void RdmaNic::Judge(Slot& slot, Time now) {
  const int error = slot.first_error.load(std::memory_order_relaxed);
  if (slot.judged || error == IBV_WC_SUCCESS) return;
  slot.judged = true;
  if (!IsOfThePath(error)) return;
  breakers_.Broke(slot.remote, slot.connected_at, now,
                  device_->verbs().wc_status_str(static_cast<ibv_wc_status>(error)));
}

// True: nothing uses the slot any more. A poster that has begun a chain may have found it before it
// was left; one that begins later does not find it (both fence between their store and their load).
bool RdmaNic::Reclaim(Slot& slot) {
  const EndpointId id = slot.id();
  if (slot.stage() == kClosed && slot.Idle()) {
    slot.word.store(Word(kLeft, id), std::memory_order_relaxed);
    FullFence();
    slot.left_at = chain_.load(std::memory_order_acquire);
  }
  if (slot.stage() != kLeft) return false;
  const bool same_chain =
      slot.left_at % 2 == 1 && chain_.load(std::memory_order_acquire) == slot.left_at;
  if (same_chain || !slot.Idle()) return false;
  slot.word.store(Word(kUnused, id), std::memory_order_relaxed);
  return true;
}

}  // namespace railhop
