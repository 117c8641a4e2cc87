#include "tests/support/fake_cuda/fake_cuda.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "tests/gpu/gemm_kernel.h"
#include "tools/demo/checksum_kernel.h"
#include "transport/copy/gather_kernel.h"
#include "transport/cuda/driver_abi.h"

namespace railhop {

// What the opaque pointers of the driver's interface lead to.
namespace cuda {
uint64_t NextId() {
  static std::atomic<uint64_t> next{0};
  return next++;
}
struct StreamObject {
  uint64_t id = NextId();
  std::deque<std::function<void()>> commands;
};
struct EventObject {
  int pending = 0;  // records not carried out
};
struct ContextObject {
  int device = 0;
};
struct ModuleObject {};
struct FunctionObject {
  std::string name;
};
}  // namespace cuda

namespace {

using cuda::DevicePointer;
using cuda::Result;

constexpr int kDevices = 2;
const char* const kPci[kDevices] = {"0000:17:00.0", "0000:65:00.0"};
constexpr int kCaptureGlobal = 0;
constexpr size_t kBlock = 2 << 20;
constexpr size_t kPage = 4096;

// What an IPC handle says.
struct Handle {
  char marker[8];
  int32_t pid;
  int32_t fd;
  uint64_t size;
  int32_t device;
};

struct Memory {
  std::byte* base = nullptr;
  std::byte* reached = nullptr;  // the same bytes, where the CPU may touch them
  size_t size = 0;
  int fd = -1;
  int device = 0;
  int imports = 0;  // 0: its own
  // What it is said to lie in: itself, or a reserved range.
  std::byte* range = nullptr;
  size_t range_size = 0;
};

thread_local std::vector<cuda::Context> contexts;
thread_local int capture_mode = kCaptureGlobal;

void* AsPointer(DevicePointer address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
}

class Fake final : public FakeCuda {
 public:
  void Reset() override {
    std::lock_guard lock(mutex);
    for (auto& [base, memory] : memories) Unmap(memory);
    memories.clear();
    registered.clear();
    streams.clear();
    order.clear();
    version = 13000;
    missing.clear();
    manual = hidden = false;
    stream_write = 1;
    stream_write_v1 = 0;
    dma_buf = rdma_flush = 1;
    rdma_ordering = 100;
    latest_dma_buf = -1;
    flushed.clear();
    peer_access = true;
    open_checks_access = true;
    largest_allocation = SIZE_MAX;
    fail.clear();
    sticky = 0;
    calls.clear();
    calls_outside_relaxed_mode = 0;
    captures_broken = 0;
    held.clear();
    capturing.clear();
    stream_priority.clear();
  }

