// The Transfer Engine API: segments, registered memory, batches of transfers and their status.
//
//   std::string error;
//   auto engine = MakeTransferEngine({...}, &error);            // actors/bootstrap.h
//   engine->RegisterMemory(buffer, size, "cpu:0");
//   const SegmentHandle peer = engine->OpenSegment("10.0.0.7:15432");
//   const BatchHandle batch = engine->AllocateBatch(requests.size());
//   engine->Submit(batch, requests);
//   engine->Wait(batch, std::chrono::seconds(30));
//   engine->BatchStatus(batch, &status);  engine->FreeBatch(batch);
//
// Four moments stay apart, as in Mooncake's API: a transfer is submitted, its bytes are at the
// target (a task ends), every task has been *seen* to have ended, and the batch is freed.
//
// Threads: every method from any thread. Threads that submit share no lock, unless they use the
// same batch. Errors: nothing throws; last_error() says more about the latest one of the thread.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/engine/data_path.h"
#include "transport/engine/engine_error.h"

namespace railhop {

class SegmentDirectory;
struct ScatterRange;
class EngineBatches;
class LocalSegment;
class RegistrationTable;

// Handle of an opened segment; 0 is the engine's own. kNoSegment: it could not be opened.
using SegmentHandle = uint64_t;
inline constexpr SegmentHandle kLocalSegment = 0;
inline constexpr SegmentHandle kNoSegment = UINT64_MAX;

using BatchHandle = uint64_t;
inline constexpr BatchHandle kNoBatch = UINT64_MAX;

// One transfer: kWrite moves `length` bytes from `source` to `target_address` in the target's
// process, kRead the other way. The memory stays the caller's, untouched, until the task has ended.
struct TransferTask {
  Opcode opcode = Opcode::kWrite;
  void* source = nullptr;
  SegmentHandle target = kLocalSegment;
  uint64_t target_address = 0;
  uint64_t length = 0;  // bytes; 0 completes at once
};

// Values as in Mooncake's API.
enum class TransferState : int32_t {
  kWaiting = 0,
  kPending = 1,
  kInvalid = 2,
  kCanceled = 3,   // ended: nothing can land any more
  kCompleted = 4,  // ended: every byte is at the target
  kTimeout = 5,    // NOT ended: bytes may still land, neither source nor target may be reused
  kFailed = 6,     // ended: nothing can land any more
};
constexpr bool HasEnded(TransferState state) {
  return state == TransferState::kCanceled || state == TransferState::kCompleted ||
         state == TransferState::kFailed;
}

struct TransferStatus {
  TransferState state = TransferState::kWaiting;
  uint64_t transferred_bytes = 0;  // known to be at the target
  // What the first failing task that was submitted along with it met.
  TransferError error = TransferError::kNone;
};

// Told how a batch has ended, or with kTimeout that it is late and goes on.
using BatchCallback = std::function<void(BatchHandle batch, const TransferStatus& status)>;

struct BufferEntry {
  void* address = nullptr;
  size_t length = 0;
};

struct Notification {
  std::string name;
  std::string message;
};

class TransferEngine {
 public:
  // Set-up, by MakeTransferEngine. `slice_timeout`: a task that has not ended so long after its
  // submission shows kTimeout, as it does at its deadline; 0: at that only.
  TransferEngine(std::unique_ptr<DataPath> data_path, std::shared_ptr<SegmentDirectory> directory,
                 std::unique_ptr<LocalSegment> local,
                 std::chrono::nanoseconds slice_timeout = std::chrono::nanoseconds(0));
  // Ends what is under way, within the data path's limits, then lets go of everything.
  ~TransferEngine();
  TransferEngine(const TransferEngine&) = delete;
  TransferEngine& operator=(const TransferEngine&) = delete;

  // What peers open: with P2PHANDSHAKE "host:port".
  const std::string& name() const;
  // "host:port" of the handshake listener.
  std::string listener() const;
  // NIC priority matrix of this engine, as JSON.
  std::string Topology() const;
  // From now on peers find the engine; once, after set-up.
  EngineError Publish();

