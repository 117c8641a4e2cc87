#include "bindings/python/python_engine.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstring>
#include <utility>

#include "actors/bootstrap.h"
#include "bindings/complain.h"
#include "runtime/log.h"

namespace railhop {
namespace {

constexpr std::chrono::hours kUntilItsDeadline{24 * 365};  // the data path sees to that
constexpr size_t kShownRanges = 8;

// Python has addresses as numbers.
void* At(uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

int Negative(EngineError error) {
  return -static_cast<int>(error);
}

int Answer(std::string_view call, EngineError error) {
  return Negative(Complain(call, error));
}

int Refuse(std::string_view call, std::string_view text) {
  Complain(call, text);
  return Negative(EngineError::kInvalidArgument);
}

}  // namespace

PythonEngine::~PythonEngine() {
  for (const auto& [address, length] : managed_) {
    engine_->UnregisterMemory(At(address));
    munmap(At(address), length);
  }
}

int PythonEngine::Initialize(const std::string& local_hostname, const std::string& metadata_server,
                             const std::optional<std::string>& protocol,
                             const std::optional<std::string>& device_name) {
  if (engine_ != nullptr) {
    Log(LogLevel::kError, "initialize: this engine is initialized already");
    return -1;
  }
  std::string error;
  engine_ = MakeTransferEngine({.host = local_hostname,
                                .metadata = metadata_server,
                                .protocol = protocol.value_or("tcp"),
                                .device_names = device_name.value_or(""),
                                .config_text = ""},
                               &error);
  if (engine_ != nullptr) return 0;
  Log(LogLevel::kError, "initialize: " + error);
  return -1;
}

bool PythonEngine::IsReady(std::string_view call) const {
  if (engine_ != nullptr) return true;
  Complain(call, "this engine is not initialized: call initialize, and see that it returns 0");
  return false;
}

int PythonEngine::RpcPort() const {
  if (!IsReady("get_rpc_port")) return -1;
  const std::string name = engine_->listener();
  int port = -1;
  std::from_chars(name.data() + name.rfind(':') + 1, name.data() + name.size(), port);
  return port;
}

std::string PythonEngine::LocalTopology(const std::optional<std::string>&) const {
  return IsReady("get_local_topology") ? engine_->Topology() : "{}";
}

// --- Memory

int PythonEngine::RegisterMemory(uintptr_t address, size_t length, const std::string& location) {
  if (!IsReady("register_memory")) return Negative(EngineError::kContext);
  return Answer("register_memory", engine_->RegisterMemory(At(address), length, location));
}

int PythonEngine::UnregisterMemory(uintptr_t address) {
  if (!IsReady("unregister_memory")) return Negative(EngineError::kContext);
  return Answer("unregister_memory", engine_->UnregisterMemory(At(address)));
}

int PythonEngine::BatchRegisterMemory(const Addresses& addresses, const Lengths& lengths,
                                      const std::string& location) {
  if (!IsReady("batch_register_memory")) return Negative(EngineError::kContext);
  if (addresses.size() != lengths.size()) {
    return Refuse("batch_register_memory",
                  fmt::format("{} addresses and {} capacities are not equally many; nothing was "
                              "registered",
                              addresses.size(), lengths.size()));
  }
  std::vector<BufferEntry> entries;
  for (size_t i = 0; i < addresses.size(); ++i) {
    entries.push_back({At(addresses[i]), lengths[i]});
  }
  return Answer("batch_register_memory", engine_->RegisterMemoryBatch(entries, location));
}

int PythonEngine::BatchUnregisterMemory(const Addresses& addresses) {
  if (!IsReady("batch_unregister_memory")) return Negative(EngineError::kContext);
  std::vector<void*> pointers;
  for (const uintptr_t address : addresses) pointers.push_back(At(address));
  return Answer("batch_unregister_memory", engine_->UnregisterMemoryBatch(pointers));
}

uintptr_t PythonEngine::AllocateManagedBuffer(size_t length) {
  if (!IsReady("allocate_managed_buffer")) return 0;
  void* const memory =
      mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    Complain("allocate_managed_buffer",
             fmt::format("no {} bytes of memory: {}", length, std::strerror(errno)));
    return 0;
  }
  if (Answer("allocate_managed_buffer", engine_->RegisterMemory(memory, length, "*")) != 0) {
    munmap(memory, length);
    return 0;
  }
  const auto address = reinterpret_cast<uintptr_t>(memory);
  const std::lock_guard lock(mutex_);
  managed_.emplace(address, length);
  return address;
}

int PythonEngine::FreeManagedBuffer(uintptr_t address, size_t length) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = managed_.find(address);
    if (found == managed_.end()) {
      return Refuse("free_managed_buffer",
                    fmt::format("allocate_managed_buffer gave out no {:#x}, or it was freed before",
                                address));
    }
    if (found->second != length) {
      return Refuse("free_managed_buffer",
                    fmt::format("{:#x} has {} bytes, not {}: free it with the length that it was "
                                "allocated with",
                                address, found->second, length));
    }
  }
  const int error = UnregisterMemory(address);
  if (error != 0) return error;
  const std::lock_guard lock(mutex_);
  managed_.erase(address);
  munmap(At(address), length);
  return 0;
}

