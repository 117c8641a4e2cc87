// What an inference server's own work stands for: a matrix product that keeps every multiprocessor
// of a GPU busy.
#pragma once

namespace railhop {

// c = a * b, square and row by row, `size` (a multiple of kGemmTile) floats a side:
//   railhop_gemm(u64 a, u64 b, u64 c, u32 size), a block of kGemmThreads per tile of c.
inline constexpr char kGemmKernel[] = "railhop_gemm";
inline constexpr unsigned kGemmTile = 64;
inline constexpr unsigned kGemmThreads = 256;

// The compiled kernel; nullptr in a build without nvcc.
const void* GemmImage();

}  // namespace railhop
