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
#include "transport/staging/staging.h"

namespace railhop {

class RankMemory {
 public:
  // `staging` says which memory may be relayed through arenas.
  RankMemory(std::vector<Nic*> nics, SubmissionQueue<BatchCommand>* submissions,
             std::shared_ptr<Staging> staging)
      : nics_(std::move(nics)), submissions_(*submissions), staging_(std::move(staging)) {}

  absl::Status Register(std::byte* address, size_t length, std::string_view location);
  // FailedPrecondition while a transfer may still read the range.
  absl::Status Unregister(std::byte* address);
  // The actors are about to stop: every later call is refused.
  void Close();

 private:
  struct Registered {
    std::unique_ptr<Region> region;
    std::vector<MemoryKey> keys;  // one per NIC
  };

  absl::Status RegisterWithNics(std::byte* address, size_t length, std::vector<MemoryKey>* keys);
  void DeregisterFromNics(const std::vector<MemoryKey>& keys);
  bool TellSubmitActor(BatchCommand::Kind kind, Region* region);

  const std::vector<Nic*> nics_;
  SubmissionQueue<BatchCommand>& submissions_;
  const std::shared_ptr<Staging> staging_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::byte*, Registered> regions_;
};

}  // namespace railhop
