// The copy engine for host memory: memcpy by the thread that calls Progress.
//
// Streams take turns by kTurnBytes, so that a lane's 8 MiB piece does not hold up another lane's
// 64 bytes for longer than one turn of each.
// Doorbells are CPU stores (release) and move over finished jobs in order, as rule 4 of the ABI
// asks. All memory is taken by the constructor.
#pragma once

#include <cstdint>
#include <vector>

#include "transport/copy/copy_engine.h"

namespace railhop {

class HostCopyEngine : public CopyEngine {
 public:
  // Bytes of one stream's turn: large enough that a turn's fixed cost (some 20 ns) vanishes.
  static constexpr uint64_t kTurnBytes = 64 * 1024;

  static constexpr uint32_t kMaxStreams = 32;

  // `streams`: at most kMaxStreams. `queue_depth`: jobs a stream takes, those not yet reaped
  // included.
  HostCopyEngine(uint32_t streams, uint32_t queue_depth);

  // A piece costs 0.3 us besides its memcpy. It is small where the 18 slots of a lane then stay in
  // the level-2 cache with the sources, and large where they would not (docs/performance.md).
  static JobSizes SizesFor(uint64_t level2_bytes);
  JobSizes job_sizes() const override { return sizes_; }
  uint32_t stream_count() const override { return static_cast<uint32_t>(streams_.size()); }
  uint64_t Progress(uint64_t budget_bytes) override;
  size_t Reap(std::span<CopyDone> done) override;
  uint64_t PendingBytes() const override { return pending_bytes_; }
  uint64_t PendingBytes(uint32_t stream) const override { return streams_[stream].pending_bytes; }
  size_t PendingJobs(uint32_t stream) const override {
    return static_cast<size_t>(streams_[stream].issued - streams_[stream].reaped);
  }

 protected:
  CopyJob* PlaceOf(uint32_t stream) override;
  void Start(CopyJob& job) override;

 private:
  // Jobs [reaped, copied) await Reap, [copied, issued) the copy; all three only grow.
  struct Stream {
    std::vector<CopyJob> jobs;  // ring, a power of two
    CopyJob& job(uint64_t number) { return jobs[number & (jobs.size() - 1)]; }
    uint64_t reaped = 0;
    uint64_t copied = 0;
    uint64_t issued = 0;
    // Where the job `copied` stands.
    size_t span = 0;
    uint64_t span_offset = 0;
    uint64_t job_offset = 0;
    uint64_t pending_bytes = 0;
  };

  // Copies at most `budget` bytes of one stream, finishing the jobs that it gets to the end of.
  static uint64_t Advance(Stream& stream, uint64_t budget);

  const JobSizes sizes_;
  const uint32_t queue_depth_;
  std::vector<Stream> streams_;
  uint64_t pending_bytes_ = 0;
  uint32_t pending_ = 0;  // streams, as bits, with jobs that are issued and not copied
  uint32_t done_ = 0;     // with jobs that are copied and not reaped
  uint32_t next_turn_ = 0;
  uint32_t next_reap_ = 0;
};

}  // namespace railhop
