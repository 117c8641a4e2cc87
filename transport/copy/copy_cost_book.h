// What copies into each peer's arena cost: CudaStaging measures it there (copy_calibration.h) and
// CudaCopyEngine looks it up for the first piece of a lane. A mutex, once per lane.
//
// Threads: any.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>
#include <optional>

#include "transport/copy/copy_cost.h"

namespace railhop {

class CopyCostBook {
 public:
  void Set(const std::byte* arena, const CopyCosts& costs);
  void Erase(const std::byte* arena);
  // Of the arena that `address` lies in; nullopt: nothing was measured there.
  std::optional<CopyCosts> Find(const std::byte* address) const;

 private:
  mutable std::mutex mutex_;
  std::map<const std::byte*, CopyCosts> costs_;  // by where the arena begins
};

}  // namespace railhop
