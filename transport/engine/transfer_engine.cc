#include "transport/engine/transfer_engine.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "runtime/leave_alone.h"
#include "runtime/log.h"
#include "transport/engine/engine_batches.h"
#include "transport/engine/failure_text.h"
#include "transport/engine/local_segment.h"
#include "transport/engine/registration.h"
#include "transport/engine/scatter.h"
#include "transport/engine/segment_directory.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// What a submission waits at most for the descriptors of its targets, all of them together.
constexpr milliseconds kReadTargets{5000};

thread_local std::string last_error_text;

EngineError Fail(EngineError error, std::string text) {
  last_error_text = std::move(text);
  return error;
}

// Of something that was asked from a peer (handshake_client.h).
EngineError FromPeer(const absl::Status& status) {
  if (status.ok()) return EngineError::kOk;
  last_error_text = std::string(status.message());
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return EngineError::kDns;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return EngineError::kSocket;
    case absl::StatusCode::kInvalidArgument:
      return EngineError::kMalformedJson;
    case absl::StatusCode::kUnimplemented:
      return EngineError::kNotSupportedTransport;
    default:
      return EngineError::kMetadata;
  }
}

EngineError NoSuchSegment(SegmentHandle segment) {
  return Fail(EngineError::kInvalidArgument,
              fmt::format("segment {} was not opened by this engine", segment));
}

EngineError NoSuchBatch(BatchHandle batch) {
  return Fail(
      EngineError::kInvalidArgument,
      fmt::format("batch {:#x} is not there: it was freed, or never allocated by this engine",
                  batch));
}

EngineError FromLocalSegment(const absl::Status& status) {
  if (status.ok()) return EngineError::kOk;
  return Fail(EngineError::kMemory, std::string(status.message()));
}

}  // namespace

const std::string& TransferEngine::last_error() {
  return last_error_text;
}

TransferEngine::TransferEngine(std::unique_ptr<DataPath> data_path,
                               std::shared_ptr<SegmentDirectory> directory,
                               std::unique_ptr<LocalSegment> local,
                               std::chrono::nanoseconds slice_timeout)
    : owner_pid_(getpid()),
      directory_(std::move(directory)),
      local_(std::move(local)),
      batches_(std::make_unique<EngineBatches>(data_path.get(), slice_timeout)),
      data_path_(std::move(data_path)),
      memory_(std::make_unique<RegistrationTable>()) {}

TransferEngine::~TransferEngine() {
  if (getpid() != owner_pid_) {
    // A forked child: the segment, which may be published, and the batches are its parent's.
    LeaveAlone(std::move(directory_), std::move(local_), std::move(batches_), std::move(data_path_),
               std::move(memory_));
    return;
  }
  batches_->StopCallbacks();
  const absl::Status status = directory_->metadata().Withdraw();
  if (status.ok()) return;
  Log(LogLevel::kWarning, fmt::format("segment {} is gone, but may still be found: {}", name(),
                                      std::string(status.message())));
}

const std::string& TransferEngine::name() const {
  return local_->name();
}

std::string TransferEngine::listener() const {
  const HostPort address = local_->listener();
  return JoinHostPort(address.host, address.port);
}

std::string TransferEngine::Topology() const {
  return local_->Topology();
}

EngineError TransferEngine::Publish() {
  return FromPeer(directory_->metadata().Publish());
}

// --- Memory

EngineError TransferEngine::RegisterMemory(void* address, size_t length,
                                           std::string_view location) {
  const BufferEntry entry{address, length};
  return RegisterMemoryBatch({&entry, 1}, location);
}

// The data path first: memory that cannot be sent from is not offered to peers either.
EngineError TransferEngine::Register(const BufferEntry& entry, std::string_view location) {
  std::string error;
  if (!data_path_->RegisterMemory(entry.address, entry.length, location, &error)) {
    return Fail(EngineError::kContext, std::move(error));
  }
  const EngineError added = FromLocalSegment(local_->Add(entry.address, entry.length, location));
  if (added != EngineError::kOk) data_path_->UnregisterMemory(entry.address, &error);
  return added;
}

