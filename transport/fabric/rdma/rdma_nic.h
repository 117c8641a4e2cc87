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
// The NIC keeps `max_endpoints` of them. When one more has connected, another is evicted: what is
// posted to it completes, what comes later fails, and then its queue pairs end. Its id is known as
// stale from then on, so whoever still uses it hears kTransport and connects anew.
// Errors: refused by the target, or no such key, kRemoteAccess; no answer within the retries (a
// dead process, a link down: they look the same), kTransport. Then the endpoint is in error. The
// first error of an endpoint that nobody disconnected is never kFlushed, so it is heard of.
// Threads: as fabric.h says; but Connect, too, may be called by several at a time. It waits for an
// Approach to the same NIC that is under way.
// A wake may still come once after FinishPark: a queue cannot be disarmed.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/rdma/completion_queue.h"
#include "transport/fabric/rdma/eviction_order.h"
#include "transport/fabric/rdma/path_breaker.h"
#include "transport/fabric/rdma/queue_pair.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_handshake.h"
#include "transport/fabric/rdma/thread_domain.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

// Sends a handshake to the listener at `server`, "host:port", and returns the answer.
using RdmaExchange =
    std::function<absl::StatusOr<std::string>(const std::string& server, const std::string& json)>;

struct RdmaNicOptions {
  std::string server_name;  // this process', "host:port": no two processes have the same
  RdmaExchange exchange;
  RdmaAddressOf address_of = nullptr;  // of targets whose handshakes have no GID; nullptr: refused
  uint32_t send_queue_depth = 256;     // per endpoint, 1..16384
  uint32_t max_endpoints = 64;         // 1..kMaxEndpoints; those that are being drained come on top
  EvictionPolicy eviction = EvictionPolicy::kSieve;
  // Of an endpoint, 1..255: as many as the target has. Mooncake takes no other number than its own
  // MC_NUM_QP_PER_EP, and may itself send over all of them. Ours go over the first.
  uint32_t queue_pairs = 2;
  RdmaRetry retry = {};
  PathBreakerOptions breaker = {};
  // The thread that posts is the one that polls: queue pairs get a ThreadDomain, if there are any.
  bool one_thread = false;
};

class RdmaNic : public Nic {
 public:
  static constexpr uint32_t kMaxEndpoints = 4000;
  // So many have room in the completion queue from the start. It grows when more are connected; a
  // device that cannot do that keeps no more.
  static constexpr uint32_t kFirstEndpoints = 64;
  // How long an evicted endpoint may take to complete what is posted to it.
  static constexpr std::chrono::seconds kDrainTime{30};
  // How long what an Approach has made waits for its Connect.
  static constexpr std::chrono::seconds kApproachTime{5};

  // The longest send queue that a completion queue of the device can serve, with one endpoint.
  static uint32_t DeepestSendQueue(const RdmaDevice& device);
  // The most endpoints that the device has queue pairs for, and a completion queue; 0: not even
  // one.
  static uint32_t MostEndpoints(const RdmaDevice& device, uint32_t send_queue_depth,
                                uint32_t queue_pairs);
  // InvalidArgument: an option out of its range, named. ResourceExhausted: the device has no
  // completion queue that large.
  static absl::StatusOr<std::unique_ptr<RdmaNic>> Create(std::shared_ptr<RdmaDevice> device,
                                                         RdmaNicOptions options);
  ~RdmaNic() override = default;

  std::string_view kind() const override { return kRdmaFabricKind; }
  std::string_view name() const override { return device_->name(); }
  uint32_t send_queue_depth() const override { return options_.send_queue_depth; }

  absl::StatusOr<MemoryKey> Register(void* address, size_t length) override;
  absl::StatusOr<std::vector<MemoryPart>> RegisterParts(void* address, size_t length) override;
  absl::Status Deregister(const MemoryKey& key) override;
  // FailedPrecondition: the path has failed again and again, and is left alone for a while, or this
  // NIC cannot be used just now. The text has both NICs and the reason.
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override;
  void Approach(const TargetInfo& target, size_t remote_nic) override;
  void Settle() override;
  // "rxe0 (GID index 1) -> 10.0.0.7:15001@rxe1", and how its first request that failed did, in the
  // words of the device's library, or why the NIC ended it.
  std::string Describe(EndpointId endpoint) const override;
  void Disconnect(EndpointId endpoint) override;
  int event_fd() const override { return device_->event_fd(); }
  void Tend(Time now) override;

