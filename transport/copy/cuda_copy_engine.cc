#include "transport/copy/cuda_copy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>
#include <utility>

#include "runtime/cycle_clock.h"
#include "runtime/log.h"

namespace railhop {
namespace {

// A piece takes microseconds. One that takes longer is waited for, but its stream is asked whether
// the device still lives.
constexpr std::chrono::milliseconds kAskAfter{1};

constexpr size_t kListBytes = CudaCopyEngine::kMaxSpans * sizeof(uint64_t) +
                              (CudaCopyEngine::kMaxSpans + 1) * sizeof(uint32_t);
constexpr size_t kListStride = (kListBytes + 255) / 256 * 256;

uint64_t LoadDoorbell(uint64_t* doorbell) {
  return std::atomic_ref<uint64_t>(*doorbell).load(std::memory_order_acquire);
}

cuda::DevicePointer Address(const void* pointer) {
  return reinterpret_cast<uintptr_t>(pointer);
}

// One copy after the other is what there is everywhere.
constexpr CopyCosts kNothingMeasured = {.ways = {CopyWayCost{.available = true}}};

// A rank has several engines: one that copies, and those that measure.
void WarnOnce(const std::string& what) {
  LogOnce(LogLevel::kWarning, what, what);
}

// Errors that say no more than that one call was wrong; after the others the context is lost.
bool OnlyOfTheCall(cuda::Result result) {
  return result < cuda::kNotReady || result == cuda::kNotSupported;
}

}  // namespace

const char* CudaDoorbellName(CudaDoorbell doorbell) {
  switch (doorbell) {
    case CudaDoorbell::kStreamWrite:
      return "stream_write";
    case CudaDoorbell::kKernel:
      return "kernel";
    case CudaDoorbell::kCpu:
      break;
  }
  return "cpu";
}

const char* CopyWayName(CopyWay way) {
  switch (way) {
    case CopyWay::kAsync:
      return "async";
    case CopyWay::kBatch:
      return "batch";
    case CopyWay::kGather:
      break;
  }
  return "gather";
}

CudaCopyEngine::CudaCopyEngine(std::shared_ptr<const CudaDevice> device,
                               const CudaCopyOptions& options)
    : device_(std::move(device)),
      driver_(device_->driver()),
      gather_max_blocks_(std::max(1u, options.gather_max_blocks)),
      forced_way_(options.way),
      given_costs_(options.costs),
      book_(options.book),
      gather_rings_(options.doorbell.value_or(CudaDoorbell::kKernel) == CudaDoorbell::kKernel),
      streams_(options.streams),
      ask_after_(ToCycles(kAskAfter)),
      sources_(kMaxSpans),
      destinations_(kMaxSpans),
      sizes_(kMaxSpans) {}

absl::StatusOr<std::unique_ptr<CudaCopyEngine>> CudaCopyEngine::Create(
    std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options) {
  std::unique_ptr<CudaCopyEngine> engine(new CudaCopyEngine(std::move(device), options));
  CudaScope scope(*engine->device_);
  if (absl::Status status = engine->SetUp(options); !status.ok()) return status;
  return engine;
}

bool CudaCopyEngine::Has(CopyWay way) const {
  switch (way) {
    case CopyWay::kBatch:
      return driver_.memcpy_batch_async_13 != nullptr || driver_.memcpy_batch_async_12 != nullptr;
    case CopyWay::kGather:
      return module_ != nullptr;
    case CopyWay::kAsync:
      break;
  }
  return true;
}

absl::Status CudaCopyEngine::SetUp(const CudaCopyOptions& options) {
  int least = 0, greatest = 0;  // "greatest" is the lower number
  absl::Status status =
      driver_.ToStatus(driver_.ctx_get_stream_priority_range(&least, &greatest),
                       fmt::format("GPU {} does not say its stream priorities", device_->pci()));
  if (!status.ok()) return status;
  const int priority = std::clamp(options.priority, greatest, least);
  for (Stream& stream : streams_) {
    stream.jobs.resize(options.queue_depth);
    status = driver_.ToStatus(
        driver_.stream_create_with_priority(&stream.handle, cuda::kStreamNonBlocking, priority),
        fmt::format("no stream on GPU {}", device_->pci()));
    for (uint32_t i = 0; status.ok() && i < options.queue_depth; ++i) {
      status = driver_.ToStatus(
          driver_.event_create(&stream.events.emplace_back(), cuda::kEventDisableTiming),
          fmt::format("no event on GPU {}", device_->pci()));
    }
    if (!status.ok()) return status;
  }

  status = LoadKernels();
  if (!status.ok()) {
    WarnOnce(
        fmt::format("many small spans are copied one by one: {}", std::string(status.message())));
  }
  if (forced_way_.has_value() && !Has(*forced_way_)) {
    WarnOnce(fmt::format("copy way {} is not there on GPU {}: async is used",
                         CopyWayName(*forced_way_), device_->pci()));
  }

  const bool has_kernel = doorbell_kernel_ != nullptr;
  doorbell_ = device_->stream_write() ? CudaDoorbell::kStreamWrite
              : has_kernel            ? CudaDoorbell::kKernel
                                      : CudaDoorbell::kCpu;
  const CudaDoorbell best = doorbell_;
  if (options.doorbell.has_value()) {
    const bool there = *options.doorbell == CudaDoorbell::kStreamWrite ? device_->stream_write()
                       : *options.doorbell == CudaDoorbell::kKernel    ? has_kernel
                                                                       : true;
    if (there) doorbell_ = *options.doorbell;
  }
  if (options.doorbell.value_or(CudaDoorbell::kStreamWrite) != doorbell_) {
    WarnOnce(fmt::format("GPU {} cannot ring doorbells by {}: {} is used", device_->pci(),
                         CudaDoorbellName(options.doorbell.value_or(CudaDoorbell::kStreamWrite)),
                         CudaDoorbellName(best)));
  }
  return absl::OkStatus();
}

absl::Status CudaCopyEngine::LoadKernels() {
  if (GatherImage() == nullptr) {
    return absl::UnavailableError("gather: this build has no GPU kernels (nvcc was not there)");
  }
  absl::Status status =
      driver_.ToStatus(driver_.module_load_data(&module_, GatherImage()),
                       fmt::format("gather: GPU {} does not take the kernels", device_->pci()));
  if (!status.ok()) {
    module_ = nullptr;
    return status;
  }
  const auto find = [&](cuda::Function& function, const char* name) {
    if (!status.ok()) return;
    status = driver_.ToStatus(driver_.module_get_function(&function, module_, name),
                              fmt::format("gather: no kernel {}", name));
  };
  find(gather_few_, kGatherFewKernel);
  find(gather_inline_, kGatherInlineKernel);
  find(gather_listed_, kGatherListedKernel);
  find(doorbell_kernel_, kDoorbellKernel);
  const size_t lists = streams_.size() * streams_[0].jobs.size();
  const auto take = [&](cuda::Result result) {
    if (status.ok()) status = driver_.ToStatus(result, "gather: no memory for span lists");
  };
  if (status.ok()) take(driver_.mem_alloc(&counters_, streams_.size() * sizeof(uint32_t)));
  if (status.ok()) take(driver_.mem_alloc(&device_lists_, lists * kListStride));
  if (status.ok()) {
    void* memory = nullptr;
    take(driver_.mem_host_alloc(&memory, lists * kListStride, cuda::kHostAllocPortable));
    lists_ = static_cast<std::byte*>(memory);
  }
  if (status.ok()) {
    // The counters start at 0: copied on a lane's stream, ahead of all else.
    std::memset(lists_, 0, streams_.size() * sizeof(uint32_t));
    take(driver_.memcpy_async(counters_, Address(lists_), streams_.size() * sizeof(uint32_t),
                              streams_[0].handle));
    take(driver_.stream_synchronize(streams_[0].handle));
  }
  if (!status.ok()) {
    driver_.module_unload(module_);
    module_ = nullptr;
    doorbell_kernel_ = nullptr;
  }
  return status;
}

CudaCopyEngine::~CudaCopyEngine() {
  CudaScope scope(*device_);
  for (Stream& stream : streams_) {
    if (stream.handle != nullptr) driver_.stream_synchronize(stream.handle);
  }
  for (Stream& stream : streams_) {
    for (cuda::Event event : stream.events) {
      if (event != nullptr) driver_.event_destroy(event);
    }
    if (stream.handle != nullptr) driver_.stream_destroy(stream.handle);
  }
  if (counters_ != 0) driver_.mem_free(counters_);
  if (device_lists_ != 0) driver_.mem_free(device_lists_);
  if (lists_ != nullptr) driver_.mem_free_host(lists_);
  if (module_ != nullptr) driver_.module_unload(module_);
}

void CudaCopyEngine::Reset(uint32_t index) {
  Stream& stream = streams_[index];
  assert(stream.issued == stream.reaped);
  stream.costs.reset();
  stream.doorbell = nullptr;
  stream.device_doorbell = 0;
  stream.broken = false;
}

// Once per mapping of a lane, by its first piece.
void CudaCopyEngine::FindDoorbell(Stream& stream, const uint64_t* doorbell) {
  stream.doorbell = doorbell;
  stream.device_doorbell = 0;
  if (doorbell_ == CudaDoorbell::kCpu) return;
  if (driver_.mem_host_get_device_pointer(&stream.device_doorbell, const_cast<uint64_t*>(doorbell),
                                          0) != cuda::kSuccess) {
    stream.device_doorbell = 0;
  }
}

CopyJob* CudaCopyEngine::PlaceOf(uint32_t index) {
  const Stream& stream = streams_[index];
  return stream.issued - stream.reaped == stream.jobs.size() ? nullptr : &next_;
}

void CudaCopyEngine::Start(CopyJob& copy) {
  assert(copy.spans.size() <= kMaxSpans);
  device_->Enter();
  uint64_t bytes = 0;
  for (const CopySpan& span : copy.spans) bytes += span.length;
  Stream& stream = streams_[copy.stream];
  if (!stream.costs.has_value()) stream.costs = CostsOf(copy.destination);
  const bool is_behind = stream.issued != stream.ended;
  CopyWay way =
      forced_way_.value_or(CheapestWay(*stream.costs, is_behind, copy.spans.size(), bytes));
  if (!Has(way)) way = CopyWay::kAsync;
  IssueAs(way, copy, bytes);
}

// Of a lane, by its first piece.
CopyCosts CudaCopyEngine::CostsOf(const void* slot) const {
  std::optional<CopyCosts> costs = given_costs_;
  if (!costs.has_value() && book_ != nullptr) {
    costs = book_->Find(static_cast<const std::byte*>(slot));
  }
  if (!costs.has_value()) return kNothingMeasured;
  for (size_t i = 0; i < kCopyWays; ++i) {
    costs->ways[i].available = costs->ways[i].available && Has(static_cast<CopyWay>(i));
  }
  return *costs;
}

void CudaCopyEngine::IssueAs(CopyWay way, const CopyJob& copy, uint64_t bytes) {
  Stream& stream = streams_[copy.stream];
  const auto entry = static_cast<uint32_t>(stream.issued % stream.jobs.size());
  Job& job = stream.jobs[entry];
  job = {.user_data = copy.user_data,
         .bytes = bytes,
         .doorbell = copy.doorbell,
         .sequence = copy.sequence};
  if (copy.doorbell != nullptr && copy.doorbell != stream.doorbell) {
    FindDoorbell(stream, copy.doorbell);
  }
  const bool device_rings = copy.doorbell != nullptr && IsForDevice(stream, way);
  if (stream.issued == stream.ended) stream.ask_at = ReadCycles() + ask_after_;
  ++stream.issued;
  stream.pending_bytes += bytes;
  pending_bytes_ += bytes;

  cuda::Result result = cuda::kSuccess;
  if (!stream.broken) {
    cuda::DevicePointer doorbell = device_rings ? stream.device_doorbell : 0;
    result = IssueCopies(way, copy, entry, &doorbell);
    if (result == cuda::kSuccess && doorbell != 0) result = IssueDoorbell(stream, copy.sequence);
    if (result != cuda::kSuccess) {
      stream.broken = true;
      refused_ = result;
    }
  }
  if (stream.broken) job.status = CopyStatus::kFailed;
  // The event of a failed job tells when what was issued of it is over.
  job.by_event = !device_rings || stream.broken;
  if (result != cuda::kSuccess && !OnlyOfTheCall(result)) LoseDevice(result);
  if (!job.by_event || !device_error_.empty()) return;
  result = driver_.event_record(stream.events[entry], stream.handle);
  if (result != cuda::kSuccess) LoseDevice(result);
}

std::string CudaCopyEngine::error() const {
  if (!device_error_.empty() || refused_ == cuda::kSuccess) return device_error_;
  return std::string(driver_.ToStatus(refused_, "a command was refused").message());
}

// Whether the device rings for the next piece of the stream. A gather that rings costs nothing
// more, but must not overtake what the CPU has to ring.
bool CudaCopyEngine::IsForDevice(const Stream& stream, CopyWay way) const {
  if (stream.device_doorbell == 0) return false;
  if (!stream.costs->cpu_rings_behind || stream.issued == stream.ended) return true;
  const Job& before = stream.jobs[(stream.issued - 1) % stream.jobs.size()];
  return !before.by_event && way == CopyWay::kGather && gather_rings_;
}

cuda::Result CudaCopyEngine::IssueCopies(CopyWay way, const CopyJob& job, uint32_t entry,
                                         cuda::DevicePointer* doorbell) {
  if (way == CopyWay::kGather) return IssueGather(job, entry, doorbell);
  const cuda::Stream stream = streams_[job.stream].handle;
  cuda::DevicePointer destination = Address(job.destination);
  if (way == CopyWay::kAsync) {
    for (const CopySpan& span : job.spans) {
      if (span.length == 0) continue;
      const cuda::Result result =
          driver_.memcpy_async(destination, Address(span.source), span.length, stream);
      if (result != cuda::kSuccess) return result;
      destination += span.length;
    }
    return cuda::kSuccess;
  }
  size_t count = 0;
  for (const CopySpan& span : job.spans) {
    if (span.length == 0) continue;
    destinations_[count] = destination;
    sources_[count] = Address(span.source);
    sizes_[count++] = span.length;
    destination += span.length;
  }
  if (count == 0) return cuda::kSuccess;
  cuda::MemcpyAttributes attributes;
  size_t from = 0, failed = 0;
  if (driver_.memcpy_batch_async_13 != nullptr) {
    return driver_.memcpy_batch_async_13(destinations_.data(), sources_.data(), sizes_.data(),
                                         count, &attributes, &from, 1, stream);
  }
  return driver_.memcpy_batch_async_12(destinations_.data(), sources_.data(), sizes_.data(), count,
                                       &attributes, &from, 1, &failed, stream);
}

cuda::Result CudaCopyEngine::IssueGather(const CopyJob& job, uint32_t entry,
                                         cuda::DevicePointer* doorbell) {
  const Stream& stream = streams_[job.stream];
  const size_t list_index = job.stream * stream.jobs.size() + entry;
  // A short list is built in the parameters, a long one where it is copied from.
  GatherFewList few_list;
  GatherInlineList inline_list;
  const bool is_few = job.spans.size() <= kGatherFewSpans;
  const bool fits = job.spans.size() <= kGatherInlineSpans;
  std::byte* const list = lists_ + list_index * kListStride;
  uint64_t* sources = reinterpret_cast<uint64_t*>(list);
  uint32_t* offsets = reinterpret_cast<uint32_t*>(list + job.spans.size() * sizeof(uint64_t));
  if (fits) {
    sources = is_few ? few_list.sources : inline_list.sources;
    offsets = is_few ? few_list.offsets : inline_list.offsets;
  }
  uint32_t count = 0, bytes = 0;
  for (const CopySpan& span : job.spans) {
    if (span.length == 0) continue;
    sources[count] = Address(span.source);
    offsets[count++] = bytes;
    bytes += static_cast<uint32_t>(span.length);
  }
  if (count == 0) return cuda::kSuccess;
  offsets[count] = bytes;

  const auto divide = [](uint32_t a, uint32_t b) { return (a + b - 1) / b; };
  const uint32_t blocks =
      std::min(gather_max_blocks_, divide(bytes, kGatherWarps * kGatherWarpBytes));
  GatherJob gather{.destination = Address(job.destination), .bytes = bytes, .spans = count};
  gather.bytes_per_warp =
      divide(divide(bytes, blocks * kGatherWarps), kGatherWarpBytes) * kGatherWarpBytes;
  if (gather_rings_) {
    gather.doorbell = std::exchange(*doorbell, 0);
    gather.sequence = job.sequence;
    gather.counter = counters_ + job.stream * sizeof(uint32_t);
  }
  if (fits) {
    void* parameters[] = {&gather, is_few ? static_cast<void*>(&few_list) : &inline_list};
    return Launch(is_few ? gather_few_ : gather_inline_, blocks, kGatherThreads, stream.handle,
                  parameters);
  }
  cuda::DevicePointer device_sources = device_lists_ + list_index * kListStride;
  // Offsets follow the sources of all spans, empty ones included.
  cuda::DevicePointer device_offsets = device_sources + job.spans.size() * sizeof(uint64_t);
  const size_t list_bytes =
      job.spans.size() * sizeof(uint64_t) + (size_t{count} + 1) * sizeof(uint32_t);
  const cuda::Result copied =
      driver_.memcpy_async(device_sources, Address(list), list_bytes, stream.handle);
  if (copied != cuda::kSuccess) return copied;
  void* parameters[] = {&gather, &device_sources, &device_offsets};
  return Launch(gather_listed_, blocks, kGatherThreads, stream.handle, parameters);
}

cuda::Result CudaCopyEngine::IssueDoorbell(Stream& stream, uint64_t sequence) {
  if (doorbell_ == CudaDoorbell::kStreamWrite) {
    return driver_.stream_write_value64(stream.handle, stream.device_doorbell, sequence,
                                        cuda::kStreamWriteDefault);
  }
  void* parameters[] = {&stream.device_doorbell, &sequence};
  return Launch(doorbell_kernel_, 1, 1, stream.handle, parameters);
}

cuda::Result CudaCopyEngine::Launch(cuda::Function kernel, uint32_t blocks, uint32_t threads,
                                    cuda::Stream stream, void** parameters) {
  return driver_.launch_kernel(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, parameters, nullptr);
}

uint64_t CudaCopyEngine::Progress(uint64_t) {
  device_->Enter();
  LookAtAll();
  return 0;
}

void CudaCopyEngine::LookAtAll() {
  for (Stream& stream : streams_) {
    if (stream.ended != stream.issued) Look(stream);
  }
}

void CudaCopyEngine::Look(Stream& stream) {
  const uint64_t ended_before = stream.ended;
  while (stream.ended != stream.issued) {
    const auto entry = static_cast<uint32_t>(stream.ended % stream.jobs.size());
    Job& job = stream.jobs[entry];
    if (!device_error_.empty()) {
      End(stream, CopyStatus::kFailed);
      continue;
    }
    if (!job.by_event) {
      if (LoadDoorbell(job.doorbell) < job.sequence) break;
      End(stream, CopyStatus::kOk);
      continue;
    }
    const cuda::Result result = driver_.event_query(stream.events[entry]);
    if (result == cuda::kNotReady) break;
    if (result != cuda::kSuccess) {
      LoseDevice(result);
      continue;
    }
    if (job.doorbell != nullptr && job.status == CopyStatus::kOk) {
      std::atomic_ref<uint64_t>(*job.doorbell).store(job.sequence, std::memory_order_release);
    }
    End(stream, job.status);
  }
  if (stream.ended == stream.issued) return;
  const uint64_t now = ReadCycles();
  if (stream.ended != ended_before) {
    stream.ask_at = now + ask_after_;
  } else if (now >= stream.ask_at) {
    stream.ask_at = now + ask_after_;
    const cuda::Result result = driver_.stream_query(stream.handle);
    if (result == cuda::kNotReady) return;
    if (result != cuda::kSuccess) {
      LoseDevice(result);
      return;
    }
    // All is done. A doorbell that does not show even so was taken away by another process.
    const Job& job = stream.jobs[stream.ended % stream.jobs.size()];
    if (!job.by_event && LoadDoorbell(job.doorbell) < job.sequence) {
      stream.broken = true;
      End(stream, CopyStatus::kFailed);
    }
  }
}

// Logged here although this is the data path: it happens once, and nothing is fast afterwards.
void CudaCopyEngine::LoseDevice(cuda::Result result) {
  if (!device_error_.empty()) return;
  device_error_ = std::string(
      driver_.ToStatus(result, fmt::format("GPU {} is lost to this process", device_->pci()))
          .message());
  Log(LogLevel::kError, device_error_);
  for (Stream& stream : streams_) stream.broken = true;
}

void CudaCopyEngine::End(Stream& stream, CopyStatus status) {
  Job& job = stream.jobs[stream.ended % stream.jobs.size()];
  job.status = status;
  stream.pending_bytes -= job.bytes;
  pending_bytes_ -= job.bytes;
  ++stream.ended;
}

size_t CudaCopyEngine::Reap(std::span<CopyDone> done) {
  size_t count = 0;
  for (uint32_t i = 0; i < streams_.size() && count < done.size(); ++i) {
    Stream& stream = streams_[next_reap_];
    for (; stream.reaped != stream.ended && count < done.size(); ++stream.reaped) {
      const Job& job = stream.jobs[stream.reaped % stream.jobs.size()];
      done[count++] = {.user_data = job.user_data, .status = job.status};
    }
    if (stream.reaped == stream.ended) {
      next_reap_ = (next_reap_ + 1) % static_cast<uint32_t>(streams_.size());
    }
  }
  return count;
}

}  // namespace railhop
