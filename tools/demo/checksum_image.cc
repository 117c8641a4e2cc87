#include "tools/demo/checksum_kernel.h"
#include "transport/cuda/fatbin.h"

// Made of checksum_kernel.cu.
#ifdef RAILHOP_CHECKSUM_FATBIN
RAILHOP_EMBED_FATBIN(railhop_checksum_image, RAILHOP_CHECKSUM_FATBIN);
#endif

namespace railhop {

const void* ChecksumImage() {
#ifdef RAILHOP_CHECKSUM_FATBIN
  return railhop_checksum_image;
#else
  return nullptr;
#endif
}

}  // namespace railhop
