// Relayed and direct writes of GPU memory over the same simulated NIC: JSON lines.
//
//   gpu_relay_bench [SECTION...]      none: the first four
//
//   latency   64 KiB with no wire between
//   sweep     sizes, writes under way and KV batches, over NICs of 25 and 50 GB/s
//   capped    the same with pieces of at most 512 KiB and 1 MiB, 25 GB/s
//   leak      memory of the GPUs that is gone after 100 restarts of a sender
//   small     64 KiB, 4 to 32 at a time
//   ways      the same by each way to copy and to ring
//
// The NICs keep the clock alone; that the bytes arrive is gpu_relay_test's affair. Relayed and
// direct runs take turns, and a ratio is the median of its pairs; a gpu.stages line tells where the
// pieces of the relayed ones spent their time (docs/tracing.md), p50 and p99. Of each row
// there is one with sources said to be ready, and one that asks for the thread's own stream, which
// is idle. What a time contains: submit to observed completion; no registration, no connect.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "actors/piece_trace.h"
#include "tests/gpu/relay_support.h"
#include "tools/demo/batches.h"
#include "transport/copy/cuda_copy_engine.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPairs = 5;
constexpr std::chrono::milliseconds kRun{80}, kWarm{5};
constexpr uint64_t kTargetBytes = 768 << 20;
constexpr size_t kMaxOutstanding = 32;

double Seconds(Clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}
double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

struct Result {
  double gb_per_s = 0;
  double p50_us = 0;
};

// A rank that sends from the first GPU.
class Sender {
 public:
  Sender(const RelaySite& site, const GpuBuffer& source, bool relayed)
      : relayed_(relayed), source_(source.data()), address_(site.target_address()) {
    rank_ = site.MakeSender(relayed);
    std::string error;
    if (rank_ == nullptr ||
        !rank_->RegisterMemory(source.data(), source.size(), "cuda:0", &error)) {
      Die("no sender: " + error);
    }
    target_ = rank_->OpenSegment(RelaySite::kTarget, &error);
    if (target_ == 0) Die(error);
  }

  void Use(SourceFence::Kind fence) { fence_ = fence; }
  RankStats Stats() const { return rank_->Stats(); }
  PieceTrace Trace() const { return rank_->TakePieceTrace(); }

  // Keeps so many writes of `chunk` bytes under way for a while.
  Result Run(uint64_t chunk, size_t outstanding) {
    std::vector<double> latencies;
    std::vector<BatchId> ids(outstanding);
    std::vector<Clock::time_point> begun(outstanding);
    const auto submit = [&](size_t slot) {
      begun[slot] = Clock::now();
      ids[slot] = Submit(std::vector{chunk}, slot * chunk);
    };
    const Clock::time_point start = Clock::now();
    for (size_t slot = 0; slot < outstanding; ++slot) submit(slot);
    Clock::time_point counted_from = start;
    uint64_t bytes = 0;
    bool warm = false;
    for (;;) {
      for (size_t slot = 0; slot < outstanding; ++slot) {
        if (!IsDone(ids[slot], chunk)) continue;
        const Clock::time_point now = Clock::now();
        if (!warm && now - start > kWarm) {
          warm = true;
          counted_from = now;
        } else if (warm) {
          bytes += chunk;
          latencies.push_back(Seconds(now - begun[slot]) * 1e6);
        }
        if (warm && now - counted_from > kRun && latencies.size() >= 20) {
          for (size_t other = 0; other < outstanding; ++other) {
            while (other != slot && !IsDone(ids[other], chunk)) {
            }
          }
          return {static_cast<double>(bytes) / Seconds(now - counted_from) / 1e9,
                  Median(std::move(latencies))};
        }
        submit(slot);
      }
    }
  }

  // One batch after the other, all requests of each at once. The median: a core that is taken away
  // for a millisecond is a tenth of a batch.
  Result Run(const KvBatch& batch) {
    std::vector<double> latencies;
    const Clock::time_point start = Clock::now();
    while (Clock::now() - start < kRun || latencies.size() < 3) {
      const Clock::time_point begun = Clock::now();
      const BatchId id = Submit(batch.lengths, 0);
      while (!IsDone(id, batch.total)) {
      }
      latencies.push_back(Seconds(Clock::now() - begun) * 1e6);
    }
    const double p50_us = Median(std::move(latencies));
    return {static_cast<double>(batch.total) / p50_us / 1e3, p50_us};
  }

