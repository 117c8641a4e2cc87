#include "transport/cuda/memory.h"

#include <fmt/format.h>

#include <algorithm>

namespace railhop {
namespace {

struct Piece {
  cuda::DevicePointer end = 0;
  cuda::Device device = 0;
};

// What `at` lies in: an allocation, or one mapping of a range of reserved addresses. The driver
// tells the whole of the latter as the range of each of its mappings, and as the mapping of an
// allocation the block that it was cut from: the piece is what the two have in common.
std::optional<Piece> FindPiece(const CudaDriver& driver, cuda::DevicePointer at) {
  const auto ask = [&](void* value, cuda::PointerAttribute attribute) {
    return driver.pointer_get_attribute(value, attribute, at) == cuda::kSuccess;
  };
  int type = 0;
  cuda::DevicePointer range = 0, mapping = 0;
  size_t range_size = 0, mapping_size = 0;
  Piece piece;
  if (!ask(&type, cuda::PointerAttribute::kMemoryType) || type != cuda::kMemoryTypeDevice ||
      !ask(&range, cuda::PointerAttribute::kRangeStart) ||
      !ask(&range_size, cuda::PointerAttribute::kRangeSize) ||
      !ask(&mapping, cuda::PointerAttribute::kMappingStart) ||
      !ask(&mapping_size, cuda::PointerAttribute::kMappingSize) ||
      !ask(&piece.device, cuda::PointerAttribute::kDeviceOrdinal)) {
    return std::nullopt;
  }
  piece.end = std::min(range + range_size, mapping + mapping_size);
  return piece.end > at ? std::optional(piece) : std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<cuda::Device>> FindGpuOf(const CudaDriver& driver, const void* address,
                                                      size_t length) {
  const auto begin = reinterpret_cast<cuda::DevicePointer>(address);
  const std::optional<Piece> first = FindPiece(driver, begin);
  if (!first.has_value()) return std::optional<cuda::Device>();
  for (cuda::DevicePointer at = first->end; at - begin < length;) {
    const std::optional<Piece> next = FindPiece(driver, at);
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

std::vector<uint64_t> GpuMappingEnds(const CudaDriver& driver, const void* address, size_t length) {
  const auto begin = reinterpret_cast<cuda::DevicePointer>(address);
  std::vector<uint64_t> ends;
  for (cuda::DevicePointer at = begin; at - begin < length;) {
    const std::optional<Piece> piece = FindPiece(driver, at);
    at = piece.has_value() ? piece->end : begin + length;
    ends.push_back(std::min<uint64_t>(at - begin, length));
  }
  return ends;
}

}  // namespace railhop
