// Compares what driver_abi.h declares with the toolkit's own header.
#include "transport/cuda/driver_abi.h"

#include <cuda.h>
#include <gtest/gtest.h>

namespace railhop {
namespace {

TEST(DriverAbiTest, Results) {
  EXPECT_EQ(cuda::kSuccess, CUDA_SUCCESS);
  EXPECT_EQ(cuda::kInvalidValue, CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(cuda::kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(cuda::kDeinitialized, CUDA_ERROR_DEINITIALIZED);
  EXPECT_EQ(cuda::kNoDevice, CUDA_ERROR_NO_DEVICE);
  EXPECT_EQ(cuda::kInvalidContext, CUDA_ERROR_INVALID_CONTEXT);
  EXPECT_EQ(cuda::kPeerAccessUnsupported, CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  EXPECT_EQ(cuda::kNotReady, CUDA_ERROR_NOT_READY);
  EXPECT_EQ(cuda::kIllegalAddress, CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_EQ(cuda::kHostMemoryAlreadyRegistered, CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  EXPECT_EQ(cuda::kNotSupported, CUDA_ERROR_NOT_SUPPORTED);
  EXPECT_EQ(cuda::kStreamCaptureUnsupported, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
}

TEST(DriverAbiTest, Attributes) {
  EXPECT_EQ(static_cast<int>(cuda::DeviceAttribute::kStreamWrite64),
            CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS);
  EXPECT_EQ(static_cast<int>(cuda::DeviceAttribute::kRdmaFlushOptions),
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
  EXPECT_EQ(static_cast<int>(cuda::DeviceAttribute::kRdmaWritesOrdering),
            CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
  EXPECT_EQ(static_cast<int>(cuda::DeviceAttribute::kDmaBuf),
            CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kMemoryType),
            CU_POINTER_ATTRIBUTE_MEMORY_TYPE);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kDeviceOrdinal),
            CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kRangeStart),
            CU_POINTER_ATTRIBUTE_RANGE_START_ADDR);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kRangeSize), CU_POINTER_ATTRIBUTE_RANGE_SIZE);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kMappingStart),
            CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR);
  EXPECT_EQ(static_cast<int>(cuda::PointerAttribute::kMappingSize),
            CU_POINTER_ATTRIBUTE_MAPPING_SIZE);
  EXPECT_EQ(cuda::kMemoryTypeDevice, CU_MEMORYTYPE_DEVICE);
}

TEST(DriverAbiTest, Flags) {
  EXPECT_EQ(cuda::kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
  EXPECT_EQ(cuda::kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
  EXPECT_EQ(cuda::kHostAllocPortable, CU_MEMHOSTALLOC_PORTABLE);
  EXPECT_EQ(cuda::kHostRegisterPortable, CU_MEMHOSTREGISTER_PORTABLE);
  EXPECT_EQ(cuda::kHostRegisterDeviceMap, CU_MEMHOSTREGISTER_DEVICEMAP);
  EXPECT_EQ(cuda::kIpcLazyEnablePeerAccess, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
  EXPECT_EQ(cuda::kStreamWriteDefault, CU_STREAM_WRITE_VALUE_DEFAULT);
  EXPECT_EQ(cuda::kCaptureModeRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
  EXPECT_EQ(cuda::kCaptureNone, CU_STREAM_CAPTURE_STATUS_NONE);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(cuda::ThreadStream()),
            reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
  EXPECT_EQ(cuda::kProcAddressDefault, CU_GET_PROC_ADDRESS_DEFAULT);
  EXPECT_EQ(cuda::kRdmaFlushHost, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
  EXPECT_EQ(cuda::kRdmaOrderingOwner, CU_GPU_DIRECT_RDMA_WRITES_ORDERING_OWNER);
  EXPECT_GT(CU_GPU_DIRECT_RDMA_WRITES_ORDERING_ALL_DEVICES, cuda::kRdmaOrderingOwner);
  EXPECT_EQ(cuda::kRdmaFlushCurrent, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
  EXPECT_EQ(cuda::kRdmaFlushToOwner, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
  EXPECT_EQ(cuda::kRangeHandleDmaBuf, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
}

TEST(DriverAbiTest, Structures) {
  EXPECT_EQ(sizeof(cuda::IpcMemHandle), sizeof(CUipcMemHandle));
  EXPECT_EQ(sizeof(cuda::DevicePointer), sizeof(CUdeviceptr));
  EXPECT_EQ(sizeof(cuda::Device), sizeof(CUdevice));
#if CUDA_VERSION >= 12080
  EXPECT_EQ(sizeof(cuda::MemcpyAttributes), sizeof(CUmemcpyAttributes));
  EXPECT_EQ(offsetof(cuda::MemcpyAttributes, source_access_order),
            offsetof(CUmemcpyAttributes, srcAccessOrder));
  EXPECT_EQ(offsetof(cuda::MemcpyAttributes, source_hint),
            offsetof(CUmemcpyAttributes, srcLocHint));
  EXPECT_EQ(offsetof(cuda::MemcpyAttributes, destination_hint),
            offsetof(CUmemcpyAttributes, dstLocHint));
  EXPECT_EQ(offsetof(cuda::MemcpyAttributes, flags), offsetof(CUmemcpyAttributes, flags));
  EXPECT_EQ(cuda::MemcpyAttributes().source_access_order, CU_MEMCPY_SRC_ACCESS_ORDER_STREAM);
#endif
}

}  // namespace
}  // namespace railhop
