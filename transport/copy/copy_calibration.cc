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
constexpr size_t kSpansBehind = 4;
// The processor rings between its calls for the next piece, later than the device by half of one.
// Pieces must follow each other so much sooner to make up for that (PieceModelTest's model).
constexpr double kWorthRinging = 0.8;
constexpr size_t kTimes = 7;

// Hands back what has ended. True: nothing is under way.
bool Collect(CudaCopyEngine& engine) {
  engine.Progress(0);
  CopyDone done;
  while (engine.Reap({&done, 1}) != 0) {
  }
  return engine.PendingJobs(0) == 0;
}

double CheapestBehind(const CopyCosts& costs) {
  const CopyWay way = CheapestWay(costs, true, kSpansBehind, 0);
  return costs.of(way).Of(way, true, kSpansBehind, 0);
}

}  // namespace

absl::StatusOr<std::unique_ptr<CopyCalibrator>> CopyCalibrator::Create(
    const std::shared_ptr<const CudaDevice>& device, const CudaCopyOptions& options,
    std::chrono::milliseconds deadline) {
  CudaCopyOptions own = options;
  own.streams = 1;
  own.queue_depth = CudaCopyEngine::kJobSizes.at_once;
  own.costs.reset();
  std::unique_ptr<CopyCalibrator> calibrator(new CopyCalibrator(device, deadline));
  auto engine = CudaCopyEngine::Create(device, own);
  if (!engine.ok()) return engine.status();
  calibrator->engine_ = *std::move(engine);
  if (!own.doorbell.has_value() && calibrator->engine_->doorbell() != CudaDoorbell::kCpu) {
    own.doorbell = CudaDoorbell::kCpu;
    engine = CudaCopyEngine::Create(device, own);
    if (!engine.ok()) return engine.status();
    calibrator->by_cpu_ = *std::move(engine);
  }
  const CudaDriver& driver = device->driver();
  const CudaScope scope(*device);
  cuda::Result result = driver.mem_alloc(&calibrator->source_, kBytes);
  if (result == cuda::kSuccess) {
    result = driver.mem_host_alloc(&calibrator->word_, sizeof(uint64_t), cuda::kHostAllocPortable);
  }
  if (result != cuda::kSuccess) return driver.ToStatus(result, "no memory to measure copies with");
  *static_cast<uint64_t*>(calibrator->word_) = 0;
  for (size_t i = 0; i < *std::max_element(kManySpans.begin(), kManySpans.end()); ++i) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr)
    const auto* at = reinterpret_cast<std::byte*>(calibrator->source_ + 2 * i * kSmallSpan);
    calibrator->small_.push_back({at, kSmallSpan});
  }
  return calibrator;
}

CopyCalibrator::~CopyCalibrator() {
  engine_.reset();
  by_cpu_.reset();
  const CudaScope scope(*device_);
  if (word_ != nullptr) device_->driver().mem_free_host(word_);
  if (source_ != 0) device_->driver().mem_free(source_);
}

absl::StatusOr<CopyCosts> CopyCalibrator::Measure(std::byte* destination) {
  device_->Enter();
  for (CudaCopyEngine* engine : {engine_.get(), by_cpu_.get()}) {
    if (engine == nullptr) continue;
    if (!Collect(*engine)) {
      return absl::UnavailableError(
          fmt::format("GPU {} has not finished a copy of before", device_->pci()));
    }
    engine->Reset(0);
  }
  CopyCosts costs;
  for (size_t i = 0; i < kCopyWays; ++i) {
    const auto way = static_cast<CopyWay>(i);
    costs.ways[i].available = engine_->Has(way);
    if (!costs.ways[i].available) continue;
    const absl::Status status = MeasureAlone(way, destination, &costs.ways[i]);
    if (!status.ok()) return status;
  }
  absl::Status status = MeasureBehind(*engine_, destination, &costs);
  if (!status.ok()) return status;
  if (by_cpu_ == nullptr) return costs;
  CopyCosts with_cpu = costs;
  status = MeasureBehind(*by_cpu_, destination, &with_cpu);
  if (!status.ok()) return status;
  with_cpu.cpu_rings_behind = CheapestBehind(with_cpu) < kWorthRinging * CheapestBehind(costs);
  return with_cpu.cpu_rings_behind ? with_cpu : costs;
}

