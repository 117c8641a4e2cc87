#include "transport/fabric/tcp/tcp_bounce.h"

#include <fmt/format.h>

#include <bit>
#include <string>

#include "runtime/log.h"
#include "transport/cuda/memory.h"

namespace railhop {

// --- Of one GPU

absl::StatusOr<std::unique_ptr<TcpBounce>> TcpBounce::Create(
    std::shared_ptr<const CudaDevice> device) {
  std::unique_ptr<TcpBounce> bounce(new TcpBounce(std::move(device)));
  if (absl::Status status = bounce->SetUp(); !status.ok()) return status;
  return bounce;
}

absl::Status TcpBounce::SetUp() {
  const CudaDriver& driver = device_->driver();
  CudaScope scope(*device_);
  const auto check = [&](cuda::Result result, const char* what) {
    return driver.ToStatus(result, fmt::format("memory of GPU {} cannot be moved over TCP: no {}",
                                               device_->pci(), what));
  };
  void* memory = nullptr;
  absl::Status status =
      check(driver.mem_host_alloc(&memory, kBuffers * kBufferBytes, cuda::kHostAllocPortable),
            "pinned host memory to bounce it through");
  if (!status.ok()) return status;
  memory_ = static_cast<std::byte*>(memory);
  status = check(driver.stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0),
                 "stream for its copies");
  for (cuda::Event& event : events_) {
    if (!status.ok()) return status;
    status = check(driver.event_create(&event, cuda::kEventDisableTiming), "event for its copies");
  }
  return status;
}

TcpBounce::~TcpBounce() {
  const CudaDriver& driver = device_->driver();
  CudaScope scope(*device_);
  for (const cuda::Event event : events_) {
    if (event != nullptr) driver.event_destroy(event);
  }
  if (stream_ != nullptr) driver.stream_destroy(stream_);
  if (memory_ != nullptr) driver.mem_free_host(memory_);
}

bool TcpBounce::Start(uint32_t buffer, uint64_t destination, uint64_t source, size_t length) {
  const CudaDriver& driver = device_->driver();
  CudaScope scope(*device_);
  cuda::Result result = driver.memcpy_async(destination, source, length, stream_);
  if (result == cuda::kSuccess) {
    result = driver.event_record(events_[buffer], stream_);
    // Nobody could tell when the copy has ended: it must have, now.
    if (result != cuda::kSuccess) driver.stream_synchronize(stream_);
  }
  if (result != cuda::kSuccess) Warn(result);
  return result == cuda::kSuccess;
}

cuda::Result TcpBounce::Query(uint32_t buffer) {
  CudaScope scope(*device_);
  const cuda::Result result = device_->driver().event_query(events_[buffer]);
  if (result != cuda::kSuccess && result != cuda::kNotReady) Warn(result);
  return result;
}

// Logged although this is the data path: it happens once.
void TcpBounce::Warn(cuda::Result result) {
  if (warned_.exchange(true, std::memory_order_relaxed)) return;
  const absl::Status status = device_->driver().ToStatus(
      result, fmt::format("a transfer over TCP has failed: GPU {} did not copy between its memory "
                          "and a host buffer",
                          device_->pci()));
  Log(LogLevel::kWarning,
      fmt::format("{}. If that goes on, its context is lost: restart the process",
                  std::string(status.message())));
}

// --- Of one connection

TcpBounceBuffer::~TcpBounceBuffer() {
  if (copying_) Finish();
  GiveBack();
}

void TcpBounceBuffer::Finish() {
  CudaScope scope(*bounce_->device_);
  bounce_->device_->driver().stream_synchronize(bounce_->stream_);
  copying_ = false;
}

bool TcpBounceBuffer::Take(TcpBounce* bounce) {
  GiveBack();
  uint32_t free = bounce->free_.load(std::memory_order_relaxed);
  do {
    if (free == 0) return false;
    index_ = static_cast<uint32_t>(std::countr_zero(free));
  } while (!bounce->free_.compare_exchange_weak(free, free & ~(1u << index_),
                                                std::memory_order_acquire));
  bounce_ = bounce;
  data_ = bounce->memory_ + index_ * TcpBounce::kBufferBytes;
  return true;
}

void TcpBounceBuffer::Return() {
  std::exchange(bounce_, nullptr)->free_.fetch_or(1u << index_, std::memory_order_release);
  loaded_ = 0;
}

bool TcpBounceBuffer::Load(uint64_t address, size_t length) {
  return Start(address, length, reinterpret_cast<uint64_t>(data_), address, length);
}

bool TcpBounceBuffer::Store(uint64_t address, size_t length) {
  return Start(address, 0, address, reinterpret_cast<uint64_t>(data_), length);
}

bool TcpBounceBuffer::Start(uint64_t address, size_t loaded, uint64_t destination, uint64_t source,
                            size_t length) {
  copying_ = bounce_->Start(index_, destination, source, length);
  address_ = address;
  loaded_ = copying_ ? loaded : 0;
  return copying_;
}

TcpBounceBuffer::Copy TcpBounceBuffer::Ask() {
  const cuda::Result result = bounce_->Query(index_);
  if (result == cuda::kNotReady) return Copy::kPending;
  copying_ = false;
  if (result == cuda::kSuccess) return Copy::kDone;
  loaded_ = 0;
  return Copy::kFailed;
}

std::span<std::byte> TcpBounceBuffer::Loaded(uint64_t address) const {
  if (copying_ || address - address_ >= loaded_) return {};
  const size_t offset = address - address_;
  return {data_ + offset, loaded_ - offset};
}

// --- Of a process

absl::StatusOr<TcpBounce*> TcpBounces::Find(const void* address, size_t length) {
  const CudaDriver& driver = device_->driver();
  const absl::StatusOr<std::optional<cuda::Device>> gpu = FindGpuOf(driver, address, length);
  if (!gpu.ok()) return gpu.status();
  if (!gpu->has_value()) return nullptr;
  const auto index = static_cast<uint32_t>(**gpu);
  if (index >= kMostDevices) {
    return absl::UnimplementedError(
        fmt::format("memory at {} is device {}'s; TCP moves that of the first {}", address, index,
                    kMostDevices));
  }
  char pci[32] = "";
  absl::Status status = driver.ToStatus(driver.device_get_pci_bus_id(pci, sizeof(pci), **gpu),
                                        "the PCI address of a GPU cannot be had");
  if (!status.ok()) return status;
  const std::lock_guard lock(mutex_);
  std::unique_ptr<TcpBounce>& bounce = by_device_[index];
  if (bounce == nullptr) {
    auto device = CudaDevice::Open(driver, pci);
    if (!device.ok()) return device.status();
    auto made = TcpBounce::Create(*std::move(device));
    if (!made.ok()) return made.status();
    bounce = *std::move(made);
  }
  return bounce.get();
}

}  // namespace railhop
