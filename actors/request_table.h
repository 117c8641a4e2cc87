// The batches of a rank, from submission to free.
//
// Ownership walks: the application allocates a batch and fills it; sending its id to SubmitActor
// gives it away; SubmitActor publishes its state; once that is terminal the application may free
// it. Threads: Allocate, Read, Wait and Free from any application thread, without a lock; the
// private part is SubmitActor's alone. The table's memory lives as long as the rank, so a thread
// that frees a batch the instant it sees it completed takes nothing away from the one that
// completed it.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "transport/copy/fence.h"
#include "transport/engine/data_path.h"

namespace railhop {

struct Batch {
  // Filled by the application before it is submitted, then read-only.
  std::vector<TransferRequest> requests;
  uint64_t submitted = 0;             // cycles
  uint64_t deadline = 0;              // cycles
  BatchListener* listener = nullptr;  // nullptr: nobody is told of the end
  uint64_t cookie = 0;                // for the listener
  FenceTicket fence = {};             // of the source

  // Bytes of each request that are not known to be at the target. Set with `requests`; then
  // SubmitActor writes, any thread reads.
  std::vector<uint64_t> left;
  void NoteDone(size_t request, uint64_t count) {
    const std::atomic_ref<uint64_t> word(left[request]);
    word.store(word.load(std::memory_order_relaxed) - count, std::memory_order_release);
  }
  void SetRequests(std::span<const TransferRequest> all);

  // SubmitActor's.
  struct Progress {
    size_t next_request = 0;    // first request not fully routed
    uint64_t next_offset = 0;   // bytes of it already routed
    uint64_t known_bytes = 0;   // of the batch, counted no further than min_relay_bytes asks
    uint64_t bytes_moving = 0;  // routed and not ended yet
    uint64_t bytes_done = 0;    // at the target
    uint64_t bytes_relayed = 0;
    TransferError error = TransferError::kNone;  // the first one
    // != kNone after deadline, cancel or stop: nothing new is started, and this ends what is not.
    TransferError abandoned = TransferError::kNone;
    // Links in SubmitActor's list of batches to route.
    uint32_t next_active = UINT32_MAX;
    uint32_t previous_active = UINT32_MAX;
  } progress;

  // Published by SubmitActor. `state` is a futex word: generation << 8 | BatchState, so that who
  // waits for one batch does not fall asleep on the next one in its place.
  std::atomic<uint32_t> state{0};
  std::atomic<int32_t> error{0};
  std::atomic<uint64_t> bytes{0};
  std::atomic<uint64_t> relayed_bytes{0};

  // The table's.
  std::atomic<uint32_t> waiters{0};
  std::atomic<uint32_t> generation{0};  // odd while the batch is in use, and part of its id
  std::atomic<uint32_t> next_free{0};
};

class RequestTable {
 public:
  explicit RequestTable(uint32_t capacity);

  uint32_t capacity() const { return capacity_; }

  // An invalid id when all batches are in use.
  BatchId Allocate();
  // nullptr for an id that is stale or was never given out.
  Batch* Find(BatchId id) const;
  Batch& at(uint32_t index) const { return batches_[index]; }
  // Of the batch in use there.
  BatchId IdOf(uint32_t index) const;

  BatchStatus Read(BatchId id) const;  // a stale id reads as failed, kInvalidRequest
  // A stale id, or a request that there is not, has nothing moved and everything left.
  RequestProgress Progress(BatchId id, size_t request) const;
  bool IsPending(BatchId id) const;
  // True once the batch is no longer pending, or the id is stale.
  bool Wait(BatchId id, std::chrono::milliseconds timeout) const;
  FreeResult Free(BatchId id);
  // Gives back a batch that was allocated and never sent.
  void Discard(BatchId id);

  // SubmitActor: publishes progress.bytes_*, the error and the state.
  static void Publish(Batch& batch, BatchState state);
  // SubmitActor, after Publish: wakes who waits. Only after a full fence is "nobody" a promise that
  // whoever begins to wait sees the state.
  static bool WakeWaiters(Batch& batch);

 private:
  void PushFree(uint32_t index);

  const uint32_t capacity_;
  const std::unique_ptr<Batch[]> batches_;
  // Top of the list of free batches: tag << 32 | index + 1. The tag keeps an exchange from
  // succeeding on a list that was popped and pushed meanwhile.
  std::atomic<uint64_t> free_{0};
};

// Whether nothing of a batch in this state can land any more.
constexpr bool IsQuiescent(BatchState state) {
  return state == BatchState::kCompleted || state == BatchState::kFailed ||
         state == BatchState::kCanceled;
}

}  // namespace railhop
