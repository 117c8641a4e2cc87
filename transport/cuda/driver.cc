#include "transport/cuda/driver.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace railhop {
namespace {

using GetProcAddress = cuda::Result (*)(const char* name, void** address, int version,
                                        uint64_t flags, int* found);

constexpr int kOldestVersion = 12000;

// Asks for one function after another and remembers the first that is missing.
class Binder {
 public:
  explicit Binder(GetProcAddress get) : get_(get) {}

  // `version`: the CUDA version that brought the signature which `function` has.
  template <class Function>
  void Want(Function*& function, const char* name, int version) {
    Try(function, name, version);
    if (function == nullptr && missing_ == nullptr) missing_ = name;
  }
  template <class Function>
  void Try(Function*& function, const char* name, int version) {
    void* address = nullptr;
    int found = 0;
    if (get_(name, &address, version, cuda::kProcAddressDefault, &found) != cuda::kSuccess) return;
    function = reinterpret_cast<Function*>(address);
  }

  const char* missing() const { return missing_; }

 private:
  const GetProcAddress get_;
  const char* missing_ = nullptr;
};

}  // namespace

absl::StatusOr<const CudaDriver*> CudaDriver::Get() {
  static const auto& driver = *new absl::StatusOr<const CudaDriver*>(Load(kLibrary));
  return driver;
}

const CudaDriver* CudaDriver::GetIfLoaded() {
  void* const loaded = dlopen(kLibrary, RTLD_NOW | RTLD_NOLOAD);
  if (loaded == nullptr) return nullptr;
  dlclose(loaded);  // only counted
  const absl::StatusOr<const CudaDriver*> driver = Get();
  return driver.ok() ? *driver : nullptr;
}

absl::StatusOr<const CudaDriver*> CudaDriver::Load(const char* library) {
  void* handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* why = dlerror();
    return absl::NotFoundError(fmt::format("no CUDA driver: {}", why == nullptr ? library : why));
  }
  std::unique_ptr<CudaDriver> driver(new CudaDriver);
  if (absl::Status status = driver->Bind(library, handle); !status.ok()) return status;
  // What came of a driver may be in use until the process ends.
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::unique_ptr<const CudaDriver>>;
  const std::lock_guard lock(mutex);
  return kept.emplace_back(std::move(driver)).get();
}

