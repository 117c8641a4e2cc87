// Which ranges an engine has registered, or is about to: so that no two overlap, also not two that
// are being registered at the same time.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <span>
#include <string>

#include "transport/engine/engine_error.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class RegistrationTable {
 public:
  // All of the entries, or none: kInvalidArgument for one that is empty or wraps,
  // kAddressOverlapped for one that overlaps another or what is here. Neighbours are allowed.
  // `error` says which.
  EngineError Reserve(std::span<const BufferEntry> entries, std::string* error);
  // kAddressNotRegistered: no range begins there, or another thread is releasing it.
  EngineError BeginRelease(void* address, bool* half_done);
  void EndRelease(void* address);
  // The release was refused: the range stays. `*half_done` of the next BeginRelease says whether
  // the first of its two steps was done by then.
  void KeepAfterAll(void* address, bool half_done);

 private:
  struct Range {
    uint64_t length = 0;
    bool releasing = false;
    bool half_done = false;
  };
  using Ranges = std::map<uint64_t, Range>;  // by address
  Ranges::const_iterator FindOverlap(uint64_t address, uint64_t length) const;

  std::mutex mutex_;
  Ranges ranges_;
};

}  // namespace railhop