int PythonEngine::WriteBytes(uintptr_t destination, const std::string& bytes, size_t length) {
  if (length > bytes.size()) {
    return Refuse("write_bytes_to_buffer",
                  fmt::format("{} bytes of {} are to be copied", length, bytes.size()));
  }
  std::memcpy(At(destination), bytes.data(), length);
  return 0;
}

uintptr_t PythonEngine::FirstBufferAddress(const std::string& segment_name) {
  if (!IsReady("get_first_buffer_address")) return 0;
  const SegmentHandle segment = engine_->OpenSegment(segment_name);
  const uintptr_t address = segment == kNoSegment ? 0 : engine_->FirstBufferAddress(segment);
  if (address == 0) {
    Complain("get_first_buffer_address of " + segment_name, TransferEngine::last_error());
  }
  return address;
}

// --- Transfers

bool PythonEngine::MakeTasks(const std::string& target, const Addresses& buffers,
                             const Addresses& peers, const Lengths& lengths, Opcode opcode,
                             std::vector<TransferTask>* tasks) {
  if (!IsReady("transfer")) return false;
  if (buffers.size() != peers.size() || buffers.size() != lengths.size()) {
    Refuse("transfer with " + target,
           fmt::format("{} buffers, {} peer addresses and {} lengths are not equally many",
                       buffers.size(), peers.size(), lengths.size()));
    return false;
  }
  const SegmentHandle segment = engine_->OpenSegment(target);
  if (segment == kNoSegment) {
    Complain(fmt::format("target {} cannot be opened", target), TransferEngine::last_error());
    return false;
  }
  tasks->reserve(buffers.size());
  for (size_t i = 0; i < buffers.size(); ++i) {
    tasks->push_back({.opcode = opcode,
                      .source = At(buffers[i]),
                      .target = segment,
                      .target_address = peers[i],
                      .length = lengths[i]});
  }
  return true;
}

BatchHandle PythonEngine::Start(const std::vector<TransferTask>& tasks, bool wait_follows) {
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(late_, [this](BatchHandle batch) {
      TransferStatus status;
      engine_->BatchStatus(batch, &status);
      return HasEnded(status.state) && engine_->FreeBatch(batch) == EngineError::kOk;
    });
  }
  const BatchHandle batch = engine_->AllocateBatch(tasks.size());
  if (batch == kNoBatch) {
    Complain("transfer", TransferEngine::last_error());
    return 0;
  }
  const EngineError error = engine_->Submit(batch, tasks, {}, {}, wait_follows);
  if (error == EngineError::kOk) return batch;
  Complain("transfer", error);
  engine_->FreeBatch(batch);
  return 0;
}

// Waits for the batch and frees it, or keeps it for later if it timed out. Says how it has
// failed; `target`: "" if it is not known.
TransferState PythonEngine::Finish(BatchHandle batch, const std::string& target) {
  engine_->Wait(batch, kUntilItsDeadline);
  TransferStatus status;
  const EngineError error = engine_->BatchStatus(batch, &status);
  if (status.state != TransferState::kCompleted) {
    const std::string call = target.empty() ? "transfer" : "transfer with " + target;
    Complain(call, error);
    Complain(call, status);
  }
  if (error != EngineError::kOk) return TransferState::kInvalid;
  if (HasEnded(status.state)) {
    engine_->FreeBatch(batch);
  } else {
    const std::lock_guard lock(mutex_);
    late_.push_back(batch);
  }
  return status.state;
}

