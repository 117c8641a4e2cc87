// What a piece costs by each way and doorbell, into the arena of another process: JSON lines.
//
//   gpu_copy_bench [--driver=LIBRARY]
//
// gpu.call: how long single calls of the driver take the caller.
// gpu.copy, issue: until Issue returns; seen: until the doorbell shows. Medians and 99th
// percentiles of one piece at a time; pipelined: GB/s, and microseconds of a piece and of its
// Issue, with 18 pieces kept under way. Where the two are alike the caller's thread is what bounds
// it, else the device. Sources need no fence.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>

#include "tests/gpu/call_costs.h"
#include "tests/gpu/gpu_support.h"
#include "transport/copy/copy_calibration.h"
#include "transport/copy/cuda_copy_engine.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

double Microseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::micro>(duration).count();
}

struct Percentiles {
  double p50 = 0, p99 = 0;
};
Percentiles Of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return {values[values.size() / 2], values[values.size() * 99 / 100]};
}

class Subject {
 public:
  Subject(std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options)
      : engine_(*CudaCopyEngine::Create(device, options)), words_(device, true) {}

  CudaDoorbell doorbell() const { return engine_->doorbell(); }

  void Issue(std::span<const CopySpan> spans, std::byte* destination) {
    ++sequence_;
    engine_->Issue({.stream = 0,
                    .spans = spans,
                    .destination = destination,
                    .doorbell = words_.word(0),
                    .sequence = sequence_});
    ++pending_;
  }
  bool ReapOne() {
    engine_->Progress(0);
    CopyDone done;
    const bool reaped = engine_->Reap({&done, 1}) == 1;
    if (reaped && done.status != CopyStatus::kOk) {
      std::fprintf(stderr, "a copy failed: %s\n", engine_->error().c_str());
      std::exit(1);
    }
    if (reaped) --pending_;
    return reaped;
  }
  uint32_t pending() const { return pending_; }

 private:
  std::unique_ptr<CudaCopyEngine> engine_;
  SharedWords words_;
  uint64_t sequence_ = 0;
  uint32_t pending_ = 0;
};

void Measure(Subject& subject, const char* way, std::byte* source, std::byte* arena, size_t count,
             uint64_t length) {
  std::vector<CopySpan> spans;
  for (size_t i = 0; i < count; ++i) spans.push_back({source + 2 * i * length, length});
  constexpr int kSamples = 300, kWarm = 20;
  std::vector<double> issue, seen;
  for (int i = 0; i < kSamples + kWarm; ++i) {
    const Clock::time_point start = Clock::now();
    subject.Issue(spans, arena);
    const Clock::time_point issued = Clock::now();
    while (!subject.ReapOne()) {
    }
    if (i < kWarm) continue;
    seen.push_back(Microseconds(Clock::now() - start));
    issue.push_back(Microseconds(issued - start));
  }
  uint64_t pieces = 0;
  Clock::duration issuing{};
  const Clock::time_point start = Clock::now();
  for (uint32_t slot = 0; Clock::now() - start < std::chrono::milliseconds(40);) {
    while (subject.pending() < kSlotsPerLane) {
      const Clock::time_point before = Clock::now();
      subject.Issue(spans, arena + slot * kSlotBytes);
      issuing += Clock::now() - before;
      slot = (slot + 1) % kSlotsPerLane;
      ++pieces;
    }
    while (!subject.ReapOne()) {
    }
  }
  while (subject.pending() != 0) subject.ReapOne();
  const double each = Microseconds(Clock::now() - start) / static_cast<double>(pieces);
  const double issue_each = Microseconds(issuing) / static_cast<double>(pieces);
  const double rate = static_cast<double>(count * length) / each / 1000;
  const Percentiles i = Of(issue), s = Of(seen);
  std::printf("%s\n",
              fmt::format("{{\"name\":\"gpu.copy\",\"way\":\"{}\",\"doorbell\":\"{}\",\"spans\":{},"
                          "\"span_bytes\":{},\"issue_us\":{:.2f},\"issue_p99_us\":{:.2f},"
                          "\"seen_us\":{:.2f},\"seen_p99_us\":{:.2f},\"pipelined_gb_per_s\":{:.2f},"
                          "\"pipelined_us\":{:.2f},\"pipelined_issue_us\":{:.2f},"
                          "\"unit\":\"us\"}}",
                          way, CudaDoorbellName(subject.doorbell()), count, length, i.p50, i.p99,
                          s.p50, s.p99, rate, each, issue_each)
                  .c_str());
  std::fflush(stdout);
}

