// A NIC made of sockets: speaks the TCP data protocol (tcp_protocol.h) to any target of it.
//
//   poster -- Prepare, Submit --> ring --> poller: endpoint -- parts --> several connections
//   poller <-- Peek: completions in post order <-- endpoint <-- statuses and data <--+
//
// The poster only writes the ring. All calls on sockets are the poller's, inside Peek and
// PrepareToPark; none blocks, and each call does a bounded amount. fd() is an epoll descriptor over
// all sockets and an eventfd that the poster and Disconnect write while the poller is parked; data
// that arrives makes it readable whether armed or not.
//
// When a request is done (docs/tcp.md): version 2, when the target has said so; a version 1 write,
// when its last byte is in the socket's buffer, which promises nothing about the target.
// Errors: refused by the target kRemoteAccess (version 1: it hangs up, kTransport); nobody listens
// kTargetDead; connection lost, protocol broken, or no byte moved for `status_timeout`: kTransport;
// the GPU of the local range refused or failed a copy: kDevice. Then the endpoint is in error.
// kFlushed keeps its promise that nothing of it can land any more: a Railhop target confirms it,
// another one by hanging up after we did. One that does neither within `finish_timeout` may still
// take what lies in its socket: such writes end as kExposed, are counted in exposed_writes(), and
// their target range must not be reused before that process has ended. `rkey` is not used: the
// target checks addresses. Connect asks the resolver, so a host that is a name may take as long as
// that does; the connections are made by the poller when the first request comes. The destructor
// closes all connections; what was under way is forgotten.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/cycle_clock.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/key_table.h"
#include "transport/fabric/tcp/tcp_bounce.h"
#include "transport/fabric/tcp/tcp_endpoint.h"
#include "transport/fabric/tcp/tcp_target.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct TcpNicOptions {
  std::string name = "tcp0";
  uint32_t connections = 4;         // per endpoint, 1..16
  uint32_t send_queue_depth = 256;  // per endpoint, 1..65536
  uint32_t max_endpoints = 64;      // 1..4000
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds status_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds finish_timeout = std::chrono::seconds(30);
  CycleClock clock;
  double cycles_per_nanosecond = 0;  // of `clock`; 0: the machine's
  // For local memory of GPUs; nullptr: the rank uses none, and all memory is the CPU's to touch.
  std::shared_ptr<TcpBounces> bounces = {};
};

class TcpNic : public Nic {
 public:
  // InvalidArgument: an option out of its range, named.
  static absl::StatusOr<std::unique_ptr<TcpNic>> Create(TcpNicOptions options);
  ~TcpNic() override = default;

  std::string_view kind() const override { return kTcpFabricKind; }
  std::string_view name() const override { return options_.name; }
  uint32_t send_queue_depth() const override { return options_.send_queue_depth; }

  // `rkey` is 0. Memory of a GPU, which the driver tells, may take milliseconds. Errors of it are
  // those of TcpBounces::Find. A request holds its registration from when the poller takes it until
  // its local range is done with; Deregister waits a second at most for those, then says
  // DeadlineExceeded.
  absl::StatusOr<MemoryKey> Register(void* address, size_t length) override;
  absl::Status Deregister(const MemoryKey& key) override;
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override;
  void Disconnect(EndpointId endpoint) override;

  bool Prepare(const WorkRequest& request) override;
  void Submit() override;
  size_t SendRoom(EndpointId endpoint) const override;

  size_t Peek(std::span<NicCompletion> completions) override;
  void Advance(size_t count) override;
  uint64_t PrepareToPark() override;
  void FinishPark() override;
  int fd() const override { return epoll_.get(); }

  // Any thread. Writes that ended while they could still land.
  uint64_t exposed_writes() const { return exposed_writes_.load(std::memory_order_relaxed); }

 private:
  // Slot::word: the id, and what state it is in. Control sets kLive, anybody kClosing, the poller
  // takes both away when nothing is left; without kLive the slot is the control thread's.
  static constexpr uint64_t kLive = uint64_t{1} << 32;
  static constexpr uint64_t kClosing = uint64_t{1} << 33;

  // The room of a slot is counted whoever's its requests are: those of an id that outlived its
  // endpoint take room of the next one, until they are flushed.
  struct Slot {
    std::atomic<uint64_t> word{0};
    std::unique_ptr<TcpEndpoint> endpoint;
    alignas(64) uint64_t prepared = 0;  // poster
    alignas(64) std::atomic<uint64_t> retired{0};
    uint64_t exposed = 0;  // poller: of this endpoint, counted already
  };

  struct ReadyEntry {
    NicCompletion completion;
    uint32_t slot = 0;
    uint32_t requests = 0;  // whose room returns with it
  };

  explicit TcpNic(TcpNicOptions options);

  uint64_t Cycles(std::chrono::nanoseconds time) const;
  // 0 for what is no index of an endpoint: requests to it are flushed.
  uint32_t SlotOf(EndpointId id) const;

  // Poller.
  void Progress();
  void TakePosted(uint64_t now);
  bool TakeEvents();
  void RunSlot(uint32_t index, uint64_t now, bool events);
  void Show(const NicCompletion& completion, uint32_t slot, uint32_t requests);
  bool Runnable() const;
  uint64_t Deadline() const;
  bool HasReady() const { return ready_head_ != ready_tail_; }
  // Any thread, after its publication and a FullFence().
  void WakePoller();
  void Ring();

  const TcpNicOptions options_;
  const double cycles_per_nanosecond_;
  const GuardedFd epoll_;
  const GuardedFd wake_;  // eventfd
  const std::unique_ptr<KeyTable> keys_;

  // [0] belongs to no target.
  std::vector<Slot> slots_;
  std::atomic<uint32_t> slot_count_{1};  // used so far, [0] included

  // Room for all that all slots may have posted.
  const size_t ring_size_;

  // Ring from the poster to the poller.
  std::vector<WorkRequest> posts_;
  uint64_t prepared_ = 0;  // poster
  alignas(64) std::atomic<uint64_t> posted_{0};
  alignas(64) uint64_t taken_ = 0;  // poller

  // Poller.
  std::vector<ReadyEntry> ready_;  // ring
  uint64_t ready_head_ = 0;
  uint64_t ready_tail_ = 0;
  bool armed_ = false;     // from PrepareToPark to FinishPark
  uint64_t promised_ = 0;  // then: when it said it would Peek
  std::atomic<uint64_t> exposed_writes_{0};
  alignas(64) std::atomic<bool> parked_{false};  // armed, and nobody has woken it since
};

}  // namespace railhop