int PythonEngine::TransferSync(const std::string& target, const Addresses& buffers,
                               const Addresses& peers, const Lengths& lengths, Opcode opcode,
                               const Notification* notify) {
  std::vector<TransferTask> tasks;
  if (!MakeTasks(target, buffers, peers, lengths, opcode, &tasks)) return -1;
  return Run(target, tasks, notify);
}

int PythonEngine::Run(const std::string& target, const std::vector<TransferTask>& tasks,
                      const Notification* notify) {
  const BatchHandle batch = Start(tasks, true);
  if (batch == 0) return -1;
  const TransferState state = Finish(batch, target);
  if (state == TransferState::kTimeout) SayWhatMayStillBeWritten(target, tasks);
  if (state != TransferState::kCompleted) return -1;
  // The bytes are there; that nobody could be told of it is no failure of the transfer.
  if (notify != nullptr) Complain("notification to " + target, engine_->Notify(target, *notify));
  return 0;
}

void PythonEngine::SayWhatMayStillBeWritten(const std::string& target,
                                            const std::vector<TransferTask>& tasks) {
  std::string ranges;
  for (size_t i = 0; i < std::min(tasks.size(), kShownRanges); ++i) {
    const bool write = tasks[i].opcode == Opcode::kWrite;
    const uint64_t first =
        write ? tasks[i].target_address : reinterpret_cast<uint64_t>(tasks[i].source);
    ranges += fmt::format(" {:#x}+{}", first, tasks[i].length);
  }
  const bool write = !tasks.empty() && tasks[0].opcode == Opcode::kWrite;
  Log(LogLevel::kError,
      fmt::format(
          "a transfer with {} timed out and may still write {} memory:{}{}; do not reuse it "
          "before that peer is gone",
          target, write ? "the peer's" : "local", ranges,
          tasks.size() > kShownRanges ? " ..." : ""));
}

BatchHandle PythonEngine::TransferAsync(const std::string& target, const Addresses& buffers,
                                        const Addresses& peers, const Lengths& lengths,
                                        Opcode opcode) {
  std::vector<TransferTask> tasks;
  return MakeTasks(target, buffers, peers, lengths, opcode, &tasks) ? Start(tasks, false) : 0;
}

bool PythonEngine::MakeFragments(const ScatterRange& range, std::vector<TransferTask>* tasks) {
  if (!IsReady("scatter")) return false;
  const SegmentHandle segment = engine_->OpenSegment(range.segment);
  std::string error = TransferEngine::last_error();
  if (segment != kNoSegment && AppendFragments(range, segment, tasks, &error)) return true;
  Refuse("scatter with " + range.segment, error);
  return false;
}

int PythonEngine::ScatterSync(const ScatterRange& range) {
  std::vector<TransferTask> tasks;
  return MakeFragments(range, &tasks) ? Run(range.segment, tasks, nullptr) : -1;
}

BatchHandle PythonEngine::ScatterAsync(const ScatterRange& range) {
  std::vector<TransferTask> tasks;
  return MakeFragments(range, &tasks) ? Start(tasks, false) : 0;
}

std::vector<NicLoad> PythonEngine::NicLoads() const {
  return IsReady("get_nic_load_stats") ? engine_->NicLoads() : std::vector<NicLoad>{};
}

int PythonEngine::CheckStatus(BatchHandle batch) {
  TransferStatus status;
  if (!IsReady("transfer_check_status")) return -1;
  const EngineError error = engine_->BatchStatus(batch, &status);
  if (Complain("transfer_check_status", error) != EngineError::kOk) return -1;
  Complain("transfer_check_status", status);
  if (status.state == TransferState::kTimeout) return -2;
  if (!HasEnded(status.state)) return 0;
  engine_->FreeBatch(batch);
  return status.state == TransferState::kCompleted ? 1 : -1;
}

int PythonEngine::WaitForBatches(const std::vector<BatchHandle>& batches) {
  if (!IsReady("get_batch_transfer_status")) return -1;
  int result = 0;
  for (const BatchHandle batch : batches) {
    if (Finish(batch, "") != TransferState::kCompleted) result = -1;
  }
  return result;
}

// --- Words between engines

std::vector<Notification> PythonEngine::TakeNotifications() {
  return IsReady("get_notifies") ? engine_->TakeNotifications() : std::vector<Notification>{};
}

int PythonEngine::Probe(const std::string& segment_name) {
  if (!IsReady("send_probe")) return Negative(EngineError::kContext);
  return Answer("send_probe to " + segment_name, engine_->Probe(segment_name));
}

}  // namespace railhop