  bool Prepare(const WorkRequest& request) override;
  void Submit() override;
  size_t SendRoom(EndpointId endpoint) const override;

  size_t Peek(std::span<NicCompletion> completions) override;
  void Advance(size_t count) override;
  uint64_t PrepareToPark() override;
  void FinishPark() override;
  int fd() const override { return epoll_.get(); }

 private:
  // Slot::word, with the id. Control: kUnused -> kTaken -> kLive, kLive -> kDraining,
  // kClosed -> kLeft -> kUnused; anybody, by compare-and-swap: kLive or kDraining -> kClosing ->
  // kClosed.
  enum Stage : uint64_t {
    kUnused,
    kTaken,  // a Connect is under way
    kLive,
    kDraining,  // evicted: the device gets no more requests for it
    kClosing,   // its queue pair is being put into error
    kClosed,    // flushes; to be left once nothing is outstanding
    kLeft,      // poster finds it no more, but a chain begun before may still hold requests
  };
  static constexpr int kStageShift = 32;
  static constexpr uint32_t kIndexBits = 12;  // of an EndpointId; the rest is the generation
  static uint64_t Word(Stage stage, EndpointId id) { return uint64_t{stage} << kStageShift | id; }

  using QueuePairs = std::vector<std::unique_ptr<QueuePair>>;

  // What is left to tell a target of a connection that works already: that its end may send, too.
  struct Acknowledgement {
    NicPath remote;
    RdmaHandshake message;
  };
  // A connection that is nobody's endpoint yet, with the slot that it will have.
  struct Connection {
    uint32_t slot = 0;
    QueuePairs queue_pairs;
  };
  struct Approached {
    absl::StatusOr<Connection> outcome;
    bool under_way = true;
    Time at;
  };

  struct Request {
    uint64_t user_data = 0;
    bool signaled = false;
  };

  // One endpoint at a time. Numbers count its requests; a ring's place is the number mod its size.
  struct Slot {
    static constexpr uint64_t kNever = UINT64_MAX;

    std::atomic<uint64_t> word{0};
    QueuePairs queue_pairs;  // requests go over the first
    // Control.
    std::string remote;  // path of the target's NIC
    Time connected_at;
    Time drain_until;           // kDraining
    uint64_t port_changes = 0;  // of the device, when it was connected
    bool judged = false;        // its error has been told to the breaker, or is none of the path's
    uint64_t left_at = 0;       // chain_ when it became kLeft
    std::atomic<const char*> why{nullptr};  // the NIC ended it
    std::atomic<bool> disconnected{false};  // by its owner: a flush is no news
    std::vector<Request> requests;          // rings: poster, then poller
    std::vector<ibv_send_wr> work;          // linked in a circle; poster
    std::vector<ibv_sge> spans;
    // Poster. From `refused` on nothing was posted, because the device did not take it, or must
    // not get it.
    alignas(64) std::atomic<uint64_t> prepared{0};
    std::atomic<uint64_t> submitted{0};
    std::atomic<uint64_t> refused{kNever};
    std::atomic<bool> visited{false};  // since it was last asked whether it may go
    // Poller.
    alignas(64) std::atomic<uint64_t> retired{0};  // their room is back
    uint64_t harvested = 0;                        // their end is known
    uint32_t shown = 0;                            // completions not yet consumed
    std::atomic<int> first_error{IBV_WC_SUCCESS};

    Stage stage() const {
      return static_cast<Stage>(word.load(std::memory_order_acquire) >> kStageShift);
    }
    EndpointId id() const { return static_cast<EndpointId>(word.load(std::memory_order_relaxed)); }
    bool Idle() const {
      return retired.load(std::memory_order_acquire) == prepared.load(std::memory_order_acquire);
    }
  };

  struct ReadyEntry {
    NicCompletion completion;
    uint32_t slot = 0;
    uint64_t number = 0;
  };

  RdmaNic(std::shared_ptr<RdmaDevice> device, RdmaNicOptions options);

  // Slots for so many endpoints, and for those that are being drained beside them; and how many
  // endpoints so many slots are for.
  static uint32_t SlotsFor(uint32_t endpoints);
  static uint32_t EndpointsFor(uint32_t slots);

