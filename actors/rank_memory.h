// The memory an application has registered with a rank: known to every NIC, then to SubmitActor.
//
// Set-up calls from any thread, one at a time. They go through the submission queue, so that memory
// is not let go of before batches that were submitted earlier. Regions are owned here; SubmitActor
// holds pointers between its two answers "added" and "removed".
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "actors/messages.h"
#include "actors/region_table.h"
#include "runtime/submission_queue.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/read_flush.h"
#include "transport/staging/staging.h"

namespace railhop {

class RankMemory {
 public:
  // `staging` says which memory may be relayed through arenas, `flush`, if there is one, after
  // reads into which there is something to do. It outlives the rank's batches.
  RankMemory(std::vector<Nic*> nics, SubmissionQueue<BatchCommand>* submissions,
             std::shared_ptr<Staging> staging, ReadFlush* flush)
      : nics_(std::move(nics)),
        submissions_(*submissions),
        staging_(std::move(staging)),
        flush_(flush) {}

  absl::Status Register(std::byte* address, size_t length, std::string_view location);
  // FailedPrecondition while a transfer may still read the range.
  absl::Status Unregister(std::byte* address);
  // The actors are about to stop: every later call is refused.
  void Close();

 private:
  struct Registered {
    std::unique_ptr<Region> region;
    std::vector<std::vector<MemoryPart>> parts;  // by NIC
  };

  absl::Status RegisterWithNics(Registered* registered);
  void DeregisterFromNics(const Registered& registered);
  bool TellSubmitActor(BatchCommand::Kind kind, Region* region);

  const std::vector<Nic*> nics_;
  SubmissionQueue<BatchCommand>& submissions_;
  const std::shared_ptr<Staging> staging_;
  ReadFlush* const flush_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::byte*, Registered> regions_;
};

}  // namespace railhop
