// What every side of the pipeline benchmark has in common: names, the source and its pattern.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "tests/bench/pipeline/load.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/ring/control_block.h"

namespace railhop {

inline constexpr const char* kSenderNic = "sim0";  // a NIC is its own rail
inline constexpr const char* kRelayNic = "sim1";
inline constexpr uint64_t kPipelineBytes = uint64_t{kMaxOutstanding} * kRequestBytes;

// What lies in the source, and after a run with a moving NIC at the target.
inline void FillPipelinePattern(std::byte* memory) {
  for (uint64_t at = 0; at < kPipelineBytes; at += sizeof(uint64_t)) {
    const uint64_t word = (at + 1) * 0x9E3779B97F4A7C15u;
    std::memcpy(memory + at, &word, sizeof(word));
  }
}

class PipelineSource {
 public:
  PipelineSource() : bytes_(kPipelineBytes) { FillPipelinePattern(bytes_.data()); }
  std::byte* of_slot(uint32_t slot) { return bytes_.data() + slot * kRequestBytes; }
  std::byte* data() { return bytes_.data(); }

 private:
  std::vector<std::byte> bytes_;
};

// Every job is an empty one: its doorbell rings, and no byte is copied.
class NullCopyEngine final : public HostCopyEngine {
 public:
  using HostCopyEngine::HostCopyEngine;
  // A quarter of what is outstanding, so that sender and relay both have something to do.
  JobSizes job_sizes() const override {
    return {.idle = kPipelineBytes / 4, .backlog = kPipelineBytes / 4};
  }

 private:
  void Start(CopyJob& job) override {
    job.spans = {};
    HostCopyEngine::Start(job);
  }
};

inline std::unique_ptr<CopyEngine> MakeCopyEngine(bool copies, uint32_t streams) {
  if (copies) return std::make_unique<HostCopyEngine>(streams, kSlotsPerLane);
  return std::make_unique<NullCopyEngine>(streams, kSlotsPerLane);
}

}  // namespace railhop
