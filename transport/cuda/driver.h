// The CUDA driver, loaded when it is first wanted: one binary runs with and without it.
//
//   absl::StatusOr<const CudaDriver*> driver = CudaDriver::Get();
//   cuda::Result result = (*driver)->stream_query(stream);
//
// Entry points come from cuGetProcAddress, asked for by the version whose signature is declared
// here: the plain symbol of cuStreamWriteValue64, for one, is an older function that needs another
// device attribute. The runtime library is not needed.
// Threads: Load and Get are set-up calls; the table does not change afterwards. A driver is never
// unloaded (its own threads would run on).
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/cuda/driver_abi.h"

namespace railhop {

class CudaDriver {
 public:
  static constexpr const char* kLibrary = "libcuda.so.1";

  // The machine's driver, loaded once. NotFound: no driver library; FailedPrecondition: too old (it
  // must be of CUDA 12 or newer); Unavailable: it finds no device, or cannot start. The text says
  // which and what to do.
  static absl::StatusOr<const CudaDriver*> Get();
  // That one, if this process has loaded it already, whoever in it; nullptr: then none of its
  // memory is a GPU's. Loads nothing.
  static const CudaDriver* GetIfLoaded();
  // Another library in its place, for tests. The result is never freed.
  static absl::StatusOr<const CudaDriver*> Load(const char* library);

  int version() const { return version_; }  // 13000: CUDA 13.0

  // "what: CUDA_ERROR_X (text)", or OK.
  absl::Status ToStatus(cuda::Result result, const std::string& what) const;

  // The functions, named as the driver names them without "cu".
  cuda::Result (*get_error_name)(cuda::Result, const char**) = nullptr;
  cuda::Result (*get_error_string)(cuda::Result, const char**) = nullptr;

  cuda::Result (*device_get)(cuda::Device*, int ordinal) = nullptr;
  cuda::Result (*device_get_by_pci_bus_id)(cuda::Device*, const char*) = nullptr;
  cuda::Result (*device_get_pci_bus_id)(char*, int length, cuda::Device) = nullptr;
  cuda::Result (*device_get_attribute)(int*, cuda::DeviceAttribute, cuda::Device) = nullptr;
  cuda::Result (*device_can_access_peer)(int*, cuda::Device, cuda::Device) = nullptr;
  cuda::Result (*device_primary_ctx_retain)(cuda::Context*, cuda::Device) = nullptr;
  cuda::Result (*device_primary_ctx_release)(cuda::Device) = nullptr;

  cuda::Result (*ctx_push_current)(cuda::Context) = nullptr;
  cuda::Result (*ctx_pop_current)(cuda::Context*) = nullptr;
  cuda::Result (*ctx_set_current)(cuda::Context) = nullptr;
  cuda::Result (*ctx_get_stream_priority_range)(int* least, int* greatest) = nullptr;
  cuda::Result (*thread_exchange_stream_capture_mode)(int* mode) = nullptr;

  cuda::Result (*mem_alloc)(cuda::DevicePointer*, size_t) = nullptr;
  cuda::Result (*mem_free)(cuda::DevicePointer) = nullptr;
  cuda::Result (*mem_get_info)(size_t* free, size_t* total) = nullptr;
  cuda::Result (*mem_host_alloc)(void**, size_t, unsigned flags) = nullptr;
  cuda::Result (*mem_free_host)(void*) = nullptr;
  cuda::Result (*mem_host_register)(void*, size_t, unsigned flags) = nullptr;
  cuda::Result (*mem_host_unregister)(void*) = nullptr;
  cuda::Result (*mem_host_get_device_pointer)(cuda::DevicePointer*, void*, unsigned) = nullptr;
  cuda::Result (*pointer_get_attribute)(void*, cuda::PointerAttribute,
                                        cuda::DevicePointer) = nullptr;
  // nullptr in drivers that have none. The range begins and ends at pages of the host.
  cuda::Result (*mem_get_handle_for_address_range)(void* handle, cuda::DevicePointer, size_t,
                                                   int type, unsigned long long flags) = nullptr;
  // nullptr in drivers that have none. Blocks until what NICs have written is seen.
  cuda::Result (*flush_gpu_direct_rdma_writes)(int target, int scope) = nullptr;
  cuda::Result (*ipc_get_mem_handle)(cuda::IpcMemHandle*, cuda::DevicePointer) = nullptr;
  cuda::Result (*ipc_open_mem_handle)(cuda::DevicePointer*, cuda::IpcMemHandle,
                                      unsigned flags) = nullptr;
  cuda::Result (*ipc_close_mem_handle)(cuda::DevicePointer) = nullptr;

  cuda::Result (*memcpy_async)(cuda::DevicePointer destination, cuda::DevicePointer source, size_t,
                               cuda::Stream) = nullptr;
  // At most one of the two is there: CUDA 12.8 and 13.0 have different signatures.
  cuda::Result (*memcpy_batch_async_12)(cuda::DevicePointer* destinations,
                                        cuda::DevicePointer* sources, size_t* sizes, size_t count,
                                        cuda::MemcpyAttributes*, size_t* attribute_indices,
                                        size_t attribute_count, size_t* failed,
                                        cuda::Stream) = nullptr;
  cuda::Result (*memcpy_batch_async_13)(cuda::DevicePointer* destinations,
                                        cuda::DevicePointer* sources, size_t* sizes, size_t count,
                                        cuda::MemcpyAttributes*, size_t* attribute_indices,
                                        size_t attribute_count, cuda::Stream) = nullptr;

  cuda::Result (*stream_create_with_priority)(cuda::Stream*, unsigned flags, int) = nullptr;
  cuda::Result (*stream_destroy)(cuda::Stream) = nullptr;
  cuda::Result (*stream_query)(cuda::Stream) = nullptr;
  cuda::Result (*stream_synchronize)(cuda::Stream) = nullptr;
  cuda::Result (*stream_is_capturing)(cuda::Stream, int* state) = nullptr;
  // Unlike the handle never given to another stream.
  cuda::Result (*stream_get_id)(cuda::Stream, uint64_t* id) = nullptr;
  // nullptr in drivers that have none; see CudaDevice::stream_write().
  cuda::Result (*stream_write_value64)(cuda::Stream, cuda::DevicePointer, uint64_t,
                                       unsigned flags) = nullptr;
  cuda::Result (*event_create)(cuda::Event*, unsigned flags) = nullptr;
  cuda::Result (*event_destroy)(cuda::Event) = nullptr;
  cuda::Result (*event_record)(cuda::Event, cuda::Stream) = nullptr;
  cuda::Result (*event_query)(cuda::Event) = nullptr;

  cuda::Result (*module_load_data)(cuda::Module*, const void* image) = nullptr;
  cuda::Result (*module_unload)(cuda::Module) = nullptr;
  cuda::Result (*module_get_function)(cuda::Function*, cuda::Module, const char* name) = nullptr;
  cuda::Result (*launch_kernel)(cuda::Function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                unsigned block_x, unsigned block_y, unsigned block_z,
                                unsigned shared_bytes, cuda::Stream, void** parameters,
                                void** extra) = nullptr;

 private:
  CudaDriver() = default;
  absl::Status Bind(const char* library, void* handle);

  int version_ = 0;
};

}  // namespace railhop