  std::unique_lock<std::mutex> Lock() override { return std::unique_lock(mutex); }
  size_t Run(size_t count) override {
    std::lock_guard lock(mutex);
    size_t done = 0;
    while (done < count && !order.empty()) {
      cuda::StreamObject* stream = order.front();
      order.pop_front();
      RunOne(stream);
      ++done;
    }
    return done;
  }
  void Release(void* handle) override {
    std::lock_guard lock(mutex);
    held.erase(handle);
    cuda::StreamObject* const stream = Resolve(static_cast<cuda::Stream>(handle));
    while (!stream->commands.empty()) RunOne(stream);
    std::erase(order, stream);
  }
  size_t Waiting() override {
    std::lock_guard lock(mutex);
    return order.size();
  }
  uint64_t MapChunks(size_t bytes, std::span<const int> devices) override {
    std::lock_guard lock(mutex);
    void* const room = mmap(nullptr, devices.size() * bytes, PROT_NONE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    auto* at = static_cast<std::byte*>(room);
    for (const int device : devices) {
      if (device >= 0) {
        Memory& memory = memories.at(Map(bytes, device, at));
        memory.range = static_cast<std::byte*>(room);
        memory.range_size = devices.size() * bytes;
      }
      at += bytes;
    }
    return reinterpret_cast<uintptr_t>(room);
  }
  std::vector<std::byte> Read(uint64_t address, size_t bytes) override {
    std::vector<std::byte> read(bytes);
    std::lock_guard lock(mutex);
    Copy(reinterpret_cast<uintptr_t>(read.data()), address, bytes);
    return read;
  }
  void Write(uint64_t address, std::span<const std::byte> bytes) override {
    std::lock_guard lock(mutex);
    Copy(address, reinterpret_cast<uintptr_t>(bytes.data()), bytes.size());
  }
  size_t Allocated() const override {
    size_t bytes = 0;
    for (const auto& [base, memory] : memories) bytes += memory.imports == 0 ? memory.size : 0;
    return bytes;
  }
  size_t Imported() const override {
    return static_cast<size_t>(std::count_if(memories.begin(), memories.end(),
                                             [](const auto& m) { return m.second.imports != 0; }));
  }

  // At `place`, over what is there, or somewhere. Nullptr: there is no room.
  std::byte* Map(size_t size, int device, std::byte* place) {
    Memory memory{.size = size, .fd = memfd_create("fake-gpu", MFD_CLOEXEC), .device = device};
    if (memory.fd < 0 || ftruncate(memory.fd, static_cast<off_t>(size)) != 0) return nullptr;
    void* base = mmap(place, size, hidden ? PROT_NONE : PROT_READ | PROT_WRITE,
                      MAP_SHARED | (place == nullptr ? 0 : MAP_FIXED), memory.fd, 0);
    void* reached =
        hidden ? mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0) : base;
    if (base == MAP_FAILED || reached == MAP_FAILED) return nullptr;
    memory.base = memory.range = static_cast<std::byte*>(base);
    memory.range_size = size;
    memory.reached = static_cast<std::byte*>(reached);
    memories.emplace(memory.base, memory);
    return memory.base;
  }
  static void Unmap(const Memory& memory) {
    munmap(memory.base, memory.size);
    if (memory.reached != memory.base) munmap(memory.reached, memory.size);
    close(memory.fd);
  }

  // The allocation an address lies in.
  Memory* Find(DevicePointer address) {
    auto* const pointer = static_cast<std::byte*>(AsPointer(address));
    auto above = memories.upper_bound(pointer);
    if (above == memories.begin()) return nullptr;
    Memory& memory = std::prev(above)->second;
    return pointer < memory.base + memory.size ? &memory : nullptr;
  }
  // Where the CPU may touch so many of the bytes at an address.
  std::byte* Reach(DevicePointer address, size_t* bytes) {
    auto* const pointer = static_cast<std::byte*>(AsPointer(address));
    const Memory* const memory = Find(address);
    if (memory == nullptr) return pointer;
    const auto offset = static_cast<size_t>(pointer - memory->base);
    *bytes = std::min(*bytes, memory->size - offset);
    return memory->reached + offset;
  }
  void Copy(DevicePointer destination, DevicePointer source, size_t size) {
    while (size != 0) {
      size_t bytes = size;
      std::byte* const to = Reach(destination, &bytes);
      const std::byte* const from = Reach(source, &bytes);
      std::memcpy(to, from, bytes);
      destination += bytes;
      source += bytes;
      size -= bytes;
    }
  }

  // Counts the call and says how it goes: 0 unless the test wants it to fail.
  Result Enter(const char* name, bool needs_context) {
    ++calls[name];
    if (needs_context) {
      if (capture_mode != cuda::kCaptureModeRelaxed) ++calls_outside_relaxed_mode;
      if (contexts.empty() || contexts.back() == nullptr) return cuda::kInvalidContext;
    }
    const auto failing = fail.find(name);
    if (failing != fail.end()) {
      const Result result = failing->second;
      fail.erase(failing);
      return result;
    }
    return cuda::kSuccess;
  }
  Result EnterWork(const char* name) {
    const Result result = Enter(name, true);
    return result == cuda::kSuccess ? sticky : result;
  }

  // The handles 0 and 1 are the process's default stream, 2 that of the calling thread.
  static cuda::StreamObject* Resolve(cuda::Stream handle) {
    static cuda::StreamObject& of_process = *new cuda::StreamObject;
    thread_local cuda::StreamObject of_thread;
    const auto number = reinterpret_cast<uintptr_t>(handle);
    return number == 2 ? &of_thread : number < 2 ? &of_process : handle;
  }