// The data path first, which refuses while a transfer still uses the range: then nothing has
// changed. `*half_done`: that step was done before, or is now.
EngineError TransferEngine::Unregister(void* address, bool* half_done) {
  std::string error;
  if (!*half_done && !data_path_->UnregisterMemory(address, &error)) {
    return Fail(EngineError::kContext, std::move(error));
  }
  *half_done = true;
  return FromLocalSegment(local_->Remove(address));
}

EngineError TransferEngine::RegisterMemoryBatch(std::span<const BufferEntry> entries,
                                                std::string_view location) {
  std::string refused;
  EngineError error = memory_->Reserve(entries, &refused);
  if (error != EngineError::kOk) return Fail(error, std::move(refused));
  size_t done = 0;
  while (done < entries.size()) {
    error = Register(entries[done], location);
    if (error != EngineError::kOk) break;
    ++done;
  }
  if (error == EngineError::kOk) error = Publish();
  if (error == EngineError::kOk) return error;
  std::string what = last_error_text;  // undoing must not say something else
  for (size_t i = 0; i < done; ++i) {
    bool half_done = false;
    Unregister(entries[i].address, &half_done);
  }
  for (const BufferEntry& entry : entries) memory_->EndRelease(entry.address);
  return Fail(error, std::move(what));
}

EngineError TransferEngine::UnregisterMemory(void* address) {
  return UnregisterMemoryBatch({&address, 1});
}

EngineError TransferEngine::Release(void* address) {
  bool half_done = false;
  EngineError error = memory_->BeginRelease(address, &half_done);
  if (error != EngineError::kOk) {
    return Fail(error, fmt::format("no registered range begins at {}: unregister the address that "
                                   "was registered, once",
                                   fmt::ptr(address)));
  }
  error = Unregister(address, &half_done);
  if (error == EngineError::kOk) {
    memory_->EndRelease(address);
  } else {
    memory_->KeepAfterAll(address, half_done);
  }
  return error;
}

// Goes on after an error, which is returned in the end: what can be let go of is.
EngineError TransferEngine::UnregisterMemoryBatch(std::span<void* const> addresses) {
  EngineError first = EngineError::kOk;
  std::string what;
  bool changed = false;
  for (void* const address : addresses) {
    const EngineError error = Release(address);
    changed |= error == EngineError::kOk;
    if (error == EngineError::kOk || first != EngineError::kOk) continue;
    first = error;
    what = last_error_text;
  }
  const EngineError published = changed ? Publish() : EngineError::kOk;
  if (first == EngineError::kOk && published != EngineError::kOk) {
    first = published;
    what = "the memory is unregistered, but peers may still find it: " + last_error_text;
  }
  return first == EngineError::kOk ? first : Fail(first, std::move(what));
}

// --- Segments

SegmentHandle TransferEngine::OpenSegment(std::string_view name) {
  const absl::StatusOr<SegmentHandle> handle = directory_->Open(std::string(name));
  if (handle.ok()) return *handle;
  FromPeer(handle.status());
  return kNoSegment;
}

uint64_t TransferEngine::FirstBufferAddress(SegmentHandle handle) {
  SegmentDirectory::Segment* const segment = directory_->Find(handle);
  if (segment == nullptr) {
    NoSuchSegment(handle);
    return 0;
  }
  if (FromPeer(directory_->Refresh(*segment, milliseconds(0))) != EngineError::kOk) return 0;
  const auto& buffers = segment->view()->descriptor().buffers;
  if (!buffers.empty()) return buffers.front().address;
  Fail(EngineError::kAddressNotRegistered,
       fmt::format("segment {} has registered no memory (yet)", segment->name));
  return 0;
}

EngineError TransferEngine::RefreshSegments() {
  EngineError first = EngineError::kOk;
  for (SegmentHandle handle = 0; handle < directory_->size(); ++handle) {
    SegmentDirectory::Segment& segment = *directory_->Find(handle);
    const EngineError error = FromPeer(directory_->Refresh(segment, milliseconds(0)));
    if (first == EngineError::kOk) first = error;
  }
  return first;
}

