#include "transport/fabric/rdma/rdma_memory.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "runtime/log.h"
#include "transport/cuda/dma_buf.h"
#include "transport/cuda/memory.h"
#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

// What peers may do to registered memory, and what our own reads need.
constexpr unsigned kAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr uint64_t kPage = 4096;  // parts end at pages, where the limit is at least one

std::string_view Text(const absl::Status& status) {
  return {status.message().data(), status.message().size()};
}

// The GPU whose memory it is; nullptr: none of them.
absl::StatusOr<std::shared_ptr<const CudaDevice>> OpenGpuOf(const void* address, size_t length) {
  const CudaDriver* const driver = CudaDriver::GetIfLoaded();
  if (driver == nullptr) return nullptr;
  const absl::StatusOr<std::optional<cuda::Device>> found = FindGpuOf(*driver, address, length);
  if (!found.ok()) return found.status();
  if (!found->has_value()) return nullptr;
  char pci[32] = "";
  absl::Status status = driver->ToStatus(driver->device_get_pci_bus_id(pci, sizeof(pci), **found),
                                         "the PCI address of a GPU cannot be had");
  if (!status.ok()) return status;
  return CudaDevice::Open(*driver, pci);
}

}  // namespace

RdmaMemory::RdmaMemory(const Verbs& verbs, ibv_pd* domain, Options options)
    : verbs_(verbs), domain_(domain), options_(std::move(options)), access_(kAccess) {
  if (!options_.relaxed_ordering) return;
  if (verbs_.reg_mr_iova2 != nullptr) {
    access_ |= IBV_ACCESS_RELAXED_ORDERING;
  } else {
    LogOnce(LogLevel::kInfo, "relaxed-ordering",
            "memory is registered without relaxed ordering, which may cost throughput: the RDMA "
            "library lacks ibv_reg_mr_iova2 (update rdma-core; MC_IB_PCI_RELAXED_ORDERING=0 says "
            "that it is not wanted)");
  }
}

RdmaMemory::~RdmaMemory() {
  for (const auto& [range, region] : regions_) verbs_.dereg_mr(region.handle);
}

absl::StatusOr<MemoryKey> RdmaMemory::Register(void* address, size_t length) {
  if (length > options_.max_part_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("RDMA device {} cannot register {} bytes at {} at once: its limit is {} bytes",
                    options_.device, length, address, options_.max_part_bytes));
  }
  const absl::StatusOr<Gpu> gpu = OpenGpuOf(address, length);
  if (!gpu.ok()) return gpu.status();
  const std::lock_guard lock(mutex_);
  return RegisterPart({static_cast<std::byte*>(address), length}, *gpu);
}

absl::StatusOr<std::vector<MemoryPart>> RdmaMemory::RegisterParts(void* address, size_t length) {
  const absl::StatusOr<Gpu> gpu = OpenGpuOf(address, length);
  if (!gpu.ok()) return gpu.status();
  auto* const first = static_cast<std::byte*>(address);
  const std::lock_guard lock(mutex_);
  auto parts = RegisterUpTo(first, CutEvenly({length}), *gpu);
  if (parts.ok() || *gpu == nullptr) return parts;
  const std::vector<uint64_t> mappings = GpuMappingEnds((*gpu)->driver(), address, length);
  return mappings.size() > 1 ? RegisterUpTo(first, CutEvenly(mappings), *gpu) : parts;
}

// `ends`: of parts, in bytes from the start of the range; the result adds some, so that none is too
// large.
std::vector<uint64_t> RdmaMemory::CutEvenly(const std::vector<uint64_t>& ends) const {
  const uint64_t most = options_.max_part_bytes;
  const uint64_t step = most >= kPage ? most - most % kPage : most;
  std::vector<uint64_t> all;
  uint64_t begin = 0;
  for (const uint64_t end : ends) {
    for (; end - begin > most; begin += step) all.push_back(begin + step);
    all.push_back(begin = end);
  }
  return all;
}

absl::StatusOr<std::vector<MemoryPart>> RdmaMemory::RegisterUpTo(std::byte* address,
                                                                 const std::vector<uint64_t>& ends,
                                                                 const Gpu& gpu) {
  std::vector<MemoryPart> parts;
  uint64_t begin = 0;
  for (const uint64_t end : ends) {
    const absl::StatusOr<MemoryKey> key = RegisterPart({address + begin, end - begin}, gpu);
    if (!key.ok()) {
      for (const MemoryPart& part : parts) Release(part.key).IgnoreError();
      return key.status();
    }
    parts.push_back({.length = end - begin, .key = *key});
    begin = end;
  }
  return parts;
}

