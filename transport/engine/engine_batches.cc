#include "transport/engine/engine_batches.h"

#include <pthread.h>

#include <algorithm>
#include <utility>

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
      batch.handle = MakeHandle(index, batch.generation);
      return batch.handle;
    }
  } while (Grow());
  return kNoBatch;
}

EngineError EngineBatches::Submit(BatchHandle handle, std::span<const TransferRequest> requests,
                                  milliseconds deadline, const SourceFence& fence,
                                  bool wait_follows, steady_clock::time_point since) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  if (requests.size() > batch->capacity - batch->tasks) return EngineError::kTooManyRequests;
  if (requests.empty()) return EngineError::kOk;
  Submission submission{.id = {}, .first_task = batch->tasks, .at = steady_clock::now()};
  const SubmitOptions options{.timeout = deadline,
                              .since = since,
                              .fence = fence,
                              .listener = batch->callback == nullptr ? nullptr : this,
                              .cookie = handle,
                              .wait_follows = wait_follows};
  switch (data_path_.SubmitWith(requests, options, &submission.id)) {
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
  batch->untold = batch->timeout_untold = true;
  batch->submissions.push_back(submission);
  return EngineError::kOk;
}

TransferState EngineBatches::StateOf(const Submission& submission,
                                     const railhop::BatchStatus& whole) const {
  const bool late = whole.state == BatchState::kPending && slice_timeout_.count() != 0 &&
                    steady_clock::now() - submission.at > slice_timeout_;
  return late ? TransferState::kTimeout : EndedAs(whole.state);
}

// The state of the whole was read first: what is left then of a task of an ended submission stays.
TransferStatus EngineBatches::Ask(const Submission& submission, const railhop::BatchStatus& whole,
                                  size_t task) const {
  const RequestProgress progress = data_path_.Progress(submission.id, task - submission.first_task);
  if (progress.left == 0) {
    return {.state = TransferState::kCompleted, .transferred_bytes = progress.moved};
  }
  return {.state = StateOf(submission, whole),
          .transferred_bytes = progress.moved,
          .error = whole.error};
}

const EngineBatches::Submission& EngineBatches::SubmissionOf(const Batch& batch, size_t task) {
  const auto after = std::upper_bound(
      batch.submissions.begin(), batch.submissions.end(), task,
      [](size_t wanted, const Submission& submission) { return wanted < submission.first_task; });
  return *(after - 1);
}

void EngineBatches::See(Batch& batch, size_t task) {
  if (batch.seen[task]) return;
  batch.seen[task] = true;
  --batch.unseen;
}

EngineError EngineBatches::TaskStatus(BatchHandle handle, size_t task, TransferStatus* status) {
  const Locked batch(*this, handle);
  if (!batch || task >= batch->tasks) return EngineError::kInvalidArgument;
  const Submission& submission = SubmissionOf(*batch, task);
  *status = Ask(submission, data_path_.Status(submission.id), task);
  if (HasEnded(status->state)) See(*batch, task);
  return EngineError::kOk;
}

TransferStatus EngineBatches::SeeWhole(Batch& batch) const {
  TransferStatus status{.state = TransferState::kCompleted, .transferred_bytes = 0};
  for (const Submission& submission : batch.submissions) {
    const railhop::BatchStatus whole = data_path_.Status(submission.id);
    status.state = Worse(status.state, StateOf(submission, whole));
    status.transferred_bytes += whole.bytes;
    if (status.error == TransferError::kNone) status.error = whole.error;
  }
  if (HasEnded(status.state)) {
    std::fill(batch.seen.begin(), batch.seen.end(), true);
    batch.unseen = 0;
  }
  return status;
}

EngineError EngineBatches::WholeStatus(BatchHandle handle, TransferStatus* status) {
  const Locked batch(*this, handle);
  if (!batch) return EngineError::kInvalidArgument;
  *status = SeeWhole(*batch);
  return EngineError::kOk;
}

