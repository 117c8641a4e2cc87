// The copy engine for GPU memory: commands on streams of the device, asked after and never waited
// for.
//
//   way       commands of a piece                    good for
//   async     one copy per span                      few spans
//   batch     one cuMemcpyBatchAsync                 some
//   gather    one kernel (gather_kernel.h)           many small ones
//
//   doorbell       rung by                           a piece is over when
//   stream write   a command behind the copies       its doorbell shows
//   kernel         the gather kernel, or one thread  its doorbell shows
//   CPU            Progress                          its event has completed
//
// Exactly one non-blocking stream per lane carries its copies and its doorbells, in the order of
// Issue. Both GPU doorbells mix freely. Behind a stream write the stream stands still, 1.7 us a
// piece (docs/results/gpu-h200.md); where the costs say so, the CPU therefore rings for pieces
// behind others. It rings once all doorbells of the device show, and the device rings again once
// none of the CPU's is missing, so the two never meet. A lane whose doorbell's memory the device
// cannot write gets the CPU's from its first piece on (Reset). Nothing synchronises the device, and
// no kernel stays.
//
// A command that is refused ends its piece as kFailed once what was issued of it is over, and the
// stream takes nothing more until Reset: a later doorbell would announce the failed piece too. An
// error of the device ends all pieces so: nothing moves in a lost context.
//
// Threads: one, which Issue and Progress give the device for good (CudaDevice::Enter); Create and
// the destructor are set-up calls of any thread. A lane's mapping stays until its jobs were reaped.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/copy/copy_cost.h"
#include "transport/copy/copy_cost_book.h"
#include "transport/copy/copy_engine.h"
#include "transport/copy/gather_kernel.h"
#include "transport/cuda/device.h"

namespace railhop {

const char* CudaDoorbellName(CudaDoorbell doorbell);  // "stream_write", "kernel", "cpu"
const char* CopyWayName(CopyWay way);                 // "async", "batch", "gather"

struct CudaCopyOptions {
  uint32_t streams = 0;
  uint32_t queue_depth = 0;  // jobs a stream takes, those not yet reaped included
  // Unset: the best there is. One that is not there gives way to the next, with a warning.
  std::optional<CudaDoorbell> doorbell = {};
  std::optional<CopyWay> way = {};  // unset: per piece, by cost
  // Of all streams. Unset: what the book has of the arena that a lane lies in, and copy by copy
  // where it has nothing.
  std::optional<CopyCosts> costs = {};
  std::shared_ptr<CopyCostBook> book = {};
  int priority = 0;                 // of the streams; lower runs first; beyond the range: its end
  uint32_t gather_max_blocks = 32;  // what a gather takes from the host's kernels at most
};

class CudaCopyEngine : public CopyEngine {
 public:
  // Spans of a job at most.
  static constexpr uint32_t kMaxSpans = 4096;
  // What a piece costs besides is some 4 us one after the other, while the fastest NICs send 200
  // KiB. Its doorbell shows 8 us after the first call, of which the first half is ours: with three
  // under way neither side waits for the other (docs/actors.md, "Pieces").
  static constexpr JobSizes kJobSizes = {
      .idle = 512 * 1024, .backlog = 1024 * 1024, .at_once = 3, .whole = 128 * 1024};

  static absl::StatusOr<std::unique_ptr<CudaCopyEngine>> Create(
      std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options);
  // Waits for what was issued: it reads sources and writes slots that are about to go.
  ~CudaCopyEngine() override;

  CudaDoorbell doorbell() const { return doorbell_; }
  bool Has(CopyWay way) const;
  // From the next piece on, instead of options.way.
  void Force(CopyWay way) { forced_way_ = way; }
  // Why pieces failed: what the device said when it was lost, or the driver to the command that it
  // refused last. Empty while all is well.
  std::string error() const;

  uint32_t stream_count() const override { return static_cast<uint32_t>(streams_.size()); }
  JobSizes job_sizes() const override { return kJobSizes; }
  void Reset(uint32_t stream) override;
  bool DeviceRings(uint32_t stream) const override {
    return streams_[stream].device_doorbell != 0 && !streams_[stream].broken;
  }
  uint64_t Progress(uint64_t budget_bytes) override;
  size_t Reap(std::span<CopyDone> done) override;
  uint64_t PendingBytes() const override { return pending_bytes_; }
  uint64_t PendingBytes(uint32_t stream) const override { return streams_[stream].pending_bytes; }
  size_t PendingJobs(uint32_t stream) const override {
    return static_cast<size_t>(streams_[stream].issued - streams_[stream].reaped);
  }