// Three kinds of pieces tell the costs of a way: one small span, more of them, and a large one.
absl::Status CopyCalibrator::MeasureAlone(CopyWay way, std::byte* destination, CopyWayCost* cost) {
  engine_->Force(way);
  const size_t spans = kManySpans[static_cast<size_t>(way)];
  const CopySpan large{small_[0].source, kBytes};
  const absl::StatusOr<double> one = Time(*engine_, {small_.data(), 1}, destination, {1, 1});
  if (!one.ok()) return one.status();
  const absl::StatusOr<double> many = Time(*engine_, {small_.data(), spans}, destination, {1, 1});
  if (!many.ok()) return many.status();
  const absl::StatusOr<double> big = Time(*engine_, {&large, 1}, destination, {1, 1});
  if (!big.ok()) return big.status();
  cost->per_span = std::max(0.0, (*many - *one) / static_cast<double>(spans - 1));
  cost->per_byte = std::max(0.0, (*big - *one) / static_cast<double>(kBytes - kSmallSpan));
  cost->fixed = std::max(0.0, *one - cost->per_span);
  return absl::OkStatus();
}

absl::Status CopyCalibrator::MeasureBehind(CudaCopyEngine& engine, std::byte* destination,
                                           CopyCosts* costs) {
  constexpr Row kRow{16, CudaCopyEngine::kJobSizes.at_once};
  for (size_t i = 0; i < kCopyWays; ++i) {
    CopyWayCost& cost = costs->ways[i];
    if (!cost.available) continue;
    engine.Force(static_cast<CopyWay>(i));
    const absl::StatusOr<double> one = Time(engine, {small_.data(), 1}, destination, kRow);
    if (!one.ok()) return one.status();
    const absl::StatusOr<double> many =
        Time(engine, {small_.data(), kSpansBehind}, destination, kRow);
    if (!many.ok()) return many.status();
    cost.behind_per_span = std::max(0.0, (*many - *one) / (kSpansBehind - 1));
    cost.behind = std::max(0.0, *one - cost.behind_per_span);
  }
  return absl::OkStatus();
}

absl::StatusOr<double> CopyCalibrator::Time(CudaCopyEngine& engine, std::span<const CopySpan> spans,
                                            std::byte* destination, Row row) {
  std::array<double, kTimes> times;
  for (size_t i = 0; i <= kTimes; ++i) {
    const Clock::time_point start = Clock::now();
    const auto is_late = [&] { return Clock::now() - start > deadline_; };
    bool failed = false;
    for (size_t issued = 0, ended = 0; ended != row.pieces && !failed;) {
      for (; issued != row.pieces && issued - ended != row.at_once; ++issued) {
        engine.Issue({.spans = spans,
                      .destination = destination,
                      .doorbell = static_cast<uint64_t*>(word_),
                      .sequence = ++sequence_});
      }
      engine.Progress(0);
      CopyDone done;
      for (; engine.Reap({&done, 1}) != 0; ++ended) failed |= done.status != CopyStatus::kOk;
      failed |= is_late();
    }
    // Others of the row may be under way still.
    while (failed && !Collect(engine)) {
      if (!is_late()) continue;
      return absl::AbortedError(fmt::format("GPU {} did not finish a copy within {} ms",
                                            device_->pci(), deadline_.count()));
    }
    if (failed) {
      return absl::InternalError(
          fmt::format("GPU {} cannot copy there: {}", device_->pci(),
                      engine.error().empty() ? "it took too long" : engine.error()));
    }
    if (i == 0) continue;  // warms up
    const std::chrono::duration<double, std::nano> passed = Clock::now() - start;
    times[i - 1] = passed.count() / static_cast<double>(row.pieces);
  }
  std::sort(times.begin(), times.end());
  return times[kTimes / 2];
}

std::string ToString(const CopyCosts& costs) {
  std::vector<std::string> ways;
  for (size_t i = 0; i < kCopyWays; ++i) {
    const CopyWayCost& cost = costs.ways[i];
    if (!cost.available) continue;
    ways.push_back(fmt::format("{} {:.1f} us + {:.2f} a span, behind others {:.1f} + {:.2f}",
                               CopyWayName(static_cast<CopyWay>(i)), cost.fixed / 1e3,
                               cost.per_span / 1e3, cost.behind / 1e3, cost.behind_per_span / 1e3));
  }
  return fmt::format(
      "{}; {}", fmt::join(ways, ", "),
      costs.cpu_rings_behind ? "the processor rings behind others" : "the device rings");
}

}  // namespace railhop
