// What the GPU tests share: the driver under test, buffers on a device, and a second process that
// owns an arena.
//
//   gpu_copy_test [--driver=LIBRARY] [GoogleTest options]
//
// Without --driver the machine's own driver; tests skip themselves where there is none or no GPU.
// With two GPUs the arena's owner has the second one, with one GPU both share it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "transport/cuda/device.h"
#include "transport/staging/arena.h"

namespace railhop {

// nullptr: no driver or no GPU here, and why.
const CudaDriver* TestDriver(std::string* why = nullptr);
// Device `index` of those visible; beyond them the last one.
std::shared_ptr<const CudaDevice> TestDevice(int index);

// Memory of a device, filled and read from the host.
class GpuBuffer {
 public:
  GpuBuffer(std::shared_ptr<const CudaDevice> device, size_t size);
  ~GpuBuffer();
  GpuBuffer(const GpuBuffer&) = delete;
  GpuBuffer& operator=(const GpuBuffer&) = delete;

  std::byte* data() const { return data_; }
  size_t size() const { return size_; }
  void Write(const std::vector<std::byte>& bytes);

 private:
  const std::shared_ptr<const CudaDevice> device_;
  const size_t size_;
  std::byte* data_ = nullptr;
};

// Copies bytes that `device` can reach to the host; waits for them.
std::vector<std::byte> ReadGpu(const CudaDevice& device, const std::byte* data, size_t size);
std::vector<std::byte> RandomBytes(size_t size, uint32_t seed);
uint64_t Checksum(const std::vector<std::byte>& bytes);

// Host memory that the device sees, as a control block is: a file in /dev/shm, mapped.
class SharedWords {
 public:
  SharedWords(std::shared_ptr<const CudaDevice> device, bool visible_to_device);
  ~SharedWords();
  uint64_t* word(size_t index) const { return words_ + index * 8; }  // a cache line each

 private:
  uint64_t* words_ = nullptr;
  std::unique_ptr<CudaHostMemory> memory_;
};

// A process with a CudaArena. Killed and reaped at the end.
class ArenaOwner {
 public:
  // `visible_devices`: its CUDA_VISIBLE_DEVICES; empty: as here.
  explicit ArenaOwner(int device, const std::string& visible_devices = "");
  ~ArenaOwner();
  ArenaOwner(const ArenaOwner&) = delete;
  ArenaOwner& operator=(const ArenaOwner&) = delete;

  const ArenaHandle& handle() const { return handle_; }
  // What lies in its arena now, as it sees it.
  uint64_t ChecksumOf(uint64_t offset, uint64_t length);
  void Kill();
  // Has it free the arena and exit; true if that went well.
  bool Leave();

 private:
  int fd_ = -1;
  int pid_ = -1;
  ArenaHandle handle_{};
};

// Of main(): reads --driver; in an owner's process serves it and returns its exit status, else -1.
int GpuTestMain(int argc, char** argv);
// Of a program that takes no arguments but --driver; says so if there are others.
bool HasOtherArguments(int argc, char** argv);
// All of main() for a program of tests.
int RunGpuTests(int argc, char** argv);

}  // namespace railhop
