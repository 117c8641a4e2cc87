// A data path whose batches end when the test says so. What callbacks may ask of it, from their own
// thread, is locked.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "transport/engine/data_path.h"

namespace railhop {

class FakeDataPath : public DataPath {
 public:
  struct Batch {
    std::vector<TransferRequest> requests;
    std::vector<uint64_t> left;
    BatchStatus status;
    bool canceled = false;
    BatchListener* listener = nullptr;
    uint64_t cookie = 0;
  };

  bool RegisterMemory(void* address, size_t length, std::string_view, std::string* error) override {
    if (address == refused_memory) {
      *error = "no such memory";
      return false;
    }
    memory[address] = length;
    return true;
  }
  bool UnregisterMemory(void* address, std::string* error) override {
    if (busy_memory.contains(address)) {
      *error = "in use";
      return false;
    }
    return memory.erase(address) == 1;
  }
  SegmentId OpenSegment(std::string_view name, std::string* error) override {
    ++opens;
    if (on_open) on_open();
    if (name == unreachable) {
      *error = "unreachable";
      return 0;
    }
    return static_cast<SegmentId>(ids.try_emplace(std::string(name), ids.size() + 1).first->second);
  }
  SubmitResult SubmitWith(std::span<const TransferRequest> requests, const SubmitOptions& options,
                          BatchId* id) override {
    const std::lock_guard lock(mutex);
    if (answer != SubmitResult::kOk) return answer;
    *id = {++last};
    Batch& batch = batches[last];
    batch.listener = options.listener;
    batch.cookie = options.cookie;
    batch.requests.assign(requests.begin(), requests.end());
    for (const TransferRequest& request : requests) batch.left.push_back(request.length);
    deadline = options.timeout;
    since = options.since;
    fence = options.fence;
    return SubmitResult::kOk;
  }
  BatchStatus Status(BatchId id) const override {
    const std::lock_guard lock(mutex);
    return batches.at(id.value).status;
  }
  RequestProgress Progress(BatchId id, size_t request) const override {
    const std::lock_guard lock(mutex);
    const Batch& batch = batches.at(id.value);
    return {.moved = batch.requests[request].length - batch.left[request],
            .left = batch.left[request]};
  }
  TransferRequest Request(BatchId id, size_t request) const override {
    const std::lock_guard lock(mutex);
    return batches.at(id.value).requests[request];
  }
  bool Wait(BatchId id, std::chrono::milliseconds) const override {
    const std::lock_guard lock(mutex);
    return batches.at(id.value).status.state != BatchState::kPending;
  }
  void Cancel(BatchId id) override { batches.at(id.value).canceled = true; }
  FreeResult Free(BatchId id) override {
    const std::lock_guard lock(mutex);
    const BatchState state = batches.at(id.value).status.state;
    if (state == BatchState::kPending || state == BatchState::kTimeout) return FreeResult::kBusy;
    batches.erase(id.value);
    return FreeResult::kOk;
  }

  std::vector<NicLoad> NicLoads() const override { return loads; }

  // --- The test
  void Land(uint64_t id, size_t request) {
    const std::lock_guard lock(mutex);
    Batch& batch = batches.at(id);
    batch.status.bytes += std::exchange(batch.left[request], 0);
  }
  void End(uint64_t id, BatchState state, TransferError error = TransferError::kNone) {
    BatchListener* listener = nullptr;
    uint64_t cookie = 0;
    {
      const std::lock_guard lock(mutex);
      Batch& batch = batches.at(id);
      batch.status.state = state;
      batch.status.error = error;
      listener = batch.listener;
      cookie = batch.cookie;
    }
    if (listener != nullptr) listener->OnBatchState(cookie);
  }

  mutable std::mutex mutex;
  std::vector<NicLoad> loads;
  std::map<void*, size_t> memory;
  void* refused_memory = nullptr;
  std::set<void*> busy_memory;
  std::map<std::string, size_t> ids;
  std::string unreachable = "nobody";
  int opens = 0;
  SubmitResult answer = SubmitResult::kOk;
  uint64_t last = 0;
  std::map<uint64_t, Batch> batches;
  std::chrono::milliseconds deadline{0};
  std::chrono::steady_clock::time_point since;
  std::function<void()> on_open;
  SourceFence fence;  // of the last batch
};

}  // namespace railhop
