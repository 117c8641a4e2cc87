#include "bindings/c/transfer_engine_c.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "actors/bootstrap.h"
#include "bindings/complain.h"
#include "runtime/log.h"
#include "transport/engine/scatter.h"

using railhop::BatchHandle;
using railhop::BufferEntry;
using railhop::Complain;
using railhop::EngineError;
using railhop::Log;
using railhop::LogLevel;
using railhop::Notification;
using railhop::ScatterRange;
using railhop::SegmentHandle;
using railhop::TransferEngine;
using railhop::TransferTask;

namespace {

constexpr std::chrono::hours kUntilItsDeadline{24 * 365};  // the data path sees to that

// What the C interface keeps beside an engine: notifications that wait for their batch, and batches
// of calls that timed out, which are freed once they have ended.
struct Engine {
  struct Pending {
    SegmentHandle target = 0;
    Notification notification;
  };
  std::unique_ptr<TransferEngine> engine;
  std::mutex mutex;
  std::map<BatchHandle, Pending> pending;
  std::vector<BatchHandle> late;
};

Engine& Of(transfer_engine_t engine) {
  return *static_cast<Engine*>(engine);
}

const char* OrEmpty(const char* text) {
  return text == nullptr ? "" : text;
}

int Code(EngineError error) {
  return static_cast<int>(error);
}

int Say(const char* call, EngineError error) {
  return Code(Complain(call, error));
}

int Refuse(const char* call, std::string_view text) {
  Complain(call, text);
  return Code(EngineError::kInvalidArgument);
}

// Whether none of the arguments, by their names, is NULL; says which is.
bool AreGiven(const char* call,
              std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, pointer] : arguments) {
    if (pointer != nullptr) continue;
    Refuse(call, fmt::format("{} is NULL", name));
    return false;
  }
  return true;
}

// An array that may be NULL if nothing is in it.
const void* Array(const void* first, size_t count) {
  return count == 0 ? "" : first;
}

bool IsOpcode(const char* call, size_t index, int opcode) {
  if (opcode == OPCODE_READ || opcode == OPCODE_WRITE) return true;
  Refuse(call,
         fmt::format("entry {}: opcode {} is neither OPCODE_READ nor OPCODE_WRITE", index, opcode));
  return false;
}

bool MakeTasks(const char* call, const transfer_request* entries, size_t count,
               std::vector<TransferTask>* tasks) {
  tasks->reserve(count);
  for (const transfer_request& entry : std::span(entries, count)) {
    if (!IsOpcode(call, tasks->size(), entry.opcode)) return false;
    if (entry.target_id < 0) {
      Refuse(call, fmt::format("entry {}: target {} is none that openSegment gave", tasks->size(),
                               entry.target_id));
      return false;
    }
    tasks->push_back(
        {.opcode = entry.opcode == OPCODE_WRITE ? railhop::Opcode::kWrite : railhop::Opcode::kRead,
         .source = entry.source,
         .target = static_cast<SegmentHandle>(entry.target_id),
         .target_address = entry.target_offset,
         .length = entry.length});
  }
  return true;
}

bool MakeRanges(const char* call, const scatter_range* ranges, size_t count,
                std::vector<ScatterRange>* made) {
  for (const scatter_range& range : std::span(ranges, count)) {
    if (!IsOpcode(call, made->size(), range.opcode)) return false;
    const size_t fragments = range.fragment_count;
    if (!AreGiven(call, {{"local_offsets", Array(range.local_offsets, fragments)},
                         {"remote_offsets", Array(range.remote_offsets, fragments)},
                         {"lengths", Array(range.lengths, fragments)}})) {
      return false;
    }
    made->push_back(
        {.opcode = range.opcode == OPCODE_WRITE ? railhop::Opcode::kWrite : railhop::Opcode::kRead,
         .segment = OrEmpty(range.remote_segment),
         .remote_address = range.remote_base_offset,
         .remote_size = range.remote_size,
         .local = range.local_buffer,
         .local_size = range.local_capacity,
         .local_offsets = std::span(range.local_offsets, fragments),
         .remote_offsets = std::span(range.remote_offsets, fragments),
         .lengths = std::span(range.lengths, fragments)});
  }
  return true;
}

// Bytes written, without the 0 at the end.
int CopyText(const std::string& text, char* buffer, size_t size) {
  if (size == 0) return 0;
  const size_t length = std::min(text.size(), size - 1);
  std::memcpy(buffer, text.data(), length);
  buffer[length] = 0;
  return static_cast<int>(length);
}

