// The way of a GPU's memory through sockets, for which the CPU must have the bytes: buffers of
// pinned host memory, of which there are so many and no more, and copies that are started and asked
// after, never waited for.
//
//   source of a WRITE, of a READ at its target    GPU -- Load --> buffer -- send --> socket
//   target of a READ, of a WRITE at its target    GPU <- Store -- buffer <- recv --- socket
//
// The copies go over one non-blocking stream of the GPU, behind nothing of the application's, and
// nothing else is synchronised. Threads need no current device, and keep theirs.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "transport/cuda/device.h"

namespace railhop {

// Of one GPU. Any thread.
class TcpBounce {
 public:
  static constexpr size_t kBufferBytes = 256 * 1024;
  static constexpr uint32_t kBuffers = 16;  // 4 MiB of pinned memory

  // A driver's refusal, with the GPU's address.
  static absl::StatusOr<std::unique_ptr<TcpBounce>> Create(
      std::shared_ptr<const CudaDevice> device);
  // Every TcpBounceBuffer of it has gone.
  ~TcpBounce();
  TcpBounce(const TcpBounce&) = delete;
  TcpBounce& operator=(const TcpBounce&) = delete;

  cuda::Device device() const { return device_->ordinal(); }

 private:
  friend class TcpBounceBuffer;

  explicit TcpBounce(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}
  absl::Status SetUp();
  bool Start(uint32_t buffer, uint64_t destination, uint64_t source, size_t length);
  cuda::Result Query(uint32_t buffer);
  void Warn(cuda::Result result);

  const std::shared_ptr<const CudaDevice> device_;
  cuda::Stream stream_ = nullptr;
  std::byte* memory_ = nullptr;
  std::array<cuda::Event, kBuffers> events_{};
  std::atomic<uint32_t> free_{(1u << kBuffers) - 1};  // a bit for each buffer
  std::atomic<bool> warned_{false};
};

// What one connection holds of it: no buffer, or one. One thread at a time. A buffer is held while
// the GPU copies, and from there to the next call of the socket, never while a socket makes its
// owner wait: so those who find none free (Take) ask again, and get one soon.
class TcpBounceBuffer {
 public:
  enum class Copy : uint8_t { kPending, kDone, kFailed };

  TcpBounceBuffer() = default;
  // Waits for a copy that is under way.
  ~TcpBounceBuffer();
  TcpBounceBuffer(const TcpBounceBuffer&) = delete;
  TcpBounceBuffer& operator=(const TcpBounceBuffer&) = delete;

  // Gives back what it holds and takes an empty one. False: all are in use.
  bool Take(TcpBounce* bounce);
  // Nothing to give back: nothing happens. Not while copying.
  void GiveBack() {
    if (held()) Return();
  }
  bool held() const { return bounce_ != nullptr; }
  std::span<std::byte> room() const { return {data_, TcpBounce::kBufferBytes}; }

  // Starts to copy `length` bytes of the GPU's memory at `address` to the start of the buffer, or
  // from there. False: the driver has refused it, and nothing of it is under way.
  bool Load(uint64_t address, size_t length);
  bool Store(uint64_t address, size_t length);
  // Whether the GPU may touch its memory and the buffer: from then to the first answer of Ask that
  // is not kPending.
  bool copying() const { return copying_; }
  Copy Ask();
  // Waits for the copy's end. Set-up and destruction only.
  void Finish();
  // It is a Load.
  bool loading() const { return copying_ && loaded_ != 0; }
  // What Load has brought of [address, ...), until the buffer is given back; else nothing.
  std::span<std::byte> Loaded(uint64_t address) const;

 private:
  void Return();
  bool Start(uint64_t address, size_t loaded, uint64_t destination, uint64_t source, size_t length);

  TcpBounce* bounce_ = nullptr;
  std::byte* data_ = nullptr;
  uint32_t index_ = 0;
  bool copying_ = false;
  uint64_t address_ = 0;
  size_t loaded_ = 0;  // bytes; 0: by a Store, or nothing
};

// Of the GPUs of a process, made when memory of each is first registered.
class TcpBounces {
 public:
  static constexpr uint32_t kMostDevices = 64;

  // `device`: the rank's own.
  explicit TcpBounces(std::shared_ptr<const CudaDevice> device) : device_(std::move(device)) {}

  // Control threads. By what the bytes of a range go through sockets; nullptr: they need nothing.
  // Errors are those of FindGpuOf and of TcpBounce::Create.
  absl::StatusOr<TcpBounce*> Find(const void* address, size_t length);
  // Any thread that has heard of the device from one that has found it.
  TcpBounce* Of(uint32_t device) const { return by_device_[device].get(); }

 private:
  const std::shared_ptr<const CudaDevice> device_;
  std::mutex mutex_;
  std::array<std::unique_ptr<TcpBounce>, kMostDevices> by_device_;
};

}  // namespace railhop
