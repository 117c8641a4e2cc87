#include "tests/gpu/gemm_kernel.h"
#include "transport/cuda/fatbin.h"

// Made of gemm_kernel.cu.
#ifdef RAILHOP_GEMM_FATBIN
RAILHOP_EMBED_FATBIN(railhop_gemm_image, RAILHOP_GEMM_FATBIN);
#endif

namespace railhop {

const void* GemmImage() {
#ifdef RAILHOP_GEMM_FATBIN
  return railhop_gemm_image;
#else
  return nullptr;
#endif
}

}  // namespace railhop
