// How often this program has called operator new. Linking railhop_allocation_count puts the
// counting ones in place of the library's.
#pragma once

#include <cstdint>

namespace railhop {

// Of all threads, since the start.
uint64_t AllocationCount();

}  // namespace railhop
