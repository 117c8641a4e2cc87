// The memory that one RDMA device has registered: a process' own, of its host or of its GPUs.
//
// A range is registered in parts where it exceeds what the device takes at once. GPU memory - the
// driver, if this process has loaded one, tells whose an address is - goes by DMA-BUF, or else as
// the memory of a peer device, which needs nvidia-peermem. What consists of several mappings
// (expandable segments) is tried whole and then mapping by mapping.
// Nobody sends from GPU memory inline, that is by a copy of the CPU: queue pairs have no room for
// inline data at all (queue_pair.cc).
// Threads: any; calls may take milliseconds, and one waits for another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/cuda/device.h"
#include "transport/fabric/fabric.h"

struct ibv_mr;
struct ibv_pd;

namespace railhop {

struct Verbs;

class RdmaMemory {
 public:
  struct Options {
    std::string device;                    // for messages
    uint64_t max_part_bytes = UINT64_MAX;  // of a registration
    bool relaxed_ordering = true;          // the PCIe bus may reorder what the device writes
  };

  // `domain` outlives it, and belongs to the library of `verbs`.
  RdmaMemory(const Verbs& verbs, ibv_pd* domain, Options options);
  // Lets go of what is still registered.
  ~RdmaMemory();
  RdmaMemory(const RdmaMemory&) = delete;
  RdmaMemory& operator=(const RdmaMemory&) = delete;

  // As RdmaDevice says.
  absl::StatusOr<MemoryKey> Register(void* address, size_t length);
  absl::StatusOr<std::vector<MemoryPart>> RegisterParts(void* address, size_t length);
  absl::Status Deregister(const MemoryKey& key);

 private:
  using Gpu = std::shared_ptr<const CudaDevice>;  // nullptr: host memory
  struct Region {
    ibv_mr* handle = nullptr;
    int uses = 0;
  };
  using Range = std::pair<std::byte*, size_t>;

  absl::StatusOr<std::vector<MemoryPart>> RegisterUpTo(std::byte* address,
                                                       const std::vector<uint64_t>& ends,
                                                       const Gpu& gpu);
  std::vector<uint64_t> CutEvenly(const std::vector<uint64_t>& ends) const;
  absl::StatusOr<MemoryKey> RegisterPart(const Range& range, const Gpu& gpu);
  absl::StatusOr<ibv_mr*> Pin(const Range& range, const Gpu& gpu) const;
  absl::StatusOr<ibv_mr*> PinDmaBuf(const Range& range, const CudaDevice& gpu) const;
  ibv_mr* PinPlain(const Range& range) const;
  absl::Status HostError(int error, const Range& range) const;
  absl::Status Release(const MemoryKey& key);

  const Verbs& verbs_;
  ibv_pd* const domain_;
  const Options options_;
  unsigned access_ = 0;

  std::mutex mutex_;
  std::map<Range, Region> regions_;
  std::unordered_map<uint32_t, Range> ranges_;  // of regions_, by lkey
};

}  // namespace railhop