  // Control: one connection.
  absl::Status CheckTarget(const TargetInfo& target, size_t remote_nic) const;
  // `later`: gets what is to be told afterwards, if anything; nullptr: it is told at once.
  absl::StatusOr<Connection> Establish(const std::string& connection,
                                       std::optional<Acknowledgement>* later);
  absl::StatusOr<QueuePairs> MakeQueuePairs() const;
  absl::StatusOr<std::optional<Acknowledgement>> Handshake(const NicPath& remote,
                                                           const QueuePairs& queue_pairs);
  absl::StatusOr<RdmaHandshake> Exchange(const NicPath& remote, const RdmaHandshake& message);
  absl::Status Acknowledge(const Acknowledgement& acknowledgement);
  void MakeRings(uint32_t index);
  static bool End(Slot& slot, EndpointId id);  // any thread

  // Control: the store, in rdma_nic_store.cc.
  void EndOld();
  absl::StatusOr<uint32_t> TakeSlot(const std::string& remote, Time now);
  void NoteOutcome(uint32_t index, const std::string& remote, const absl::Status& outcome,
                   Time now);
  EndpointId Publish(Connection made, const std::string& remote, Time now);
  std::optional<absl::StatusOr<Connection>> TakeApproached(const std::string& remote);
  // Under store_mutex_.
  absl::Status MakeRoom(uint32_t index, Time now);
  void Evict(Time now);
  void EndSlot(uint32_t index, const char* why);
  void EndRefused(uint32_t queue_pair);
  void EndQueuePair(const RdmaEvent& event);
  void FollowPort();
  bool Works(const std::string& remote) const;
  void Forsake(Time before);
  void Sweep(Time now);
  void Judge(Slot& slot, Time now);
  bool Reclaim(Slot& slot);

  // Poster.
  uint32_t Find(EndpointId id) const;
  void Post(uint32_t index);
  void Refuse(Slot& slot, uint64_t first, const ibv_send_wr* bad);

  // Poller.
  bool PollDevice();
  void Harvest(uint32_t index, uint64_t number, int status);
  void FlushRefused();
  FabricStatus NoteError(Slot& slot, int status);
  void Show(uint32_t index, uint64_t number, FabricStatus status);  // needs ReadyRoom
  bool HasReady() const { return ready_head_ != ready_tail_; }
  size_t ReadyRoom() const { return ready_.size() - (ready_tail_ - ready_head_); }
  void Ring();

  const std::shared_ptr<RdmaDevice> device_;
  const RdmaNicOptions options_;
  const GuardedFd epoll_;                       // over the completion channel and wake_
  const GuardedFd wake_;                        // eventfd: for what no device tells of
  const std::unique_ptr<ThreadDomain> domain_;  // nullptr: none
  std::unique_ptr<CompletionQueue> queue_;
  std::vector<Slot> slots_;  // [0] belongs to no target: all is refused. They go before queue_.
  // Out of use, and not ended yet: for as long as packets of it are in the kernel's hands, which
  // may be seconds where a link is dead, a device waits for them. So that is left to Settle.
  std::vector<QueuePairs> old_;  // under store_mutex_

  // Control. What a slot says of its queue pairs and of control, too.
  mutable std::mutex store_mutex_;
  EvictionOrder order_;  // of the live slots
  uint32_t room_;        // the completion queue is large enough for the slots up to this one
  uint32_t limit_;       // of live slots
  PathBreakers breakers_;
  std::map<std::string, Approached> approached_;  // by path of the remote NIC
  std::condition_variable approach_ended_;
  std::vector<Acknowledgement> unacknowledged_;
  uint64_t port_changes_ = 0;  // of the device, as last followed

  // Poster.
  std::vector<uint32_t> chained_;     // slots with something prepared since the last Submit
  std::atomic<uint64_t> chain_{0};    // odd from the first Prepare to Submit
  std::atomic<uint64_t> refused_{0};  // requests, over all slots

  // Poller.
  std::vector<ReadyEntry> ready_;  // ring; what it has no room for stays where it is
  uint64_t ready_head_ = 0;
  uint64_t ready_tail_ = 0;
  uint64_t flushed_ = 0;  // of refused_
  alignas(64) std::atomic<bool> parked_{false};
};

}  // namespace railhop