// Once all tasks of its batch were seen completed: the caller may ask for none of them again, and
// the state of the whole follows that of the last one.
void SendPending(Engine& engine, BatchHandle batch) {
  Engine::Pending pending;
  {
    const std::lock_guard lock(engine.mutex);
    const auto found = engine.pending.find(batch);
    if (found == engine.pending.end()) return;
    bool completed = true;
    railhop::TransferStatus status;
    for (size_t task = 0; engine.engine->TaskStatus(batch, task, &status) == EngineError::kOk;
         ++task) {
      if (!railhop::HasEnded(status.state)) return;
      completed = completed && status.state == railhop::TransferState::kCompleted;
    }
    pending = std::move(found->second);
    engine.pending.erase(found);
    if (!completed) return;
  }
  Say("notification", engine.engine->NotifySegment(pending.target, pending.notification));
}

// True once it has ended.
bool FreeIfEnded(TransferEngine& engine, BatchHandle batch) {
  railhop::TransferStatus status;
  engine.BatchStatus(batch, &status);
  return railhop::HasEnded(status.state) && engine.FreeBatch(batch) == EngineError::kOk;
}

}  // namespace

transfer_engine_t createTransferEngine(const char* metadata_conn_string,
                                       const char* local_server_name, const char*, uint64_t, int) {
  auto made = std::make_unique<Engine>();
  railhop::EngineOptions options;
  options.host = OrEmpty(local_server_name);
  options.metadata = OrEmpty(metadata_conn_string);
  std::string error;
  made->engine = railhop::MakeTransferEngine(options, &error);
  if (made->engine != nullptr) return made.release();
  Log(LogLevel::kError, "createTransferEngine: " + error);
  return nullptr;
}

void destroyTransferEngine(transfer_engine_t engine) {
  delete static_cast<Engine*>(engine);
}

int discoverTopology(transfer_engine_t) {
  return 0;
}

int getLocalIpAndPort(transfer_engine_t engine, char* buf_out, size_t buf_len) {
  if (!AreGiven("getLocalIpAndPort", {{"engine", engine}, {"buf_out", buf_out}}))
    return Code(EngineError::kInvalidArgument);
  const std::string listener = Of(engine).engine->listener();
  if (listener.size() >= buf_len) {
    return Refuse("getLocalIpAndPort", fmt::format("buf_len is {}, and {} bytes are needed",
                                                   buf_len, listener.size() + 1));
  }
  CopyText(listener, buf_out, buf_len);
  return 0;
}

transport_t installTransport(transfer_engine_t engine, const char* proto, void**) {
  return std::strcmp(OrEmpty(proto), "tcp") == 0 ? engine : nullptr;
}

int uninstallTransport(transfer_engine_t, const char*) {
  return 0;
}

segment_id_t openSegment(transfer_engine_t engine, const char* segment_name) {
  if (!AreGiven("openSegment", {{"engine", engine}, {"segment_name", segment_name}})) return -1;
  const SegmentHandle handle = Of(engine).engine->OpenSegment(segment_name);
  if (handle != railhop::kNoSegment) return static_cast<segment_id_t>(handle);
  Complain(fmt::format("openSegment {}", segment_name), TransferEngine::last_error());
  return -1;
}

segment_id_t openSegmentNoCache(transfer_engine_t engine, const char* segment_name) {
  const segment_id_t id = openSegment(engine, segment_name);
  if (id > 0) Of(engine).engine->FirstBufferAddress(static_cast<SegmentHandle>(id));
  return id;
}

int closeSegment(transfer_engine_t, segment_id_t) {
  return 0;
}

int removeLocalSegment(transfer_engine_t, const char*) {
  return 0;
}

int warmupEfaSegment(transfer_engine_t, const char*) {
  return 0;
}

int syncSegmentCache(transfer_engine_t engine) {
  if (!AreGiven("syncSegmentCache", {{"engine", engine}}))
    return Code(EngineError::kInvalidArgument);
  return Say("syncSegmentCache", Of(engine).engine->RefreshSegments());
}

int registerLocalMemory(transfer_engine_t engine, void* addr, size_t length, const char* location,
                        int) {
  if (!AreGiven("registerLocalMemory", {{"engine", engine}}))
    return -Code(EngineError::kInvalidArgument);
  return -Say("registerLocalMemory",
              Of(engine).engine->RegisterMemory(addr, length, OrEmpty(location)));
}

int unregisterLocalMemory(transfer_engine_t engine, void* addr) {
  if (!AreGiven("unregisterLocalMemory", {{"engine", engine}}))
    return -Code(EngineError::kInvalidArgument);
  return -Say("unregisterLocalMemory", Of(engine).engine->UnregisterMemory(addr));
}

