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

struct BatchRequest : TransferRequest {
  // Bytes that are not known to be at the target. SubmitActor writes, any thread reads.
  uint64_t left = 0;
};

// By cache lines: what the submission fills in, what SubmitActor adds up, what is published.
// Batches of one request are the most frequent, and dozens of them are under way while megabytes of
// payload pass through the cache.
struct alignas(64) Batch {
  // Filled by the application before it is submitted, then read-only but for `left`.
  std::vector<BatchRequest> requests;
  uint64_t deadline = 0;   // cycles
  FenceTicket fence = {};  // of the source

  void SetRequests(std::span<const TransferRequest> all) {
    requests.clear();
    requests.reserve(all.size());
    for (const TransferRequest& request : all) requests.push_back({request, request.length});
  }
  void NoteDone(size_t request, uint64_t count) {
    const std::atomic_ref<uint64_t> word(requests[request].left);
    word.store(word.load(std::memory_order_relaxed) - count, std::memory_order_release);
  }

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

  // The application's, as above: for the end.
  BatchListener* listener = nullptr;  // nullptr: nobody is told of it
  uint64_t cookie = 0;                // for the listener
  uint64_t submitted = 0;             // cycles
};
static_assert(sizeof(Batch) == 3 * 64);

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
  // An empty one if there is none.
  TransferRequest Request(BatchId id, size_t request) const;
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
