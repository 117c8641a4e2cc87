// Measures what each way of copying costs into a peer's arena: once per arena, in a slot of the
// lane that this rank has claimed there, before its first piece.
//
// Why there and not at start within the rank's own GPU: what tells the ways apart is different. A
// span of a batch takes 3.4 to 5.4 us within an H200 and 0.6 to 1.2 us towards another one, a
// kernel pays some 2 us more towards another one (docs/results/gpu-h200.md). So is who should ring
// for pieces behind others: where a stream stands still behind the device's write, the processor.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
  // `deadline`: of each copy.
  static absl::StatusOr<std::unique_ptr<CopyCalibrator>> Create(
      const std::shared_ptr<const CudaDevice>& device, const CudaCopyOptions& options,
      std::chrono::milliseconds deadline = std::chrono::seconds(5));
  ~CopyCalibrator();
  CopyCalibrator(const CopyCalibrator&) = delete;
  CopyCalibrator& operator=(const CopyCalibrator&) = delete;

  // Into memory of kBytes that nobody else uses meanwhile. Takes some milliseconds. Aborted: the
  // deadline passed, and copies may still be under way.
  absl::StatusOr<CopyCosts> Measure(std::byte* destination);
  // Keeps what such copies go to until they have ended.
  void Keep(std::shared_ptr<void> memory) { kept_.push_back(std::move(memory)); }

 private:
  // Pieces after each other, so many under way.
  struct Row {
    size_t pieces, at_once;
  };

  CopyCalibrator(std::shared_ptr<const CudaDevice> device, std::chrono::milliseconds deadline)
      : device_(std::move(device)), deadline_(deadline) {}
  absl::Status MeasureAlone(CopyWay way, std::byte* destination, CopyWayCost* cost);
  absl::Status MeasureBehind(CudaCopyEngine& engine, std::byte* destination, CopyCosts* costs);
  // Nanoseconds for each piece of the row until its doorbell showed, the median of a few rows.
  absl::StatusOr<double> Time(CudaCopyEngine& engine, std::span<const CopySpan> spans,
                              std::byte* destination, Row row);

  const std::shared_ptr<const CudaDevice> device_;
  const std::chrono::milliseconds deadline_;
  std::vector<std::shared_ptr<void>> kept_;  // until the engines, which wait for their copies, end
  std::unique_ptr<CudaCopyEngine> engine_;
  std::unique_ptr<CudaCopyEngine> by_cpu_;  // nullptr: who rings is not to be chosen
  cuda::DevicePointer source_ = 0;          // kBytes
  std::vector<CopySpan> small_;             // of it, far apart
  void* word_ = nullptr;                    // the doorbell: pinned, not a lane's
  uint64_t sequence_ = 0;
};

// "async 4.9 us + 2.40 a span, behind others 3.1 + 2.40, batch ...; the device rings"; those that
// are there.
std::string ToString(const CopyCosts& costs);

}  // namespace railhop
