// Where a rank's pieces are staged, in host memory or on a GPU: all that a rank knows of the
// difference.
//
// Threads: any, each call by itself. The object outlives what it hands out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "absl/status/statusor.h"
#include "transport/ring/process_identity.h"
#include "transport/staging/arena.h"

namespace railhop {

class Staging {
 public:
  virtual ~Staging() = default;

  // This rank's own arena.
  virtual absl::StatusOr<std::unique_ptr<Arena>> MakeArena() = 0;

  // Maps the arena that a peer's registry entry names. May take tens of milliseconds. On any error
  // pieces for this peer go direct, and the text says why.
  virtual absl::StatusOr<std::shared_ptr<ImportedArena>> OpenArena(const ArenaHandle& handle,
                                                                   const ProcessIdentity& owner,
                                                                   uint64_t epoch) = 0;

  // Has a device ring the doorbells in a peer's control block itself, while the result lives and
  // `block` stays mapped. nullptr: the copy engine's thread rings them.
  virtual std::shared_ptr<void> ShareDoorbells(void* block, size_t bytes) = 0;

  // Whether pieces may be made of [address, address + length), of which the application says that
  // it is at `location` ("cuda:0", "cpu:1", "*"). False: it goes direct. An error: it is not what
  // `location` says, or no NIC of this rank could read it; the text says what to do.
  virtual absl::StatusOr<bool> CanStage(const std::byte* address, size_t length,
                                        std::string_view location) = 0;
};

}  // namespace railhop
