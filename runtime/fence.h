// The one full fence of the park/wake protocol (parker.h).
//
// g++'s ThreadSanitizer does not model atomic fences. Under it the fence becomes a
// read-modify-write of one process-wide word, which orders the same accesses and which it sees.
#pragma once

#include <atomic>

namespace railhop {

inline void FullFence() {
#if defined(__SANITIZE_THREAD__)
  static std::atomic<unsigned> word{0};
  word.fetch_add(1, std::memory_order_seq_cst);
#else
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  asm volatile("yield");
#endif
}

}  // namespace railhop
