#include "transport/copy/cuda_fences.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/log.h"

namespace railhop {

CudaFences::CudaFences(std::shared_ptr<const CudaDevice> device, uint32_t capacity)
    : device_(std::move(device)),
      driver_(device_->driver()),
      capacity_(capacity),
      slots_(std::make_unique<Slot[]>(capacity)) {}

CudaFences::~CudaFences() {
  CudaScope scope(*device_);
  for (uint32_t i = 0; i < capacity_; ++i) {
    if (slots_[i].own != nullptr) driver_.event_destroy(slots_[i].own);
  }
}

FenceTicket CudaFences::Record(uint32_t batch, const SourceFence& fence) {
  Slot& slot = slots_[batch];
  if (fence.kind == SourceFence::Kind::kReady) return {};
  CudaScope scope(*device_);
  switch (fence.kind) {
    case SourceFence::Kind::kEvent:
      slot.waited = static_cast<cuda::Event>(fence.handle);
      return {.state = ToState(driver_.event_query(slot.waited))};
    case SourceFence::Kind::kStream:
      return RecordStream(slot, static_cast<cuda::Stream>(fence.handle));
    default:
      return RecordStream(slot, cuda::ThreadStream());
  }
}

FenceTicket CudaFences::RecordStream(Slot& slot, cuda::Stream stream) {
  int capture = cuda::kCaptureNone;
  cuda::Result result = driver_.stream_is_capturing(stream, &capture);
  if (result == cuda::kSuccess && capture != cuda::kCaptureNone) {
    return {.state = Fail(cuda::kStreamCaptureUnsupported, "its stream is being captured")};
  }
  if (result == cuda::kSuccess) result = driver_.stream_query(stream);
  if (result != cuda::kNotReady) return {.state = ToState(result)};

  FenceTicket ticket{.state = FenceState::kPending};
  uint64_t id = 0;
  result = driver_.stream_get_id(stream, &id);
  if (result == cuda::kSuccess && slot.own == nullptr) {
    result = driver_.event_create(&slot.own, cuda::kEventDisableTiming);
  }
  if (result == cuda::kSuccess) {
    // Who draws a number after this thread's second one sees the event recorded.
    ticket.begin = order_.fetch_add(1, std::memory_order_acq_rel);
    result = driver_.event_record(slot.own, stream);
    ticket.end = order_.fetch_add(1, std::memory_order_acq_rel);
  }
  if (result != cuda::kSuccess) return {.state = ToState(result)};
  ticket.stream = id + 1;
  slot.waited = slot.own;
  return ticket;
}

FenceState CudaFences::Query(uint32_t batch) {
  device_->Enter();
  return ToState(driver_.event_query(slots_[batch].waited));
}

FenceState CudaFences::ToState(cuda::Result result) {
  if (result == cuda::kSuccess) return FenceState::kDone;
  if (result == cuda::kNotReady) return FenceState::kPending;
  return Fail(result, "its fence has failed");
}

// Logged although this can be the data path: it happens once.
FenceState CudaFences::Fail(cuda::Result result, const char* what) {
  if (!warned_.exchange(true, std::memory_order_relaxed)) {
    Log(LogLevel::kWarning,
        std::string(driver_
                        .ToStatus(result, fmt::format("a batch has failed, and its source was not "
                                                      "read: {}, on GPU {}",
                                                      what, device_->pci()))
                        .message()));
  }
  return FenceState::kFailed;
}

}  // namespace railhop
