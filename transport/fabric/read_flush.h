// What has to happen after a NIC's completion of a READ into a GPU's memory, and before it is
// shown: the NIC wrote over the PCIe bus, and the completion, which it wrote to host memory, may be
// seen earlier than the bytes are by the GPU.
//
// Only NICs that reach GPU memory themselves need it (RDMA); others have it copied.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace railhop {

class ReadFlush {
 public:
  static constexpr uint8_t kMostGpus = 64;

  virtual ~ReadFlush() = default;

  // Control threads. 0: reads into [address, address + length) need no flush, since it is no GPU's,
  // or one that is in order by itself; else the number of the GPU, 1..kMostGpus. Errors are those
  // of the driver.
  virtual absl::StatusOr<uint8_t> Of(const void* address, size_t length) = 0;

  // The thread that polls. Afterwards each GPU sees what NICs had written to it by now. Bit n - 1
  // is the GPU of number n; the result has those that failed: what was read into them may not be
  // used.
  virtual uint64_t Flush(uint64_t gpus) = 0;
};

}  // namespace railhop
