#include "transport/fabric/rdma/cuda_read_flush.h"

#include <fmt/format.h>

#include <bit>
#include <string>
#include <utility>

#include "runtime/log.h"
#include "transport/cuda/memory.h"

namespace railhop {

absl::StatusOr<uint8_t> CudaReadFlush::Of(const void* address, size_t length) {
  const absl::StatusOr<std::optional<cuda::Device>> found = FindGpuOf(driver_, address, length);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return uint8_t{0};
  const cuda::Device ordinal = **found;
  if (ordinal >= kMostGpus) {
    return absl::UnimplementedError(
        fmt::format("memory at {} is device {}'s; RDMA reads into that of the first {}", address,
                    ordinal, kMostGpus));
  }
  const std::lock_guard lock(mutex_);
  Gpu& gpu = gpus_[static_cast<size_t>(ordinal)];
  if (absl::Status status = Ask(ordinal, &gpu); !status.ok()) return status;
  return static_cast<uint8_t>(gpu.in_order ? 0 : ordinal + 1);
}

absl::Status CudaReadFlush::Ask(cuda::Device ordinal, Gpu* gpu) {
  if (gpu->asked) return absl::OkStatus();
  const auto ask = [&](cuda::DeviceAttribute attribute) {
    int value = 0;
    // A GPU about which the driver does not know that is not in order, and cannot be flushed.
    return driver_.device_get_attribute(&value, attribute, ordinal) == cuda::kSuccess ? value : 0;
  };
  gpu->in_order = ask(cuda::DeviceAttribute::kRdmaWritesOrdering) >= cuda::kRdmaOrderingOwner;
  if (!gpu->in_order) {
    char pci[32] = "";
    absl::Status status = driver_.ToStatus(driver_.device_get_pci_bus_id(pci, sizeof(pci), ordinal),
                                           "the PCI address of a GPU cannot be had");
    if (!status.ok()) return status;
    auto device = CudaDevice::Open(driver_, pci);
    if (!device.ok()) return device.status();
    gpu->device = *std::move(device);
    const int options = ask(cuda::DeviceAttribute::kRdmaFlushOptions);
    gpu->can_flush =
        (options & cuda::kRdmaFlushHost) != 0 && driver_.flush_gpu_direct_rdma_writes != nullptr;
  }
  gpu->asked = true;
  return absl::OkStatus();
}

uint64_t CudaReadFlush::Flush(uint64_t gpus) {
  uint64_t failed = 0;
  for (; gpus != 0; gpus &= gpus - 1) {
    const Gpu& gpu = gpus_[static_cast<size_t>(std::countr_zero(gpus))];
    cuda::Result result = cuda::kNotSupported;
    if (gpu.can_flush) {
      const CudaScope scope(*gpu.device);
      result =
          driver_.flush_gpu_direct_rdma_writes(cuda::kRdmaFlushCurrent, cuda::kRdmaFlushToOwner);
    }
    if (result == cuda::kSuccess) continue;
    Warn(gpu, result);
    failed |= gpus & -gpus;
  }
  return failed;
}

// Logged although this is the data path: it happens once.
void CudaReadFlush::Warn(const Gpu& gpu, cuda::Result result) {
  if (warned_.exchange(true, std::memory_order_relaxed)) return;
  const absl::Status status = driver_.ToStatus(
      result, fmt::format("an RDMA read has failed: what NICs write into memory of GPU {} is not "
                          "in order for it, and it did not flush that",
                          gpu.device->pci()));
  Log(LogLevel::kWarning,
      fmt::format("{}. Read into host memory and copy; or, if flushes did work before, its context "
                  "is lost: restart the process",
                  std::string(status.message())));
}

}  // namespace railhop
