// What the engine asks of a NIC: one device of one process, io_uring-shaped.
//
//   nic->Prepare(request)...; nic->Submit();            // post side: fill a chain, ring it once
//   n = nic->Peek(completions); ...; nic->Advance(n);   // poll side
//
// Threads: ONE thread posts and ONE, possibly another, polls; control calls (Register, Deregister,
// Connect, Tend) come from any one thread beside them and may take milliseconds. Approach and
// Settle may take seconds, and be called by several threads at a time. Disconnect, kind, name, fd
// and send_queue_depth may be called by any thread at any time. Ownership: the local bytes of a
// request stay the caller's, unchanged (a write) or unread (a read), until its completion, or that
// of a later request of the same endpoint, was polled. Errors: control calls return absl::Status.
// On the data path nothing blocks, allocates or throws; a request that goes wrong says so by its
// completion.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace railhop {

// How a request ended. After the first error of an endpoint all its later requests are flushed, as
// those of a queue pair in error are, until it is disconnected and connected anew.
enum class FabricStatus : int32_t {
  kOk = 0,
  kLocalProtection = -1,  // local range not inside the registration `lkey` names
  kRemoteAccess = -2,     // remote range not inside the registration `rkey` names, or no such key
  kTargetDead = -3,       // the target process ended
  kTransport = -4,        // link down, retries exhausted
  kFlushed = -5,          // given up: endpoint in error, disconnected or unknown. It may have been
                          // carried out, but nothing of it can land any more
  kExposed = -6,  // given up, and bytes of it may still land until the target has ended: the
                  // only one of which that is true
  kHungUp = -7,   // the target hung up in the middle of it, which may be how it refuses
  kDevice = -8,   // the GPU of the local range did not copy it
};
const char* FabricStatusName(FabricStatus status);

// The keys of one registration: `lkey` for requests of this NIC, `rkey` for those of others (0 if
// the fabric serves remote access some other way). 0 is never valid.
struct MemoryKey {
  uint32_t lkey = 0;
  uint32_t rkey = 0;
};

// One of the parts that a range is registered in, where a NIC takes no more at a time.
struct MemoryPart {
  uint64_t length = 0;  // bytes; it begins where the one before it ends
  MemoryKey key;
};

// A NIC of a target's host by which its memory is reached. Its name is what rails go by.
struct RemoteNic {
  std::string name;
  std::string connection;  // opaque: whom to connect to, for the fabric of the target's kind only

  bool operator==(const RemoteNic&) const = default;
};

// A registered range of a target, and the NICs of the target's host that are near it.
struct RemoteBuffer {
  uint64_t address = 0;
  uint64_t length = 0;
  std::vector<uint32_t> rkeys;              // by position those of TargetInfo::nics
  std::vector<std::string> preferred_nics;  // names; they need not be in TargetInfo::nics

  bool operator==(const RemoteBuffer&) const = default;
};

// A target segment as its metadata describes it.
struct TargetInfo {
  std::string name;
  std::string kind;  // fabric it is reached by: "sim", ...; a NIC refuses another kind than its own
  std::vector<RemoteBuffer> buffers;
  std::vector<RemoteNic> nics;  // not empty; one, for fabrics that do not know those of the target
};

// A connection of one NIC to one NIC of a target. The value carries a generation: an id that
// outlived its endpoint is recognised, and requests to it complete as kFlushed, or as kTransport by
// a NIC that may have ended the endpoint by itself. 0 is never valid.
using EndpointId = uint32_t;

enum class FabricOpcode : uint8_t { kWrite, kRead };

struct WorkRequest {
  FabricOpcode opcode = FabricOpcode::kWrite;
  // An unsignaled request that succeeds gives no completion. Errors always do.
  bool signaled = true;
  EndpointId endpoint = 0;
  void* local = nullptr;  // only read by a write
  uint32_t lkey = 0;
  uint32_t length = 0;  // bytes; 0 is allowed
  uint64_t remote_address = 0;
  uint32_t rkey = 0;
  uint64_t user_data = 0;
};

struct NicCompletion {
  uint64_t user_data = 0;
  FabricStatus status = FabricStatus::kOk;
  uint32_t bytes = 0;  // length of the request if kOk, else 0
};

class Nic {
 public:
  static constexpr uint64_t kNoDeadline = UINT64_MAX;
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Nic() = default;

  virtual std::string_view kind() const = 0;  // "sim", ...
  virtual std::string_view name() const = 0;
  // Requests of one endpoint that may be outstanding.
  virtual uint32_t send_queue_depth() const = 0;

  // --- Control.
  virtual absl::StatusOr<MemoryKey> Register(void* address, size_t length) = 0;
  // The same in as many parts as it takes, in order of address; a request stays within one. Each is
  // deregistered by itself. On an error none is registered.
  virtual absl::StatusOr<std::vector<MemoryPart>> RegisterParts(void* address, size_t length);
  // Waits, for a bounded time, until no request of this NIC touches the range any more.
  virtual absl::Status Deregister(const MemoryKey& key) = 0;
  // To one of the target's NICs, by position.
  virtual absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) = 0;
  // Of this NIC: for messages, what the endpoint connects and, if it failed, how.
  virtual std::string Describe(EndpointId endpoint) const;
  // What of a Connect may take long, done beforehand: the next Connect to that NIC has its outcome
  // at once. Nothing, if there is a connection that works. Any thread, several at a time.
  virtual void Approach(const TargetInfo& target, size_t remote_nic) {
    (void)target;
    (void)remote_nic;
  }
  // What nobody waits for: the rest of connections that were approached, once that was told of, and
  // the end of those that are out of use. After each Approach and about once a second.
  virtual void Settle() {}
  // Starts to close the endpoint; returns at once. Every request posted to it, before or after,
  // completes, most as kFlushed. What it held is freed by a later Connect or Settle, once its last
  // completion was consumed.
  virtual void Disconnect(EndpointId endpoint) = 0;
  // For NICs that change by themselves, a cable that is pulled for one: readable (watch it
  // level-triggered) when Tend has something to look at; -1: nobody has to call Tend.
  virtual int event_fd() const { return -1; }
  // Looks after endpoints that are to be ended or freed, and after the device. Whenever event_fd()
  // is readable, and about once a second.
  virtual void Tend(Time now) { (void)now; }

  // --- Post side.
  // False: the endpoint's send queue is full; nothing happened. The room of unsignaled requests
  // comes back with the next completion of the same endpoint: signal the last request of a chain
  // and at least one in every send_queue_depth().
  virtual bool Prepare(const WorkRequest& request) = 0;
  // Hands everything prepared to the device. Without it nothing moves.
  virtual void Submit() = 0;
  // How many more requests Prepare takes for this endpoint now.
  virtual size_t SendRoom(EndpointId endpoint) const = 0;

  // --- Poll side.
  // Copies the oldest completions without consuming them. In post order per endpoint.
  virtual size_t Peek(std::span<NicCompletion> completions) = 0;
  // Consumes the `count` oldest that Peek showed; their send queue room returns.
  virtual void Advance(size_t count) = 0;
  // Arms fd() and says when to Peek again at the latest: 0 = now, a time in cycles of the NIC's
  // clock, or kNoDeadline = fd() will tell. Follow it by one more Peek before blocking.
  virtual uint64_t PrepareToPark() = 0;
  // After the park, woken or not: disarms fd(). Nothing is written to it while not armed.
  virtual void FinishPark() = 0;
  // Watch it edge-triggered: it becomes readable, and readable again, at each wake.
  virtual int fd() const = 0;
};

}  // namespace railhop
