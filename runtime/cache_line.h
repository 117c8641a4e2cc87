// A hint about a cache line that another core is about to read.
#pragma once

namespace railhop {

// Moves the line of `address` from this core's caches to the one that the cores share, where
// another core finds it sooner; what is stored there stays as it is. For lines that were written
// some time before they are read: x86's CLDEMOTE, nothing on a processor without it (Intel SDM,
// volume 2: the instruction is a no-op there).
inline void DemoteLine([[maybe_unused]] const void* address) {
#if defined(__x86_64__)
  asm volatile("cldemote %0" ::"m"(*static_cast<const char*>(address)));
#endif
}

}  // namespace railhop
