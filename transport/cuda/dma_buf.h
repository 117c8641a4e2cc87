// GPU memory as a file that other devices' drivers map: what an RDMA device needs to reach it
// without a kernel module of the GPU's.
//
//   absl::StatusOr<DmaBuf> buffer = ExportDmaBuf(*device, address, length);
//   ibv_reg_dmabuf_mr(pd, buffer->offset, length, address, buffer->fd.get(), access);
//
// Set-up calls of any thread, with or without a current device.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"
#include "transport/cuda/device.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct DmaBuf {
  GuardedFd fd;         // may be closed once a device has taken the memory by it
  uint64_t offset = 0;  // of the range's first byte; the file begins at a page
};

// Of [address, address + length), memory of that GPU (FindGpuOf). Unimplemented: the GPU or its
// driver has no DMA-BUF; else as the driver refuses. The text is a reason, to be part of a longer
// one.
absl::StatusOr<DmaBuf> ExportDmaBuf(const CudaDevice& device, const void* address, size_t length);

}  // namespace railhop
