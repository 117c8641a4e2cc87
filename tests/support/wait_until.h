// WaitUntil: waits for something that another thread makes true and that has no wake-up of its own
// (a counter of the code under test). It bounds the wait; it never measures it.
#pragma once

#include <chrono>
#include <thread>

#include "tests/support/flag.h"

namespace railhop {

// False when patience ended first.
template <class Condition>
[[nodiscard]] bool WaitUntil(Condition&& condition) {
  const auto until = std::chrono::steady_clock::now() + kTestPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::yield();
  }
  return true;
}

}  // namespace railhop
