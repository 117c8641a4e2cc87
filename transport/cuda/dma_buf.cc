#include "transport/cuda/dma_buf.h"

#include <fmt/format.h>
#include <unistd.h>

namespace railhop {

absl::StatusOr<DmaBuf> ExportDmaBuf(const CudaDevice& device, const void* address, size_t length) {
  const CudaDriver& driver = device.driver();
  int can = 0;
  if (driver.mem_get_handle_for_address_range == nullptr ||
      driver.device_get_attribute(&can, cuda::DeviceAttribute::kDmaBuf, device.ordinal()) !=
          cuda::kSuccess ||
      can == 0) {
    return absl::UnimplementedError(
        fmt::format("GPU {} or its driver offers no DMA-BUF", device.pci()));
  }
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uint64_t>(address);
  const uint64_t begin = first / page * page;
  const uint64_t end = (first + length + page - 1) / page * page;
  int fd = -1;
  const CudaScope scope(device);
  absl::Status status = driver.ToStatus(
      driver.mem_get_handle_for_address_range(&fd, begin, end - begin, cuda::kRangeHandleDmaBuf, 0),
      fmt::format("GPU {} gives no DMA-BUF of it", device.pci()));
  if (!status.ok()) return status;
  return DmaBuf{.fd = GuardedFd(fd), .offset = first - begin};
}

}  // namespace railhop
