#include "transport/copy/cuda_copy_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cstring>

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
  if (options.costs.has_value()) {
    for (size_t i = 0; i < kCopyWays; ++i) {
      const bool available = engine->costs_[i].available;
      engine->costs_[i] = (*options.costs)[i];
      engine->costs_[i].available = available && (*options.costs)[i].available;
    }
    return engine;
  }
  if (absl::Status status = engine->Calibrate(); !status.ok()) return status;
  return engine;
}

bool CudaCopyEngine::HasBatch() const {
  return driver_.memcpy_batch_async_13 != nullptr || driver_.memcpy_batch_async_12 != nullptr;
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
    Log(LogLevel::kWarning,
        fmt::format("many small spans are copied one by one: {}", std::string(status.message())));
  }
  costs_[static_cast<size_t>(CopyWay::kAsync)].available = true;
  costs_[static_cast<size_t>(CopyWay::kBatch)].available = HasBatch();
  costs_[static_cast<size_t>(CopyWay::kGather)].available = HasGather();
  costs_[static_cast<size_t>(CopyWay::kGather)].overlaps = false;
  if (forced_way_.has_value() && !costs_[static_cast<size_t>(*forced_way_)].available) {
    Log(LogLevel::kWarning, fmt::format("copy way {} is not there on GPU {}: async is used",
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
    Log(LogLevel::kWarning,
        fmt::format("GPU {} cannot ring doorbells by {}: {} is used", device_->pci(),
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

// Three kinds of jobs tell the costs of a way: few small spans, many small ones, and a large one.
// Within the device, though the pieces will go to another, whose memory is not known yet. There a
// command per span takes 3.5 us, while to a peer it takes no longer than its issue (measured:
// docs/results/gpu-h200.md); so of commands the issue is what is timed.
absl::Status CudaCopyEngine::Calibrate() {
  constexpr uint64_t kSmall = 512, kLarge = 4 << 20;
  cuda::DevicePointer memory = 0;  // source, then destination
  void* word = nullptr;
  absl::Status status =
      driver_.ToStatus(driver_.mem_alloc(&memory, 2 * kLarge), "no memory to measure copies with");
  if (status.ok()) {
    status =
        driver_.ToStatus(driver_.mem_host_alloc(&word, sizeof(uint64_t), cuda::kHostAllocPortable),
                         "no memory to measure copies with");
  }
  if (status.ok()) {
    const auto at = [memory](uint64_t offset) {
      return reinterpret_cast<std::byte*>(memory + offset);  // NOLINT(performance-no-int-to-ptr)
    };
    std::vector<CopySpan> small;
    for (uint32_t i = 0; i < 1024; ++i) small.push_back({at(2 * i * kSmall), kSmall});
    const CopySpan large{at(0), kLarge};
    *static_cast<uint64_t*>(word) = 0;
    CopyJob job;
    job.destination = at(kLarge);
    job.doorbell = static_cast<uint64_t*>(word);
    const std::array<size_t, kCopyWays> many = {16, 128, 1024};
    for (size_t i = 0; i < kCopyWays && status.ok(); ++i) {
      if (!costs_[i].available) continue;
      const auto time = [&](std::span<const CopySpan> spans) {
        job.spans = spans;
        absl::StatusOr<JobTime> ns = Time(static_cast<CopyWay>(i), job);
        if (status.ok()) status = ns.status();
        return ns.value_or(JobTime{});
      };
      const JobTime one = time({small.data(), 1});
      const JobTime lots = time({small.data(), many[i]});
      const JobTime big = time({&large, 1});
      const double more = costs_[i].overlaps ? lots.issued - one.issued : lots.seen - one.seen;
      costs_[i].per_span = std::max(0.0, more / static_cast<double>(many[i] - 1));
      costs_[i].per_byte =
          std::max(0.0, (big.seen - one.seen) / static_cast<double>(kLarge - kSmall));
      costs_[i].fixed = std::max(0.0, one.seen - costs_[i].per_span);
    }
    Reset(0);
  }
  if (word != nullptr) driver_.mem_free_host(word);
  if (memory != 0) driver_.mem_free(memory);
  return status;
}

// Medians of a few.
absl::StatusOr<CudaCopyEngine::JobTime> CudaCopyEngine::Time(CopyWay way, const CopyJob& job) {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds kDeadline{5};
  constexpr size_t kTimes = 7;
  std::array<double, kTimes> issued, seen;
  for (size_t i = 0; i <= kTimes; ++i) {
    CopyJob next = job;
    next.sequence = *job.doorbell + 1;
    const Clock::time_point start = Clock::now();
    const auto passed = [start] {
      return std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    };
    IssueAs(way, next);
    const double issue = passed();
    CopyDone done;
    while (Reap({&done, 1}) == 0) {
      LookAtAll();
      if (Clock::now() - start > kDeadline) {
        return absl::DeadlineExceededError(
            fmt::format("GPU {} does not finish a copy", device_->pci()));
      }
    }
    if (done.status != CopyStatus::kOk) {
      return absl::InternalError(fmt::format("GPU {} cannot copy by {}: {}", device_->pci(),
                                             CopyWayName(way), device_error_));
    }
    if (i == 0) continue;  // warms up
    issued[i - 1] = issue;
    seen[i - 1] = passed();
  }
  std::sort(issued.begin(), issued.end());
  std::sort(seen.begin(), seen.end());
  return JobTime{issued[kTimes / 2], seen[kTimes / 2]};
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
  CopyWay way = forced_way_.value_or(CheapestWay(costs_, copy.spans.size(), bytes));
  if (!costs_[static_cast<size_t>(way)].available) way = CopyWay::kAsync;
  IssueAs(way, copy);
}

void CudaCopyEngine::IssueAs(CopyWay way, const CopyJob& copy) {
  Stream& stream = streams_[copy.stream];
  const auto entry = static_cast<uint32_t>(stream.issued % stream.jobs.size());
  Job& job = stream.jobs[entry];
  job = {.user_data = copy.user_data, .doorbell = copy.doorbell, .sequence = copy.sequence};
  for (const CopySpan& span : copy.spans) job.bytes += span.length;
  if (copy.doorbell != nullptr && copy.doorbell != stream.doorbell) {
    FindDoorbell(stream, copy.doorbell);
  }
  if (stream.issued == stream.ended) stream.ask_at = ReadCycles() + ask_after_;
  ++stream.issued;
  stream.pending_bytes += job.bytes;
  pending_bytes_ += job.bytes;

  const bool gpu_rings = copy.doorbell != nullptr && stream.device_doorbell != 0;
  cuda::Result result = cuda::kSuccess;
  if (!stream.broken) {
    bool rung = false;
    result = IssueCopies(way, copy, entry, &rung);
    if (result == cuda::kSuccess && gpu_rings && !rung) {
      result = IssueDoorbell(stream, copy.sequence);
    }
    if (result != cuda::kSuccess) stream.broken = true;
  }
  if (stream.broken) job.status = CopyStatus::kFailed;
  // The event of a failed job tells when what was issued of it is over.
  job.by_event = !gpu_rings || stream.broken;
  if (result != cuda::kSuccess && !OnlyOfTheCall(result)) LoseDevice(result);
  if (!job.by_event || !device_error_.empty()) return;
  result = driver_.event_record(stream.events[entry], stream.handle);
  if (result != cuda::kSuccess) LoseDevice(result);
}

cuda::Result CudaCopyEngine::IssueCopies(CopyWay way, const CopyJob& job, uint32_t entry,
                                         bool* rung) {
  if (way == CopyWay::kGather) return IssueGather(job, entry, rung);
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

cuda::Result CudaCopyEngine::IssueGather(const CopyJob& job, uint32_t entry, bool* rung) {
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
  if (gather_rings_ && job.doorbell != nullptr) {
    gather.doorbell = stream.device_doorbell;
    gather.sequence = job.sequence;
    gather.counter = counters_ + job.stream * sizeof(uint32_t);
    *rung = gather.doorbell != 0;
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
