// The part of the CUDA driver's binary interface that Railhop uses, as the driver documents it.
//
// Declared here and not taken from cuda.h, so that a build without the toolkit makes the same
// binary but for the kernels. tests/transport/cuda/driver_abi_test.cc compares every size and
// number with cuda.h where that is installed. Pure; nothing here calls anything.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railhop::cuda {

using Result = int;
inline constexpr Result kSuccess = 0;
inline constexpr Result kInvalidValue = 1;
inline constexpr Result kOutOfMemory = 2;
inline constexpr Result kDeinitialized = 4;  // the process is ending
inline constexpr Result kNoDevice = 100;
inline constexpr Result kInvalidContext = 201;
inline constexpr Result kPeerAccessUnsupported = 217;
inline constexpr Result kNotReady = 600;
inline constexpr Result kIllegalAddress = 700;
inline constexpr Result kHostMemoryAlreadyRegistered = 712;
inline constexpr Result kNotSupported = 801;
inline constexpr Result kStreamCaptureUnsupported = 900;

using Device = int;
using DevicePointer = uint64_t;
using Context = struct ContextObject*;
using Stream = struct StreamObject*;
using Event = struct EventObject*;
using Module = struct ModuleObject*;
using Function = struct FunctionObject*;

enum class DeviceAttribute : int {
  kRdmaFlushOptions = 117,    // bits: kRdmaFlushHost, ...
  kRdmaWritesOrdering = 118,  // who sees what a NIC wrote without a flush: kRdmaOrdering...
  kStreamWrite64 = 122,       // never 92, which says 0 of GPUs that can
  kDmaBuf = 124,
};

enum class PointerAttribute : int {
  kMemoryType = 2,     // int
  kDeviceOrdinal = 9,  // int
  // DevicePointer and size_t: of the allocation that the address lies in, or of the reserved
  // addresses, which need not be mapped everywhere.
  kRangeStart = 11,
  kRangeSize = 12,
  // Of what is mapped there in one piece, which may hold other allocations as well.
  kMappingSize = 18,
  kMappingStart = 19,
};

inline constexpr int kMemoryTypeDevice = 2;

// The default stream that each thread has of its own.
inline Stream ThreadStream() {
  return reinterpret_cast<Stream>(uintptr_t{2});  // NOLINT(performance-no-int-to-ptr)
}

inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned kHostAllocPortable = 1;
inline constexpr unsigned kHostRegisterPortable = 1;
inline constexpr unsigned kHostRegisterDeviceMap = 2;
inline constexpr unsigned kIpcLazyEnablePeerAccess = 1;
inline constexpr unsigned kStreamWriteDefault = 0;  // with the memory barrier
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr int kCaptureNone = 0;  // state of a stream
inline constexpr uint64_t kProcAddressDefault = 0;
inline constexpr int kRdmaFlushHost = 1;
inline constexpr int kRdmaOrderingOwner = 100;  // the GPU itself; the higher, the more do
inline constexpr int kRdmaFlushCurrent = 0;     // of the GPU that is current
inline constexpr int kRdmaFlushToOwner = 100;   // as far as that GPU itself sees
inline constexpr int kRangeHandleDmaBuf = 1;    // the handle is a descriptor, the caller's

struct IpcMemHandle {
  uint8_t bytes[64];
};

struct MemLocation {
  int type = 0;
  int id = 0;
};

// Of the copies of a batch from one index on.
struct MemcpyAttributes {
  int source_access_order = 1;  // stream order
  MemLocation source_hint;
  MemLocation destination_hint;
  unsigned flags = 0;
};

}  // namespace railhop::cuda