 private:
  BatchId Submit(const std::vector<uint64_t>& lengths, uint64_t offset) {
    requests_.clear();
    for (const uint64_t length : lengths) {
      requests_.push_back({Opcode::kWrite, source_ + offset, target_, address_ + offset, length});
      offset += length;
    }
    BatchId id;
    const SubmitOptions options{.timeout = std::chrono::seconds(30), .fence = {fence_}};
    if (rank_->SubmitWith(requests_, options, &id) != SubmitResult::kOk) {
      Die("a batch was not accepted");
    }
    return id;
  }
  bool IsDone(BatchId id, uint64_t bytes) {
    const BatchStatus status = rank_->Status(id);
    if (status.state == BatchState::kPending) return false;
    if (status.state != BatchState::kCompleted || status.relayed_bytes != (relayed_ ? bytes : 0)) {
      Die(fmt::format("a batch ended in state {} ({}), {} of {} bytes relayed",
                      static_cast<int>(status.state), TransferErrorName(status.error),
                      status.relayed_bytes, bytes));
    }
    rank_->Free(id);
    return true;
  }

  const bool relayed_;
  std::byte* const source_;
  const uint64_t address_;
  std::unique_ptr<Rank> rank_;
  SegmentId target_ = 0;
  SourceFence::Kind fence_ = SourceFence::Kind::kReady;
  std::vector<TransferRequest> requests_;
};

class Pair {
 public:
  Pair(const RelaySiteOptions& options, const GpuBuffer& source)
      : options_(options),
        site_(options),
        relayed_(site_, source, true),
        direct_(site_, source, false) {}

  // `what`: members that name the row.
  template <class Run>
  void Measure(const std::string& what, Run run) {
    for (const SourceFence::Kind fence :
         {SourceFence::Kind::kReady, SourceFence::Kind::kThreadStream}) {
      direct_.Use(fence);
      relayed_.Use(fence);
      const bool ready = fence == SourceFence::Kind::kReady;
      MeasureOne(fmt::format("{},\"fence\":\"{}\"", what, ready ? "ready" : "thread_stream"), run);
    }
  }

 private:
  template <class Run>
  void MeasureOne(const std::string& what, Run run) {
    std::vector<double> ratios, p50_differences;
    std::vector<double> rates[2], p50s[2];
    TakeTraces();
    const RankStats before = relayed_.Stats();
    for (int i = 0; i < kPairs; ++i) {
      const Result direct = run(direct_);
      const Result relayed = run(relayed_);
      ratios.push_back(relayed.gb_per_s / direct.gb_per_s);
      p50_differences.push_back(relayed.p50_us - direct.p50_us);
      rates[0].push_back(direct.gb_per_s);
      rates[1].push_back(relayed.gb_per_s);
      p50s[0].push_back(direct.p50_us);
      p50s[1].push_back(relayed.p50_us);
    }
    const RankStats after = relayed_.Stats();
    const uint64_t pieces = after.pieces_relayed - before.pieces_relayed;
    std::printf(
        "%s\n",
        fmt::format(
            "{{\"name\":\"gpu.relay\",{},\"nic_gb_per_s\":{},\"piece_bytes\":{},"
            "\"value\":{:.4f},\"unit\":\"ratio\",\"relayed_gb_per_s\":{:.3f},"
            "\"direct_gb_per_s\":{:.3f},\"relayed_p50_us\":{:.2f},\"direct_p50_us\":{:.2f},"
            "\"p50_difference_us\":{:.2f},\"mean_piece_bytes\":{},\"includes\":\"staging\"}}",
            what, options_.gb_per_s, options_.max_piece_bytes, Median(ratios), Median(rates[1]),
            Median(rates[0]), Median(p50s[1]), Median(p50s[0]), Median(p50_differences),
            (after.bytes_relayed - before.bytes_relayed) / std::max<uint64_t>(pieces, 1))
            .c_str());
    PrintStages(what);
    std::fflush(stdout);
  }

