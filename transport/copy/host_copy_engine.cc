#include "transport/copy/host_copy_engine.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "runtime/fault_point.h"

namespace railhop {

HostCopyEngine::HostCopyEngine(uint32_t streams, uint32_t queue_depth) : streams_(streams) {
  for (Stream& stream : streams_) stream.jobs.resize(queue_depth);
}

bool HostCopyEngine::Issue(const CopyJob& job) {
  Stream& stream = streams_[job.stream];
  if (stream.issued - stream.reaped == stream.jobs.size()) return false;
  uint64_t bytes = 0;
  for (const CopySpan& span : job.spans) bytes += span.length;
  stream.jobs[stream.issued % stream.jobs.size()] = job;
  ++stream.issued;
  stream.pending_bytes += bytes;
  pending_bytes_ += bytes;
  ++pending_jobs_;
  return true;
}

uint64_t HostCopyEngine::Advance(Stream& stream, uint64_t budget) {
  uint64_t copied = 0;
  while (stream.copied != stream.issued) {
    const CopyJob& job = stream.jobs[stream.copied % stream.jobs.size()];
    while (stream.span != job.spans.size()) {
      const CopySpan& span = job.spans[stream.span];
      const uint64_t length = std::min(span.length - stream.span_offset, budget - copied);
      if (length == 0 && span.length != stream.span_offset) return copied;  // budget spent
      if (length != 0) {
        std::memcpy(static_cast<std::byte*>(job.destination) + stream.job_offset,
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
  while (pending_jobs_ != 0 && copied < budget_bytes) {
    Stream& stream = streams_[next_turn_];
    if (stream.copied != stream.issued) {
      const uint64_t jobs_before = stream.copied;
      const uint64_t bytes = Advance(stream, std::min(kTurnBytes, budget_bytes - copied));
      const size_t jobs = static_cast<size_t>(stream.copied - jobs_before);
      pending_jobs_ -= jobs;
      done_jobs_ += jobs;
      stream.pending_bytes -= bytes;
      pending_bytes_ -= bytes;
      copied += bytes;
    }
    next_turn_ = next_turn_ + 1 == streams_.size() ? 0 : next_turn_ + 1;
  }
  return copied;
}

size_t HostCopyEngine::Reap(std::span<CopyDone> done) {
  size_t count = 0;
  while (done_jobs_ != 0 && count < done.size()) {
    Stream& stream = streams_[next_reap_];
    while (stream.reaped != stream.copied && count < done.size()) {
      const CopyJob& job = stream.jobs[stream.reaped % stream.jobs.size()];
      done[count++] = {.user_data = job.user_data, .status = CopyStatus::kOk};
      ++stream.reaped;
      --done_jobs_;
    }
    if (stream.reaped == stream.copied) {
      next_reap_ = next_reap_ + 1 == streams_.size() ? 0 : next_reap_ + 1;
    }
  }
  return count;
}

}  // namespace railhop
