// What the gather kernel and its callers agree on, on the GPU as on the host.
//
// A gather lays spans from anywhere back to back into one destination, with one launch however many
// spans there are. The list is two arrays: where each span begins, and its offset in the
// destination, with the total at the end. A short list travels in the kernel's parameters, which
// are as long as the kernel declares them, so that a few spans have a kernel of their own; a longer
// one lies in device memory, since reading it over PCIe would cost more than the copy.
#pragma once

#include <cstdint>

namespace railhop {

inline constexpr unsigned kGatherWarps = 16;  // per block
inline constexpr unsigned kGatherThreads = 32 * kGatherWarps;
// Bytes that one pass of a warp moves; a warp's share is a multiple of it.
inline constexpr uint32_t kGatherWarpBytes = 32 * 16;
inline constexpr uint32_t kGatherFewSpans = 8;
inline constexpr uint32_t kGatherInlineSpans = 128;

struct GatherJob {
  uint64_t destination = 0;
  uint32_t bytes = 0;  // in all
  uint32_t spans = 0;
  uint32_t bytes_per_warp = 0;  // multiple of kGatherWarpBytes
  uint64_t doorbell = 0;        // as the device sees it; 0: none
  uint64_t sequence = 0;        // stored there, system-wide release, once every byte has arrived
  uint64_t counter = 0;  // u32 of device memory, 0 between launches: blocks that are done. Launches
                         // that share one must follow each other (a stream)
};

template <uint32_t kSpans>
struct GatherList {
  uint64_t sources[kSpans];
  uint32_t offsets[kSpans + 1];
};
using GatherFewList = GatherList<kGatherFewSpans>;
using GatherInlineList = GatherList<kGatherInlineSpans>;

// Kernels, by name:
//   railhop_gather_few(GatherJob, GatherFewList)
//   railhop_gather_inline(GatherJob, GatherInlineList)
//   railhop_gather_listed(GatherJob, u64 sources, u64 offsets)   addresses in device memory
//   railhop_doorbell(u64 doorbell, u64 sequence)                 one thread; after what is before
//   it
inline constexpr char kGatherFewKernel[] = "railhop_gather_few";
inline constexpr char kGatherInlineKernel[] = "railhop_gather_inline";
inline constexpr char kGatherListedKernel[] = "railhop_gather_listed";
inline constexpr char kDoorbellKernel[] = "railhop_doorbell";

// The compiled kernels, for cuModuleLoadData; nullptr in a build without nvcc.
const void* GatherImage();

}  // namespace railhop
