// Poller: a source of work that is not an edge - a completion queue, a doorbell, a copy engine.
//
// All methods run on the reactor's thread. None may allocate, lock or block.
#pragma once

#include <cstddef>
#include <cstdint>

namespace railhop {

class Poller {
 public:
  static constexpr uint64_t kNever = UINT64_MAX;

  virtual ~Poller() = default;

  // Looks once and handles what is there; returns how many things it handled. `now` in cycles.
  virtual size_t Poll(uint64_t now) = 0;

  // The reactor is about to park: arm what will wake it (a parked word, a completion channel).
  // A full fence follows, then one more Poll; only then does the thread block.
  virtual void OnPark() {}
  virtual void OnUnpark() {}

  // While parked: when Poll must run again at the latest, in cycles; kNever if a wake will tell.
  virtual uint64_t NextPoll(uint64_t now) {
    (void)now;
    return kNever;
  }
};

}  // namespace railhop
