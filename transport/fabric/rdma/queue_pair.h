// A reliable connected queue pair of a device, from its making to its end.
//
//   Create: may be named to the peer --Connect(peer)--> sends and receives --Fail--> flushes
//
// Threads: one at a time, but for Fail, which any thread may call at any time before the end.
// Posting is the owner's: ibv_post_send(get(), ...).
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/rdma/gid.h"
#include "transport/fabric/rdma/rdma_device.h"

struct ibv_cq;
struct ibv_qp;

namespace railhop {

// How long a queue pair tries: each packet is awaited for 4.096 us * 2^timeout, sent anew up to
// `count` times, and then the queue pair fails. 14 and 7 are Mooncake's (mooncake-compat (e)); 6
// because some drivers take 7 for "for ever", rxe among them, and then no dead peer is ever found.
struct RdmaRetry {
  uint8_t timeout = 14;  // 67 ms
  uint8_t count = 6;
};

class QueuePair {
 public:
  struct Peer {
    Gid gid{};
    uint16_t lid = 0;
    uint32_t number = 0;
  };

  // Room for `depth` requests of one span each, which complete to `completions`; the caller's, it
  // outlives the queue pair. `domain`: a ThreadDomain's, likewise; nullptr: the device's own.
  // ResourceExhausted: the device has no more.
  static absl::StatusOr<std::unique_ptr<QueuePair>> Create(std::shared_ptr<RdmaDevice> device,
                                                           ibv_cq* completions, uint32_t depth,
                                                           ibv_pd* domain = nullptr);
  // Nothing of it is under way afterwards; its completions that nobody polled are gone.
  ~QueuePair();
  QueuePair(const QueuePair&) = delete;
  QueuePair& operator=(const QueuePair&) = delete;

  uint32_t number() const;
  ibv_qp* get() const { return queue_pair_; }

  // FailedPrecondition: the peer's address is not reached from this port; that may take the kernel
  // some seconds to find out.
  absl::Status Connect(const Peer& peer, const RdmaRetry& retry);
  // Ends it: what is posted, and will be, is flushed. Bytes under way do not land any more.
  void Fail();

 private:
  QueuePair(std::shared_ptr<RdmaDevice> device, ibv_qp* queue_pair)
      : device_(std::move(device)), queue_pair_(queue_pair) {}
  absl::Status Initialize();

  const std::shared_ptr<RdmaDevice> device_;
  ibv_qp* const queue_pair_;
};

}  // namespace railhop
