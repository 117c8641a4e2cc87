#include "transport/copy/host_copy_engine.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cassert>

#include "runtime/fault_point.h"
#include "transport/copy/copy_bytes.h"
#include "transport/ring/control_block.h"

namespace railhop {
namespace {

// The first of the `streams` (bits, not 0) from `first` on, then from 0.
uint32_t NextStream(uint32_t streams, uint32_t first) {
  const uint32_t from = first < HostCopyEngine::kMaxStreams ? streams >> first << first : 0;
  return static_cast<uint32_t>(std::countr_zero(from != 0 ? from : streams));
}

}  // namespace

HostCopyEngine::HostCopyEngine(uint32_t streams, uint32_t queue_depth)
    : sizes_(SizesFor(static_cast<uint64_t>(std::max(0L, sysconf(_SC_LEVEL2_CACHE_SIZE))))),
      queue_depth_(queue_depth),
      streams_(streams) {
  assert(streams <= kMaxStreams);
  for (Stream& stream : streams_) stream.jobs.resize(std::bit_ceil(queue_depth));
}

JobSizes HostCopyEngine::SizesFor(uint64_t level2_bytes) {
  constexpr uint64_t kSmall = 40 * 1024, kLarge = 128 * 1024;
  const uint64_t bytes = 2 * kSlotsPerLane * kSmall <= level2_bytes ? kSmall : kLarge;
  return {.idle = bytes, .backlog = bytes};
}

CopyJob* HostCopyEngine::PlaceOf(uint32_t index) {
  Stream& stream = streams_[index];
  return stream.issued - stream.reaped == queue_depth_ ? nullptr : &stream.job(stream.issued);
}

void HostCopyEngine::Start(CopyJob& job) {
  Stream& stream = streams_[job.stream];
  uint64_t bytes = 0;
  for (const CopySpan& span : job.spans) bytes += span.length;
  ++stream.issued;
  stream.pending_bytes += bytes;
  pending_bytes_ += bytes;
  pending_ |= 1u << job.stream;
}

uint64_t HostCopyEngine::Advance(Stream& stream, uint64_t budget) {
  uint64_t copied = 0;
  while (stream.copied != stream.issued) {
    const CopyJob& job = stream.job(stream.copied);
    while (stream.span != job.spans.size()) {
      const CopySpan& span = job.spans[stream.span];
      const uint64_t length = std::min(span.length - stream.span_offset, budget - copied);
      if (length == 0 && span.length != stream.span_offset) return copied;  // budget spent
      if (length != 0) {
        CopyBytes(static_cast<std::byte*>(job.destination) + stream.job_offset,
                  static_cast<const std::byte*>(span.source) + stream.span_offset, length);
      }
      copied += length;
      stream.job_offset += length;
      stream.span_offset += length;
      if (stream.span_offset == span.length) {
        ++stream.span;
        stream.span_offset = 0;
      }
    }
    RAILHOP_FAULT_POINT("sender.copied");
    if (job.doorbell != nullptr) {
      std::atomic_ref<uint64_t>(*job.doorbell).store(job.sequence, std::memory_order_release);
    }
    RAILHOP_FAULT_POINT("sender.doorbell_rung");
    ++stream.copied;
    stream.span = 0;
    stream.job_offset = 0;
  }
  return copied;
}

uint64_t HostCopyEngine::Progress(uint64_t budget_bytes) {
  uint64_t copied = 0;
  while (pending_ != 0 && copied < budget_bytes) {
    next_turn_ = NextStream(pending_, next_turn_);
    Stream& stream = streams_[next_turn_];
    const uint64_t jobs_before = stream.copied;
    const uint64_t bytes = Advance(stream, std::min(kTurnBytes, budget_bytes - copied));
    if (stream.copied != jobs_before) done_ |= 1u << next_turn_;
    if (stream.copied == stream.issued) pending_ &= ~(1u << next_turn_);
    stream.pending_bytes -= bytes;
    pending_bytes_ -= bytes;
    copied += bytes;
    ++next_turn_;
  }
  return copied;
}

size_t HostCopyEngine::Reap(std::span<CopyDone> done) {
  size_t count = 0;
  while (done_ != 0 && count < done.size()) {
    next_reap_ = NextStream(done_, next_reap_);
    Stream& stream = streams_[next_reap_];
    for (; stream.reaped != stream.copied && count < done.size(); ++stream.reaped) {
      const CopyJob& job = stream.job(stream.reaped);
      done[count++] = {.user_data = job.user_data, .status = CopyStatus::kOk};
    }
    if (stream.reaped == stream.copied) done_ &= ~(1u << next_reap_++);
  }
  return count;
}

}  // namespace railhop
