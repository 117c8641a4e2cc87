#include "transport/engine/engine_batches.h"

#include <algorithm>

namespace railhop {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Every byte of a submission is known to be there an instant before its state says so.
constexpr milliseconds kSettles{1000};

BatchHandle MakeHandle(size_t index, uint32_t generation) {
  return BatchHandle{generation} << 32 | index;
}

TransferState EndedAs(BatchState state) {
  switch (state) {
    case BatchState::kPending:
      return TransferState::kWaiting;
    case BatchState::kTimeout:
      return TransferState::kTimeout;
    case BatchState::kCanceled:
      return TransferState::kCanceled;
    case BatchState::kCompleted:
      return TransferState::kCompleted;
    case BatchState::kFailed:
      break;
  }
  return TransferState::kFailed;
}

// Of two states of parts of a batch, the one that tells more of the whole: what has not ended
// first, then what has gone wrong.
TransferState Worse(TransferState a, TransferState b) {
  constexpr TransferState kOrder[] = {TransferState::kWaiting, TransferState::kTimeout,
                                      TransferState::kFailed, TransferState::kCanceled};
  for (const TransferState state : kOrder) {
    if (a == state || b == state) return state;
  }
  return TransferState::kCompleted;
}

}  // namespace

class EngineBatches::Locked {
 public:
  Locked(const EngineBatches& batches, BatchHandle handle)
      : batch_(batches.At(static_cast<uint32_t>(handle))) {
    if (batch_ == nullptr) return;
    lock_ = std::unique_lock(batch_->mutex);
    const bool ours = batch_->in_use.load(std::memory_order_acquire) &&
                      batch_->generation == static_cast<uint32_t>(handle >> 32);
    if (!ours) batch_ = nullptr;
  }
  explicit operator bool() const { return batch_ != nullptr; }
  Batch* operator->() const { return batch_; }
  Batch& operator*() const { return *batch_; }

 private:
  Batch* batch_;
  std::unique_lock<std::mutex> lock_;
};

EngineBatches::Batch* EngineBatches::At(size_t index) const {
  if (index >= size_.load(std::memory_order_acquire)) return nullptr;
  return &chunks_[index / kChunk].load(std::memory_order_acquire)->batches[index % kChunk];
}

bool EngineBatches::Grow() {
  const std::lock_guard lock(grow_);
  const size_t size = size_.load(std::memory_order_relaxed);
  if (size == kMaxBatches) return false;
  owned_.push_back(std::make_unique<Chunk>());
  chunks_[size / kChunk].store(owned_.back().get(), std::memory_order_release);
  size_.store(size + kChunk, std::memory_order_release);
  return true;
}

// Each thread begins to look where it found one last, so that threads do not meet.
BatchHandle EngineBatches::Allocate(size_t capacity) {
  if (capacity > kMaxTasks) return kNoBatch;
  static std::atomic<size_t> threads{0};
  thread_local size_t next = threads.fetch_add(1, std::memory_order_relaxed) * 64;
  do {
    const size_t size = size_.load(std::memory_order_acquire);
    for (size_t i = 0; i < size; ++i) {
      const size_t index = (next + i) % size;
      Batch& batch = *At(index);
      if (batch.in_use.load(std::memory_order_relaxed) ||
          batch.in_use.exchange(true, std::memory_order_acq_rel)) {
        continue;
      }
      next = index;
      const std::lock_guard lock(batch.mutex);
      batch.capacity = capacity;
      return MakeHandle(index, batch.generation);
    }
  } while (Grow());
  return kNoBatch;
}

EngineError EngineBatches::Submit(BatchHandle handle, std::span<const TransferRequest> requests,
                                  milliseconds deadline) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  if (requests.size() > batch->capacity - batch->tasks) return EngineError::kTooManyRequests;
  if (requests.empty()) return EngineError::kOk;
  Submission submission{.id = {}, .first_task = batch->tasks};
  switch (data_path_.Submit(requests, deadline, &submission.id)) {
    case SubmitResult::kOk:
      break;
    case SubmitResult::kTryAgain:
      return EngineError::kTooManyRequests;
    case SubmitResult::kInvalid:
      return EngineError::kInvalidArgument;
    case SubmitResult::kStopping:
      return EngineError::kContext;
  }
  batch->tasks += requests.size();
  batch->unseen += requests.size();
  batch->seen.resize(batch->tasks);
  batch->submissions.push_back(submission);
  return EngineError::kOk;
}

// The state of the whole was read first: what is left then of a task of an ended submission stays.
TransferStatus EngineBatches::Ask(const Submission& submission, const railhop::BatchStatus& whole,
                                  size_t task) const {
  const RequestProgress progress = data_path_.Progress(submission.id, task - submission.first_task);
  return {.state = progress.left == 0 ? TransferState::kCompleted : EndedAs(whole.state),
          .transferred_bytes = progress.moved};
}

void EngineBatches::See(Batch& batch, size_t task) {
  if (batch.seen[task]) return;
  batch.seen[task] = true;
  --batch.unseen;
}

EngineError EngineBatches::TaskStatus(BatchHandle handle, size_t task, TransferStatus* status) {
  const Locked batch(*this, handle);
  if (!batch || task >= batch->tasks) return EngineError::kInvalidArgument;
  const auto after = std::upper_bound(
      batch->submissions.begin(), batch->submissions.end(), task,
      [](size_t wanted, const Submission& submission) { return wanted < submission.first_task; });
  const Submission& submission = *(after - 1);
  *status = Ask(submission, data_path_.Status(submission.id), task);
  if (HasEnded(status->state)) See(*batch, task);
  return EngineError::kOk;
}

EngineError EngineBatches::WholeStatus(BatchHandle handle, TransferStatus* status) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  *status = {.state = TransferState::kCompleted, .transferred_bytes = 0};
  for (const Submission& submission : batch->submissions) {
    const railhop::BatchStatus whole = data_path_.Status(submission.id);
    status->state = Worse(status->state, EndedAs(whole.state));
    status->transferred_bytes += whole.bytes;
  }
  if (HasEnded(status->state)) {
    std::fill(batch->seen.begin(), batch->seen.end(), true);
    batch->unseen = 0;
  }
  return EngineError::kOk;
}

bool EngineBatches::Wait(BatchHandle handle, milliseconds timeout) {
  std::vector<BatchId> ids;
  {
    const Locked batch(*this, handle);
    if (!batch) return true;
    for (const Submission& submission : batch->submissions) ids.push_back(submission.id);
  }
  const auto until =
      steady_clock::now() + std::min<milliseconds>(timeout, std::chrono::hours(8760));
  for (const BatchId id : ids) {
    const auto left = std::chrono::ceil<milliseconds>(until - steady_clock::now());
    if (!data_path_.Wait(id, std::max(left, milliseconds(0)))) return false;
  }
  return true;
}

EngineError EngineBatches::Cancel(BatchHandle handle) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  for (const Submission& submission : batch->submissions) data_path_.Cancel(submission.id);
  return EngineError::kOk;
}

EngineError EngineBatches::Free(BatchHandle handle) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  if (batch->unseen != 0) return EngineError::kBatchBusy;
  while (!batch->submissions.empty()) {
    const BatchId id = batch->submissions.back().id;
    data_path_.Wait(id, kSettles);
    if (data_path_.Free(id) == FreeResult::kBusy) return EngineError::kBatchBusy;
    batch->submissions.pop_back();
  }
  batch->tasks = 0;
  batch->seen.clear();
  if (++batch->generation == 0) batch->generation = 1;
  batch->in_use.store(false, std::memory_order_release);
  return EngineError::kOk;
}

}  // namespace railhop