  std::vector<PieceTrace> TakeTraces() { return {relayed_.Trace(), site_.RelayTrace()}; }

  void PrintStages(const std::string& what) {
    StageTimes times;
    const std::vector<PieceTrace> traces = TakeTraces();
    for (const TracedPiece& piece : JoinPieces(traces)) times.Add(piece);
    std::string stages;
    for (uint32_t i = 0; i < kPieceIntervals; ++i) {
      const LatencySummary time = times.Summary(i);
      stages += fmt::format("{}\"{}\":[{:.2f},{:.2f}]", i == 0 ? "" : ",", PieceIntervalName(i),
                            time.p50_us, time.p99_us);
    }
    std::printf("%s\n", fmt::format("{{\"name\":\"gpu.stages\",{},\"nic_gb_per_s\":{},"
                                    "\"pieces\":{},\"us\":{{{}}}}}",
                                    what, options_.gb_per_s, times.pieces(), stages)
                            .c_str());
  }

  const RelaySiteOptions options_;
  RelaySite site_;
  Sender relayed_, direct_;
};

// Copy and doorbell alone, into the arena of another process: the floor of a relayed write.
double CopyAndDoorbellUs(const std::shared_ptr<const CudaDevice>& device, const GpuBuffer& source,
                         uint64_t bytes) {
  ArenaOwner owner(1);
  const auto arena = ImportedCudaArena::Open(device, owner.handle(), 1);
  auto engine = CudaCopyEngine::Create(device, {.streams = 1, .queue_depth = kSlotsPerLane});
  if (!arena.ok() || !engine.ok()) Die("no arena or no copy engine");
  SharedWords words(device, true);
  std::vector<double> times;
  for (uint64_t sequence = 1; sequence <= 500; ++sequence) {
    const CopySpan span{source.data(), bytes};
    const Clock::time_point start = Clock::now();
    (*engine)->Issue({.stream = 0,
                      .spans = {&span, 1},
                      .destination = (*arena)->base(),
                      .doorbell = words.word(0),
                      .sequence = sequence});
    CopyDone done;
    while ((*engine)->Reap({&done, 1}) == 0) (*engine)->Progress(0);
    if (done.status != CopyStatus::kOk) Die("a copy failed");
    times.push_back(Seconds(Clock::now() - start) * 1e6);
  }
  return Median(std::move(times));
}

constexpr uint64_t kKib = 1024, kMib = 1024 * kKib;

auto Write(uint64_t chunk, size_t outstanding) {
  return [=](Sender& sender) { return sender.Run(chunk, outstanding); };
}

