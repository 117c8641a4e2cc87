// What single calls of the driver cost the thread that makes them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "transport/cuda/device.h"

namespace railhop {

// JSON lines named gpu.call: the median of bursts of calls on a stream of their own, with the work
// of a burst done before the next one begins. Copies are of 64 KiB from `source`, memory of the
// device, to `destination`; `word` is host memory that the device sees.
void PrintCallCosts(const CudaDevice& device, std::byte* source, std::byte* destination,
                    uint64_t* word);

}  // namespace railhop
