#include "transport/copy/gather_kernel.h"
#include "transport/cuda/fatbin.h"

// Made of gather_kernel.cu.
#ifdef RAILHOP_GATHER_FATBIN
RAILHOP_EMBED_FATBIN(railhop_gather_image, RAILHOP_GATHER_FATBIN);
#endif

namespace railhop {

const void* GatherImage() {
#ifdef RAILHOP_GATHER_FATBIN
  return railhop_gather_image;
#else
  return nullptr;
#endif
}

}  // namespace railhop