int registerLocalMemoryBatch(transfer_engine_t engine, buffer_entry_t* buffer_list,
                             size_t buffer_len, const char* location) {
  if (!AreGiven("registerLocalMemoryBatch",
                {{"engine", engine}, {"buffer_list", Array(buffer_list, buffer_len)}}))
    return -Code(EngineError::kInvalidArgument);
  std::vector<BufferEntry> entries;
  for (const buffer_entry& entry : std::span(buffer_list, buffer_len)) {
    entries.push_back({entry.addr, entry.length});
  }
  return -Say("registerLocalMemoryBatch",
              Of(engine).engine->RegisterMemoryBatch(entries, OrEmpty(location)));
}

int unregisterLocalMemoryBatch(transfer_engine_t engine, void** addr_list, size_t addr_len) {
  if (!AreGiven("unregisterLocalMemoryBatch",
                {{"engine", engine}, {"addr_list", Array(addr_list, addr_len)}}))
    return -Code(EngineError::kInvalidArgument);
  return -Say("unregisterLocalMemoryBatch",
              Of(engine).engine->UnregisterMemoryBatch(std::span(addr_list, addr_len)));
}

batch_id_t allocateBatchID(transfer_engine_t engine, size_t batch_size) {
  if (!AreGiven("allocateBatchID", {{"engine", engine}})) return INVALID_BATCH;
  const BatchHandle batch = Of(engine).engine->AllocateBatch(batch_size);
  if (batch == railhop::kNoBatch) Say("allocateBatchID", EngineError::kTooManyRequests);
  return batch;
}

int submitTransfer(transfer_engine_t engine, batch_id_t batch_id, struct transfer_request* entries,
                   size_t count) {
  if (!AreGiven("submitTransfer", {{"engine", engine}, {"entries", Array(entries, count)}}))
    return Code(EngineError::kInvalidArgument);
  std::vector<TransferTask> tasks;
  if (!MakeTasks("submitTransfer", entries, count, &tasks))
    return Code(EngineError::kInvalidArgument);
  return Say("submitTransfer", Of(engine).engine->Submit(batch_id, tasks));
}

int submitTransferWithNotify(transfer_engine_t engine, batch_id_t batch_id,
                             struct transfer_request* entries, size_t count,
                             notify_msg_t notify_msg) {
  if (!AreGiven("submitTransferWithNotify", {{"engine", engine}, {"entries", entries}})) {
    return Code(EngineError::kInvalidArgument);
  }
  if (count == 0) {
    return Refuse("submitTransferWithNotify", "no entries, of whose end the target could be told");
  }
  {
    const std::lock_guard lock(Of(engine).mutex);
    Of(engine).pending[batch_id] = {
        .target = static_cast<SegmentHandle>(entries[0].target_id),
        .notification = {OrEmpty(notify_msg.name), OrEmpty(notify_msg.msg)}};
  }
  const int code = submitTransfer(engine, batch_id, entries, count);
  if (code == 0) return code;
  const std::lock_guard lock(Of(engine).mutex);
  Of(engine).pending.erase(batch_id);
  return code;
}

int submitScatter(transfer_engine_t engine, batch_id_t batch_id, const scatter_range_t* ranges,
                  size_t count) {
  if (!AreGiven("submitScatter", {{"engine", engine}, {"ranges", Array(ranges, count)}}))
    return Code(EngineError::kInvalidArgument);
  std::vector<ScatterRange> made;
  if (!MakeRanges("submitScatter", ranges, count, &made))
    return Code(EngineError::kInvalidArgument);
  return Say("submitScatter", Of(engine).engine->SubmitScatter(batch_id, made));
}

int transferScatter(transfer_engine_t engine, const scatter_range_t* ranges, size_t count) {
  if (!AreGiven("transferScatter", {{"engine", engine}, {"ranges", Array(ranges, count)}}))
    return Code(EngineError::kInvalidArgument);
  TransferEngine& owner = *Of(engine).engine;
  {
    const std::lock_guard lock(Of(engine).mutex);
    std::erase_if(Of(engine).late, [&](BatchHandle batch) { return FreeIfEnded(owner, batch); });
  }
  size_t fragments = 0;
  for (const scatter_range& range : std::span(ranges, count)) fragments += range.fragment_count;
  const BatchHandle batch = owner.AllocateBatch(fragments);
  if (batch == railhop::kNoBatch) return Say("transferScatter", EngineError::kTooManyRequests);
  const int code = submitScatter(engine, batch, ranges, count);
  railhop::TransferStatus status;
  if (code == 0) {
    owner.Wait(batch, kUntilItsDeadline);
    owner.BatchStatus(batch, &status);
    Complain("transferScatter", status);
  }
  // What is not over by now, after its deadline, may still land.
  if (owner.FreeBatch(batch) != EngineError::kOk) {
    const std::lock_guard lock(Of(engine).mutex);
    Of(engine).late.push_back(batch);
  }
  if (code != 0) return code;
  return Code(status.state == railhop::TransferState::kCompleted ? EngineError::kOk
                                                                 : EngineError::kSocket);
}