  // --- Memory. `location`: "cpu:0", "cuda:3", "*". Adjacent ranges are allowed, overlapping ones
  // are not. A batch registers all of its entries or none. kMetadata: the metadata service is not
  // to be had; then nothing is registered, but what was to be unregistered is.
  EngineError RegisterMemory(void* address, size_t length, std::string_view location);
  EngineError UnregisterMemory(void* address);
  EngineError RegisterMemoryBatch(std::span<const BufferEntry> entries, std::string_view location);
  EngineError UnregisterMemoryBatch(std::span<void* const> addresses);

  // --- Segments. Opening one again gives the same handle.
  SegmentHandle OpenSegment(std::string_view name);
  // Address of the segment's first buffer; 0: it has none, or could not be read.
  uint64_t FirstBufferAddress(SegmentHandle segment);
  // Reads all opened segments' metadata anew.
  EngineError RefreshSegments();

  // --- Batches.
  BatchHandle AllocateBatch(size_t capacity);
  // May be called several times until `capacity` is used up; tasks are numbered from 0 in order of
  // submission. All of `tasks` are taken, or none. No source is read before `fence` has completed;
  // if that fails, so do the tasks. `wait_follows`: the thread calls Wait next, and begins the
  // tasks there itself if nobody else is awake to do it. Waits for peers only if a target is new or
  // its descriptor does not cover an address, and then for a bounded time: docs/engine.md, "Waiting
  // for peers". The deadline counts from the call, that wait included.
  EngineError Submit(BatchHandle batch, std::span<const TransferTask> tasks,
                     std::chrono::milliseconds deadline = std::chrono::milliseconds(0),
                     const SourceFence& fence = {}, bool wait_follows = false);
  // As Submit, of parts of buffers; the fragments are the tasks, range by range.
  EngineError SubmitScatter(BatchHandle batch, std::span<const ScatterRange> ranges,
                            std::chrono::milliseconds deadline = std::chrono::milliseconds(0),
                            const SourceFence& fence = {});
  // Before the batch's first submission. The callback is called when all that was submitted so far
  // has ended; the end counts as seen, so it may free the batch. If the batch is late first, it is
  // called with kTimeout, and again at the end. It runs on a thread of the engine, one at a time,
  // and may call anything but the engine's destructor; those of other batches wait for it. It must
  // not throw. Once the destructor has begun, no callback starts.
  EngineError SetCallback(BatchHandle batch, BatchCallback callback);
  EngineError TaskStatus(BatchHandle batch, size_t task, TransferStatus* status);
  // The whole batch: kFailed once one task failed and all have ended; completed when all are.
  EngineError BatchStatus(BatchHandle batch, TransferStatus* status);
  // Until no task waits any more (true) or `timeout` has passed. Meanwhile the thread may move the
  // tasks itself (Reactor::Drive); else it sleeps.
  bool Wait(BatchHandle batch, std::chrono::milliseconds timeout);
  // Asks for the end of all tasks; TaskStatus tells when and how they have ended.
  EngineError Cancel(BatchHandle batch);
  // kBatchBusy until the end of every task was seen by TaskStatus or BatchStatus.
  EngineError FreeBatch(BatchHandle batch);

  // --- What each NIC has to do now.
  std::vector<NicLoad> NicLoads() const;

  // --- Words between engines.
  EngineError Notify(std::string_view segment_name, const Notification& notification);
  EngineError NotifySegment(SegmentHandle segment, const Notification& notification);
  std::vector<Notification> TakeNotifications();
  // Whether the engine of that name answers.
  EngineError Probe(std::string_view segment_name);

  // What the latest call of this thread that did not succeed met: what, to what, what to do. So do
  // TaskStatus and BatchStatus when they tell of a task that failed, or is late.
  static const std::string& last_error();

  DataPath& data_path() { return *data_path_; }

 private:
  EngineError Register(const BufferEntry& entry, std::string_view location);
  EngineError Unregister(void* address, bool* half_done);
  EngineError Release(void* address);
  void Explain(BatchHandle batch, size_t task, const TransferStatus& status) const;
  EngineError Prepare(const TransferTask& task, bool read_anew,
                      std::chrono::steady_clock::time_point until, SegmentId* id);

  const pid_t owner_pid_;
  std::shared_ptr<SegmentDirectory> directory_;
  std::unique_ptr<LocalSegment> local_;
  std::unique_ptr<EngineBatches> batches_;  // outlives the data path, which tells it of ends
  std::unique_ptr<DataPath> data_path_;
  std::unique_ptr<RegistrationTable> memory_;
};

}  // namespace railhop