absl::Status CudaDriver::Bind(const char* library, void* handle) {
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(handle, "cuGetProcAddress_v2"));
  if (get == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("the CUDA driver {} is older than CUDA 12 (it has no cuGetProcAddress_v2); "
                    "update it",
                    library));
  }
  cuda::Result (*init)(unsigned) = nullptr;
  cuda::Result (*driver_get_version)(int*) = nullptr;
  Binder binder(get);
  binder.Want(init, "cuInit", 2000);
  binder.Want(driver_get_version, "cuDriverGetVersion", 2020);
  binder.Want(get_error_name, "cuGetErrorName", 6000);
  binder.Want(get_error_string, "cuGetErrorString", 6000);
  binder.Want(device_get, "cuDeviceGet", 2000);
  binder.Want(device_get_by_pci_bus_id, "cuDeviceGetByPCIBusId", 4010);
  binder.Want(device_get_pci_bus_id, "cuDeviceGetPCIBusId", 4010);
  binder.Want(device_get_attribute, "cuDeviceGetAttribute", 2000);
  binder.Want(device_can_access_peer, "cuDeviceCanAccessPeer", 4000);
  binder.Want(device_primary_ctx_retain, "cuDevicePrimaryCtxRetain", 7000);
  binder.Want(device_primary_ctx_release, "cuDevicePrimaryCtxRelease", 11000);
  binder.Want(ctx_push_current, "cuCtxPushCurrent", 4000);
  binder.Want(ctx_pop_current, "cuCtxPopCurrent", 4000);
  binder.Want(ctx_set_current, "cuCtxSetCurrent", 4000);
  binder.Want(ctx_get_stream_priority_range, "cuCtxGetStreamPriorityRange", 5050);
  binder.Want(thread_exchange_stream_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010);
  binder.Want(mem_alloc, "cuMemAlloc", 3020);
  binder.Want(mem_free, "cuMemFree", 3020);
  binder.Want(mem_get_info, "cuMemGetInfo", 3020);
  binder.Want(mem_host_alloc, "cuMemHostAlloc", 2020);
  binder.Want(mem_free_host, "cuMemFreeHost", 2000);
  binder.Want(mem_host_register, "cuMemHostRegister", 6050);
  binder.Want(mem_host_unregister, "cuMemHostUnregister", 4000);
  binder.Want(mem_host_get_device_pointer, "cuMemHostGetDevicePointer", 3020);
  binder.Want(pointer_get_attribute, "cuPointerGetAttribute", 4000);
  binder.Want(ipc_get_mem_handle, "cuIpcGetMemHandle", 4010);
  binder.Want(ipc_open_mem_handle, "cuIpcOpenMemHandle", 11000);
  binder.Want(ipc_close_mem_handle, "cuIpcCloseMemHandle", 4010);
  binder.Want(memcpy_async, "cuMemcpyAsync", 4000);
  binder.Want(stream_create_with_priority, "cuStreamCreateWithPriority", 5050);
  binder.Want(stream_destroy, "cuStreamDestroy", 4000);
  binder.Want(stream_query, "cuStreamQuery", 2000);
  binder.Want(stream_synchronize, "cuStreamSynchronize", 2000);
  binder.Want(stream_is_capturing, "cuStreamIsCapturing", 10000);
  binder.Want(stream_get_id, "cuStreamGetId", 12000);
  binder.Want(event_create, "cuEventCreate", 2000);
  binder.Want(event_destroy, "cuEventDestroy", 4000);
  binder.Want(event_record, "cuEventRecord", 2000);
  binder.Want(event_query, "cuEventQuery", 2000);
  binder.Want(module_load_data, "cuModuleLoadData", 2000);
  binder.Want(module_unload, "cuModuleUnload", 2000);
  binder.Want(module_get_function, "cuModuleGetFunction", 2000);
  binder.Want(launch_kernel, "cuLaunchKernel", 4000);
  // An old one lacks functions, too: its age is what its user can do something about.
  if (driver_get_version == nullptr || driver_get_version(&version_) != cuda::kSuccess ||
      version_ < kOldestVersion) {
    return absl::FailedPreconditionError(
        fmt::format("the CUDA driver {} is of CUDA {}.{}; CUDA 12 or newer is needed", library,
                    version_ / 1000, version_ % 1000 / 10));
  }
  if (binder.missing() != nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("the CUDA driver {} has no {}; update it", library, binder.missing()));
  }
  binder.Try(stream_write_value64, "cuStreamWriteValue64", 11070);
  binder.Try(mem_get_handle_for_address_range, "cuMemGetHandleForAddressRange", 11070);
  binder.Try(flush_gpu_direct_rdma_writes, "cuFlushGPUDirectRDMAWrites", 11030);
  // A driver of 12.8 that is asked for the function of 13.0 would hand out its own.
  if (version_ >= 13000) {
    binder.Try(memcpy_batch_async_13, "cuMemcpyBatchAsync", 13000);
  } else if (version_ >= 12080) {
    binder.Try(memcpy_batch_async_12, "cuMemcpyBatchAsync", 12080);
  }
  const absl::Status started = ToStatus(init(0), "the CUDA driver cannot be used");
  return started.ok() ? started : absl::UnavailableError(started.message());
}

absl::Status CudaDriver::ToStatus(cuda::Result result, const std::string& what) const {
  if (result == cuda::kSuccess) return absl::OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  if (get_error_name(result, &name) != cuda::kSuccess || name == nullptr) name = "unknown error";
  if (get_error_string(result, &text) != cuda::kSuccess || text == nullptr) text = "no text";
  const std::string message = fmt::format("{}: {} ({}, {})", what, name, result, text);
  if (result == cuda::kOutOfMemory) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

}  // namespace railhop
