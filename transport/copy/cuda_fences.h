// Fences on the streams and events of one GPU.
//
// A stream that is found idle needs no event; else one is recorded behind its work. A stream that
// is being captured is left alone: to ask it would end the capture, and an event recorded there
// would become part of the graph; its fence fails. Each batch has an event of its own, made when it
// is first needed and kept, so that threads that submit share no lock.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "transport/copy/fence.h"
#include "transport/cuda/device.h"

namespace railhop {

class CudaFences final : public Fences {
 public:
  // Of batches 0 .. capacity - 1.
  CudaFences(std::shared_ptr<const CudaDevice> device, uint32_t capacity);
  // Events that are still pending are the driver's from then on.
  ~CudaFences() override;

  FenceTicket Record(uint32_t batch, const SourceFence& fence) override;
  FenceState Query(uint32_t batch) override;

 private:
  struct Slot {
    cuda::Event own = nullptr;     // made when it is first needed
    cuda::Event waited = nullptr;  // that one, or the application's
  };

  FenceTicket RecordStream(Slot& slot, cuda::Stream stream);
  FenceState ToState(cuda::Result result);
  FenceState Fail(cuda::Result result, const char* what);

  const std::shared_ptr<const CudaDevice> device_;
  const CudaDriver& driver_;
  const uint32_t capacity_;
  const std::unique_ptr<Slot[]> slots_;
  std::atomic<uint64_t> order_{1};  // of FenceTicket::begin and end
  std::atomic<bool> warned_{false};
};

}  // namespace railhop