// What a rank measures when it opens a lane.
void PrintCalibration(const CopyCosts& costs) {
  for (size_t way = 0; way < kCopyWays; ++way) {
    const CopyWayCost& cost = costs.ways[way];
    std::printf(
        "%s\n",
        fmt::format("{{\"name\":\"gpu.calibration\",\"way\":\"{}\",\"value\":{:.0f},"
                    "\"per_span\":{:.0f},\"behind\":{:.0f},\"behind_per_span\":{:.0f},"
                    "\"per_mib\":{:.0f},\"cpu_rings_behind\":{},\"unit\":\"ns\"}}",
                    CopyWayName(static_cast<CopyWay>(way)), cost.fixed, cost.per_span, cost.behind,
                    cost.behind_per_span, cost.per_byte * (1 << 20), costs.cpu_rings_behind)
            .c_str());
  }
}

int Run() {
  std::string why;
  if (TestDriver(&why) == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 77;
  }
  const auto device = TestDevice(0);
  ArenaOwner owner(1);
  auto arena = ImportedCudaArena::Open(device, owner.handle(), 1);
  if (!arena.ok()) {
    std::fprintf(stderr, "%s\n", std::string(arena.status().message()).c_str());
    return 1;
  }
  GpuBuffer source(device, 32 << 20);
  struct Shape {
    size_t spans;
    uint64_t bytes;
  };
  constexpr Shape kShapes[] = {{1, 64},      {1, 65536},    {1, 131072}, {1, 262144},  {1, 524288},
                               {1, 1 << 20}, {1, 8 << 20},  {2, 65536},  {4, 65536},   {8, 2048},
                               {8, 65536},   {16, 65536},   {128, 2048}, {128, 16384}, {128, 65536},
                               {1024, 2048}, {1024, 16384}, {4096, 2048}};
  {
    const SharedWords words(device, true);
    PrintCallCosts(*device, source.data(), (*arena)->base(), words.word(0));
  }
  for (const CudaDoorbell doorbell :
       {CudaDoorbell::kStreamWrite, CudaDoorbell::kKernel, CudaDoorbell::kCpu}) {
    for (size_t way = 0; way < kCopyWays; ++way) {
      Subject subject(device, {.streams = 1,
                               .queue_depth = kSlotsPerLane,
                               .doorbell = doorbell,
                               .way = static_cast<CopyWay>(way)});
      for (const Shape& shape : kShapes) {
        // A call a span: 4096 of them would take all of the bench's time.
        if (way == 0 && shape.spans > 1024) continue;
        Measure(subject, CopyWayName(static_cast<CopyWay>(way)), source.data(), (*arena)->base(),
                shape.spans, shape.bytes);
      }
    }
  }
  // As it runs by default: calibrated.
  const auto calibrator = CopyCalibrator::Create(device, {});
  const auto costs =
      calibrator.ok() ? (*calibrator)->Measure((*arena)->base()) : calibrator.status();
  if (!costs.ok()) {
    std::fprintf(stderr, "%s\n", std::string(costs.status().message()).c_str());
    return 1;
  }
  PrintCalibration(*costs);
  Subject subject(device, {.streams = 1, .queue_depth = kSlotsPerLane, .costs = *costs});
  for (const Shape& shape : kShapes) {
    Measure(subject, "auto", source.data(), (*arena)->base(), shape.spans, shape.bytes);
  }
  for (const uint32_t blocks : {8, 16, 64, 128}) {
    Subject limited(device, {.streams = 1,
                             .queue_depth = kSlotsPerLane,
                             .way = CopyWay::kGather,
                             .gather_max_blocks = blocks});
    for (const Shape& shape : kShapes) {
      if (shape.spans < 128) continue;
      Measure(limited, fmt::format("gather_{}_blocks", blocks).c_str(), source.data(),
              (*arena)->base(), shape.spans, shape.bytes);
    }
  }
  return 0;
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  const int status = railhop::GpuTestMain(argc, argv);
  if (status >= 0) return status;
  return railhop::HasOtherArguments(argc, argv) ? 2 : railhop::Run();
}