 private:
  struct Job {
    uint64_t user_data = 0;
    uint64_t bytes = 0;
    uint64_t* doorbell = nullptr;
    uint64_t sequence = 0;
    bool by_event = false;  // its end is told by the event of its ring entry, else by the doorbell
    CopyStatus status = CopyStatus::kOk;
  };
  // Jobs [reaped, ended) await Reap, [ended, issued) the device; all three only grow.
  struct Stream {
    cuda::Stream handle = nullptr;
    std::vector<Job> jobs;            // ring
    std::vector<cuda::Event> events;  // one per entry of it
    uint64_t reaped = 0;
    uint64_t ended = 0;
    uint64_t issued = 0;
    uint64_t pending_bytes = 0;
    uint64_t ask_at = 0;                      // cycles: when to ask the stream for an error
    const uint64_t* doorbell = nullptr;       // whose address on the device is known
    cuda::DevicePointer device_doorbell = 0;  // 0: the CPU rings
    std::optional<CopyCosts> costs;           // unset until the first piece of a mapping
    bool broken = false;
  };

  CudaCopyEngine(std::shared_ptr<const CudaDevice> device, const CudaCopyOptions& options);
  absl::Status SetUp(const CudaCopyOptions& options);
  absl::Status LoadKernels();
  // Start and Progress in a thread where the device is current.
  CopyCosts CostsOf(const void* slot) const;
  void IssueAs(CopyWay way, const CopyJob& copy, uint64_t bytes);
  void LookAtAll();
  CopyJob* PlaceOf(uint32_t stream) override;
  void Start(CopyJob& job) override;

  void FindDoorbell(Stream& stream, const uint64_t* doorbell);
  bool IsForDevice(const Stream& stream, CopyWay way) const;
  // `doorbell`: 0, or what a kernel may ring; it becomes 0 if one does.
  cuda::Result IssueCopies(CopyWay way, const CopyJob& job, uint32_t entry,
                           cuda::DevicePointer* doorbell);
  cuda::Result IssueGather(const CopyJob& job, uint32_t entry, cuda::DevicePointer* doorbell);
  cuda::Result IssueDoorbell(Stream& stream, uint64_t sequence);
  cuda::Result Launch(cuda::Function kernel, uint32_t blocks, uint32_t threads, cuda::Stream stream,
                      void** parameters);
  void Look(Stream& stream);
  void LoseDevice(cuda::Result result);
  void End(Stream& stream, CopyStatus status);

  const std::shared_ptr<const CudaDevice> device_;
  const CudaDriver& driver_;
  const uint32_t gather_max_blocks_;
  std::optional<CopyWay> forced_way_;
  const std::optional<CopyCosts> given_costs_;
  const std::shared_ptr<const CopyCostBook> book_;
  const bool gather_rings_;  // unless another doorbell is forced: it costs nothing there
  CudaDoorbell doorbell_ = CudaDoorbell::kCpu;
  std::vector<Stream> streams_;
  uint64_t pending_bytes_ = 0;
  uint64_t ask_after_ = 0;  // cycles without progress before a stream is asked
  uint32_t next_reap_ = 0;
  std::string device_error_;
  cuda::Result refused_ = cuda::kSuccess;

  CopyJob next_;  // the job being issued
  // Its spans, without empty ones.
  std::vector<cuda::DevicePointer> sources_, destinations_;
  std::vector<size_t> sizes_;

  cuda::Module module_ = nullptr;  // nullptr: no kernels
  cuda::Function gather_few_ = nullptr;
  cuda::Function gather_inline_ = nullptr;
  cuda::Function gather_listed_ = nullptr;
  cuda::Function doorbell_kernel_ = nullptr;
  cuda::DevicePointer counters_ = 0;  // one u32 per stream
  // The list of a job that does not fit parameters: written to `lists_`, copied to `device_lists_`.
  std::byte* lists_ = nullptr;  // one per stream and ring entry
  cuda::DevicePointer device_lists_ = 0;
};

}  // namespace railhop
