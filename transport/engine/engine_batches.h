// The batches of the Transfer Engine API, on top of the data path's.
//
// A batch here takes tasks in several submissions; each submission is one batch of the data path,
// and its requests are the tasks. The data path counts the bytes left of every request, so a task
// is complete as soon as its own bytes are there, and has failed only once nothing of its
// submission can land any more.
//
// Threads: any. No lock is shared between batches; a batch has one of its own. Callbacks run on one
// thread ("callbacks"), which the first of them starts.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "transport/engine/data_path.h"
#include "transport/engine/engine_error.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class EngineBatches final : private BatchListener {
 public:
  static constexpr size_t kMaxBatches = size_t{1} << 16;  // from allocation to free
  static constexpr size_t kMaxTasks = size_t{1} << 24;    // of one batch

  // `slice_timeout`: what has not ended so long after its submission shows kTimeout; 0: only what
  // the data path says.
  explicit EngineBatches(DataPath* data_path,
                         std::chrono::nanoseconds slice_timeout = std::chrono::nanoseconds(0))
      : data_path_(*data_path), slice_timeout_(slice_timeout) {}
  ~EngineBatches() { StopCallbacks(); }

  // kNoBatch: too many are in use, or `capacity` is above kMaxTasks.
  BatchHandle Allocate(size_t capacity);
  EngineError Submit(BatchHandle handle, std::span<const TransferRequest> requests,
                     std::chrono::milliseconds deadline, const SourceFence& fence = {},
                     bool wait_follows = false, std::chrono::steady_clock::time_point since = {});
  EngineError TaskStatus(BatchHandle handle, size_t task, TransferStatus* status);
  EngineError WholeStatus(BatchHandle handle, TransferStatus* status);
  // What the first task from `task` on that is not complete was asked to do, and NoteTrouble's
  // text; empty if there is none. For tasks that a status call has told of.
  struct Failure {
    size_t task = 0;
    TransferRequest request;
    std::string trouble;
  };
  std::optional<Failure> FirstFailure(BatchHandle handle, size_t task) const;
  // Why a target of the batch could not be opened, so that its tasks fail.
  void NoteTrouble(BatchHandle handle, std::string trouble);
  bool Wait(BatchHandle handle, std::chrono::milliseconds timeout);
  EngineError Cancel(BatchHandle handle);
  EngineError Free(BatchHandle handle);
  // TransferEngine::SetCallback.
  EngineError SetCallback(BatchHandle handle, BatchCallback callback);
  // Waits for a callback that is running, unless it is called from that one; none is called
  // afterwards. The data path may go on telling of batches until it is destroyed, so it must be
  // before this object is.
  void StopCallbacks();

 private:
  struct Submission {
    BatchId id;
    size_t first_task = 0;
    std::chrono::steady_clock::time_point at;
  };
  struct Batch {
    std::atomic<bool> in_use{false};
    std::mutex mutex;
    uint32_t generation = 1;  // under the mutex, as the rest
    size_t capacity = 0;
    size_t tasks = 0;
    std::vector<Submission> submissions;
    std::vector<bool> seen;  // tasks whose end was told
    size_t unseen = 0;
    std::string trouble;  // NoteTrouble's
    std::shared_ptr<const BatchCallback> callback;
    BatchHandle handle = kNoBatch;
    bool untold = false;          // something was submitted, and the callback does not know its end
    bool timeout_untold = false;  // nor that it is late

    // Link in the list of changed batches; `listed` says whether it is in it.
    std::atomic<bool> listed{false};
    Batch* next_changed = nullptr;
  };
  static constexpr size_t kChunk = 1024;
  struct Chunk {
    std::array<Batch, kChunk> batches;
  };
  // A batch, locked; empty if the handle is stale or was never given out.
  class Locked;

  Batch* At(size_t index) const;
  static const Submission& SubmissionOf(const Batch& batch, size_t task);
  bool Grow();
  TransferState StateOf(const Submission& submission, const railhop::BatchStatus& whole) const;
  TransferStatus Ask(const Submission& submission, const railhop::BatchStatus& whole,
                     size_t task) const;
  static void See(Batch& batch, size_t task);
  TransferStatus SeeWhole(Batch& batch) const;

  void OnBatchState(uint64_t cookie) override;
  void RunCallbacks();
  void TellCallback(Batch& batch) const;

  DataPath& data_path_;
  const std::chrono::nanoseconds slice_timeout_;
  std::array<std::atomic<Chunk*>, kMaxBatches / kChunk> chunks_{};
  std::vector<std::unique_ptr<Chunk>> owned_;  // under grow_
  std::mutex grow_;
  std::atomic<size_t> size_{0};

  std::atomic<Batch*> changed_{nullptr};  // batches whose state has changed, the latest first
  std::atomic<uint32_t> changes_{0};      // counts them; the thread waits for it
  std::atomic<bool> stop_{false};
  bool* left_alone_ = nullptr;  // of the thread: this object may be gone
  std::mutex thread_mutex_;
  std::thread thread_;  // under thread_mutex_; none until there is a callback
};

}  // namespace railhop
