// What an application, or the Transfer Engine API on top of it, asks of a data path.
//
// Threads: every method may be called from any thread at once, except where it says otherwise.
// Errors: nothing throws. Set-up calls return false (or an invalid id) and fill `error` with what
// happened, to what, and what to do. Transfers report through BatchStatus.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transport/copy/fence.h"

namespace railhop {

enum class Opcode : uint8_t { kWrite, kRead };

// A target segment opened by name; 0 is never valid.
using SegmentId = uint32_t;

// One contiguous range. The source must lie in memory given to RegisterMemory and stays owned by
// the caller, unchanged, until the batch is quiescent (see BatchState).
struct TransferRequest {
  Opcode opcode = Opcode::kWrite;
  void* source = nullptr;
  SegmentId target = 0;
  uint64_t target_address = 0;  // address in the target process
  uint64_t length = 0;          // bytes; 0 completes at once
};

enum class BatchState : uint8_t {
  kPending,    // moving
  kCompleted,  // every byte is at the target; quiescent
  kFailed,     // at least one request failed; nothing can land any more
  kCanceled,   // given up on request; nothing can land any more
  kTimeout,    // past its deadline and NOT quiescent: neither source nor target may be reused yet
};

// What the first failing request of a batch met. Data-path errors are this enum, never text.
enum class TransferError : int32_t {
  kNone = 0,
  kInvalidRequest = -1,  // opcode, length or target not understood
  kNotRegistered = -2,   // source outside registered memory
  kUnknownTarget = -3,   // segment could not be resolved
  kRemoteAccess = -4,    // target address outside its registration, or a wrong key
  kTargetDead = -5,      // the target process ended
  kTransport = -6,       // the NIC reported an error on every path tried
  kDeadline = -7,        // the batch's deadline passed
  kCanceled = -8,        // the caller cancelled
  kStopping = -9,        // the rank was stopped meanwhile
  kRelay = -10,          // the relay reported an error and no direct path was left
  kExposed = -11,        // the target, which does not answer, may still write what was sent to it
  kHungUp = -12,         // the target, which has no other way to refuse, hung up on every try
  kFence = -13,          // the source's fence failed, or its stream is being captured: not read
  kDevice = -14,         // the GPU of the source (a write's) or destination (a read's) did not copy
};
const char* TransferErrorName(TransferError error);

// (index, generation) of a batch: a stale id is recognised, never mistaken for a newer batch.
struct BatchId {
  uint64_t value = 0;
  bool valid() const { return value != 0; }
  friend bool operator==(const BatchId&, const BatchId&) = default;
};

struct BatchStatus {
  BatchState state = BatchState::kPending;
  TransferError error = TransferError::kNone;
  uint64_t bytes = 0;          // bytes known to be at the target
  uint64_t relayed_bytes = 0;  // of those, bytes that went through another rank's NIC
};

struct RequestProgress {
  uint64_t moved = 0;  // bytes known to be at the target
  uint64_t left = 0;   // the others; 0: the request is complete
};

// Told of a batch that is no longer pending, or has ended after a kTimeout. Called by a thread of
// the data path, which it must not hold up, after the state can be read; the batch may be gone by
// then.
class BatchListener {
 public:
  virtual void OnBatchState(uint64_t cookie) = 0;

 protected:
  ~BatchListener() = default;
};

// One NIC of the data path, now.
struct NicLoad {
  std::string name;
  uint64_t inflight_bytes = 0;  // posted, and not known to have ended
  double bytes_per_second = 0;  // a moving average over about a second
  uint64_t bytes = 0;           // that have ended since the start: the NIC's share
};

// How a batch is submitted.
struct SubmitOptions {
  std::chrono::milliseconds timeout{0};  // until its deadline; 0: as configured
  // When its caller asked, which the timeout counts from; {}: now.
  std::chrono::steady_clock::time_point since = {};
  // No route reads a source before this has completed; if it fails, so does the batch (kFence).
  SourceFence fence = {};
  // Told with `cookie` when the batch's state changes; must outlive the data path.
  BatchListener* listener = nullptr;
  uint64_t cookie = 0;
  // The thread calls Wait for it next, which is when it begins at the latest: nobody is woken for
  // it before.
  bool wait_follows = false;
};

enum class SubmitResult : uint8_t { kOk, kTryAgain, kInvalid, kStopping };
enum class FreeResult : uint8_t { kOk, kBusy, kUnknown };

class DataPath {
 public:
  virtual ~DataPath() = default;

  // `location` names where the memory is: "cpu:0", "cuda:3", "*". Ranges must not overlap.
  virtual bool RegisterMemory(void* address, size_t length, std::string_view location,
                              std::string* error) = 0;
  // Refused while a transfer may still read the range.
  virtual bool UnregisterMemory(void* address, std::string* error) = 0;

  // Resolves a target by name; 0 and `error` if there is none. The same name gives the same id.
  virtual SegmentId OpenSegment(std::string_view name, std::string* error) = 0;

  // Copies `requests` and starts them. kTryAgain: the submission queue is full.
  virtual SubmitResult SubmitWith(std::span<const TransferRequest> requests,
                                  const SubmitOptions& options, BatchId* id) = 0;
  SubmitResult Submit(std::span<const TransferRequest> requests, std::chrono::milliseconds timeout,
                      BatchId* id) {
    return SubmitWith(requests, {.timeout = timeout}, id);
  }
  virtual BatchStatus Status(BatchId id) const = 0;
  // Of one request of the batch, by its position; not while another thread may free the batch.
  virtual RequestProgress Progress(BatchId id, size_t request) const = 0;
  // The request as it was submitted; under the same condition.
  virtual TransferRequest Request(BatchId id, size_t request) const = 0;
  // Until the batch leaves kPending (true) or `timeout` passed (false). The thread may do the data
  // path's work meanwhile; else it sleeps.
  virtual bool Wait(BatchId id, std::chrono::milliseconds timeout) const = 0;
  // Asks for the end of the batch; the answer is its later state.
  virtual void Cancel(BatchId id) = 0;
  // kBusy while the batch is not quiescent (kPending, kTimeout).
  virtual FreeResult Free(BatchId id) = 0;

  virtual std::vector<NicLoad> NicLoads() const = 0;
};

}  // namespace railhop