int setBatchCallback(transfer_engine_t engine, batch_id_t batch_id, batch_callback_t callback,
                     void* context) {
  if (!AreGiven("setBatchCallback", {{"engine", engine}}))
    return Code(EngineError::kInvalidArgument);
  if (callback == nullptr) return Refuse("setBatchCallback", "callback is NULL");
  const EngineError error = Of(engine).engine->SetCallback(
      batch_id, [callback, context](BatchHandle batch, const railhop::TransferStatus& status) {
        callback(batch, static_cast<int>(status.state), context);
      });
  return Say("setBatchCallback", error);
}

int getNicLoadStats(transfer_engine_t engine, nic_load_stat_t* stats, size_t* count) {
  if (!AreGiven("getNicLoadStats", {{"engine", engine}, {"count", count}}))
    return Code(EngineError::kInvalidArgument);
  const std::vector<railhop::NicLoad> loads = Of(engine).engine->NicLoads();
  const size_t room = stats == nullptr ? 0 : *count;
  for (size_t i = 0; i < std::min(room, loads.size()); ++i) {
    CopyText(loads[i].name, stats[i].device_name, sizeof stats[i].device_name);
    stats[i].inflight_bytes = loads[i].inflight_bytes;
    stats[i].ewma_bandwidth_bps = loads[i].bytes_per_second;
  }
  *count = loads.size();
  return 0;
}

int getTransferStatus(transfer_engine_t engine, batch_id_t batch_id, size_t task_id,
                      struct transfer_status* status) {
  if (!AreGiven("getTransferStatus", {{"engine", engine}, {"status", status}}))
    return Code(EngineError::kInvalidArgument);
  railhop::TransferStatus found;
  const EngineError error = Of(engine).engine->TaskStatus(batch_id, task_id, &found);
  if (error != EngineError::kOk) return Say("getTransferStatus", error);
  Complain("getTransferStatus", found);
  *status = {.status = static_cast<int>(found.state), .transferred_bytes = found.transferred_bytes};
  if (railhop::HasEnded(found.state)) SendPending(Of(engine), batch_id);
  return 0;
}

int freeBatchID(transfer_engine_t engine, batch_id_t batch_id) {
  if (!AreGiven("freeBatchID", {{"engine", engine}})) return Code(EngineError::kInvalidArgument);
  const EngineError error = Of(engine).engine->FreeBatch(batch_id);
  if (error != EngineError::kOk) return Say("freeBatchID", error);
  const std::lock_guard lock(Of(engine).mutex);
  Of(engine).pending.erase(batch_id);
  return 0;
}

notify_msg_t* getNotifsFromEngine(transfer_engine_t engine, int* size) {
  if (!AreGiven("getNotifsFromEngine", {{"engine", engine}, {"size", size}})) return nullptr;
  const std::vector<Notification> taken = Of(engine).engine->TakeNotifications();
  *size = static_cast<int>(taken.size());
  if (taken.empty()) return nullptr;
  auto* messages = static_cast<notify_msg_t*>(std::malloc(taken.size() * sizeof(notify_msg_t)));
  for (size_t i = 0; i < taken.size(); ++i) {
    messages[i] = {strdup(taken[i].name.c_str()), strdup(taken[i].message.c_str())};
  }
  return messages;
}

int freeNotifsMsgBuf(notify_msg_t* msg, int size) {
  if (msg == nullptr) return 0;
  for (int i = 0; i < size; ++i) {
    std::free(msg[i].name);
    std::free(msg[i].msg);
  }
  std::free(msg);
  return 0;
}

int genNotifyInEngine(transfer_engine_t engine, uint64_t target_id, notify_msg_t notify_msg) {
  if (!AreGiven("genNotifyInEngine", {{"engine", engine}}))
    return Code(EngineError::kInvalidArgument);
  return Say("genNotifyInEngine",
             Of(engine).engine->NotifySegment(target_id,
                                              {OrEmpty(notify_msg.name), OrEmpty(notify_msg.msg)}));
}

int enableGracefulShutdown(transfer_engine_t) {
  return 0;
}

int showLinks(transfer_engine_t engine, char* buf_out, size_t buf_len, int json) {
  if (!AreGiven("showLinks", {{"engine", engine}, {"buf_out", Array(buf_out, buf_len)}})) return 0;
  const std::string& name = Of(engine).engine->name();
  return CopyText(json != 0 ? fmt::format("{{\"name\":\"{}\",\"protocol\":\"tcp\"}}", name)
                            : fmt::format("{} tcp", name),
                  buf_out, buf_len);
}
