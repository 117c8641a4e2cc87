// How much a host's own kernels are slowed down while pieces are gathered at full rate: JSON lines.
//
//   gpu_gemm_bench [--driver=LIBRARY]
//
// A matrix product of floats keeps the first GPU busy, alone and while another thread has pieces of
// 1024 x 2 KiB gathered into the arena of another process, 18 under way, by at most so many blocks,
// on a stream of the priority that streams have and of the highest: a gather waits for
// multiprocessors. The two take turns; value: median of the pairs, time with gathers / time alone.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/gpu/gemm_kernel.h"
#include "tests/gpu/gpu_support.h"
#include "transport/copy/cuda_copy_engine.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kSize = 4096;  // floats a side
constexpr int kProducts = 4;      // of one time
constexpr int kPairs = 7;
constexpr size_t kSpans = 1024;
constexpr uint64_t kSpanBytes = 2048;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::exit(1);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Gemm {
 public:
  explicit Gemm(std::shared_ptr<const CudaDevice> device)
      : device_(std::move(device)), driver_(device_->driver()), memory_(device_, 3 * kBytes) {
    const CudaScope scope(*device_);
    Check(driver_.module_load_data(&module_, GemmImage()));
    Check(driver_.module_get_function(&kernel_, module_, kGemmKernel));
    Check(driver_.stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0));
    memory_.Write(std::vector<std::byte>(3 * kBytes));
  }
  ~Gemm() {
    const CudaScope scope(*device_);
    driver_.stream_destroy(stream_);
    driver_.module_unload(module_);
  }
  Gemm(const Gemm&) = delete;
  Gemm& operator=(const Gemm&) = delete;

  double Milliseconds() {
    const CudaScope scope(*device_);
    auto a = reinterpret_cast<cuda::DevicePointer>(memory_.data());
    cuda::DevicePointer b = a + kBytes, c = b + kBytes;
    unsigned size = kSize;
    void* parameters[] = {&a, &b, &c, &size};
    const Clock::time_point start = Clock::now();
    for (int i = 0; i < kProducts; ++i) {
      Check(driver_.launch_kernel(kernel_, kSize / kGemmTile, kSize / kGemmTile, 1, kGemmThreads, 1,
                                  1, 0, stream_, parameters, nullptr));
    }
    Check(driver_.stream_synchronize(stream_));
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  }

 private:
  static constexpr uint64_t kBytes = uint64_t{kSize} * kSize * sizeof(float);

  void Check(cuda::Result result) const {
    if (result != cuda::kSuccess) {
      Die(std::string(driver_.ToStatus(result, "no matrix product").message()));
    }
  }

  const std::shared_ptr<const CudaDevice> device_;
  const CudaDriver& driver_;
  GpuBuffer memory_;
  cuda::Module module_ = nullptr;
  cuda::Function kernel_ = nullptr;
  cuda::Stream stream_ = nullptr;
};

// A thread that has pieces gathered, while it is told to.
class Gatherer {
 public:
  Gatherer(const std::shared_ptr<const CudaDevice>& device, std::byte* source, std::byte* arena,
           uint32_t blocks, int priority)
      : words_(device, true), arena_(arena) {
    auto engine = CudaCopyEngine::Create(device, {.streams = 1,
                                                  .queue_depth = kSlotsPerLane,
                                                  .way = CopyWay::kGather,
                                                  .priority = priority,
                                                  .gather_max_blocks = blocks});
    if (!engine.ok()) Die(std::string(engine.status().message()));
    engine_ = *std::move(engine);
    for (size_t i = 0; i < kSpans; ++i) spans_.push_back({source + 2 * i * kSpanBytes, kSpanBytes});
    thread_ = std::thread([this] { Run(); });
  }
  ~Gatherer() {
    end_.store(true);
    thread_.join();
  }
  Gatherer(const Gatherer&) = delete;
  Gatherer& operator=(const Gatherer&) = delete;

  // Returns once the first piece has been gathered, or the last one.
  void Start() {
    wanted_.store(true);
    for (const uint64_t before = pieces_.load(); pieces_.load() == before;) {
    }
  }
  void Stop() {
    wanted_.store(false);
    while (!idle_.load()) {
    }
  }
  uint64_t bytes() const { return pieces_.load() * kSpans * kSpanBytes; }

 private:
  void Run() {
    uint32_t pending = 0;
    for (uint64_t sequence = 0; !end_.load() || pending != 0;) {
      while (wanted_.load() && !end_.load() && pending < kSlotsPerLane) {
        idle_.store(false);
        ++sequence;
        engine_->Issue({.stream = 0,
                        .spans = spans_,
                        .destination = arena_ + sequence % kSlotsPerLane * kSlotBytes,
                        .doorbell = words_.word(0),
                        .sequence = sequence});
        ++pending;
      }
      engine_->Progress(0);
      CopyDone done;
      while (engine_->Reap({&done, 1}) == 1) {
        if (done.status != CopyStatus::kOk) Die("a gather failed: " + engine_->error());
        --pending;
        ++pieces_;
      }
      if (pending == 0 && !wanted_.load()) idle_.store(true);
    }
  }

  SharedWords words_;
  std::byte* const arena_;
  std::unique_ptr<CudaCopyEngine> engine_;
  std::vector<CopySpan> spans_;
  std::atomic<bool> wanted_{false}, end_{false}, idle_{true};
  std::atomic<uint64_t> pieces_{0};
  std::thread thread_;
};

// `what`: members that name the row.
void Measure(Gemm& gemm, Gatherer& gatherer, const std::string& what) {
  std::vector<double> ratios, alone, beside, rates;
  for (int i = 0; i < kPairs; ++i) {
    alone.push_back(gemm.Milliseconds());
    gatherer.Start();
    const uint64_t bytes = gatherer.bytes();
    beside.push_back(gemm.Milliseconds());
    rates.push_back(static_cast<double>(gatherer.bytes() - bytes) / beside.back() / 1e6);
    gatherer.Stop();
    ratios.push_back(beside.back() / alone.back());
  }
  std::printf("%s\n",
              fmt::format("{{\"name\":\"gpu.gemm\",{},\"value\":{:.4f},\"unit\":\"ratio\","
                          "\"alone_ms\":{:.3f},\"beside_ms\":{:.3f},"
                          "\"gathered_gb_per_s\":{:.2f}}}",
                          what, Median(ratios), Median(alone), Median(beside), Median(rates))
                  .c_str());
  std::fflush(stdout);
}

int Run() {
  std::string why;
  if (TestDriver(&why) == nullptr) {
    std::fprintf(stderr, "%s\n", why.c_str());
    return 77;
  }
  if (GemmImage() == nullptr) {
    std::fprintf(stderr, "built without nvcc: no kernels\n");
    return 77;
  }
  const auto device = TestDevice(0);
  const ArenaOwner owner(1);
  auto arena = ImportedCudaArena::Open(device, owner.handle(), 1);
  if (!arena.ok()) Die(std::string(arena.status().message()));
  const GpuBuffer source(device, 2 * kSpans * kSpanBytes);
  Gemm gemm(device);
  gemm.Milliseconds();            // warms up
  constexpr int kHighest = -100;  // beyond the range: its end
  for (const int priority : {0, kHighest}) {
    for (const uint32_t blocks : {4, 8, 16, 32, 64, 128}) {
      Gatherer gatherer(device, source.data(), (*arena)->base(), blocks, priority);
      Measure(gemm, gatherer,
              fmt::format("\"gather_max_blocks\":{},\"priority\":\"{}\"", blocks,
                          priority == 0 ? "usual" : "highest"));
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
