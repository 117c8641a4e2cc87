#include "transport/copy/copy_calibration.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>
#include <vector>

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kSmallSpan = 512;
// Few enough that the lines cross near them, many enough that a span stands out of the noise. Of a
// gather, whose spans cost next to nothing, many.
constexpr std::array<size_t, kCopyWays> kManySpans = {8, 8, 1024};
constexpr std::chrono::seconds kDeadline{5};
constexpr size_t kTimes = 9;

}  // namespace

absl::StatusOr<std::unique_ptr<CopyCalibrator>> CopyCalibrator::Create(
    std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options) {
  CudaCopyOptions own = options;
  own.streams = 1;
  own.queue_depth = 1;
  std::unique_ptr<CopyCalibrator> calibrator(new CopyCalibrator(device));
  auto engine = CudaCopyEngine::Create(device, own);
  if (!engine.ok()) return engine.status();
  calibrator->engine_ = *std::move(engine);
  const CudaDriver& driver = device->driver();
  const CudaScope scope(*device);
  cuda::Result result = driver.mem_alloc(&calibrator->source_, kBytes);
  if (result == cuda::kSuccess) {
    result = driver.mem_host_alloc(&calibrator->word_, sizeof(uint64_t), cuda::kHostAllocPortable);
  }
  if (result != cuda::kSuccess) return driver.ToStatus(result, "no memory to measure copies with");
  *static_cast<uint64_t*>(calibrator->word_) = 0;
  return calibrator;
}

CopyCalibrator::~CopyCalibrator() {
  engine_.reset();
  const CudaScope scope(*device_);
  if (word_ != nullptr) device_->driver().mem_free_host(word_);
  if (source_ != 0) device_->driver().mem_free(source_);
}

// Three kinds of jobs tell the costs of a way: one small span, more of them, and a large one.
absl::StatusOr<CopyCosts> CopyCalibrator::Measure(std::byte* destination) {
  const CudaScope scope(*device_);
  const auto at = [this](uint64_t offset) {
    return reinterpret_cast<std::byte*>(source_ + offset);  // NOLINT(performance-no-int-to-ptr)
  };
  std::vector<CopySpan> small;
  for (size_t i = 0; i < *std::max_element(kManySpans.begin(), kManySpans.end()); ++i) {
    small.push_back({at(2 * i * kSmallSpan), kSmallSpan});
  }
  const CopySpan large{at(0), kBytes};

  CopyCosts costs = engine_->ways();
  for (size_t i = 0; i < kCopyWays; ++i) {
    if (!costs[i].available) continue;
    engine_->Force(static_cast<CopyWay>(i));
    const absl::StatusOr<double> one = Time({small.data(), 1}, destination);
    if (!one.ok()) return one.status();
    const absl::StatusOr<double> many = Time({small.data(), kManySpans[i]}, destination);
    if (!many.ok()) return many.status();
    const absl::StatusOr<double> big = Time({&large, 1}, destination);
    if (!big.ok()) return big.status();
    CopyWayCost& cost = costs[i];
    cost.per_span = std::max(0.0, (*many - *one) / static_cast<double>(kManySpans[i] - 1));
    cost.per_byte = std::max(0.0, (*big - *one) / static_cast<double>(kBytes - kSmallSpan));
    cost.fixed = std::max(0.0, *one - cost.per_span);
  }
  return costs;
}

absl::StatusOr<double> CopyCalibrator::Time(std::span<const CopySpan> spans,
                                            std::byte* destination) {
  auto* const word = static_cast<uint64_t*>(word_);
  std::array<double, kTimes> times;
  for (size_t i = 0; i <= kTimes; ++i) {
    const Clock::time_point start = Clock::now();
    if (!engine_->Issue({.spans = spans,
                         .destination = destination,
                         .doorbell = word,
                         .sequence = *word + 1})) {
      return absl::UnavailableError(
          fmt::format("GPU {} has not finished a copy of before", device_->pci()));
    }
    CopyDone done;
    while (engine_->Reap({&done, 1}) == 0) {
      engine_->Progress(0);
      if (Clock::now() - start > kDeadline) {
        return absl::UnavailableError(fmt::format("GPU {} did not finish a copy within {} s",
                                                  device_->pci(), kDeadline.count()));
      }
    }
    if (done.status != CopyStatus::kOk) {
      return absl::InternalError(
          fmt::format("GPU {} cannot copy there: {}", device_->pci(), engine_->device_error()));
    }
    if (i == 0) continue;  // warms up
    times[i - 1] = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
  }
  std::sort(times.begin(), times.end());
  return times[kTimes / 2];
}

std::string ToString(const CopyCosts& costs) {
  std::vector<std::string> ways;
  for (size_t i = 0; i < kCopyWays; ++i) {
    const CopyWayCost& cost = costs[i];
    if (!cost.available) continue;
    ways.push_back(fmt::format("{} {:.1f} us + {:.2f} a span + {:.1f} a MiB",
                               CopyWayName(static_cast<CopyWay>(i)), cost.fixed / 1e3,
                               cost.per_span / 1e3, cost.per_byte * (1 << 20) / 1e3));
  }
  return fmt::format("{}", fmt::join(ways, ", "));
}

}  // namespace railhop
