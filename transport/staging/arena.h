// The staging arena of a rank, into which the other ranks of the host copy pieces for it to send:
// 7 lanes of 18 slots of 8 MiB.
//
// Control thread only. An Arena belongs to the process that relays; its 64 handle bytes are
// published in the registry, and a peer makes an ImportedArena of them. base() and size() never
// change, so any thread may use the memory itself.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"

namespace railhop {

// As they stand in the registry header: a CUDA IPC handle, or the bytes of a host arena.
using ArenaHandle = std::array<uint8_t, 64>;

class Arena {
 public:
  virtual ~Arena() = default;

  virtual std::byte* base() const = 0;
  virtual uint64_t size() const = 0;
  virtual const ArenaHandle& handle() const = 0;

  // Gets the memory behind one lane, so that no access to it faults later, for want of a page or at
  // all. Owner and sender each call it for their mapping; the sender before it offers anything.
  // Idempotent, and safe while other lanes are in use. An error says how much was missing and
  // leaves the lanes that are reserved as they were.
  virtual absl::Status ReserveLane(uint32_t lane) = 0;
};

// Another process's arena, mapped here. The mapping outlives its owner; close it (destroy this)
// only after the last copy into it has ended.
class ImportedArena {
 public:
  virtual ~ImportedArena() = default;

  virtual std::byte* base() const = 0;
  virtual uint64_t size() const = 0;

  // As Arena::ReserveLane. May write to the lane's slots meanwhile. Aborted: it may do so even now,
  // so nobody else must get the lane.
  virtual absl::Status ReserveLane(uint32_t lane) = 0;
};

}  // namespace railhop
