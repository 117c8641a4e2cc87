// Copies pieces into staging slots and rings their doorbells: one interface for host memory and
// GPU.
//
//   engine->Issue(job)...;  engine->Progress(budget);  n = engine->Reap(done);
//
// A stream is one outbound lane: its copies and doorbells happen strictly in the order of Issue,
// and nowhere else, so a doorbell never runs ahead of bytes with a lower sequence. Threads: one
// thread per engine. Nothing blocks, allocates, throws or logs; a host engine copies inside
// Progress, a GPU engine has the device do it. Ownership: span list, source and destination belong
// to the caller and stay unchanged until the job's CopyDone was reaped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace railhop {

struct CopySpan {
  const void* source = nullptr;
  uint64_t length = 0;  // bytes
};

struct CopyJob {
  uint32_t stream = 0;              // < stream_count()
  std::span<const CopySpan> spans;  // laid into `destination` back to back, in this order
  void* destination = nullptr;
  uint64_t* doorbell = nullptr;  // release-stored with `sequence` once the bytes lie in the slot;
                                 // nullptr: no doorbell
  uint64_t sequence = 0;
  uint64_t user_data = 0;
};

enum class CopyStatus : int32_t { kOk = 0, kFailed = -1 };

struct CopyDone {
  uint64_t user_data = 0;
  CopyStatus status = CopyStatus::kOk;
};

// How large jobs should be, in bytes.
struct JobSizes {
  uint64_t idle = 0;  // at least so large, if that much is waiting: what a job costs besides then
                      // is not more than its copy, and copy and send of a few still overlap
  uint64_t backlog = 0;  // up to so large when much is waiting: larger ones win nothing
  // Of an engine that works on several jobs of a stream at a time. It wants no more than so many: a
  // further one would only queue there, and carries more if it is cut later. 0: any number.
  uint32_t at_once = 0;
  // A span of no more than this is not split for the sake of these sizes.
  uint64_t whole = 0;
};

class CopyEngine {
 public:
  virtual ~CopyEngine() = default;

  virtual uint32_t stream_count() const = 0;
  virtual JobSizes job_sizes() const = 0;

  // The lane of a stream, empty now, has been mapped anew, perhaps at addresses of an earlier one.
  virtual void Reset(uint32_t stream) { (void)stream; }
  // Queues a job behind those of its stream. False: the stream's queue is full, nothing happened.
  // Inline: a caller's temporary would be read in wider pieces than it was written in, and such a
  // read waits for every store before it, those to the peer's lines included (70 ns a piece).
  bool Issue(const CopyJob& job) {
    CopyJob* const place = PlaceOf(job.stream);
    if (place == nullptr) return false;
    *place = job;
    Start(*place);
    return true;
  }

  // Whether a device rings doorbells of a stream of which a job was `Issue`d, so that the peer may
  // see a doorbell before anybody here does.
  virtual bool DeviceRings(uint32_t stream) const {
    (void)stream;
    return false;
  }

  // Host: copies at most `budget_bytes` and returns how many it copied, so that a reactor is back
  // in time for its other actors. GPU: asks the device how far it is; returns 0.
  virtual uint64_t Progress(uint64_t budget_bytes) = 0;

  // Hands out jobs that ended, in order per stream: source and spans are the caller's again.
  virtual size_t Reap(std::span<CopyDone> done) = 0;

  // Bytes issued and not yet copied: of all streams, and of one.
  virtual uint64_t PendingBytes() const = 0;
  virtual uint64_t PendingBytes(uint32_t stream) const = 0;
  // Jobs issued and not yet reaped. 0: nothing touches the lane's mapping any more.
  virtual size_t PendingJobs(uint32_t stream) const = 0;

 protected:
  // Where the next job of the stream is kept until Start has returned, at least; nullptr: the
  // stream's queue is full.
  virtual CopyJob* PlaceOf(uint32_t stream) = 0;
  // The job is in its place.
  virtual void Start(CopyJob& job) = 0;
};

}  // namespace railhop
