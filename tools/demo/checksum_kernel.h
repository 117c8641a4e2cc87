// A checksum of memory in which a byte that is wrong, or in a wrong place, shows: the same on a GPU
// and on the host.
#pragma once

#include <cstdint>

#ifdef __CUDACC__
#define RAILHOP_HOST_AND_DEVICE __host__ __device__
#else
#define RAILHOP_HOST_AND_DEVICE
#endif

namespace railhop {

// What the word at position `index` contributes; the checksum is the sum of all, modulo 2^64.
RAILHOP_HOST_AND_DEVICE inline uint64_t ChecksumOfWord(uint64_t word, uint64_t index) {
  uint64_t x = (word ^ 0x9E3779B97F4A7C15u) + (index + 1) * 0xD6E8FEB86659FD93u;
  x = (x ^ x >> 32) * 0xD6E8FEB86659FD93u;
  return x ^ x >> 29;
}

// railhop_checksum(u64 data, u64 words, u64 sum): adds to the u64 at `sum`.
inline constexpr char kChecksumKernel[] = "railhop_checksum";
inline constexpr unsigned kChecksumBlocks = 256, kChecksumThreads = 256;

// The compiled kernel; nullptr in a build without nvcc.
const void* ChecksumImage();

}  // namespace railhop
