// What mooncake.engine.TransferEngine does, without Python: targets by name, lists of addresses,
// codes instead of handles.
//
// Threads: any; calls run beside each other. Before Initialize every call fails. Why a call fails
// is in the log, once in a while for each kind of failure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "transport/engine/scatter.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class PythonEngine {
 public:
  using Addresses = std::vector<uintptr_t>;
  using Lengths = std::vector<size_t>;

  ~PythonEngine();

  // 0, or -1: the log says why.
  int Initialize(const std::string& local_hostname, const std::string& metadata_server,
                 const std::optional<std::string>& protocol,
                 const std::optional<std::string>& device_name);
  int RpcPort() const;
  std::string LocalTopology(const std::optional<std::string>& device_name) const;
  std::shared_ptr<TransferEngine> engine() const { return engine_; }

  // 0, or a negative error.
  int RegisterMemory(uintptr_t address, size_t length, const std::string& location);
  int UnregisterMemory(uintptr_t address);
  int BatchRegisterMemory(const Addresses& addresses, const Lengths& lengths,
                          const std::string& location);
  int BatchUnregisterMemory(const Addresses& addresses);
  // 0: none is to be had.
  uintptr_t AllocateManagedBuffer(size_t length);
  int FreeManagedBuffer(uintptr_t address, size_t length);
  int WriteBytes(uintptr_t destination, const std::string& bytes, size_t length);
  uintptr_t FirstBufferAddress(const std::string& segment_name);

  // Waits for the end. 0, or -1: not submitted, failed, or timed out; after a time-out the log
  // names the target ranges that may still be written. `notify` is sent to the target once all is
  // there.
  int TransferSync(const std::string& target, const Addresses& buffers, const Addresses& peers,
                   const Lengths& lengths, Opcode opcode, const Notification* notify);
  // Fragments of one local and one remote buffer, as ScatterRange. As TransferSync, and
  // TransferAsync.
  int ScatterSync(const ScatterRange& range);
  BatchHandle ScatterAsync(const ScatterRange& range);
  std::vector<NicLoad> NicLoads() const;
  // A batch id; 0: not submitted.
  BatchHandle TransferAsync(const std::string& target, const Addresses& buffers,
                            const Addresses& peers, const Lengths& lengths, Opcode opcode);
  int CheckStatus(BatchHandle batch);
  int WaitForBatches(const std::vector<BatchHandle>& batches);

  std::vector<Notification> TakeNotifications();
  int Probe(const std::string& segment_name);

 private:
  // Whether there is an engine; says of `call` if there is none.
  bool IsReady(std::string_view call) const;
  bool MakeTasks(const std::string& target, const Addresses& buffers, const Addresses& peers,
                 const Lengths& lengths, Opcode opcode, std::vector<TransferTask>* tasks);
  bool MakeFragments(const ScatterRange& range, std::vector<TransferTask>* tasks);
  int Run(const std::string& target, const std::vector<TransferTask>& tasks,
          const Notification* notify);
  BatchHandle Start(const std::vector<TransferTask>& tasks, bool wait_follows);
  TransferState Finish(BatchHandle batch, const std::string& target);
  void SayWhatMayStillBeWritten(const std::string& target, const std::vector<TransferTask>& tasks);

  std::shared_ptr<TransferEngine> engine_;
  std::mutex mutex_;
  std::map<uintptr_t, size_t> managed_;  // length by address
  // Batches that timed out: freed once they have ended.
  std::vector<BatchHandle> late_;
};

}  // namespace railhop
