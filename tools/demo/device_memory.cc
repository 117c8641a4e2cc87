#include "tools/demo/device_memory.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <utility>

#include "tools/demo/batches.h"
#include "tools/demo/checksum_kernel.h"

namespace railhop {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

// A stream for a few calls that are waited for.
class ShortStream {
 public:
  explicit ShortStream(const CudaDevice& device) : device_(device), scope_(device) {
    Note(driver().stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0));
  }
  ~ShortStream() {
    if (stream_ != nullptr) driver().stream_destroy(stream_);
  }
  ShortStream(const ShortStream&) = delete;
  ShortStream& operator=(const ShortStream&) = delete;

  const CudaDriver& driver() const { return device_.driver(); }
  cuda::Stream stream() const { return stream_; }
  bool ok() const { return result_ == cuda::kSuccess; }
  // Keeps the first error.
  void Note(cuda::Result result) {
    if (ok()) result_ = result;
  }
  void Copy(void* to, const void* from, uint64_t bytes) {
    if (ok()) {
      Note(driver().memcpy_async(reinterpret_cast<uintptr_t>(to), reinterpret_cast<uintptr_t>(from),
                                 bytes, stream_));
    }
  }
  absl::Status Wait(const char* what) {
    if (ok()) Note(driver().stream_synchronize(stream_));
    return driver().ToStatus(result_, fmt::format("{} on GPU {}", what, device_.pci()));
  }

 private:
  const CudaDevice& device_;
  const CudaScope scope_;
  cuda::Stream stream_ = nullptr;
  cuda::Result result_ = cuda::kSuccess;
};

absl::Status Fetch(const CudaDevice& device, void* to, const std::byte* from, uint64_t bytes) {
  ShortStream stream(device);
  stream.Copy(to, from, bytes);
  return stream.Wait("reading what arrived");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> VisibleGpus() {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  std::vector<std::string> gpus;
  cuda::Device device = 0;
  char pci[32] = "";
  for (int i = 0; (*driver)->device_get(&device, i) == cuda::kSuccess; ++i) {
    if ((*driver)->device_get_pci_bus_id(pci, sizeof(pci), device) != cuda::kSuccess) break;
    gpus.emplace_back(pci);
  }
  if (gpus.empty()) {
    return absl::NotFoundError(
        "the CUDA driver shows this process no GPU; is CUDA_VISIBLE_DEVICES set?");
  }
  return gpus;
}

absl::StatusOr<uint64_t> DeviceChecksum(const CudaDevice& device, const std::byte* data,
                                        uint64_t words) {
  if (ChecksumImage() == nullptr) {
    std::vector<std::byte> bytes(words * kWord);
    if (absl::Status read = Fetch(device, bytes.data(), data, bytes.size()); !read.ok())
      return read;
    return HostChecksum(bytes);
  }
  ShortStream stream(device);
  const CudaDriver& driver = stream.driver();
  cuda::Module module = nullptr;
  cuda::Function kernel = nullptr;
  cuda::DevicePointer sum = 0;
  uint64_t value = 0;
  stream.Note(driver.module_load_data(&module, ChecksumImage()));
  if (stream.ok()) stream.Note(driver.module_get_function(&kernel, module, kChecksumKernel));
  if (stream.ok()) stream.Note(driver.mem_alloc(&sum, sizeof(value)));
  auto* const sum_memory = reinterpret_cast<void*>(sum);  // NOLINT(performance-no-int-to-ptr)
  stream.Copy(sum_memory, &value, sizeof(value));
  if (stream.ok()) {
    auto address = reinterpret_cast<cuda::DevicePointer>(data);
    void* parameters[] = {&address, &words, &sum};
    stream.Note(driver.launch_kernel(kernel, kChecksumBlocks, 1, 1, kChecksumThreads, 1, 1, 0,
                                     stream.stream(), parameters, nullptr));
  }
  stream.Copy(&value, sum_memory, sizeof(value));
  const absl::Status done = stream.Wait("adding up a checksum");
  if (sum != 0) driver.mem_free(sum);
  if (module != nullptr) driver.module_unload(module);
  if (!done.ok()) return done;
  return value;
}

uint64_t HostChecksum(std::span<const std::byte> bytes) {
  uint64_t sum = 0;
  for (size_t i = 0; i < bytes.size() / kWord; ++i) {
    uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i * kWord, kWord);
    sum += ChecksumOfWord(word, i);
  }
  return sum;
}

