// A stand-in for the CUDA driver: a library with the same entry points, over host memory, so that
// what Railhop does with a GPU is tested where there is none.
//
//   const CudaDriver& driver = **CudaDriver::Load(RAILHOP_FAKE_CUDA);
//   FakeCuda& fake = FakeCuda::Get();  fake.manual = true;  ...  fake.Run(1);
//
// Two devices, whose pointers are host pointers; memory is a memfd each, which other processes
// reach by IPC handle. A stream carries out its commands when they are issued or, with `manual`,
// when the test says so. Kernels are those of gather_kernel.h and of the GPU tests, in C++.
// Each thread has a default stream, and the process one. Calls
// that need a current context refuse without one, and count the calls made outside relaxed capture
// mode. Threads: calls are serialised; the test changes fields while no other thread calls, or
// holds Lock().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace railhop {

// What the file of a DMA-BUF of the stand-in holds: the range that was asked for.
struct FakeDmaBuf {
  uint64_t address = 0;
  uint64_t bytes = 0;
};

class FakeCuda {
 public:
  // The instance behind the loaded library (which tests link as well).
  __attribute__((visibility("default"))) static FakeCuda& Get();
  virtual ~FakeCuda() = default;

  // As after loading; forgets memory, streams and counts. Not while anything is in use.
  virtual void Reset() = 0;
  // No call is carried out meanwhile.
  virtual std::unique_lock<std::mutex> Lock() = 0;
  // manual: carries out at most `count` commands, oldest first over all streams; returns how many.
  virtual size_t Run(size_t count) = 0;
  // Carries out the commands of a stream that was `held`, and it is held no longer.
  virtual void Release(void* stream) = 0;
  // Commands issued and not carried out.
  virtual size_t Waiting() = 0;
  // Memory of so many bytes, a multiple of 4096, on each of the devices, one mapping behind the
  // other at neighbouring addresses, as expandable segments have it; -1: nothing is mapped there.
  virtual uint64_t MapChunks(size_t bytes, std::span<const int> devices) = 0;
  // What lies in device memory, `hidden` or not.
  virtual std::vector<std::byte> Read(uint64_t address, size_t bytes) = 0;
  virtual void Write(uint64_t address, std::span<const std::byte> bytes) = 0;
  // Bytes of device memory that are allocated, and mappings of other processes' memory.
  virtual size_t Allocated() const = 0;
  virtual size_t Imported() const = 0;

  // --- Before CudaDriver::Load:
  int version = 13000;
  std::map<std::string, bool> missing;  // entry points the driver does not have
  // --- Any time:
  bool manual = false;
  // Memory made from now on is a GPU's in that the CPU cannot touch it: it faults. Single copies
  // reach it, kernels and batches do not.
  bool hidden = false;
  // Streams that carry out nothing even so, and those that an application captures: a call that
  // would end the capture, or get into it, counts in captures_broken.
  std::set<void*> held;
  std::set<void*> capturing;
  int stream_write = 1;     // attribute 122
  int stream_write_v1 = 0;  // attribute 92
  int dma_buf = 1;          // attribute 124
  int rdma_flush = 1;       // attribute 117: the host can
  int rdma_ordering = 100;  // attribute 118: the GPU itself needs no flush
  bool peer_access = true;  // between the two devices
  // Memory of a device that cannot be reached is refused when it is opened, not only told so.
  bool open_checks_access = true;
  size_t largest_allocation = SIZE_MAX;  // bytes; more is out of memory
  // Entry point -> result of its next call.
  std::map<std::string, int> fail;
  // Once not 0, what every call about work returns: a sticky error.
  int sticky = 0;
  // --- To look at:
  std::map<std::string, int> calls;
  int calls_outside_relaxed_mode = 0;
  int captures_broken = 0;
  std::map<void*, int> stream_priority;  // of those created
  int latest_dma_buf = -1;               // descriptor, which its receiver may have closed
  std::vector<int> flushed;              // devices, in the order of their flushes
};

}  // namespace railhop
