#include "tests/gpu/gemm_kernel.h"

namespace {

constexpr unsigned kTile = railhop::kGemmTile;
constexpr unsigned kDepth = 16;            // of a step along the rows of a
constexpr unsigned kEach = 4;              // a thread has kEach x kEach of the tile
constexpr unsigned kSide = kTile / kEach;  // threads a side
static_assert(kSide * kSide == railhop::kGemmThreads);

}  // namespace

extern "C" __global__ void __launch_bounds__(railhop::kGemmThreads)
    railhop_gemm(const float* a, const float* b, float* c, unsigned size) {
  __shared__ float of_a[kDepth][kTile];
  __shared__ float of_b[kDepth][kTile];
  const unsigned row = blockIdx.y * kTile, column = blockIdx.x * kTile;
  const unsigned x = threadIdx.x % kSide, y = threadIdx.x / kSide;
  float sum[kEach][kEach] = {};
  for (unsigned step = 0; step < size; step += kDepth) {
    for (unsigned i = threadIdx.x; i < kDepth * kTile; i += railhop::kGemmThreads) {
      of_a[i % kDepth][i / kDepth] = a[size_t{row + i / kDepth} * size + step + i % kDepth];
      of_b[i / kTile][i % kTile] = b[size_t{step + i / kTile} * size + column + i % kTile];
    }
    __syncthreads();
    for (unsigned k = 0; k < kDepth; ++k) {
      for (unsigned i = 0; i < kEach; ++i) {
        for (unsigned j = 0; j < kEach; ++j) {
          sum[i][j] += of_a[k][y + i * kSide] * of_b[k][x + j * kSide];
        }
      }
    }
    __syncthreads();
  }
  for (unsigned i = 0; i < kEach; ++i) {
    for (unsigned j = 0; j < kEach; ++j) {
      c[size_t{row + y + i * kSide} * size + column + x + j * kSide] = sum[i][j];
    }
  }
}