// --- Batches

BatchHandle TransferEngine::AllocateBatch(size_t capacity) {
  const BatchHandle batch = batches_->Allocate(capacity);
  if (batch == kNoBatch) {
    Fail(EngineError::kTooManyRequests,
         fmt::format("no batch of {} tasks: one takes up to {} tasks, and {} may be in use: free "
                     "those that have ended",
                     capacity, EngineBatches::kMaxTasks, EngineBatches::kMaxBatches));
  }
  return batch;
}

// Opens the target in the data path at its first use, and reads its metadata anew if it does not
// know the address: the peer may have registered more since. `read_anew`: in any case. Once `until`
// has passed nobody is waited for any more.
EngineError TransferEngine::Prepare(const TransferTask& task, bool read_anew,
                                    steady_clock::time_point until, SegmentId* id) {
  SegmentDirectory::Segment* const segment = directory_->Find(task.target);
  if (segment == nullptr) return NoSuchSegment(task.target);
  *id = segment->id.load(std::memory_order_acquire);
  const auto view = segment->resolved();
  const bool known =
      task.length == 0 || view == nullptr || view->Covers(task.target_address, task.length);
  if (*id != 0 && known && !read_anew) return EngineError::kOk;
  // What stays unknown fails as a task, not as a call.
  const bool news =
      !known && directory_->Look(*segment, task.target_address, task.length, {.until = until});
  if (*id != 0 && !news && !read_anew) return EngineError::kOk;
  if (steady_clock::now() >= until) {
    *id = 0;
    return Fail(EngineError::kEndpoint,
                fmt::format("segment {} is not opened: the targets of this submission took longer "
                            "to answer than it may wait ({} ms, or its deadline); submit what is "
                            "for other targets apart",
                            segment->name, kReadTargets.count()));
  }
  std::string error;
  *id = data_path_->OpenSegment(segment->name, &error);
  if (*id == 0) return Fail(EngineError::kEndpoint, std::move(error));
  segment->id.store(*id, std::memory_order_release);
  return EngineError::kOk;
}

EngineError TransferEngine::Submit(BatchHandle batch, std::span<const TransferTask> tasks,
                                   milliseconds deadline, const SourceFence& fence,
                                   bool wait_follows) {
  if (deadline < milliseconds(0)) {
    return Fail(EngineError::kInvalidArgument,
                fmt::format("a deadline of {} ms: it must be positive, or 0 for the default",
                            deadline.count()));
  }
  const auto patience = deadline.count() > 0 ? std::min(deadline, kReadTargets) : kReadTargets;
  const auto since = steady_clock::now();
  const auto until = since + patience;
  std::vector<TransferRequest> requests;
  requests.reserve(tasks.size());
  SegmentHandle previous = kNoSegment;
  bool trouble = false;
  for (const TransferTask& task : tasks) {
    SegmentId id = 0;
    const bool same_target = task.target == std::exchange(previous, task.target);
    const EngineError error = Prepare(task, !same_target && !directory_->cached(), until, &id);
    // A target that cannot be reached now fails its tasks, as upstream; a wrong handle the call.
    if (error == EngineError::kInvalidArgument) return error;
    trouble |= error != EngineError::kOk;
    requests.push_back({.opcode = task.opcode,
                        .source = task.source,
                        .target = id,
                        .target_address = task.target_address,
                        .length = task.length});
  }
  const EngineError error = batches_->Submit(batch, requests, deadline, fence, wait_follows, since);
  switch (error) {
    case EngineError::kOk:
      if (trouble) batches_->NoteTrouble(batch, last_error_text);
      return error;
    case EngineError::kTooManyRequests:
      return Fail(
          error, fmt::format("{} tasks: the batch has no room for so many, or too many batches are "
                             "under way: free some, or allocate a larger one",
                             tasks.size()));
    case EngineError::kContext:
      return Fail(error, "nothing is submitted any more: this engine is being destroyed");
    default:
      return NoSuchBatch(batch);
  }
}