std::optional<EngineBatches::Failure> EngineBatches::FirstFailure(BatchHandle handle,
                                                                  size_t task) const {
  const Locked batch(*this, handle);
  if (!batch) return {};
  for (; task < batch->tasks; ++task) {
    const Submission& submission = SubmissionOf(*batch, task);
    const size_t request = task - submission.first_task;
    if (data_path_.Progress(submission.id, request).left == 0) continue;
    return Failure{.task = task,
                   .request = data_path_.Request(submission.id, request),
                   .trouble = batch->trouble};
  }
  return {};
}

void EngineBatches::NoteTrouble(BatchHandle handle, std::string trouble) {
  const Locked batch(*this, handle);
  if (batch) batch->trouble = std::move(trouble);
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
  batch->trouble.clear();
  batch->callback = nullptr;
  batch->untold = false;
  if (++batch->generation == 0) batch->generation = 1;
  batch->in_use.store(false, std::memory_order_release);
  return EngineError::kOk;
}

// --- Callbacks

EngineError EngineBatches::SetCallback(BatchHandle handle, BatchCallback callback) {
  {
    const Locked batch(*this, handle);
    if (!batch || batch->tasks != 0 || callback == nullptr) return EngineError::kInvalidArgument;
    batch->callback = std::make_shared<const BatchCallback>(std::move(callback));
  }
  const std::lock_guard lock(thread_mutex_);
  if (!stop_.load(std::memory_order_relaxed) && !thread_.joinable()) {
    thread_ = std::thread(&EngineBatches::RunCallbacks, this);
  }
  return EngineError::kOk;
}

void EngineBatches::StopCallbacks() {
  stop_.store(true, std::memory_order_release);
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_one();
  std::thread thread;
  {
    // Not held while joining: a callback that is running may set another one.
    const std::lock_guard lock(thread_mutex_);
    thread = std::move(thread_);
  }
  if (!thread.joinable()) return;
  if (thread.get_id() == std::this_thread::get_id()) {
    // A callback that destroys its engine: nothing of it is touched once that returns.
    *left_alone_ = true;
    thread.detach();
  } else {
    thread.join();
  }
}

// A thread of the data path: hands the batch over and is gone. One that is in the list already will
// be looked at after this change, too: its mark is taken off before that.
void EngineBatches::OnBatchState(uint64_t cookie) {
  Batch& batch = *At(static_cast<uint32_t>(cookie));
  if (batch.listed.exchange(true, std::memory_order_acq_rel)) return;
  batch.next_changed = changed_.load(std::memory_order_relaxed);
  while (!changed_.compare_exchange_weak(batch.next_changed, &batch, std::memory_order_release,
                                         std::memory_order_relaxed)) {
  }
  changes_.fetch_add(1, std::memory_order_release);
  changes_.notify_one();
}

void EngineBatches::RunCallbacks() {
  pthread_setname_np(pthread_self(), "callbacks");
  bool left_alone = false;
  left_alone_ = &left_alone;
  while (true) {
    const uint32_t seen = changes_.load(std::memory_order_acquire);
    Batch* changed = changed_.exchange(nullptr, std::memory_order_acquire);
    Batch* oldest = nullptr;  // the list turned round
    while (changed != nullptr) {
      Batch* const next = std::exchange(changed->next_changed, oldest);
      oldest = std::exchange(changed, next);
    }
    const bool idle = oldest == nullptr;
    while (oldest != nullptr && !stop_.load(std::memory_order_acquire)) {
      Batch& batch = *std::exchange(oldest, oldest->next_changed);
      batch.listed.exchange(false, std::memory_order_acq_rel);
      TellCallback(batch);
      if (left_alone) return;
    }
    if (stop_.load(std::memory_order_acquire)) return;
    if (idle) changes_.wait(seen, std::memory_order_acquire);
  }
}

void EngineBatches::TellCallback(Batch& batch) const {
  std::shared_ptr<const BatchCallback> callback;
  BatchHandle handle = kNoBatch;
  TransferStatus status;
  {
    const std::lock_guard lock(batch.mutex);
    if (batch.callback == nullptr || !batch.untold) return;
    status = SeeWhole(batch);
    if (status.state == TransferState::kWaiting) return;
    bool& untold = HasEnded(status.state) ? batch.untold : batch.timeout_untold;
    if (!std::exchange(untold, false)) return;
    callback = batch.callback;
    handle = batch.handle;
  }
  (*callback)(handle, status);
}

}  // namespace railhop
