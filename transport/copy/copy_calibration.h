// Measures what each way of copying costs into a peer's arena: once per arena, in a slot of the
// lane that this rank has claimed there, before its first piece.
//
// Why there and not at start within the rank's own GPU: what tells the ways apart is different. A
// span of a batch takes 3.4 to 5.4 us within an H200 and 0.6 to 1.2 us towards another one, a
// kernel pays some 2 us more towards another one (docs/results/gpu-h200.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "transport/copy/copy_cost.h"
#include "transport/copy/cuda_copy_engine.h"
#include "transport/cuda/device.h"

namespace railhop {

// Has a stream and memory of its own, which it keeps: to give memory back stops a device for a
// moment. Threads: one at a time.
class CopyCalibrator {
 public:
  // What Measure writes to.
  static constexpr uint64_t kBytes = 4 << 20;

  // `options` of the engine that will copy: its doorbell and the blocks of its kernels count.
  static absl::StatusOr<std::unique_ptr<CopyCalibrator>> Create(
      std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options);
  ~CopyCalibrator();
  CopyCalibrator(const CopyCalibrator&) = delete;
  CopyCalibrator& operator=(const CopyCalibrator&) = delete;

  // Into memory of kBytes that nobody else uses meanwhile. Takes some milliseconds.
  absl::StatusOr<CopyCosts> Measure(std::byte* destination);

 private:
  explicit CopyCalibrator(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  // Nanoseconds until the doorbell showed, the median of a few.
  absl::StatusOr<double> Time(std::span<const CopySpan> spans, std::byte* destination);

  const std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<CudaCopyEngine> engine_;
  cuda::DevicePointer source_ = 0;  // kBytes
  void* word_ = nullptr;            // the doorbell: pinned, not a lane's
};

// "async 4.9 us + 2.40 a span + 2.8 a MiB, batch ..."; those that are there.
std::string ToString(const CopyCosts& costs);

}  // namespace railhop