EngineError TransferEngine::SubmitScatter(BatchHandle batch, std::span<const ScatterRange> ranges,
                                          milliseconds deadline, const SourceFence& fence) {
  std::vector<TransferTask> tasks;
  for (const ScatterRange& range : ranges) {
    const SegmentHandle target = OpenSegment(range.segment);
    if (target == kNoSegment) return EngineError::kEndpoint;
    std::string error;
    if (!AppendFragments(range, target, &tasks, &error)) {
      return Fail(EngineError::kInvalidArgument, std::move(error));
    }
  }
  return Submit(batch, tasks, deadline, fence);
}

EngineError TransferEngine::SetCallback(BatchHandle batch, BatchCallback callback) {
  const EngineError error = batches_->SetCallback(batch, std::move(callback));
  if (error == EngineError::kOk) return error;
  return Fail(error,
              fmt::format("batch {:#x} gets no callback: it is not there, something of it was "
                          "submitted already, or the callback is empty",
                          batch));
}

std::vector<NicLoad> TransferEngine::NicLoads() const {
  return data_path_->NicLoads();
}

// For last_error(): of the task, or the first one after it that `status` is about.
void TransferEngine::Explain(BatchHandle batch, size_t task, const TransferStatus& status) const {
  if (status.state != TransferState::kFailed && status.state != TransferState::kTimeout) return;
  const auto failure = batches_->FirstFailure(batch, task);
  if (!failure.has_value()) return;
  std::string_view target;
  const SegmentId id = failure->request.target;
  for (SegmentHandle handle = 0; id != 0 && handle < directory_->size(); ++handle) {
    const SegmentDirectory::Segment& segment = *directory_->Find(handle);
    if (segment.id.load(std::memory_order_relaxed) == id) target = segment.name;
  }
  const auto error = status.error == TransferError::kNone ? TransferError::kDeadline : status.error;
  last_error_text = fmt::format("task {}: {}", failure->task,
                                FailureText(error, failure->request, target, failure->trouble));
}

EngineError TransferEngine::TaskStatus(BatchHandle batch, size_t task, TransferStatus* status) {
  const EngineError error = batches_->TaskStatus(batch, task, status);
  if (error == EngineError::kOk) {
    Explain(batch, task, *status);
    return error;
  }
  return Fail(error,
              fmt::format("batch {:#x} has no task {}, or is not there: it was freed, or never "
                          "allocated by this engine",
                          batch, task));
}

EngineError TransferEngine::BatchStatus(BatchHandle batch, TransferStatus* status) {
  const EngineError error = batches_->WholeStatus(batch, status);
  if (error != EngineError::kOk) return NoSuchBatch(batch);
  Explain(batch, 0, *status);
  return error;
}

bool TransferEngine::Wait(BatchHandle batch, milliseconds timeout) {
  return batches_->Wait(batch, timeout);
}

EngineError TransferEngine::Cancel(BatchHandle batch) {
  const EngineError error = batches_->Cancel(batch);
  return error == EngineError::kOk ? error : NoSuchBatch(batch);
}

EngineError TransferEngine::FreeBatch(BatchHandle batch) {
  const EngineError error = batches_->Free(batch);
  if (error == EngineError::kInvalidArgument) return NoSuchBatch(batch);
  if (error == EngineError::kOk) return error;
  return Fail(error, fmt::format("batch {:#x} stays: ask for the status of each of its tasks until "
                                 "all have ended, then free it",
                                 batch));
}

// --- Words between engines

EngineError TransferEngine::Notify(std::string_view segment_name,
                                   const Notification& notification) {
  return FromPeer(directory_->metadata().Notify(std::string(segment_name), notification));
}

EngineError TransferEngine::NotifySegment(SegmentHandle handle, const Notification& notification) {
  const SegmentDirectory::Segment* const segment = directory_->Find(handle);
  return segment == nullptr ? NoSuchSegment(handle) : Notify(segment->name, notification);
}

std::vector<Notification> TransferEngine::TakeNotifications() {
  return local_->TakeNotifications();
}

EngineError TransferEngine::Probe(std::string_view segment_name) {
  return FromPeer(directory_->metadata().Probe(std::string(segment_name)));
}

}  // namespace railhop
