#include "transport/copy/gather_kernel.h"

// The fat binary that nvcc made of gather_kernel.cu becomes part of this object file.
#ifdef RAILHOP_GATHER_FATBIN
asm(".pushsection .rodata\n"
    ".balign 64\n"
    ".hidden railhop_gather_image\n"
    ".globl railhop_gather_image\n"
    "railhop_gather_image:\n"
    ".incbin \"" RAILHOP_GATHER_FATBIN
    "\"\n"
    ".balign 8\n"
    ".popsection\n");

extern "C" __attribute__((visibility("hidden"))) const unsigned char railhop_gather_image[];
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