void MeasureLatency(const std::shared_ptr<const CudaDevice>& device, const GpuBuffer& source) {
  const double floor_us = CopyAndDoorbellUs(device, source, 64 * kKib);
  std::printf("{\"name\":\"gpu.copy_and_doorbell_64k\",\"value\":%.2f,\"unit\":\"us\"}\n",
              floor_us);
  Pair pair({.target_bytes = kTargetBytes, .gb_per_s = 100'000, .move = false, .base_delay_ns = 0},
            source);
  pair.Measure("\"chunk\":65536,\"outstanding\":1,\"case\":\"no wire\"", Write(64 * kKib, 1));
}

struct Setting {
  double gb_per_s;
  uint64_t piece_bytes;
  const char* copy = "";  // the inside of the config's copy block
};

void Measure(const Setting& setting, const std::vector<uint64_t>& chunks,
             const std::vector<size_t>& under_way, const std::vector<KvBatch>& batches,
             const GpuBuffer& source) {
  Pair pair({.target_bytes = kTargetBytes,
             .copy = setting.copy,
             .gb_per_s = setting.gb_per_s,
             .move = false,
             .max_piece_bytes = setting.piece_bytes},
            source);
  for (const uint64_t chunk : chunks) {
    for (const size_t outstanding : under_way) {
      pair.Measure(fmt::format("\"chunk\":{},\"outstanding\":{},\"copy\":\"{}\"", chunk,
                               outstanding, setting.copy),
                   Write(chunk, outstanding));
    }
  }
  for (const KvBatch& batch : batches) {
    pair.Measure(fmt::format("\"batch\":\"{}\",\"bytes\":{}", batch.name, batch.total),
                 [&](Sender& sender) { return sender.Run(batch); });
  }
}

// How the actors of a sender are spread, and over how many GPUs: what the figures depend on.
void PrintLayout(const GpuBuffer& source) {
  const RelaySite site({.target_bytes = kMib, .move = false});
  std::string actors;
  for (const ActorStats& actor : Sender(site, source, true).Stats().actors) {
    actors += fmt::format("{}\"{}\":[\"{}\",{}]", actors.empty() ? "" : ",", actor.actor,
                          actor.reactor, actor.core);
  }
  const int gpus = TestDevice(0)->pci() == TestDevice(1)->pci() ? 1 : 2;
  std::printf("{\"name\":\"gpu.layout\",\"gpus\":%d,\"reactor_and_core\":{%s}}\n", gpus,
              actors.c_str());
  std::fflush(stdout);
}

// Field fault G4: of both GPUs, after senders have come and gone.
void MeasureLeak(const GpuBuffer& source) {
  constexpr int kFirst = 3, kRestarts = 100;
  const RelaySite site({.target_bytes = kMib, .move = false});
  const auto available = [] {
    uint64_t sum = 0;
    for (const int index : {0, 1}) {
      const auto device = TestDevice(index);
      const CudaScope scope(*device);
      size_t bytes = 0, total = 0;
      device->driver().mem_get_info(&bytes, &total);
      sum += bytes;
    }
    return sum;
  };
  const auto restart = [&](int times) {
    for (int i = 0; i < times; ++i) Sender(site, source, true).Run(64 * kKib, 1);
  };
  restart(kFirst);
  const uint64_t before = available();
  restart(kRestarts);
  const auto gone = static_cast<int64_t>(before - available());
  std::printf("%s\n", fmt::format("{{\"name\":\"gpu.leak\",\"restarts\":{},\"value\":{},"
                                  "\"unit\":\"bytes\"}}",
                                  kRestarts, gone)
                          .c_str());
  std::fflush(stdout);
}

constexpr const char* kSections[] = {"latency", "sweep", "capped", "leak", "small", "ways"};

int Run(std::vector<std::string> sections) {
  for (const std::string& section : sections) {
    if (std::find(std::begin(kSections), std::end(kSections), section) != std::end(kSections)) {
      continue;
    }
    std::fprintf(stderr, "no section '%s': %s\n", section.c_str(),
                 fmt::format("{}", fmt::join(kSections, ", ")).c_str());
    return 2;
  }
  std::string why;
  if (TestDriver(&why) == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 77;
  }
  if (sections.empty()) sections = {"latency", "sweep", "capped", "leak"};
  const auto device = TestDevice(0);
  const GpuBuffer source(device, kTargetBytes);
  const std::vector<uint64_t> chunks = {64 * kKib, 512 * kKib, kMib, 2 * kMib, 4 * kMib, 8 * kMib};
  const std::vector<size_t> usual = {1, 8, kMaxOutstanding};
  const std::vector<KvBatch> batches = *ReadBatches("");
  PrintLayout(source);
  for (const std::string& section : sections) {
    if (section == "latency") {
      MeasureLatency(device, source);
    } else if (section == "small" || section == "ways") {
      const std::vector<const char*> others = {"doorbell: STREAM_WRITE", "doorbell: CPU",
                                               "way: ASYNC", "way: BATCH", "way: GATHER"};
      for (const double rate : {25, 50}) {
        for (const char* copy : section == "small" ? std::vector{""} : others) {
          Measure({rate, 8 * kMib, copy}, {64 * kKib}, {4, 8, 12, 16, kMaxOutstanding}, {}, source);
        }
      }
    } else if (section == "sweep") {
      for (const double rate : {25, 50}) {
        Measure({rate, 8 * kMib}, chunks, usual, batches, source);
      }
    } else if (section == "capped") {
      for (const uint64_t bytes : {512 * kKib, kMib}) {
        Measure({25, bytes}, chunks, usual, batches, source);
      }
    } else {
      MeasureLeak(source);
    }
  }
  return 0;
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  int status = railhop::RelayRoleMain(argc, argv);
  if (status < 0) status = railhop::GpuTestMain(argc, argv);
  return status >= 0 ? status : railhop::Run({argv + 1, argv + argc});
}