  void Add(cuda::Stream handle, std::function<void()> command) {
    cuda::StreamObject* const stream = Resolve(handle);
    stream->commands.push_back(std::move(command));
    order.push_back(stream);
    if (manual || held.contains(handle)) return;
    while (!stream->commands.empty()) RunOne(stream);
    std::erase(order, stream);
  }
  static void RunOne(cuda::StreamObject* stream) {
    const auto command = std::move(stream->commands.front());
    stream->commands.pop_front();
    command();
  }

  std::mutex mutex;
  std::map<std::byte*, Memory> memories;
  std::set<std::byte*> registered;  // host memory
  std::vector<std::unique_ptr<cuda::StreamObject>> streams;
  std::deque<cuda::StreamObject*> order;  // a stream per command, as issued
  cuda::ContextObject context[kDevices] = {{0}, {1}};
};

Fake& TheFake() {
  static Fake& fake = *new Fake;
  return fake;
}

#define ENTER(name, needs_context)                                            \
  Fake& fake = TheFake();                                                     \
  std::lock_guard lock(fake.mutex);                                           \
  if (const Result entered = fake.Enter(name, needs_context); entered != 0) { \
    return entered;                                                           \
  }
#define ENTER_WORK(name)                                           \
  Fake& fake = TheFake();                                          \
  std::lock_guard lock(fake.mutex);                                \
  if (const Result entered = fake.EnterWork(name); entered != 0) { \
    return entered;                                                \
  }

Result Init(unsigned) {
  ENTER("cuInit", false);
  return 0;
}
Result DriverGetVersion(int* version) {
  *version = TheFake().version;
  return 0;
}
Result GetErrorName(Result result, const char** name) {
  *name = result == cuda::kOutOfMemory             ? "CUDA_ERROR_OUT_OF_MEMORY"
          : result == cuda::kPeerAccessUnsupported ? "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED"
          : result == cuda::kIllegalAddress        ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                                                   : "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
Result GetErrorString(Result, const char** text) {
  *text = "scripted";
  return 0;
}
Result DeviceGet(cuda::Device* device, int ordinal) {
  ENTER("cuDeviceGet", false);
  if (ordinal < 0 || ordinal >= kDevices) return 101;
  *device = ordinal;
  return 0;
}
Result DeviceGetByPciBusId(cuda::Device* device, const char* pci) {
  ENTER("cuDeviceGetByPCIBusId", false);
  for (int i = 0; i < kDevices; ++i) {
    if (std::strcmp(pci, kPci[i]) != 0) continue;
    *device = i;
    return 0;
  }
  return 101;
}
Result DeviceGetPciBusId(char* pci, int length, cuda::Device device) {
  std::snprintf(pci, static_cast<size_t>(length), "%s", kPci[device]);
  return 0;
}
Result DeviceGetAttribute(int* value, cuda::DeviceAttribute attribute, cuda::Device) {
  ENTER("cuDeviceGetAttribute", false);
  switch (static_cast<int>(attribute)) {
    case 122:
      *value = fake.stream_write;
      return 0;
    case 92:
      *value = fake.stream_write_v1;
      return 0;
    case 117:
      *value = fake.rdma_flush;
      return 0;
    case 118:
      *value = fake.rdma_ordering;
      return 0;
    case 124:
      *value = fake.dma_buf;
      return 0;
    default:
      return cuda::kInvalidValue;
  }
}
Result DeviceCanAccessPeer(int* can, cuda::Device, cuda::Device) {
  *can = TheFake().peer_access ? 1 : 0;
  return 0;
}
Result PrimaryCtxRetain(cuda::Context* context, cuda::Device device) {
  ENTER("cuDevicePrimaryCtxRetain", false);
  *context = &fake.context[device];
  return 0;
}
Result PrimaryCtxRelease(cuda::Device) {
  ENTER("cuDevicePrimaryCtxRelease", false);
  return 0;
}
Result CtxPushCurrent(cuda::Context context) {
  contexts.push_back(context);
  return 0;
}
Result CtxPopCurrent(cuda::Context* context) {
  if (contexts.empty()) return cuda::kInvalidContext;
  *context = contexts.back();
  contexts.pop_back();
  return 0;
}
Result CtxSetCurrent(cuda::Context context) {
  if (!contexts.empty()) contexts.pop_back();
  if (context != nullptr) contexts.push_back(context);
  return 0;
}
Result CtxGetStreamPriorityRange(int* least, int* greatest) {
  ENTER("cuCtxGetStreamPriorityRange", true);
  *least = 0;
  *greatest = -5;
  return 0;
}
Result ThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}

Result MemAlloc(DevicePointer* address, size_t size) {
  ENTER("cuMemAlloc", true);
  if (size > fake.largest_allocation) return cuda::kOutOfMemory;
  *address = reinterpret_cast<uintptr_t>(fake.Map(size, contexts.back()->device, nullptr));
  return *address == 0 ? cuda::kOutOfMemory : 0;
}
Result Free(DevicePointer address) {
  Fake& fake = TheFake();
  const auto found = fake.memories.find(static_cast<std::byte*>(AsPointer(address)));
  if (found == fake.memories.end()) return cuda::kInvalidValue;
  Fake::Unmap(found->second);
  fake.memories.erase(found);
  return 0;
}
Result MemFree(DevicePointer address) {
  ENTER("cuMemFree", true);
  return Free(address);
}
Result MemGetInfo(size_t* available, size_t* total) {
  ENTER("cuMemGetInfo", true);
  *total = size_t{8} << 30;
  *available = *total - fake.Allocated();
  return 0;
}
Result MemHostAlloc(void** address, size_t size, unsigned) {
  ENTER("cuMemHostAlloc", true);
  *address = std::aligned_alloc(4096, (size + 4095) / 4096 * 4096);
  fake.registered.insert(static_cast<std::byte*>(*address));
  return 0;
}
Result MemFreeHost(void* address) {
  ENTER("cuMemFreeHost", true);
  fake.registered.erase(static_cast<std::byte*>(address));
  std::free(address);
  return 0;
}
Result MemHostRegister(void* address, size_t, unsigned) {
  ENTER("cuMemHostRegister", true);
  if (!fake.registered.insert(static_cast<std::byte*>(address)).second) {
    return cuda::kHostMemoryAlreadyRegistered;
  }
  return 0;
}
Result MemHostUnregister(void* address) {
  ENTER("cuMemHostUnregister", true);
  return fake.registered.erase(static_cast<std::byte*>(address)) == 1 ? 0 : cuda::kInvalidValue;
}
// The ranges' lengths are not kept: a word within 16 MiB above a registered address is visible.
Result MemHostGetDevicePointer(DevicePointer* result, void* address, unsigned) {
  ENTER("cuMemHostGetDevicePointer", true);
  auto* const pointer = static_cast<std::byte*>(address);
  const auto above = fake.registered.upper_bound(pointer);
  if (above == fake.registered.begin() || pointer - *std::prev(above) > (16 << 20)) {
    return cuda::kInvalidValue;
  }
  *result = reinterpret_cast<uintptr_t>(address);
  return 0;
}
Result PointerGetAttribute(void* value, cuda::PointerAttribute attribute, DevicePointer address) {
  ENTER("cuPointerGetAttribute", false);
  const Memory* memory = fake.Find(address);
  if (memory == nullptr) return cuda::kInvalidValue;
  // An allocation of its own is cut from a larger block.
  const size_t mapped = memory->range == memory->base && memory->range_size == memory->size
                            ? (memory->size / kBlock + 1) * kBlock
                            : memory->size;
  switch (attribute) {
    case cuda::PointerAttribute::kMemoryType:
      std::memcpy(value, &cuda::kMemoryTypeDevice, sizeof(int));
      break;
    case cuda::PointerAttribute::kDeviceOrdinal:
      std::memcpy(value, &memory->device, sizeof(int));
      break;
    case cuda::PointerAttribute::kRangeStart:
      std::memcpy(value, &memory->range, sizeof(DevicePointer));
      break;
    case cuda::PointerAttribute::kRangeSize:
      std::memcpy(value, &memory->range_size, sizeof(size_t));
      break;
    case cuda::PointerAttribute::kMappingStart:
      std::memcpy(value, &memory->base, sizeof(DevicePointer));
      break;
    case cuda::PointerAttribute::kMappingSize:
      std::memcpy(value, &mapped, sizeof(size_t));
      break;
  }
  return 0;
}
// Pages of memory that was allocated, or is mapped without a hole.
Result MemGetHandleForAddressRange(void* handle, DevicePointer address, size_t size, int type,
                                   unsigned long long flags) {
  ENTER("cuMemGetHandleForAddressRange", true);
  if (type != cuda::kRangeHandleDmaBuf || flags != 0 || address % kPage != 0 || size == 0 ||
      size % kPage != 0) {
    return cuda::kInvalidValue;
  }
  for (DevicePointer at = address; at < address + size;) {
    const Memory* memory = fake.Find(at);
    if (memory == nullptr) return cuda::kInvalidValue;
    at = reinterpret_cast<uintptr_t>(memory->base) + (memory->size + kPage - 1) / kPage * kPage;
  }
  const FakeDmaBuf content{.address = address, .bytes = size};
  fake.latest_dma_buf = memfd_create("fake-dma-buf", MFD_CLOEXEC);
  if (pwrite(fake.latest_dma_buf, &content, sizeof(content), 0) != sizeof(content)) {
    return cuda::kOutOfMemory;
  }
  std::memcpy(handle, &fake.latest_dma_buf, sizeof(int));
  return 0;
}
Result FlushGpuDirectRdmaWrites(int target, int scope) {
  ENTER_WORK("cuFlushGPUDirectRDMAWrites");
  if (target != cuda::kRdmaFlushCurrent || scope != cuda::kRdmaFlushToOwner) {
    return cuda::kInvalidValue;
  }
  fake.flushed.push_back(contexts.back()->device);
  return 0;
}
Result IpcGetMemHandle(cuda::IpcMemHandle* result, DevicePointer address) {
  ENTER("cuIpcGetMemHandle", true);
  const Memory* memory = fake.Find(address);
  if (memory == nullptr) return cuda::kInvalidValue;
  const Handle handle{{'F', 'A', 'K', 'E'}, getpid(), memory->fd, memory->size, memory->device};
  std::memset(result, 0, sizeof(*result));
  std::memcpy(result, &handle, sizeof(handle));
  return 0;
}
Result IpcOpenMemHandle(DevicePointer* result, cuda::IpcMemHandle bytes, unsigned) {
  ENTER("cuIpcOpenMemHandle", true);
  Handle handle;
  std::memcpy(&handle, &bytes, sizeof(handle));
  if (std::memcmp(handle.marker, "FAKE", 4) != 0 || handle.pid == getpid()) {
    return cuda::kInvalidContext;
  }
  if (!fake.peer_access && fake.open_checks_access && handle.device != contexts.back()->device) {
    return cuda::kPeerAccessUnsupported;
  }
  const std::string path =
      "/proc/" + std::to_string(handle.pid) + "/fd/" + std::to_string(handle.fd);
  FILE* file = std::fopen(path.c_str(), "r+e");
  if (file == nullptr) return cuda::kInvalidValue;
  Memory memory{
      .size = handle.size, .fd = dup(fileno(file)), .device = handle.device, .imports = 1};
  std::fclose(file);
  void* base = mmap(nullptr, memory.size, PROT_READ | PROT_WRITE, MAP_SHARED, memory.fd, 0);
  if (base == MAP_FAILED) return cuda::kInvalidValue;
  memory.base = memory.reached = memory.range = static_cast<std::byte*>(base);
  memory.range_size = memory.size;
  fake.memories.emplace(memory.base, memory);
  *result = reinterpret_cast<uintptr_t>(base);
  return 0;
}
Result IpcCloseMemHandle(DevicePointer address) {
  ENTER("cuIpcCloseMemHandle", true);
  return Free(address);
}

Result MemcpyAsync(DevicePointer destination, DevicePointer source, size_t size,
                   cuda::Stream stream) {
  ENTER_WORK("cuMemcpyAsync");
  fake.Add(stream, [=, &fake] { fake.Copy(destination, source, size); });
  return 0;
}
Result MemcpyBatchAsync13(DevicePointer* destinations, DevicePointer* sources, size_t* sizes,
                          size_t count, cuda::MemcpyAttributes* attributes, size_t* indices,
                          size_t attribute_count, cuda::Stream stream) {
  ENTER_WORK("cuMemcpyBatchAsync");
  if (attribute_count != 1 || indices[0] != 0 || attributes->source_access_order != 1) {
    return cuda::kInvalidValue;
  }
  for (size_t i = 0; i < count; ++i) {
    fake.Add(stream, [d = destinations[i], s = sources[i], n = sizes[i]] {
      std::memcpy(AsPointer(d), AsPointer(s), n);
    });
  }
  return 0;
}
Result MemcpyBatchAsync12(DevicePointer* destinations, DevicePointer* sources, size_t* sizes,
                          size_t count, cuda::MemcpyAttributes* attributes, size_t* indices,
                          size_t attribute_count, size_t* failed, cuda::Stream stream) {
  *failed = SIZE_MAX;
  return MemcpyBatchAsync13(destinations, sources, sizes, count, attributes, indices,
                            attribute_count, stream);
}

Result StreamCreateWithPriority(cuda::Stream* stream, unsigned flags, int priority) {
  ENTER("cuStreamCreateWithPriority", true);
  if (flags != cuda::kStreamNonBlocking) return cuda::kInvalidValue;
  *stream = fake.streams.emplace_back(std::make_unique<cuda::StreamObject>()).get();
  fake.stream_priority[*stream] = priority;
  return 0;
}
Result StreamDestroy(cuda::Stream stream) {
  ENTER("cuStreamDestroy", true);
  fake.stream_priority.erase(stream);
  std::erase_if(fake.streams, [&](const auto& known) { return known.get() == stream; });
  return 0;
}
Result StreamQuery(cuda::Stream stream) {
  ENTER_WORK("cuStreamQuery");
  if (fake.capturing.contains(stream)) {
    ++fake.captures_broken;
    return cuda::kStreamCaptureUnsupported;
  }
  return Fake::Resolve(stream)->commands.empty() ? 0 : cuda::kNotReady;
}
Result StreamIsCapturing(cuda::Stream stream, int* state) {
  ENTER_WORK("cuStreamIsCapturing");
  *state = fake.capturing.contains(stream) ? 1 : cuda::kCaptureNone;
  return 0;
}
Result StreamGetId(cuda::Stream stream, uint64_t* id) {
  ENTER("cuStreamGetId", true);
  *id = Fake::Resolve(stream)->id;
  return 0;
}
Result StreamSynchronize(cuda::Stream handle) {
  ENTER_WORK("cuStreamSynchronize");
  cuda::StreamObject* const stream = Fake::Resolve(handle);
  while (!stream->commands.empty()) Fake::RunOne(stream);
  std::erase(fake.order, stream);
  return 0;
}
Result StreamWriteValue64(cuda::Stream stream, DevicePointer address, uint64_t value,
                          unsigned flags) {
  ENTER_WORK("cuStreamWriteValue64");
  if (flags != cuda::kStreamWriteDefault) return cuda::kInvalidValue;
  fake.Add(stream, [=] {
    std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(AsPointer(address)))
        .store(value, std::memory_order_release);
  });
  return 0;
}
Result EventCreate(cuda::Event* event, unsigned) {
  ENTER("cuEventCreate", true);
  *event = new cuda::EventObject;
  return 0;
}
Result EventDestroy(cuda::Event event) {
  ENTER("cuEventDestroy", true);
  delete event;
  return 0;
}
Result EventRecord(cuda::Event event, cuda::Stream stream) {
  ENTER_WORK("cuEventRecord");
  if (fake.capturing.contains(stream)) {
    ++fake.captures_broken;
    return 0;
  }
  ++event->pending;
  fake.Add(stream, [event] { --event->pending; });
  return 0;
}
Result EventQuery(cuda::Event event) {
  ENTER_WORK("cuEventQuery");
  return event->pending == 0 ? 0 : cuda::kNotReady;
}

Result ModuleLoadData(cuda::Module* module, const void*) {
  ENTER("cuModuleLoadData", true);
  *module = new cuda::ModuleObject;
  return 0;
}
Result ModuleUnload(cuda::Module module) {
  ENTER("cuModuleUnload", true);
  delete module;
  return 0;
}
Result ModuleGetFunction(cuda::Function* function, cuda::Module, const char* name) {
  ENTER("cuModuleGetFunction", true);
  static std::map<std::string, cuda::FunctionObject>& functions =
      *new std::map<std::string, cuda::FunctionObject>;
  *function = &functions.try_emplace(name, cuda::FunctionObject{name}).first->second;
  return 0;
}

void RingDoorbell(uint64_t doorbell, uint64_t sequence) {
  std::atomic_ref<uint64_t>(*static_cast<uint64_t*>(AsPointer(doorbell)))
      .store(sequence, std::memory_order_release);
}

// What the warps of so many blocks would copy.
void Gather(const GatherJob& job, const uint64_t* sources, const uint32_t* offsets,
            unsigned blocks) {
  const uint64_t covered =
      std::min<uint64_t>(job.bytes, uint64_t{blocks} * kGatherWarps * job.bytes_per_warp);
  for (uint32_t i = 0; i < job.spans && offsets[i] < covered; ++i) {
    const auto end = std::min<uint64_t>(offsets[i + 1], covered);
    std::memcpy(static_cast<std::byte*>(AsPointer(job.destination)) + offsets[i],
                AsPointer(sources[i]), end - offsets[i]);
  }
  if (job.doorbell != 0) RingDoorbell(job.doorbell, job.sequence);
}

Result LaunchKernel(cuda::Function function, unsigned blocks, unsigned, unsigned, unsigned threads,
                    unsigned, unsigned, unsigned, cuda::Stream stream, void** parameters, void**) {
  ENTER_WORK("cuLaunchKernel");
  ++fake.calls[function->name];
  if (function->name == kDoorbellKernel) {
    fake.Add(stream, [doorbell = *static_cast<uint64_t*>(parameters[0]),
                      sequence = *static_cast<uint64_t*>(parameters[1])] {
      RingDoorbell(doorbell, sequence);
    });
    return 0;
  }
  if (function->name == kGemmKernel) {  // nobody looks at the product
    fake.Add(stream, [] {});
    return 0;
  }
  if (function->name == kChecksumKernel) {
    fake.Add(stream, [data = *static_cast<uint64_t*>(parameters[0]),
                      words = *static_cast<uint64_t*>(parameters[1]),
                      sum = *static_cast<uint64_t*>(parameters[2])] {
      const auto* const from = static_cast<const uint64_t*>(AsPointer(data));
      for (uint64_t i = 0; i < words; ++i) {
        *static_cast<uint64_t*>(AsPointer(sum)) += ChecksumOfWord(from[i], i);
      }
    });
    return 0;
  }
  if (threads != kGatherThreads || blocks == 0) return cuda::kInvalidValue;
  const GatherJob job = *static_cast<GatherJob*>(parameters[0]);
  if (function->name == kGatherFewKernel) {
    const auto list = *static_cast<GatherFewList*>(parameters[1]);
    fake.Add(stream, [=] { Gather(job, list.sources, list.offsets, blocks); });
    return 0;
  }
  if (function->name == kGatherInlineKernel) {
    const auto list = *static_cast<GatherInlineList*>(parameters[1]);
    fake.Add(stream, [=] { Gather(job, list.sources, list.offsets, blocks); });
    return 0;
  }
  const uint64_t sources = *static_cast<uint64_t*>(parameters[1]);
  const uint64_t offsets = *static_cast<uint64_t*>(parameters[2]);
  fake.Add(stream, [=] {
    Gather(job, static_cast<uint64_t*>(AsPointer(sources)),
           static_cast<uint32_t*>(AsPointer(offsets)), blocks);
  });
  return 0;
}

struct EntryPoint {
  const char* name;
  int version;
  void* address;
};

template <class Function>
void* Of(Function* function) {
  return reinterpret_cast<void*>(function);
}

const std::vector<EntryPoint>& EntryPoints() {
  static const auto& entry_points = *new std::vector<EntryPoint>{
      {"cuInit", 2000, Of(Init)},
      {"cuDriverGetVersion", 2020, Of(DriverGetVersion)},
      {"cuGetErrorName", 6000, Of(GetErrorName)},
      {"cuGetErrorString", 6000, Of(GetErrorString)},
      {"cuDeviceGet", 2000, Of(DeviceGet)},
      {"cuDeviceGetByPCIBusId", 4010, Of(DeviceGetByPciBusId)},
      {"cuDeviceGetPCIBusId", 4010, Of(DeviceGetPciBusId)},
      {"cuDeviceGetAttribute", 2000, Of(DeviceGetAttribute)},
      {"cuDeviceCanAccessPeer", 4000, Of(DeviceCanAccessPeer)},
      {"cuDevicePrimaryCtxRetain", 7000, Of(PrimaryCtxRetain)},
      {"cuDevicePrimaryCtxRelease", 11000, Of(PrimaryCtxRelease)},
      {"cuCtxPushCurrent", 4000, Of(CtxPushCurrent)},
      {"cuCtxPopCurrent", 4000, Of(CtxPopCurrent)},
      {"cuCtxSetCurrent", 4000, Of(CtxSetCurrent)},
      {"cuCtxGetStreamPriorityRange", 5050, Of(CtxGetStreamPriorityRange)},
      {"cuThreadExchangeStreamCaptureMode", 10010, Of(ThreadExchangeStreamCaptureMode)},
      {"cuMemAlloc", 3020, Of(MemAlloc)},
      {"cuMemFree", 3020, Of(MemFree)},
      {"cuMemGetInfo", 3020, Of(MemGetInfo)},
      {"cuMemHostAlloc", 2020, Of(MemHostAlloc)},
      {"cuMemFreeHost", 2000, Of(MemFreeHost)},
      {"cuMemHostRegister", 6050, Of(MemHostRegister)},
      {"cuMemHostUnregister", 4000, Of(MemHostUnregister)},
      {"cuMemHostGetDevicePointer", 3020, Of(MemHostGetDevicePointer)},
      {"cuPointerGetAttribute", 4000, Of(PointerGetAttribute)},
      {"cuMemGetHandleForAddressRange", 11070, Of(MemGetHandleForAddressRange)},
      {"cuFlushGPUDirectRDMAWrites", 11030, Of(FlushGpuDirectRdmaWrites)},
      {"cuIpcGetMemHandle", 4010, Of(IpcGetMemHandle)},
      {"cuIpcOpenMemHandle", 11000, Of(IpcOpenMemHandle)},
      {"cuIpcCloseMemHandle", 4010, Of(IpcCloseMemHandle)},
      {"cuMemcpyAsync", 4000, Of(MemcpyAsync)},
      {"cuMemcpyBatchAsync", 12080, Of(MemcpyBatchAsync12)},
      {"cuMemcpyBatchAsync", 13000, Of(MemcpyBatchAsync13)},
      {"cuStreamCreateWithPriority", 5050, Of(StreamCreateWithPriority)},
      {"cuStreamDestroy", 4000, Of(StreamDestroy)},
      {"cuStreamQuery", 2000, Of(StreamQuery)},
      {"cuStreamSynchronize", 2000, Of(StreamSynchronize)},
      {"cuStreamIsCapturing", 10000, Of(StreamIsCapturing)},
      {"cuStreamGetId", 12000, Of(StreamGetId)},
      {"cuStreamWriteValue64", 11070, Of(StreamWriteValue64)},
      {"cuEventCreate", 2000, Of(EventCreate)},
      {"cuEventDestroy", 4000, Of(EventDestroy)},
      {"cuEventRecord", 2000, Of(EventRecord)},
      {"cuEventQuery", 2000, Of(EventQuery)},
      {"cuModuleLoadData", 2000, Of(ModuleLoadData)},
      {"cuModuleUnload", 2000, Of(ModuleUnload)},
      {"cuModuleGetFunction", 2000, Of(ModuleGetFunction)},
      {"cuLaunchKernel", 4000, Of(LaunchKernel)},
  };
  return entry_points;
}

}  // namespace

FakeCuda& FakeCuda::Get() {
  return TheFake();
}

}  // namespace railhop

// As the driver: the newest version of the function that is not newer than what is asked for, nor
// than the driver.
extern "C" __attribute__((visibility("default"))) int cuGetProcAddress_v2(  // NOLINT: its name
    const char* name, void** address, int version, uint64_t, int* found) {
  const railhop::FakeCuda& fake = railhop::FakeCuda::Get();
  *address = nullptr;
  *found = 1;
  if (fake.missing.contains(name)) return railhop::cuda::kSuccess;
  for (const auto& entry : railhop::EntryPoints()) {
    if (std::strcmp(entry.name, name) != 0 || entry.version > version ||
        entry.version > fake.version) {
      continue;
    }
    *address = entry.address;
    *found = 0;
  }
  return railhop::cuda::kSuccess;
}
