#include "actors/job_poster.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "runtime/fault_point.h"

namespace railhop {
namespace {

constexpr size_t kBurst = 32;  // requests of one job before the next has its turn
// Of so many requests at least one tells of its end: a NIC that is slow shows that it goes on.
constexpr uint32_t kSignalEvery = 16;

}  // namespace

JobPoster::JobPoster(std::vector<Nic*> nics, SliceSize slice)
    : nics_(std::move(nics)),
      slice_(slice),
      records_(kMaxJobs),
      endpoints_(size_t{kMaxTargets} * PathCount(nics_.size())),
      touched_(nics_.size()) {
  for ([[maybe_unused]] const Nic* nic : nics_) assert(nic->send_queue_depth() >= 2);
}

EndpointId JobPoster::OpenEndpoint(const TargetRoute& route, PathId path) const {
  const EndpointId id = route.endpoints[path];
  return IsClosed(endpoints_[Position(route.index, path)], id) ? 0 : id;
}

bool JobPoster::HasRoom(const TargetRoute& route, PathId path) const {
  const EndpointId id = OpenEndpoint(route, path);
  const Endpoint& endpoint = endpoints_[Position(route.index, path)];
  const Nic& nic = *nics_[OwnNic(path)];
  const uint32_t jobs = endpoint.begun + endpoint.waiting;
  // One request for the end of each job, and one more for each to begin with.
  return jobs < nic.send_queue_depth() / 2 && nic.SendRoom(id) >= jobs + endpoint.waiting + 2;
}

uint32_t JobPoster::Start(uint32_t index, const Job& job, uint64_t now) {
  Record& record = records_[index];
  assert(record.state == State::kFree);
  record.job = job;
  record.cutter = RequestCutter(*job.route, job.local, job.plan, slice_, RemoteNicOf(job.path));
  record.state = State::kPosting;
  record.begun = false;
  record.cut = job.endpoint == 0;
  ++record.generation;
  Endpoint& endpoint = EndpointOf(record);
  if (endpoint.jobs++ == 0) endpoint.progress = now;
  ++endpoint.waiting;
  Append(index);
  return JobTag::Make(index, record.generation);
}

void JobPoster::End(uint32_t index, uint64_t now) {
  Record& record = records_[index];
  assert(record.state == State::kSealed);
  record.state = State::kFree;
  Endpoint& endpoint = EndpointOf(record);
  --endpoint.jobs;
  endpoint.progress = now;
}

// What was posted and has ended, but for the queue's depth: room comes back when requests end.
void JobPoster::NoteProgress(const Record& record, uint64_t now) {
  Endpoint& endpoint = EndpointOf(record);
  const uint64_t room = nics_[OwnNic(record.job.path)]->SendRoom(record.job.endpoint);
  if (endpoint.posted + room <= endpoint.ended) return;
  endpoint.ended = endpoint.posted + room;
  endpoint.progress = now;
}

size_t JobPoster::Post(size_t limit) {
  size_t posted = 0;
  for (const uint32_t last = tail_; head_ != kNone && posted < limit;) {
    const uint32_t index = head_;
    head_ = std::exchange(records_[index].next, kNone);
    if (head_ == kNone) tail_ = kNone;
    posted += PostJob(index, std::min(kBurst, limit - posted));
    if (records_[index].state == State::kPosting) Append(index);
    if (index == last) break;
  }
  if (posted != 0) SubmitTouched();
  return posted;
}

size_t JobPoster::PostJob(uint32_t index, size_t limit) {
  Record& record = records_[index];
  size_t posted = 0;
  while (posted < limit && record.state == State::kPosting) {
    if (!(record.cut ? Seal(index) : PostRequest(index))) break;
    ++posted;
  }
  return posted;
}

bool JobPoster::PostRequest(uint32_t index) {
  Record& record = records_[index];
  Job& job = record.job;
  Endpoint& endpoint = EndpointOf(record);
  Nic& nic = *nics_[OwnNic(job.path)];
  const uint32_t depth = nic.send_queue_depth();

  RequestCutter cutter = record.cutter;
  const CutRequest request = cutter.Next();
  // Room that stays for the ends of jobs, after this request.
  const uint32_t begun = endpoint.begun - (record.begun ? 1 : 0) + (request.last ? 0 : 1);
  if (begun > depth / 2 || nic.SendRoom(job.endpoint) < begun + 1) return false;
  // Unsignaled requests give their room back with the next signaled one only.
  const bool signaled =
      request.last || endpoint.unsignaled + 1 >= std::min(depth / 4, kSignalEvery);
  const bool prepared = nic.Prepare(
      {.opcode = job.opcode,
       .signaled = signaled,
       .endpoint = job.endpoint,
       .local = request.local,
       .lkey = job.lkey,
       .length = request.length,
       .remote_address = request.remote_address,
       .rkey = request.rkey,
       .user_data =
           JobTag{.job = JobTag::Make(index, record.generation), .last = request.last}.ToWord()});
  if (!prepared) return false;
  if (!record.begun) RAILHOP_FAULT_POINT("relay.first_prepared");
  if (request.last) RAILHOP_FAULT_POINT("relay.last_prepared");
  record.cutter = cutter;
  ++endpoint.posted;
  endpoint.begun = begun;
  if (!record.begun) --endpoint.waiting;
  endpoint.unsignaled = signaled ? 0 : endpoint.unsignaled + 1;
  record.begun = true;
  touched_[OwnNic(job.path)] = true;
  if (request.last) record.state = State::kSealed;
  return true;
}

// Ends a job with an empty request. One that has not begun leaves its endpoint alone.
bool JobPoster::Seal(uint32_t index) {
  Record& record = records_[index];
  Job& job = record.job;
  if (!record.begun) job.endpoint = 0;
  const PlanEntry& first = job.plan.front();
  const TargetBuffer* buffer = job.route->Find(first.final_destination);
  const bool prepared = nics_[OwnNic(job.path)]->Prepare(
      {.opcode = job.opcode,
       .signaled = true,
       .endpoint = job.endpoint,
       .local = job.local,
       .lkey = job.lkey,
       .length = 0,
       .remote_address = first.final_destination,
       .rkey = buffer == nullptr ? 0 : buffer->rkeys[RemoteNicOf(job.path)],
       .user_data = JobTag{.job = JobTag::Make(index, record.generation), .last = true, .cut = true}
                        .ToWord()});
  if (!prepared) return false;
  Endpoint& endpoint = EndpointOf(record);
  ++endpoint.posted;
  --(record.begun ? endpoint.begun : endpoint.waiting);
  if (record.begun) endpoint.unsignaled = 0;
  touched_[OwnNic(job.path)] = true;
  record.state = State::kSealed;
  return true;
}

void JobPoster::Cut(uint32_t index) {
  if (records_[index].state == State::kPosting) records_[index].cut = true;
}

bool JobPoster::CloseEndpoint(uint32_t target, PathId path, EndpointId id) {
  Endpoint& endpoint = endpoints_[Position(target, path)];
  if (id == 0 || IsClosed(endpoint, id)) return true;
  const auto must_end = [&](const Record& record) {
    return record.state == State::kPosting && record.job.endpoint == id &&
           OwnNic(record.job.path) == OwnNic(path);
  };
  for (Record& record : records_) {
    if (must_end(record)) record.cut = true;
  }
  while (std::any_of(records_.begin(), records_.end(), must_end)) {
    if (Post(records_.size()) == 0) return false;
  }
  nics_[OwnNic(path)]->Disconnect(id);
  endpoint.closed[endpoint.closings++ % endpoint.closed.size()] = id;
  return true;
}

bool JobPoster::CloseAll() {
  for (uint32_t i = 0; i < records_.size(); ++i) Cut(i);
  bool closed = true;
  for (const Record& record : records_) {
    if (record.state == State::kFree) continue;
    const Job& job = record.job;
    closed = CloseEndpoint(job.route->index, job.path, job.endpoint) && closed;
  }
  return closed;
}

void JobPoster::SubmitTouched() {
  for (size_t i = 0; i < nics_.size(); ++i) {
    if (!touched_[i]) continue;
    nics_[i]->Submit();
    RAILHOP_FAULT_POINT("relay.posted");
    touched_[i] = false;
  }
}

void JobPoster::Append(uint32_t index) {
  records_[index].next = kNone;
  (head_ == kNone ? head_ : records_[tail_].next) = index;
  tail_ = index;
}

}  // namespace railhop
