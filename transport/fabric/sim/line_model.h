// When a request of the simulated NIC starts and ends, and which scripted fault it meets:
// arithmetic only, no bytes, no threads (the poster's thread calls it).
//
//   start    = max(post time, end of the request before)
//   end      = start + length / line rate
//   complete = end + base delay
//
// however late whoever moves the bytes runs. Times are in cycles of the NIC's clock.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/fabric/fabric.h"

namespace railhop {

// One line of a fault script: what happens to the requests number `first`, `first` + 1, ...
// Numbers count the requests of one NIC in post order, from 1.
struct SimFault {
  enum class Kind : uint8_t {
    kNone,
    kDrop,      // never completes until its endpoint is disconnected; nothing moves
    kDelay,     // completes `time` later; its successors on the endpoint wait for it
    kError,     // completes with `status`; nothing moves
    kLinkDown,  // from the start of request `first` the link is down for `time`
  };
  Kind kind = Kind::kNone;
  uint64_t first = 1;
  uint64_t count = 1;  // not for kLinkDown
  std::chrono::nanoseconds time{0};
  FabricStatus status = FabricStatus::kTransport;
};

class LineModel {
 public:
  struct Slot {
    uint64_t start = 0;
    uint64_t complete = 0;
    SimFault::Kind fault = SimFault::Kind::kNone;
    FabricStatus status = FabricStatus::kTransport;  // for kError and kLinkDown
  };

  // `bytes_per_second` > 0.
  LineModel(double bytes_per_second, std::chrono::nanoseconds base_delay,
            double cycles_per_nanosecond, std::vector<SimFault> faults);

  // The next request, posted now.
  Slot Schedule(uint64_t now, uint32_t length, bool link_up);

 private:
  uint64_t Cycles(std::chrono::nanoseconds time) const;

  const double cycles_per_nanosecond_;
  const double cycles_per_byte_;
  const uint64_t base_delay_;
  const std::vector<SimFault> faults_;
  uint64_t number_ = 0;      // requests scheduled
  uint64_t line_free_ = 0;   // end of the request before
  uint64_t down_until_ = 0;  // the link is up from then on
};

}  // namespace railhop
