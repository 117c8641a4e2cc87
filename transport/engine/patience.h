// Patience: how long a call may wait for somebody else.
#pragma once

#include <chrono>
#include <stop_token>

namespace railhop {

struct Patience {
  std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  std::stop_token stop = {};  // once asked to stop, the call ends at once, with CANCELLED
};

}  // namespace railhop
