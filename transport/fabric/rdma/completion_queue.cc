#include "transport/fabric/rdma/completion_queue.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "transport/fabric/rdma/verbs.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<CompletionQueue>> CompletionQueue::Create(
    std::shared_ptr<RdmaDevice> device, int entries) {
  const auto failed = [&device, entries](const char* what) {
    return absl::ResourceExhaustedError(fmt::format(
        "RDMA device {} has no completion queue of {} entries (its limit is {}): {}: {}",
        device->name(), entries, device->max_completions(), what, strerror(errno)));
  };
  ibv_comp_channel* const channel = device->verbs().create_comp_channel(device->context());
  if (channel == nullptr) return failed("no completion channel");
  std::unique_ptr<CompletionQueue> queue(new CompletionQueue(device, channel));
  const int flags = fcntl(channel->fd, F_GETFL);
  if (flags < 0 || fcntl(channel->fd, F_SETFL, flags | O_NONBLOCK) != 0) {
    return failed("its descriptor blocks");
  }
  queue->queue_ = device->verbs().create_cq(device->context(), entries, nullptr, channel, 0);
  if (queue->queue_ == nullptr) return failed("none made");
  return queue;
}

CompletionQueue::~CompletionQueue() {
  if (queue_ != nullptr) device_->verbs().destroy_cq(queue_);
  device_->verbs().destroy_comp_channel(channel_);
}

absl::Status CompletionQueue::Grow(int entries) {
  const int error = device_->verbs().resize_cq(queue_, entries);
  if (error == 0) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "RDMA device {} does not enlarge a completion queue to {} entries (its limit is {}): {}",
      device_->name(), entries, device_->max_completions(), strerror(error)));
}

int CompletionQueue::fd() const {
  return channel_->fd;
}

void CompletionQueue::Arm() {
  ibv_cq* queue = nullptr;
  void* context = nullptr;
  // Destroying the queue waits until all that were taken are acknowledged.
  while (device_->verbs().get_cq_event(channel_, &queue, &context) == 0) {
    device_->verbs().ack_cq_events(queue, 1);
  }
  ibv_req_notify_cq(queue_, 0);
}

}  // namespace railhop
