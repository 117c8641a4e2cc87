#include "transport/staging/cuda_arena.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "runtime/log.h"
#include "transport/ring/control_block.h"
#include "transport/staging/host_arena.h"

namespace railhop {
namespace {

static_assert(sizeof(cuda::IpcMemHandle) == sizeof(ArenaHandle));

std::byte* AsBytes(cuda::DevicePointer memory) {
  return reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
}

// All of a GPU's memory is there from the start.
absl::Status CheckLane(uint32_t lane) {
  if (lane < kLaneCount) return absl::OkStatus();
  return absl::OutOfRangeError(fmt::format("lane {} of an arena of {}", lane, kLaneCount));
}

}  // namespace

absl::StatusOr<std::unique_ptr<CudaArena>> CudaArena::Create(
    std::shared_ptr<const CudaDevice> device) {
  const CudaDriver& driver = device->driver();
  CudaScope scope(*device);
  cuda::DevicePointer memory = 0;
  const cuda::Result result = driver.mem_alloc(&memory, kArenaBytes);
  if (result != cuda::kSuccess) {
    size_t available = 0, total = 0;
    driver.mem_get_info(&available, &total);
    return driver.ToStatus(result, fmt::format("a staging arena needs {} bytes of GPU {}, {} of "
                                               "its {} are free",
                                               kArenaBytes, device->pci(), available, total));
  }
  cuda::IpcMemHandle handle{};
  absl::Status status = driver.ToStatus(
      driver.ipc_get_mem_handle(&handle, memory),
      fmt::format("memory of GPU {} cannot be shared between processes", device->pci()));
  if (!status.ok()) {
    driver.mem_free(memory);
    return status;
  }
  return std::unique_ptr<CudaArena>(new CudaArena(std::move(device), memory, handle));
}

CudaArena::CudaArena(std::shared_ptr<const CudaDevice> device, cuda::DevicePointer memory,
                     const cuda::IpcMemHandle& handle)
    : device_(std::move(device)), memory_(memory), handle_(std::bit_cast<ArenaHandle>(handle)) {}

CudaArena::~CudaArena() {
  CudaScope scope(*device_);
  device_->driver().mem_free(memory_);
}

std::byte* CudaArena::base() const {
  return AsBytes(memory_);
}

uint64_t CudaArena::size() const {
  return kArenaBytes;
}

absl::Status CudaArena::ReserveLane(uint32_t lane) {
  return CheckLane(lane);
}

struct ImportedCudaArena::Key {
  const CudaDevice* device;
  ArenaHandle handle;
  uint64_t epoch;

  friend bool operator<(const Key& a, const Key& b) {
    return std::tie(a.device, a.epoch, a.handle) < std::tie(b.device, b.epoch, b.handle);
  }
};

struct ImportedCudaArena::Mapping {
  Key key;
  std::shared_ptr<const CudaDevice> device;
  cuda::DevicePointer memory;
  size_t users;
};

struct ImportedCudaArena::Table {
  std::mutex mutex;  // held over the driver's calls: whoever wants the same arena must wait for it
  std::map<Key, Mapping> mappings;
};

ImportedCudaArena::Table& ImportedCudaArena::Mappings() {
  static Table& table = *new Table;  // never destroyed
  return table;
}

absl::StatusOr<std::shared_ptr<ImportedCudaArena>> ImportedCudaArena::Open(
    std::shared_ptr<const CudaDevice> device, const ArenaHandle& handle, uint64_t epoch) {
  if (IsHostArenaHandle(handle)) {
    return absl::InvalidArgumentError(
        "the handle of a host arena in a group of GPU ranks: it is never given to CUDA");
  }
  if (std::all_of(handle.begin(), handle.end(), [](uint8_t byte) { return byte == 0; })) {
    return absl::InvalidArgumentError("no arena handle: all of its bytes are 0");
  }
  Table& table = Mappings();
  std::lock_guard lock(table.mutex);
  const Key key{device.get(), handle, epoch};
  const auto known = table.mappings.find(key);
  if (known != table.mappings.end()) {
    ++known->second.users;
    return std::shared_ptr<ImportedCudaArena>(new ImportedCudaArena(&known->second));
  }

  const CudaDriver& driver = device->driver();
  CudaScope scope(*device);
  cuda::DevicePointer memory = 0;
  const cuda::Result opened = driver.ipc_open_mem_handle(
      &memory, std::bit_cast<cuda::IpcMemHandle>(handle), cuda::kIpcLazyEnablePeerAccess);
  if (opened != cuda::kSuccess) {
    const std::string why(
        driver
            .ToStatus(opened,
                      fmt::format("the peer's arena cannot be mapped for GPU {}{}", device->pci(),
                                  opened == cuda::kPeerAccessUnsupported
                                      ? ", which cannot reach the peer's GPU"
                                      : ""))
            .message());
    return absl::FailedPreconditionError(why);
  }
  std::string refused;
  size_t size = 0;
  int owner = device->ordinal(), reachable = 1;
  driver.pointer_get_attribute(&owner, cuda::PointerAttribute::kDeviceOrdinal, memory);
  if (owner != device->ordinal()) {
    driver.device_can_access_peer(&reachable, device->ordinal(), owner);
  }
  if (driver.pointer_get_attribute(&size, cuda::PointerAttribute::kRangeSize, memory) !=
          cuda::kSuccess ||
      size < kArenaBytes) {
    refused = fmt::format("the peer's arena has {} bytes, {} expected", size, kArenaBytes);
  } else if (reachable == 0) {
    refused =
        fmt::format("GPU {} cannot reach the peer's GPU (device {} here)", device->pci(), owner);
  }
  if (!refused.empty()) {
    driver.ipc_close_mem_handle(memory);
    return absl::FailedPreconditionError(refused);
  }
  Mapping& mapping =
      table.mappings.emplace(key, Mapping{key, std::move(device), memory, 1}).first->second;
  return std::shared_ptr<ImportedCudaArena>(new ImportedCudaArena(&mapping));
}

ImportedCudaArena::~ImportedCudaArena() {
  Table& table = Mappings();
  std::lock_guard lock(table.mutex);
  if (--mapping_.users != 0) return;
  const CudaDriver& driver = mapping_.device->driver();
  {
    CudaScope scope(*mapping_.device);
    const cuda::Result closed = driver.ipc_close_mem_handle(mapping_.memory);
    if (closed != cuda::kSuccess && closed != cuda::kDeinitialized) {
      Log(LogLevel::kWarning,
          std::string(driver.ToStatus(closed, "a peer's arena cannot be unmapped").message()));
    }
  }
  table.mappings.erase(table.mappings.find(mapping_.key));
}

std::byte* ImportedCudaArena::base() const {
  return AsBytes(mapping_.memory);
}

uint64_t ImportedCudaArena::size() const {
  return kArenaBytes;
}

absl::Status ImportedCudaArena::ReserveLane(uint32_t lane) {
  return CheckLane(lane);
}

}  // namespace railhop
