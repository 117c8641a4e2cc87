// Named points at which a fault test stops or kills this very process.
//
//   RAILHOP_FAULT_POINT("relay.taken");
//
// A build with RAILHOP_FAULT_POINTS (CMake option; config/cmake/faults.cmake) acts when the
// environment says so: RAILHOP_FAULT="relay.taken:3:stop" stops the process in the thread that
// passes the point for the third time (SIGSTOP; SIGCONT lets it go on), "...:kill" kills it. In
// every other build a point is nothing: neither code nor its name. tests/faults lists all of them.
#pragma once

#ifdef RAILHOP_FAULT_POINTS

#include <atomic>
#include <cstdint>

namespace railhop {

// What a binary with fault points contains, once for each name, and any other does not.
#define RAILHOP_FAULT_MARKER "railhop-fault-point:"

class FaultPoint {
 public:
  explicit FaultPoint(const char* marker);
  // Any thread.
  void Pass() {
    if (left_.load(std::memory_order_relaxed) != 0 && left_.fetch_sub(1) == 1) Act();
  }

 private:
  void Act() const;

  std::atomic<uint64_t> left_{0};  // passes until it acts; 0: never
  bool kill_ = false;
};

}  // namespace railhop

// Each name is used in one place: the passes of a name are counted there.
#define RAILHOP_FAULT_POINT(name)                                        \
  do {                                                                   \
    static ::railhop::FaultPoint fault_point(RAILHOP_FAULT_MARKER name); \
    fault_point.Pass();                                                  \
  } while (false)

#else

#define RAILHOP_FAULT_POINT(name) static_cast<void>(0)

#endif
