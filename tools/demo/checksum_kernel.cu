#include "tools/demo/checksum_kernel.h"

extern "C" __global__ void railhop_checksum(const uint64_t* data, uint64_t words,
                                            unsigned long long* sum) {
  unsigned long long own = 0;
  const uint64_t step = uint64_t{gridDim.x} * blockDim.x;
  for (uint64_t i = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < words; i += step) {
    own += railhop::ChecksumOfWord(data[i], i);
  }
  atomicAdd(sum, own);
}
