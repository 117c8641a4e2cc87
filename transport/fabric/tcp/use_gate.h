// UseGate: lets many threads use a thing for short moments and one thread end that for good.
//
//   user                                     owner
//   Enter(): ++users; closed? (seq_cst)      Close(): closed = true
//   use it; Leave(): --users                 Quiet(): users == 0? (seq_cst)
//
// Guarantee: of the two either the user sees it closed or the owner sees the user. What a user did
// before Leave happened before a later Quiet() that is true.
#pragma once

#include <atomic>
#include <cstdint>

namespace railhop {

class UseGate {
 public:
  // False: closed, do not touch. Else Leave must follow, soon: an owner may be waiting.
  bool Enter() {
    users_.fetch_add(1, std::memory_order_seq_cst);
    if (!closed_.load(std::memory_order_seq_cst)) return true;
    Leave();
    return false;
  }
  void Leave() { users_.fetch_sub(1, std::memory_order_release); }

  void Close() { closed_.store(true, std::memory_order_seq_cst); }
  bool Quiet() const { return users_.load(std::memory_order_seq_cst) == 0; }

 private:
  std::atomic<uint32_t> users_{0};
  std::atomic<bool> closed_{false};
};

}  // namespace railhop
