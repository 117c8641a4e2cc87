// A job: what RelayPostActor sends as one unit - a piece of an inbound lane, or a direct slice - in
// one or more work requests over one endpoint. CqPollActor learns of it by JobPosted and tells of
// its end by JobDone.
//
// user_data of a work request: bits 0..15 index of the job's record, 16..31 generation of the
// record, 32 set on the last request of the job, 33 set if the job was cut short. A job ends with
// the completion of its last request: completions of an endpoint come in post order.
#pragma once

#include <cstdint>

#include "transport/ring/control_block.h"

namespace railhop {

// Records for inbound pieces: each lane has one per slot and one to read the next piece into.
inline constexpr uint32_t kRecordsPerLane = kSlotsPerLane + 1;
inline constexpr uint32_t kRelayJobs = kLaneCount * kRecordsPerLane;
inline constexpr uint32_t kDirectJobs = 256;
inline constexpr uint32_t kMaxJobs = kRelayJobs + kDirectJobs;

// Capacities that the edges need at least, so that they cannot fill: JobPosted and JobDone. A
// consumer may hold back up to 16 cells of credit.
inline constexpr uint32_t kJobEdgeCapacity = kMaxJobs + 16;

struct JobTag {
  uint32_t job = 0;  // JobPosted::job
  bool last = false;
  bool cut = false;  // the job failed, whatever the NIC says of this request

  static constexpr uint32_t Make(uint32_t index, uint32_t generation) {
    return index | generation << 16;
  }
  static constexpr uint32_t Index(uint32_t job) { return job & 0xFFFF; }

  constexpr uint64_t ToWord() const {
    return uint64_t{job} | uint64_t{last} << 32 | uint64_t{cut} << 33;
  }
  static constexpr JobTag FromWord(uint64_t word) {
    return {.job = static_cast<uint32_t>(word),
            .last = (word >> 32 & 1) != 0,
            .cut = (word >> 33 & 1) != 0};
  }
};

static_assert(kMaxJobs <= 0x10000);

}  // namespace railhop
