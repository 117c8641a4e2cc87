#include "tests/gpu/call_costs.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "transport/copy/gather_kernel.h"

namespace railhop {
namespace {

constexpr uint32_t kBytes = 64 * 1024;

class Calls {
 public:
  explicit Calls(const CudaDevice& device) : driver_(device.driver()) {
    Check(driver_.stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0));
  }
  ~Calls() { driver_.stream_destroy(stream_); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  cuda::Stream stream() const { return stream_; }

  template <class Call>
  void Measure(const char* name, Call call) {
    using Clock = std::chrono::steady_clock;
    constexpr int kBursts = 200, kWarm = 5, kCalls = 16;
    std::vector<double> times;
    for (int i = 0; i < kBursts + kWarm; ++i) {
      const Clock::time_point start = Clock::now();
      for (int j = 0; j < kCalls; ++j) Check(call());
      const std::chrono::duration<double, std::micro> took = Clock::now() - start;
      Check(driver_.stream_synchronize(stream_));
      if (i >= kWarm) times.push_back(took.count() / kCalls);
    }
    std::sort(times.begin(), times.end());
    std::printf("%s\n", fmt::format("{{\"name\":\"gpu.call\",\"call\":\"{}\",\"value\":{:.3f},"
                                    "\"p99\":{:.3f},\"unit\":\"us\"}}",
                                    name, times[kBursts / 2], times[kBursts * 99 / 100])
                            .c_str());
    std::fflush(stdout);
  }

  void Check(cuda::Result result) const {
    if (result == cuda::kSuccess) return;
    std::fprintf(stderr, "%s\n",
                 std::string(driver_.ToStatus(result, "a call failed").message()).c_str());
    std::exit(1);
  }

 private:
  const CudaDriver& driver_;
  cuda::Stream stream_ = nullptr;
};

// Launches with as many bytes of parameters as a piece has.
void MeasureKernels(Calls& calls, const CudaDriver& driver, cuda::DevicePointer source,
                    cuda::DevicePointer destination, cuda::DevicePointer word) {
  if (GatherImage() == nullptr) return;
  cuda::Module module = nullptr;
  cuda::DevicePointer counter = 0;
  calls.Check(driver.module_load_data(&module, GatherImage()));
  calls.Check(driver.mem_alloc(&counter, sizeof(uint64_t)));
  const auto kernel = [&](const char* name) {
    cuda::Function function = nullptr;
    calls.Check(driver.module_get_function(&function, module, name));
    return function;
  };
  const auto launch = [&](cuda::Function function, uint32_t blocks, uint32_t threads,
                          void** parameters) {
    return driver.launch_kernel(function, blocks, 1, 1, threads, 1, 1, 0, calls.stream(),
                                parameters, nullptr);
  };
  uint64_t sequence = 0;
  void* doorbell_parameters[] = {&word, &sequence};
  const cuda::Function doorbell = kernel(kDoorbellKernel);
  calls.Measure("launch, doorbell alone",
                [&] { return launch(doorbell, 1, 1, doorbell_parameters); });

  // No doorbell: nobody looks at the counter, so that it needs no first value.
  GatherJob job{.destination = destination,
                .bytes = kBytes,
                .spans = 1,
                .bytes_per_warp = kGatherWarpBytes,
                .counter = counter};
  constexpr uint32_t kBlocks = kBytes / (kGatherWarps * kGatherWarpBytes);
  GatherFewList few{{source}, {0, kBytes}};
  void* few_parameters[] = {&job, &few};
  const cuda::Function gather_few = kernel(kGatherFewKernel);
  calls.Measure("launch, 8 spans of parameters",
                [&] { return launch(gather_few, kBlocks, kGatherThreads, few_parameters); });
  GatherInlineList many{{source}, {0, kBytes}};
  void* many_parameters[] = {&job, &many};
  const cuda::Function gather_inline = kernel(kGatherInlineKernel);
  calls.Measure("launch, 128 spans of parameters",
                [&] { return launch(gather_inline, kBlocks, kGatherThreads, many_parameters); });
  driver.mem_free(counter);
  driver.module_unload(module);
}

}  // namespace

void PrintCallCosts(const CudaDevice& device, std::byte* source_data, std::byte* destination_data,
                    uint64_t* word_data) {
  const CudaScope scope(device);
  const CudaDriver& driver = device.driver();
  Calls calls(device);
  const cuda::Stream stream = calls.stream();
  auto source = reinterpret_cast<cuda::DevicePointer>(source_data);
  auto destination = reinterpret_cast<cuda::DevicePointer>(destination_data);
  cuda::DevicePointer word = 0;
  calls.Check(driver.mem_host_get_device_pointer(&word, word_data, 0));

  calls.Measure("copy", [&] { return driver.memcpy_async(destination, source, kBytes, stream); });
  // The same for callers who know that both lie on GPUs; not in the table of what Railhop uses.
  using CopyOnDevice =
      cuda::Result (*)(cuda::DevicePointer, cuda::DevicePointer, size_t, cuda::Stream);
  void* const library = dlopen(CudaDriver::kLibrary, RTLD_NOW | RTLD_NOLOAD);
  const auto copy_on_device =
      library == nullptr ? nullptr
                         : reinterpret_cast<CopyOnDevice>(dlsym(library, "cuMemcpyDtoDAsync_v2"));
  if (copy_on_device != nullptr) {
    calls.Measure("copy, device to device",
                  [&] { return copy_on_device(destination, source, kBytes, stream); });
  }
  if (driver.memcpy_batch_async_13 != nullptr) {
    size_t bytes = kBytes, from = 0;
    cuda::MemcpyAttributes attributes;
    calls.Measure("batch of one copy", [&] {
      return driver.memcpy_batch_async_13(&destination, &source, &bytes, 1, &attributes, &from, 1,
                                          stream);
    });
  }
  if (device.stream_write()) {
    calls.Measure("stream write", [&] {
      return driver.stream_write_value64(stream, word, 0, cuda::kStreamWriteDefault);
    });
    calls.Measure("copy and stream write", [&] {
      const cuda::Result copied = driver.memcpy_async(destination, source, kBytes, stream);
      return copied != cuda::kSuccess
                 ? copied
                 : driver.stream_write_value64(stream, word, 0, cuda::kStreamWriteDefault);
    });
  }
  MeasureKernels(calls, driver, source, destination, word);

  cuda::Event event = nullptr;
  calls.Check(driver.event_create(&event, cuda::kEventDisableTiming));
  calls.Measure("event record", [&] { return driver.event_record(event, stream); });
  calls.Measure("event query, done", [&] { return driver.event_query(event); });
  calls.Measure("stream query, idle", [&] { return driver.stream_query(stream); });
  driver.event_destroy(event);
}

}  // namespace railhop
