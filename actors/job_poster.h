// JobPoster: turns jobs into work requests, as the send queues have room.
//
// Jobs take turns; the requests of one job go to one endpoint, in order. Once begun, a job always
// ends with a completion of its last request: of each send queue one request is kept back for every
// job that has begun and not posted its last one. So a job can be cut short at any time - its last
// request is then an empty one - and after an endpoint's jobs were cut it can be disconnected
// without anything being posted behind that.
//
// Pure logic on the NICs, one owner (RelayPostActor, on the thread that posts); no allocation after
// construction.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "actors/cut_requests.h"
#include "actors/post_job.h"
#include "actors/target_route.h"
#include "transport/fabric/fabric.h"

namespace railhop {

class JobPoster {
 public:
  struct Job {
    FabricOpcode opcode = FabricOpcode::kWrite;
    PathId path = 0;
    uint32_t lkey = 0;
    const TargetRoute* route = nullptr;  // whose keys are used
    EndpointId endpoint = 0;             // 0: none, the job fails
    std::byte* local = nullptr;
    std::span<const PlanEntry> plan;  // not empty; stays until End
  };

  // Every NIC has a send queue of 2 requests or more.
  JobPoster(std::vector<Nic*> nics, SliceSize slice);

  // The handle for JobPosted. Record `index` must be free; nothing is posted yet.
  uint32_t Start(uint32_t index, const Job& job, uint64_t now);
  // Posts as much as there is room for, with an upper limit, and hands it to the NICs. Returns the
  // number of requests.
  size_t Post(size_t limit);
  // The last request of the job has completed.
  void End(uint32_t index, uint64_t now);
  // Posts nothing more of the job but its end, if that is still to come.
  void Cut(uint32_t index);
  // Cuts the jobs of an endpoint, then disconnects it. False: it has to be tried again.
  bool CloseEndpoint(uint32_t target, PathId path, EndpointId endpoint);
  // Cuts all jobs and disconnects their endpoints.
  bool CloseAll();

  bool IsUsed(uint32_t index) const { return records_[index].state != State::kFree; }
  // Whether all that was started has been posted to its end.
  bool idle() const { return head_ == kNone; }
  // The endpoint to use; 0: not connected, or closed.
  EndpointId OpenEndpoint(const TargetRoute& route, PathId path) const;
  // Whether one more job for it could begin now, after those that were started before.
  bool HasRoom(const TargetRoute& route, PathId path) const;
  // Calls visit(route, path) for an endpoint with jobs on which nothing has completed for `timeout`
  // (cycles), until it says true; once for each endpoint. It has to look several times in a
  // timeout.
  template <class Visit>
  void EachStuck(uint64_t now, uint64_t timeout, Visit visit) {
    for (const Record& record : records_) {
      const EndpointId id = record.job.endpoint;
      if (record.state == State::kFree || id == 0) continue;
      Endpoint& endpoint = EndpointOf(record);
      NoteProgress(record, now);
      if (now - endpoint.progress < timeout) continue;
      if (id == endpoint.stuck || IsClosed(endpoint, id)) continue;
      if (visit(*record.job.route, record.job.path)) endpoint.stuck = id;
    }
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  enum class State : uint8_t { kFree, kPosting, kSealed };
  struct Record {
    Job job;
    RequestCutter cutter;
    uint32_t next = kNone;  // in the list of those with something to post
    uint16_t generation = 0;
    State state = State::kFree;
    bool begun = false;  // has posted a request
    bool cut = false;
  };
  // This rank's connection on one path to one target, whichever version it has.
  struct Endpoint {
    // The latest that were disconnected. More than one: news of an endpoint's end and of its
    // successor may overtake each other.
    std::array<EndpointId, 4> closed{};
    uint32_t closings = 0;
    EndpointId stuck = 0;     // the latest one that was found stuck
    uint32_t jobs = 0;        // started and not ended
    uint32_t waiting = 0;     // of those, not begun
    uint32_t begun = 0;       // of those, begun and without their last request
    uint32_t unsignaled = 0;  // requests since the last signaled one
    uint64_t posted = 0;      // requests, ever
    uint64_t ended = 0;       // of these, as NoteProgress counts them
    uint64_t progress =
        0;  // cycles: when that was last seen to grow, a job ended or the first began
  };

  static bool IsClosed(const Endpoint& endpoint, EndpointId id) {
    return std::find(endpoint.closed.begin(), endpoint.closed.end(), id) != endpoint.closed.end();
  }

  void NoteProgress(const Record& record, uint64_t now);
  size_t PostJob(uint32_t index, size_t limit);
  bool PostRequest(uint32_t index);
  bool Seal(uint32_t index);
  void SubmitTouched();
  void Append(uint32_t index);

  size_t Position(uint32_t target, PathId path) const {
    return size_t{target} * PathCount(nics_.size()) + path;
  }
  Endpoint& EndpointOf(const Record& record) {
    return endpoints_[Position(record.job.route->index, record.job.path)];
  }
  const Endpoint& EndpointOf(const Record& record) const {
    return endpoints_[Position(record.job.route->index, record.job.path)];
  }

  const std::vector<Nic*> nics_;
  const SliceSize slice_;
  std::vector<Record> records_;      // by index
  std::vector<Endpoint> endpoints_;  // target x path
  std::vector<bool> touched_;        // NICs with something prepared
  uint32_t head_ = kNone;            // jobs with something to post
  uint32_t tail_ = kNone;
};

}  // namespace railhop
