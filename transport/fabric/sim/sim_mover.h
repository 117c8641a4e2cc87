// What a simulated NIC moves bytes with where memcpy cannot go: memory of a GPU.
//
// Threads: Import and Close on the control thread; Copy on the one that carries out requests. One
// mover per NIC, so that NICs do not wait for each other.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/statusor.h"

namespace railhop {

// By which other processes open memory of a GPU.
using DeviceHandle = std::array<uint8_t, 64>;

class SimMover {
 public:
  virtual ~SimMover() = default;

  // Maps another process's memory until Close.
  virtual absl::StatusOr<std::byte*> Import(const DeviceHandle& handle) = 0;
  virtual void Close(std::byte* memory) = 0;

  // Either end is host memory or a GPU's. Returns when the bytes are there; false: they are not.
  virtual bool Copy(void* destination, const void* source, size_t length) = 0;
};

}  // namespace railhop
