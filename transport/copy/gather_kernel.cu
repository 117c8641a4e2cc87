// Gathers spans into one destination, mostly memory of another GPU, and rings a doorbell.
//
// Each warp takes an equal share of the *destination*, finds its first span by bisection and copies
// what of each span falls into its share: many small spans and few large ones spread alike.
// 16-byte accesses where source and destination agree modulo 16, narrower ones where they agree
// modulo less; heads and tails byte by byte.

#include "transport/copy/gather_kernel.h"

namespace {

using railhop::GatherFewList;
using railhop::GatherInlineList;
using railhop::GatherJob;

constexpr unsigned kLanes = 32;
constexpr unsigned kUnroll = 4;  // loads under way per lane: reads of far memory take microseconds

__device__ unsigned Lane() {
  return threadIdx.x % kLanes;
}

// By one warp. Both pointers are equal modulo sizeof(Word).
template <class Word>
__device__ void CopyAs(char* destination, const char* source, uint32_t bytes) {
  constexpr uint32_t kWord = sizeof(Word);
  const uint32_t to_boundary =
      static_cast<uint32_t>(-reinterpret_cast<uintptr_t>(destination)) % kWord;
  const uint32_t head = to_boundary < bytes ? to_boundary : bytes;
  if (Lane() < head) destination[Lane()] = source[Lane()];
  destination += head;
  source += head;
  bytes -= head;

  const uint32_t words = bytes / kWord;
  const Word* from = reinterpret_cast<const Word*>(source);
  Word* to = reinterpret_cast<Word*>(destination);
  uint32_t i = Lane();
  for (; i + (kUnroll - 1) * kLanes < words; i += kUnroll * kLanes) {
    Word word[kUnroll];
#pragma unroll
    for (unsigned j = 0; j < kUnroll; ++j) word[j] = __ldcs(from + i + j * kLanes);
#pragma unroll
    for (unsigned j = 0; j < kUnroll; ++j) to[i + j * kLanes] = word[j];
  }
  for (; i < words; i += kLanes) to[i] = __ldcs(from + i);

  const uint32_t done = words * kWord;
  if (Lane() < bytes - done) destination[done + Lane()] = source[done + Lane()];
}

__device__ void Copy(char* destination, const char* source, uint32_t bytes) {
  const uintptr_t difference =
      reinterpret_cast<uintptr_t>(destination) ^ reinterpret_cast<uintptr_t>(source);
  if (difference % 16 == 0) {
    CopyAs<uint4>(destination, source, bytes);
  } else if (difference % 8 == 0) {
    CopyAs<uint2>(destination, source, bytes);
  } else if (difference % 4 == 0) {
    CopyAs<unsigned>(destination, source, bytes);
  } else if (difference % 2 == 0) {
    CopyAs<unsigned short>(destination, source, bytes);
  } else {
    CopyAs<unsigned char>(destination, source, bytes);
  }
}

__device__ void StoreDoorbell(uint64_t doorbell, uint64_t sequence) {
  asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(doorbell), "l"(sequence) : "memory");
}

// The last block to get here rings: by then each block has made its bytes visible to the whole
// system, the NIC of the other GPU included.
__device__ void Finish(const GatherJob& job) {
  if (job.doorbell == 0) return;
  __syncthreads();
  if (threadIdx.x != 0) return;
  __threadfence_system();
  unsigned before;
  asm volatile("atom.add.acq_rel.gpu.global.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(job.counter)
               : "memory");
  if (before + 1 != gridDim.x) return;
  *reinterpret_cast<volatile unsigned*>(job.counter) = 0;
  __threadfence_system();
  StoreDoorbell(job.doorbell, job.sequence);
}

__device__ void Gather(const GatherJob& job, const uint64_t* sources, const uint32_t* offsets) {
  const uint32_t warp = blockIdx.x * railhop::kGatherWarps + threadIdx.x / kLanes;
  const uint64_t begin = uint64_t{warp} * job.bytes_per_warp;
  if (begin < job.bytes) {
    uint32_t position = static_cast<uint32_t>(begin);
    const uint32_t end =
        job.bytes - position < job.bytes_per_warp ? job.bytes : position + job.bytes_per_warp;
    uint32_t span = 0;  // the last one that begins at or before `position`
    for (uint32_t above = job.spans; span + 1 < above;) {
      const uint32_t middle = (span + above) / 2;
      if (offsets[middle] <= position) {
        span = middle;
      } else {
        above = middle;
      }
    }
    for (; position < end; ++span) {
      const uint32_t span_end = offsets[span + 1];
      const uint32_t stop = span_end < end ? span_end : end;
      const char* source = reinterpret_cast<const char*>(sources[span]);
      Copy(reinterpret_cast<char*>(job.destination) + position, source + (position - offsets[span]),
           stop - position);
      position = stop;
    }
  }
  Finish(job);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(railhop::kGatherThreads)
    railhop_gather_few(const __grid_constant__ GatherJob job,
                       const __grid_constant__ GatherFewList list) {
  Gather(job, list.sources, list.offsets);
}

extern "C" __global__ void __launch_bounds__(railhop::kGatherThreads)
    railhop_gather_inline(const __grid_constant__ GatherJob job,
                          const __grid_constant__ GatherInlineList list) {
  Gather(job, list.sources, list.offsets);
}

extern "C" __global__ void __launch_bounds__(railhop::kGatherThreads)
    railhop_gather_listed(const __grid_constant__ GatherJob job, const uint64_t* sources,
                          const uint32_t* offsets) {
  Gather(job, sources, offsets);
}

extern "C" __global__ void railhop_doorbell(uint64_t doorbell, uint64_t sequence) {
  __threadfence_system();
  StoreDoorbell(doorbell, sequence);
}
