#include "tests/gpu/checksum_kernel.h"

// The fat binary that nvcc made of checksum_kernel.cu becomes part of this object file.
#ifdef RAILHOP_CHECKSUM_FATBIN
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden railhop_checksum_image\n"
    ".globl railhop_checksum_image\n"
    "railhop_checksum_image:\n"
    ".incbin \"" RAILHOP_CHECKSUM_FATBIN
    "\"\n"
    ".balign 8\n"
    ".popsection\n");

extern "C" __attribute__((visibility("hidden"))) const unsigned char railhop_checksum_image[];
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
