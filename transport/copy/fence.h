// Fences: when the source of a batch may be read, which a GPU may still be writing.
//
// An application says it with each batch (SourceFence). The data path has it recorded while the
// application is in its submit call, and lets no route read the source before it has completed.
// What records and asks is behind an interface, so that whoever holds batches back needs to know
// nothing of GPUs.
#pragma once

#include <cstdint>

namespace railhop {

// Work that a batch's source depends on.
struct SourceFence {
  enum class Kind : uint8_t {
    kThreadStream,  // what is on the calling thread's own default stream by now; without a GPU:
                    // nothing
    kReady,         // nothing: the source is ready
    kStream,        // what is on the stream `handle` by now
    kEvent,         // what the event `handle` was recorded after, in whatever thread. It must be
                    // neither recorded anew nor destroyed while the batch is pending
  };
  Kind kind = Kind::kThreadStream;
  void* handle = nullptr;  // a CUstream or CUevent (in the runtime API cudaStream_t, cudaEvent_t)
};

enum class FenceState : uint8_t {
  kDone,     // the source may be read
  kPending,  // not yet
  kFailed,   // nobody can tell any more: it must not be read
};

// A fence as recorded.
struct FenceTicket {
  FenceState state = FenceState::kDone;  // at that time
  uint64_t stream = 0;                   // whose work it follows; 0: not known
  // Of two tickets of one stream the first one was recorded earlier, and completes no later, if its
  // `end` is below the other's `begin`.
  uint64_t begin = 0;
  uint64_t end = 0;
};

class Fences {
 public:
  virtual ~Fences() = default;

  // In the thread that submits the batch of that index, which was free before. Does not block.
  virtual FenceTicket Record(uint32_t batch, const SourceFence& fence) = 0;
  // By one thread, of a batch whose ticket was pending. Neither blocks nor allocates; says in the
  // log once what failed.
  virtual FenceState Query(uint32_t batch) = 0;
};

}  // namespace railhop
