// An RDMA NIC: an endpoint's requests go over one queue pair, and all complete to one completion
// queue.
//
//   poster -- Prepare: a chain per endpoint -- Submit: ibv_post_send, once per endpoint --> device
//   poller <-- Peek: ibv_poll_cq <-- device;  PrepareToPark arms the queue's completion channel
//
// Selective signalling: the device is asked for a completion where the caller is, and for the last
// request of each chain, so that the end of whatever was posted is always told. That of a chain's
// unsignaled end is not shown; it only gives room back.
// Connections: Connect asks the target's handshake listener by way of `exchange`, and blocks as
// long as that does. RemoteNic::connection is the path of the target's NIC, `host:port@nic`.
// Errors: refused by the target, or no such key, kRemoteAccess; no answer within the retries (a
// dead process, a link down: they look the same), kTransport. Then the endpoint is in error.
// Threads: as fabric.h says. A wake may still come once after FinishPark: a queue cannot be
// disarmed.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/rdma/completion_queue.h"
#include "transport/fabric/rdma/queue_pair.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_handshake.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

// Sends a handshake to the listener at `server`, "host:port", and returns the answer.
using RdmaExchange =
    std::function<absl::StatusOr<std::string>(const std::string& server, const std::string& json)>;

struct RdmaNicOptions {
  std::string server_name;  // this process', "host:port": no two processes have the same
  RdmaExchange exchange;
  uint32_t send_queue_depth = 256;  // per endpoint, 1..16384
  uint32_t max_endpoints = 64;      // 1..4000, closed ones not yet reclaimed included
  // Of an endpoint, 1..255: as many as the target has. Mooncake takes no other number than its own
  // MC_NUM_QP_PER_EP, and may itself send over all of them. Ours go over the first.
  uint32_t queue_pairs = 2;
  RdmaRetry retry = {};
};

class RdmaNic : public Nic {
 public:
  // InvalidArgument: an option out of its range, named. ResourceExhausted: the device has no
  // completion queue of max_endpoints x send_queue_depth entries.
  static absl::StatusOr<std::unique_ptr<RdmaNic>> Create(std::shared_ptr<RdmaDevice> device,
                                                         RdmaNicOptions options);
  ~RdmaNic() override = default;

  std::string_view kind() const override { return kRdmaFabricKind; }
  std::string_view name() const override { return device_->name(); }
  uint32_t send_queue_depth() const override { return options_.send_queue_depth; }

  absl::StatusOr<MemoryKey> Register(void* address, size_t length) override;
  absl::Status Deregister(const MemoryKey& key) override;
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override;
  void Disconnect(EndpointId endpoint) override;
  // "rxe0 (GID index 1) -> 10.0.0.7:15001@rxe1", and how its first request that failed did, in the
  // words of the device's library.
  std::string Describe(EndpointId endpoint) const override;

  bool Prepare(const WorkRequest& request) override;
  void Submit() override;
  size_t SendRoom(EndpointId endpoint) const override;

  size_t Peek(std::span<NicCompletion> completions) override;
  void Advance(size_t count) override;
  uint64_t PrepareToPark() override;
  void FinishPark() override;
  int fd() const override { return epoll_.get(); }

 private:
  // Slot::word, with the id. Control: kUnused -> kLive, kClosed -> kLeft -> kUnused; anybody, by
  // compare-and-swap: kLive -> kClosing -> kClosed.
  enum Stage : uint64_t {
    kUnused,
    kLive,
    kClosing,  // its queue pair is being put into error
    kClosed,   // flushes; to be left once nothing is outstanding
    kLeft,     // poster finds it no more, but a chain begun before may still hold requests
  };

  using QueuePairs = std::vector<std::unique_ptr<QueuePair>>;

  struct Request {
    uint64_t user_data = 0;
    bool signaled = false;
  };

  // One endpoint at a time. Numbers count its requests; a ring's place is the number mod its size.
  struct Slot {
    static constexpr uint64_t kNever = UINT64_MAX;

    std::atomic<uint64_t> word{0};
    QueuePairs queue_pairs;         // requests go over the first
    std::string remote;             // path of the target's NIC; control
    uint64_t left_at = 0;           // chain_ when it became kLeft; control
    std::vector<Request> requests;  // rings: poster, then poller
    std::vector<ibv_send_wr> work;  // linked in a circle; poster
    std::vector<ibv_sge> spans;
    // Poster. From `refused` on nothing was posted, because the device did not take it.
    alignas(64) std::atomic<uint64_t> prepared{0};
    std::atomic<uint64_t> submitted{0};
    std::atomic<uint64_t> refused{kNever};
    // Poller.
    alignas(64) std::atomic<uint64_t> retired{0};  // their room is back
    uint64_t harvested = 0;                        // their end is known
    uint32_t shown = 0;                            // completions not yet consumed
    std::atomic<int> first_error{IBV_WC_SUCCESS};
  };

  struct ReadyEntry {
    NicCompletion completion;
    uint32_t slot = 0;
    uint64_t number = 0;
  };

  RdmaNic(std::shared_ptr<RdmaDevice> device, RdmaNicOptions options);

  // Control.
  absl::StatusOr<uint32_t> TakeSlot();
  bool Reclaim(Slot& slot);
  void MakeRings(uint32_t index);
  absl::StatusOr<QueuePairs> MakeQueuePairs() const;
  absl::Status Handshake(const NicPath& remote, const QueuePairs& queue_pairs);
  absl::StatusOr<RdmaHandshake> Exchange(const NicPath& remote, const RdmaHandshake& message);

  // Poster.
  uint32_t Find(EndpointId id) const;
  void Post(uint32_t index);
  void Refuse(Slot& slot, uint64_t first, const ibv_send_wr* bad);

  // Poller.
  bool PollDevice();
  void Harvest(uint32_t index, uint64_t number, int status);
  void FlushRefused();
  void Show(uint32_t index, uint64_t number, FabricStatus status);
  bool HasReady() const { return ready_head_ != ready_tail_; }
  void Ring();

  const std::shared_ptr<RdmaDevice> device_;
  const RdmaNicOptions options_;
  const GuardedFd epoll_;  // over the completion channel and wake_
  const GuardedFd wake_;   // eventfd: for what no device tells of
  std::unique_ptr<CompletionQueue> queue_;
  std::vector<Slot> slots_;  // [0] belongs to no target: all is refused. They go before queue_.

  // Poster.
  std::vector<uint32_t> chained_;     // slots with something prepared since the last Submit
  std::atomic<uint64_t> chain_{0};    // odd from the first Prepare to Submit
  std::atomic<uint64_t> refused_{0};  // requests, over all slots

  // Poller.
  std::vector<ReadyEntry> ready_;  // ring, with room for all that all slots may have posted
  uint64_t ready_head_ = 0;
  uint64_t ready_tail_ = 0;
  uint64_t flushed_ = 0;  // of refused_
  alignas(64) std::atomic<bool> parked_{false};
};

}  // namespace railhop
