// Whose memory a range of addresses is, as the driver says and whatever the application calls it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/cuda/driver.h"

namespace railhop {

// The ordinal of the GPU that [address, address + length) lies on; nullopt: it is no GPU's, as the
// driver says of its first byte. The range may begin and end inside of mappings and consist of
// several (expandable segments): copies go over their borders, so it is one range to those who
// copy. InvalidArgument: it is not mapped to its end, or goes on in another GPU's memory; the text
// names the address where. Set-up call of any thread, with or without a current device.
absl::StatusOr<std::optional<cuda::Device>> FindGpuOf(const CudaDriver& driver, const void* address,
                                                      size_t length);

// Where the mappings of such a range end, in bytes from its start, of which the last is `length`.
// For those who cannot go over their borders. FindGpuOf has found the range sound.
std::vector<uint64_t> GpuMappingEnds(const CudaDriver& driver, const void* address, size_t length);

}  // namespace railhop
