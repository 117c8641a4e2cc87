#include "transport/cuda/memory.h"

#include <fmt/format.h>

namespace railhop {
namespace {

// One allocation or mapping.
struct Mapping {
  cuda::DevicePointer end = 0;
  cuda::Device device = 0;
};

std::optional<Mapping> FindMapping(const CudaDriver& driver, cuda::DevicePointer at) {
  const auto ask = [&](void* value, cuda::PointerAttribute attribute) {
    return driver.pointer_get_attribute(value, attribute, at) == cuda::kSuccess;
  };
  int type = 0;
  cuda::DevicePointer start = 0;
  size_t size = 0;
  Mapping mapping;
  if (!ask(&type, cuda::PointerAttribute::kMemoryType) || type != cuda::kMemoryTypeDevice ||
      !ask(&start, cuda::PointerAttribute::kRangeStart) ||
      !ask(&size, cuda::PointerAttribute::kRangeSize) ||
      !ask(&mapping.device, cuda::PointerAttribute::kDeviceOrdinal)) {
    return std::nullopt;
  }
  mapping.end = start + size;
  return mapping.end > at ? std::optional(mapping) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<cuda::Device>> FindGpuOf(const CudaDriver& driver, const void* address,
                                                      size_t length) {
  const auto begin = reinterpret_cast<cuda::DevicePointer>(address);
  const std::optional<Mapping> first = FindMapping(driver, begin);
  if (!first.has_value()) return std::optional<cuda::Device>();
  for (cuda::DevicePointer at = first->end; at - begin < length;) {
    const std::optional<Mapping> next = FindMapping(driver, at);
    if (!next.has_value()) {
      return absl::InvalidArgumentError(fmt::format(
          "of the {} bytes of GPU memory at {} only the first {} are mapped, up to {:#x}: register "
          "what is mapped, and the rest once it is",
          length, address, at - begin, at));
    }
    if (next->device != first->device) {
      return absl::InvalidArgumentError(fmt::format(
          "of the {} bytes of GPU memory at {} the first {} are device {}'s and what follows at "
          "{:#x} is device {}'s: register the two by themselves",
          length, address, at - begin, first->device, at, next->device));
    }
    at = next->end;
  }
  return std::optional(first->device);
}

}  // namespace railhop
