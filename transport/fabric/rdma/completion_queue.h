// A completion queue of a device, and a descriptor that tells of new completions once armed.
//
// Threads: one polls and arms, another may let it grow meanwhile, for which the library has a lock.
// Polling is the owner's: ibv_poll_cq(get(), ...).
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/rdma/rdma_device.h"

struct ibv_comp_channel;
struct ibv_cq;

namespace railhop {

class CompletionQueue {
 public:
  // ResourceExhausted: the device has none of that size.
  static absl::StatusOr<std::unique_ptr<CompletionQueue>> Create(std::shared_ptr<RdmaDevice> device,
                                                                 int entries);
  // No queue pair may use it any more.
  ~CompletionQueue();
  CompletionQueue(const CompletionQueue&) = delete;
  CompletionQueue& operator=(const CompletionQueue&) = delete;

  ibv_cq* get() const { return queue_; }
  // From now on it has room for that many, and keeps what is in it. ResourceExhausted: it cannot,
  // and stays as it is.
  absl::Status Grow(int entries);
  int fd() const;
  // The next completion makes fd() readable: one that is not polled yet does not, so poll once more
  // afterwards. Takes back what an earlier Arm left behind.
  void Arm();

 private:
  CompletionQueue(std::shared_ptr<RdmaDevice> device, ibv_comp_channel* channel)
      : device_(std::move(device)), channel_(channel) {}

  const std::shared_ptr<RdmaDevice> device_;
  ibv_comp_channel* const channel_;
  ibv_cq* queue_ = nullptr;
};

}  // namespace railhop
