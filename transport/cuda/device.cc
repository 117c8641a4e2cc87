#include "transport/cuda/device.h"

#include <fmt/format.h>

#include <utility>

namespace railhop {
namespace {

// What Enter left current in this thread. Nothing else changes it there.
thread_local cuda::Context entered = nullptr;

}  // namespace

absl::StatusOr<std::shared_ptr<const CudaDevice>> CudaDevice::Open(const CudaDriver& driver,
                                                                   const std::string& pci) {
  std::shared_ptr<CudaDevice> device(new CudaDevice(driver));
  const cuda::Result found = pci.empty()
                                 ? driver.device_get(&device->device_, 0)
                                 : driver.device_get_by_pci_bus_id(&device->device_, pci.c_str());
  if (found != cuda::kSuccess) {
    return absl::NotFoundError(
        driver
            .ToStatus(found, pci.empty() ? "no GPU is visible to this process"
                                         : fmt::format("no GPU at PCI address {} is visible to "
                                                       "this process (CUDA_VISIBLE_DEVICES)",
                                                       pci))
            .message());
  }
  char address[32] = "";
  absl::Status status =
      driver.ToStatus(driver.device_get_pci_bus_id(address, sizeof(address), device->device_),
                      "the PCI address of a GPU cannot be had");
  if (!status.ok()) return status;
  device->pci_ = address;
  int value = 0;
  status = driver.ToStatus(
      driver.device_get_attribute(&value, cuda::DeviceAttribute::kStreamWrite64, device->device_),
      fmt::format("GPU {} does not say what it can", device->pci_));
  if (!status.ok()) return status;
  device->stream_write_ = value != 0 && driver.stream_write_value64 != nullptr;
  status = driver.ToStatus(driver.device_primary_ctx_retain(&device->context_, device->device_),
                           fmt::format("GPU {} cannot be used", device->pci_));
  if (!status.ok()) return status;
  return device;
}

CudaDevice::~CudaDevice() {
  if (context_ == nullptr) return;
  if (entered == context_) {
    driver_.ctx_set_current(nullptr);
    entered = nullptr;
  }
  driver_.device_primary_ctx_release(device_);
}

void CudaDevice::Enter() const {
  if (entered == context_) return;
  if (entered == nullptr) {
    int mode = cuda::kCaptureModeRelaxed;
    driver_.thread_exchange_stream_capture_mode(&mode);
  }
  driver_.ctx_set_current(context_);
  entered = context_;
}

CudaScope::CudaScope(const CudaDevice& device) : driver_(device.driver()) {
  driver_.thread_exchange_stream_capture_mode(&capture_mode_);
  driver_.ctx_push_current(device.context());
}

CudaScope::~CudaScope() {
  cuda::Context ours = nullptr;
  driver_.ctx_pop_current(&ours);
  driver_.thread_exchange_stream_capture_mode(&capture_mode_);
}

absl::StatusOr<std::unique_ptr<CudaHostMemory>> CudaHostMemory::Register(
    std::shared_ptr<const CudaDevice> device, void* address, size_t length) {
  const CudaDriver& driver = device->driver();
  CudaScope scope(*device);
  absl::Status status = driver.ToStatus(
      driver.mem_host_register(address, length,
                               cuda::kHostRegisterPortable | cuda::kHostRegisterDeviceMap),
      fmt::format("{} bytes of host memory at {} cannot be made visible to GPU {}", length, address,
                  device->pci()));
  if (!status.ok()) return status;
  return std::unique_ptr<CudaHostMemory>(new CudaHostMemory(std::move(device), address));
}

CudaHostMemory::~CudaHostMemory() {
  CudaScope scope(*device_);
  device_->driver().mem_host_unregister(address_);
}

}  // namespace railhop
