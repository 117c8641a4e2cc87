// The batches of the Transfer Engine API, on top of the data path's.
//
// A batch here takes tasks in several submissions; each submission is one batch of the data path,
// and its requests are the tasks. The data path counts the bytes left of every request, so a task
// is complete as soon as its own bytes are there, and has failed only once nothing of its
// submission can land any more.
//
// Threads: any. No lock is shared between batches; a batch has one of its own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transport/engine/data_path.h"
#include "transport/engine/engine_error.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class EngineBatches {
 public:
  static constexpr size_t kMaxBatches = size_t{1} << 16;  // from allocation to free
  static constexpr size_t kMaxTasks = size_t{1} << 24;    // of one batch

  explicit EngineBatches(DataPath* data_path) : data_path_(*data_path) {}

  // kNoBatch: too many are in use, or `capacity` is above kMaxTasks.
  BatchHandle Allocate(size_t capacity);
  EngineError Submit(BatchHandle handle, std::span<const TransferRequest> requests,
                     std::chrono::milliseconds deadline);
  EngineError TaskStatus(BatchHandle handle, size_t task, TransferStatus* status);
  EngineError WholeStatus(BatchHandle handle, TransferStatus* status);
  bool Wait(BatchHandle handle, std::chrono::milliseconds timeout);
  EngineError Cancel(BatchHandle handle);
  EngineError Free(BatchHandle handle);

 private:
  struct Submission {
    BatchId id;
    size_t first_task = 0;
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
  };
  static constexpr size_t kChunk = 1024;
  struct Chunk {
    std::array<Batch, kChunk> batches;
  };
  // A batch, locked; empty if the handle is stale or was never given out.
  class Locked;

  Batch* At(size_t index) const;
  bool Grow();
  TransferStatus Ask(const Submission& submission, const railhop::BatchStatus& whole,
                     size_t task) const;
  static void See(Batch& batch, size_t task);

  DataPath& data_path_;
  std::array<std::atomic<Chunk*>, kMaxBatches / kChunk> chunks_{};
  std::vector<std::unique_ptr<Chunk>> owned_;  // under grow_
  std::mutex grow_;
  std::atomic<size_t> size_{0};
};

}  // namespace railhop