absl::StatusOr<MemoryKey> RdmaMemory::RegisterPart(const Range& range, const Gpu& gpu) {
  Region& region = regions_[range];
  if (region.uses == 0) {
    const absl::StatusOr<ibv_mr*> pinned = Pin(range, gpu);
    if (!pinned.ok()) {
      regions_.erase(range);
      return pinned.status();
    }
    region.handle = *pinned;
    ranges_.emplace(region.handle->lkey, range);
  }
  ++region.uses;
  return MemoryKey{.lkey = region.handle->lkey, .rkey = region.handle->rkey};
}

absl::StatusOr<ibv_mr*> RdmaMemory::Pin(const Range& range, const Gpu& gpu) const {
  absl::StatusOr<ibv_mr*> by_file =
      gpu == nullptr ? absl::UnimplementedError("") : PinDmaBuf(range, *gpu);
  if (by_file.ok()) return by_file;
  ibv_mr* const plain = PinPlain(range);
  if (plain != nullptr) return plain;
  const int error = errno;
  if (gpu == nullptr) return HostError(error, range);
  return absl::FailedPreconditionError(fmt::format(
      "RDMA device {} cannot register {} bytes at {}, memory of GPU {}. As DMA-BUF: {}. As memory "
      "of a peer device: {}. Load the module for the latter (`modprobe nvidia-peermem`), or use "
      "DMA-BUF: it needs Linux 5.12, NVIDIA's open kernel modules and rdma-core 34, or newer",
      options_.device, range.second, fmt::ptr(range.first), gpu->pci(), Text(by_file.status()),
      strerror(error)));
}

absl::StatusOr<ibv_mr*> RdmaMemory::PinDmaBuf(const Range& range, const CudaDevice& gpu) const {
  if (verbs_.reg_dmabuf_mr == nullptr) {
    return absl::UnimplementedError("the RDMA library lacks ibv_reg_dmabuf_mr");
  }
  const absl::StatusOr<DmaBuf> buffer = ExportDmaBuf(gpu, range.first, range.second);
  if (!buffer.ok()) return buffer.status();
  ibv_mr* const made = verbs_.reg_dmabuf_mr(domain_, buffer->offset, range.second,
                                            reinterpret_cast<uint64_t>(range.first),
                                            buffer->fd.get(), static_cast<int>(access_));
  if (made == nullptr) return absl::FailedPreconditionError(strerror(errno));
  return made;
}

ibv_mr* RdmaMemory::PinPlain(const Range& range) const {
  if ((access_ & IBV_ACCESS_RELAXED_ORDERING) == 0) {
    return verbs_.reg_mr(domain_, range.first, range.second, static_cast<int>(access_));
  }
  return verbs_.reg_mr_iova2(domain_, range.first, range.second,
                             reinterpret_cast<uint64_t>(range.first), access_);
}

absl::Status RdmaMemory::HostError(int error, const Range& range) const {
  const std::string what =
      fmt::format("RDMA device {} cannot register {} bytes at {}: {}", options_.device,
                  range.second, fmt::ptr(range.first), strerror(error));
  rlimit locked{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
      locked.rlim_cur != RLIM_INFINITY) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}. Locked memory is limited to {} KiB here: raise that, with `ulimit -l unlimited`, "
        "LimitMEMLOCK=infinity of a systemd unit, or --ulimit memlock=-1 of a container",
        what, locked.rlim_cur / 1024));
  }
  return absl::InvalidArgumentError(fmt::format("{}; is all of it mapped, and writable?", what));
}

absl::Status RdmaMemory::Deregister(const MemoryKey& key) {
  const std::lock_guard lock(mutex_);
  return Release(key);
}

absl::Status RdmaMemory::Release(const MemoryKey& key) {
  const auto range = ranges_.find(key.lkey);
  if (range == ranges_.end()) {
    return absl::NotFoundError(
        fmt::format("RDMA device {} has no registration of key {:#x}", options_.device, key.lkey));
  }
  const auto region = regions_.find(range->second);
  if (region->second.uses > 1) {
    --region->second.uses;
    return absl::OkStatus();
  }
  if (const int error = verbs_.dereg_mr(region->second.handle); error != 0) {
    return absl::InternalError(fmt::format("RDMA device {} cannot deregister key {:#x}: {}",
                                           options_.device, key.lkey, strerror(error)));
  }
  regions_.erase(region);
  ranges_.erase(range);
  return absl::OkStatus();
}

}  // namespace railhop
