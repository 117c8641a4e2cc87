#include "actors/request_table.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <ctime>

#include "runtime/fence.h"

namespace railhop {
namespace {

// Requests of a batch larger than this are not kept for its next user.
constexpr size_t kKeptRequests = 4096;

// What the clock can add up; nobody tells a longer wait from one for ever.
constexpr std::chrono::milliseconds kLongestWait = std::chrono::hours(24 * 365);

void FutexWait(const std::atomic<uint32_t>& word, uint32_t expected,
               std::chrono::nanoseconds timeout) {
  const timespec limit{timeout.count() / 1'000'000'000, timeout.count() % 1'000'000'000};
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, &limit, nullptr, 0);
}

void FutexWakeAll(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

uint32_t StateWord(uint32_t generation, BatchState state) {
  return generation << 8 | static_cast<uint32_t>(state);
}
BatchState StateOf(uint32_t word) {
  return static_cast<BatchState>(word & 0xff);
}

uint32_t IndexOf(BatchId id) {
  return static_cast<uint32_t>(id.value);
}
uint32_t GenerationOf(BatchId id) {
  return static_cast<uint32_t>(id.value >> 32);
}
BatchId MakeId(uint32_t generation, uint32_t index) {
  return {uint64_t{generation} << 32 | index};
}

}  // namespace

RequestTable::RequestTable(uint32_t capacity)
    : capacity_(capacity), batches_(std::make_unique<Batch[]>(capacity)) {
  for (uint32_t i = capacity; i-- > 0;) PushFree(i);
}

BatchId RequestTable::IdOf(uint32_t index) const {
  return MakeId(batches_[index].generation.load(std::memory_order_acquire), index);
}

void RequestTable::PushFree(uint32_t index) {
  uint64_t top = free_.load(std::memory_order_relaxed);
  uint64_t pushed;
  do {
    batches_[index].next_free.store(static_cast<uint32_t>(top), std::memory_order_relaxed);
    pushed = ((top >> 32) + 1) << 32 | (index + 1);
  } while (!free_.compare_exchange_weak(top, pushed, std::memory_order_release,
                                        std::memory_order_relaxed));
}

BatchId RequestTable::Allocate() {
  uint64_t top = free_.load(std::memory_order_acquire);
  uint64_t popped;
  do {
    if (static_cast<uint32_t>(top) == 0) return {};
    const Batch& batch = batches_[static_cast<uint32_t>(top) - 1];
    popped = ((top >> 32) + 1) << 32 | batch.next_free.load(std::memory_order_relaxed);
  } while (!free_.compare_exchange_weak(top, popped, std::memory_order_acquire,
                                        std::memory_order_acquire));
  const uint32_t index = static_cast<uint32_t>(top) - 1;
  Batch& batch = batches_[index];
  batch.progress = {};
  batch.fence = {};
  // Releases, here and in Publish: a reader of the batch before that sees one of these values finds
  // the generation changed when it looks again.
  batch.error.store(0, std::memory_order_release);
  batch.bytes.store(0, std::memory_order_release);
  batch.relayed_bytes.store(0, std::memory_order_release);
  const uint32_t generation = batch.generation.load(std::memory_order_relaxed) + 1;
  batch.state.store(StateWord(generation, BatchState::kPending), std::memory_order_release);
  batch.generation.store(generation, std::memory_order_release);
  return MakeId(generation, index);
}

Batch* RequestTable::Find(BatchId id) const {
  if (IndexOf(id) >= capacity_ || GenerationOf(id) % 2 == 0) return nullptr;
  Batch& batch = batches_[IndexOf(id)];
  return batch.generation.load(std::memory_order_acquire) == GenerationOf(id) ? &batch : nullptr;
}

BatchStatus RequestTable::Read(BatchId id) const {
  BatchStatus status{.state = BatchState::kFailed, .error = TransferError::kInvalidRequest};
  const Batch* batch = Find(id);
  if (batch == nullptr) return status;
  // All acquire, so that the second look at the generation comes after them.
  const BatchState state = StateOf(batch->state.load(std::memory_order_acquire));
  const int32_t error = batch->error.load(std::memory_order_acquire);
  const uint64_t bytes = batch->bytes.load(std::memory_order_acquire);
  const uint64_t relayed_bytes = batch->relayed_bytes.load(std::memory_order_acquire);
  // Freed and given to somebody else while it was read: what was read means nothing.
  if (batch->generation.load(std::memory_order_relaxed) != GenerationOf(id)) return status;
  status.state = state;
  status.error = static_cast<TransferError>(error);
  status.bytes = bytes;
  status.relayed_bytes = relayed_bytes;
  return status;
}

RequestProgress RequestTable::Progress(BatchId id, size_t request) const {
  Batch* batch = Find(id);
  if (batch == nullptr || request >= batch->requests.size())
    return {.moved = 0, .left = UINT64_MAX};
  const uint64_t left =
      std::atomic_ref<uint64_t>(batch->requests[request].left).load(std::memory_order_acquire);
  return {.moved = batch->requests[request].length - left, .left = left};
}

TransferRequest RequestTable::Request(BatchId id, size_t request) const {
  const Batch* batch = Find(id);
  if (batch == nullptr || request >= batch->requests.size()) return {};
  return batch->requests[request];
}

bool RequestTable::IsPending(BatchId id) const {
  const Batch* batch = Find(id);
  return batch != nullptr && batch->state.load(std::memory_order_acquire) ==
                                 StateWord(GenerationOf(id), BatchState::kPending);
}

bool RequestTable::Wait(BatchId id, std::chrono::milliseconds timeout) const {
  Batch* batch = Find(id);
  if (batch == nullptr) return true;
  const auto until = std::chrono::steady_clock::now() + std::min(timeout, kLongestWait);
  const uint32_t pending = StateWord(GenerationOf(id), BatchState::kPending);
  while (batch->state.load(std::memory_order_acquire) == pending) {
    const auto left = until - std::chrono::steady_clock::now();
    if (left <= std::chrono::nanoseconds(0)) return false;
    batch->waiters.fetch_add(1, std::memory_order_seq_cst);
    FullFence();
    FutexWait(batch->state, pending, left);
    batch->waiters.fetch_sub(1, std::memory_order_relaxed);
  }
  return true;
}

FreeResult RequestTable::Free(BatchId id) {
  Batch* batch = Find(id);
  if (batch == nullptr) return FreeResult::kUnknown;
  if (!IsQuiescent(StateOf(batch->state.load(std::memory_order_acquire)))) {
    return FreeResult::kBusy;
  }
  // Of several threads that free the same id one wins.
  uint32_t generation = GenerationOf(id);
  if (!batch->generation.compare_exchange_strong(generation, generation + 1,
                                                 std::memory_order_acq_rel)) {
    return FreeResult::kUnknown;
  }
  batch->requests.clear();
  if (batch->requests.capacity() > kKeptRequests) {
    batch->requests.shrink_to_fit();
  }
  PushFree(IndexOf(id));
  return FreeResult::kOk;
}

void RequestTable::Discard(BatchId id) {
  Publish(*Find(id), BatchState::kCanceled);
  Free(id);
}

void RequestTable::Publish(Batch& batch, BatchState state) {
  batch.error.store(static_cast<int32_t>(batch.progress.error), std::memory_order_release);
  batch.bytes.store(batch.progress.bytes_done, std::memory_order_release);
  batch.relayed_bytes.store(batch.progress.bytes_relayed, std::memory_order_release);
  const uint32_t generation = batch.generation.load(std::memory_order_relaxed);
  batch.state.store(StateWord(generation, state), std::memory_order_release);
}

// The application may have freed the batch; `waiters` stays readable, the table owns it.
bool RequestTable::WakeWaiters(Batch& batch) {
  if (batch.waiters.load(std::memory_order_relaxed) == 0) return false;
  FutexWakeAll(batch.state);
  return true;
}

}  // namespace railhop