DeviceMemory::DeviceMemory(std::shared_ptr<const CudaDevice> device, std::span<std::byte> bytes)
    : device_(std::move(device)), bytes_(bytes) {}

absl::StatusOr<std::unique_ptr<DeviceMemory>> DeviceMemory::Allocate(const std::string& pci,
                                                                     uint64_t bytes) {
  const absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  absl::StatusOr<std::shared_ptr<const CudaDevice>> device = CudaDevice::Open(**driver, pci);
  if (!device.ok()) return device.status();
  const CudaScope scope(**device);
  cuda::DevicePointer memory = 0;
  size_t available = 0, total = 0;
  (*driver)->mem_get_info(&available, &total);
  const absl::Status allocated = (*driver)->ToStatus(
      (*driver)->mem_alloc(&memory, bytes),
      fmt::format("{} bytes of GPU {} are needed, {} of its {} are free; fewer --ranks or smaller "
                  "--batches need less",
                  bytes, pci, available, total));
  if (!allocated.ok()) return allocated;
  auto* const data = reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
  return std::unique_ptr<DeviceMemory>(new DeviceMemory(*std::move(device), {data, bytes}));
}

DeviceMemory::~DeviceMemory() {
  const CudaScope scope(*device_);
  device_->driver().mem_free(reinterpret_cast<uintptr_t>(bytes_.data()));
}

absl::StatusOr<DeviceHandle> DeviceMemory::Export() const {
  const CudaScope scope(*device_);
  cuda::IpcMemHandle handle{};
  const absl::Status made = device_->driver().ToStatus(
      device_->driver().ipc_get_mem_handle(&handle, reinterpret_cast<uintptr_t>(bytes_.data())),
      fmt::format("memory of GPU {} cannot be shared between processes", device_->pci()));
  if (!made.ok()) return made;
  return std::bit_cast<DeviceHandle>(handle);
}

absl::Status DeviceMemory::Fill(uint64_t size, uint64_t seed) {
  std::vector<std::byte> pattern(size);
  FillPattern(pattern, seed);
  ShortStream stream(*device_);
  stream.Copy(bytes_.data(), pattern.data(), size);
  return stream.Wait("filling the source");
}

absl::StatusOr<int64_t> DeviceMemory::FindMismatch(uint64_t size, uint64_t seed) const {
  std::vector<std::byte> bytes(size);
  FillPattern(bytes, seed);
  const uint64_t words = size / kWord, tail = size % kWord;
  const absl::StatusOr<uint64_t> sum = DeviceChecksum(*device_, bytes_.data(), words);
  if (!sum.ok()) return sum.status();
  std::byte last[kWord] = {};
  if (tail != 0) {
    const absl::Status read = Fetch(*device_, last, bytes_.data() + words * kWord, tail);
    if (!read.ok()) return read;
  }
  const bool same =
      *sum == HostChecksum(bytes) && std::memcmp(last, bytes.data() + words * kWord, tail) == 0;
  if (same) return -1;
  if (absl::Status read = Fetch(*device_, bytes.data(), bytes_.data(), size); !read.ok())
    return read;
  const int64_t at = railhop::FindMismatch(bytes, seed);
  if (at >= 0) return at;
  return absl::InternalError(
      fmt::format("the checksum by GPU {} is not that of its bytes", device_->pci()));
}

}  // namespace railhop
