// Memory of a GPU, filled with the demo's pattern and judged where it lies: a kernel adds up a
// checksum, and only bytes that are wrong are fetched to say where.
//
// One thread, which need not have a current device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/cuda/device.h"
#include "transport/fabric/sim/sim_mover.h"

namespace railhop {

// PCI addresses of the GPUs that this process sees, in the driver's order. Errors say why there is
// none, and what to do.
absl::StatusOr<std::vector<std::string>> VisibleGpus();

// The sum that checksum_kernel.h describes, of so many words: of a GPU's memory, by a kernel or, in
// a build without nvcc, on the host; and of the host's.
absl::StatusOr<uint64_t> DeviceChecksum(const CudaDevice& device, const std::byte* data,
                                        uint64_t words);
uint64_t HostChecksum(std::span<const std::byte> bytes);

class DeviceMemory {
 public:
  // Of the GPU at PCI address `pci`.
  static absl::StatusOr<std::unique_ptr<DeviceMemory>> Allocate(const std::string& pci,
                                                                uint64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  // Addresses of the GPU; the host cannot read them.
  std::span<std::byte> bytes() const { return bytes_; }
  absl::StatusOr<DeviceHandle> Export() const;

  // FillPattern and FindMismatch of batches.h, over the first `size` bytes.
  absl::Status Fill(uint64_t size, uint64_t seed);
  absl::StatusOr<int64_t> FindMismatch(uint64_t size, uint64_t seed) const;

 private:
  DeviceMemory(std::shared_ptr<const CudaDevice> device, std::span<std::byte> bytes);

  const std::shared_ptr<const CudaDevice> device_;
  const std::span<std::byte> bytes_;
};

}  // namespace railhop
