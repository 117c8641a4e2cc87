// A protection domain, within that of a device, for queue pairs to which one thread at a time
// posts: the driver then takes no lock for each of them, and gives them a doorbell of their own.
//
// Registered memory is reached through it as through the device's own domain. Created and destroyed
// by any thread; it outlives its queue pairs.
#pragma once

#include <memory>
#include <utility>

#include "transport/fabric/rdma/rdma_device.h"

struct ibv_pd;
struct ibv_td;

namespace railhop {

class ThreadDomain {
 public:
  // nullptr: the device or its driver has none, or no more; the device's own domain does as well.
  static std::unique_ptr<ThreadDomain> Create(const std::shared_ptr<RdmaDevice>& device);
  ~ThreadDomain();
  ThreadDomain(const ThreadDomain&) = delete;
  ThreadDomain& operator=(const ThreadDomain&) = delete;

  ibv_pd* get() const { return domain_; }

 private:
  ThreadDomain(std::shared_ptr<RdmaDevice> device, ibv_td* thread)
      : device_(std::move(device)), thread_(thread) {}

  const std::shared_ptr<RdmaDevice> device_;
  ibv_td* const thread_;
  ibv_pd* domain_ = nullptr;
};

}  // namespace railhop
