#include "transport/fabric/sim/sim_nic.h"

#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <utility>

#include "runtime/fence.h"
#include "runtime/leave_alone.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;

constexpr uint32_t kMaxDepth = 65536;
constexpr uint32_t kIndexBits = 12;  // of an EndpointId; the rest is the generation
constexpr uint32_t kMaxEndpoints = (1u << kIndexBits) - 1;
constexpr size_t kMaxRing = 65536;
// With these the clock cannot wrap: a ring full of 4 GiB requests ends within 2^60 cycles.
constexpr double kLowestRate = 1e6;
constexpr nanoseconds kLongestDelay = std::chrono::hours(24);

// The worker moves what starts within kAhead, then sleeps until kAhead / 4 before the next start.
constexpr nanoseconds kAhead{1'000'000};
constexpr nanoseconds kLongestNap{5'000'000};  // how late it may notice that it shall stop
constexpr nanoseconds kLivenessInterval{1'000'000};
// A request that ends this close to its time wakes a parked poller even so: the timer may be
// passed.
constexpr nanoseconds kWakeMargin{20'000};
constexpr std::chrono::milliseconds kDeregisterTimeout{1000};

bool IsDelay(nanoseconds time) {
  return time >= nanoseconds(0) && time <= kLongestDelay;
}

absl::Status CheckOptions(const SimNicOptions& options) {
  if (options.name.empty()) return absl::InvalidArgumentError("simulated NIC without a name");
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("simulated NIC {}: {}", options.name, what));
  };
  if (!(options.line_rate >= kLowestRate) || !std::isfinite(options.line_rate)) {
    return error(fmt::format("line rate of {} bytes per second; at least {} is needed",
                             options.line_rate, kLowestRate));
  }
  if (options.send_queue_depth == 0 || options.send_queue_depth > kMaxDepth) {
    return error(
        fmt::format("send queue depth {} not in 1..{}", options.send_queue_depth, kMaxDepth));
  }
  if (options.max_endpoints == 0 || options.max_endpoints > kMaxEndpoints) {
    return error(fmt::format("{} endpoints not in 1..{}", options.max_endpoints, kMaxEndpoints));
  }
  if (!IsDelay(options.base_delay) || !IsDelay(options.error_delay)) {
    return error(
        fmt::format("base delay of {} ns or error delay of {} ns is negative or above a day",
                    options.base_delay.count(), options.error_delay.count()));
  }
  for (const SimFault& fault : options.faults) {
    if (fault.first == 0 || !IsDelay(fault.time) || fault.status == FabricStatus::kOk) {
      return error(fmt::format(
          "fault with first request {} (they count from 1), time {} ns (0 to a day), status {}",
          fault.first, fault.time.count(), FabricStatusName(fault.status)));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SimNic>> SimNic::Create(SimNicOptions options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::unique_ptr<SimNic> nic(new SimNic(std::move(options)));
  if (nic->fd() < 0) {
    return absl::ResourceExhaustedError(
        fmt::format("simulated NIC {}: no eventfd: {}; raise `ulimit -n`", nic->options_.name,
                    strerror(errno)));
  }
  if (nic->options_.mode == SimMode::kMove) {
    nic->worker_ = std::thread(&SimNic::RunWorker, nic.get());
    pthread_getcpuclockid(nic->worker_.native_handle(), &nic->worker_clock_);
  }
  return nic;
}

SimNic::SimNic(SimNicOptions options)
    : options_(std::move(options)),
      cycles_per_nanosecond_(options_.cycles_per_nanosecond > 0 ? options_.cycles_per_nanosecond
                                                                : CyclesPerNanosecond()),
      error_delay_(Cycles(options_.error_delay)),
      liveness_interval_(Cycles(kLivenessInterval)),
      owner_pid_(getpid()),
      event_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      local_keys_(std::make_unique<KeyTable>()),
      endpoints_(options_.max_endpoints + 1),
      ring_size_(std::min(
          kMaxRing, std::bit_ceil(size_t{options_.max_endpoints} * options_.send_queue_depth))),
      line_model_(options_.line_rate, options_.base_delay, cycles_per_nanosecond_, options_.faults),
      line_(ring_size_),
      ready_(ring_size_) {
  chain_.reserve(ring_size_);
  endpoints_[0].queue = std::vector<Request>(std::bit_ceil(options_.send_queue_depth));
  endpoints_[0].closing = true;
  endpoints_[0].stage = Stage::kLive;
}

SimNic::~SimNic() {
  if (!worker_.joinable()) return;
  if (getpid() != owner_pid_) {
    LeaveAlone(std::move(worker_));  // a forked child: the worker did not come along
    return;
  }
  stop_.store(true, std::memory_order_release);
  FullFence();
  parker_.WakeIfParked();
  worker_.join();
}

uint64_t SimNic::Cycles(nanoseconds time) const {
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(time.count()) * cycles_per_nanosecond_));
}

nanoseconds SimNic::WorkerCpuTime() const {
  timespec used{};
  if (!worker_.joinable() || clock_gettime(worker_clock_, &used) != 0) return nanoseconds(0);
  return std::chrono::seconds(used.tv_sec) + nanoseconds(used.tv_nsec);
}

// --- Control.

absl::StatusOr<MemoryKey> SimNic::Register(void* address, size_t length) {
  absl::StatusOr<uint32_t> key =
      local_keys_->Add(reinterpret_cast<uint64_t>(address), length, KeyTable::kNoMemory);
  if (!key.ok()) return key.status();
  return MemoryKey{.lkey = *key, .rkey = 0};
}

absl::Status SimNic::Deregister(const MemoryKey& key) {
  return local_keys_->Remove(key.lkey, kDeregisterTimeout);
}

absl::StatusOr<EndpointId> SimNic::Connect(const TargetInfo& target, size_t remote_nic) {
  if (target.kind != kSimFabricKind) {
    return absl::InvalidArgumentError(
        fmt::format("simulated NIC {} cannot reach segment {} of fabric \"{}\"", options_.name,
                    target.name, target.kind));
  }
  absl::StatusOr<std::unique_ptr<SimRemote>> remote =
      SimRemote::Open(target.nics[remote_nic].connection, options_.mover.get());
  if (!remote.ok()) return remote.status();

  const uint32_t count = endpoint_count_.load(std::memory_order_relaxed);
  uint32_t index = count;
  for (uint32_t i = 1; i < count; ++i) {
    if (TakeUnused(endpoints_[i])) index = std::min(index, i);
  }
  if (index == endpoints_.size()) {
    return absl::ResourceExhaustedError(fmt::format(
        "simulated NIC {} has all its {} endpoints in use", options_.name, options_.max_endpoints));
  }
  Endpoint& endpoint = endpoints_[index];
  if (endpoint.queue.empty()) {
    endpoint.queue = std::vector<Request>(std::bit_ceil(options_.send_queue_depth));
  }
  endpoint.remote = *std::move(remote);
  endpoint.failed = false;
  endpoint.broken.store(false, std::memory_order_relaxed);
  endpoint.stalled.store(false, std::memory_order_relaxed);
  endpoint.closing.store(false, std::memory_order_relaxed);
  const EndpointId old_id = endpoint.id.load(std::memory_order_relaxed);
  const EndpointId id = (old_id == 0 ? index : old_id) + (1u << kIndexBits);
  endpoint.id.store(id, std::memory_order_release);
  endpoint.stage.store(Stage::kLive, std::memory_order_release);
  endpoint_count_.store(std::max(count, index + 1), std::memory_order_release);
  return id;
}

// Whether the place is the control thread's. Frees what a drained endpoint held.
bool SimNic::TakeUnused(Endpoint& endpoint) {
  Stage drained = Stage::kDrained;
  if (!endpoint.stage.compare_exchange_strong(drained, Stage::kUnused, std::memory_order_acq_rel)) {
    return drained == Stage::kUnused;
  }
  // Prepare sets its flag, fences and looks at the stage: one of the two sees the other.
  FullFence();
  if (preparing_.load(std::memory_order_acquire) ||
      endpoint.posted.load(std::memory_order_acquire) !=
          endpoint.retired.load(std::memory_order_acquire)) {
    endpoint.stage.store(Stage::kDrained, std::memory_order_release);
    FullFence();
    WakePoller(0);  // it may have looked in between
    return false;
  }
  endpoint.remote.reset();
  return true;
}

void SimNic::Disconnect(EndpointId endpoint) {
  Endpoint& found = Find(endpoint);
  found.closing.store(true, std::memory_order_release);
  FullFence();
  WakePoller(0);
}

// --- Post side.

SimNic::Endpoint& SimNic::Find(EndpointId id) {
  const uint32_t index = id & kMaxEndpoints;
  if (index < endpoints_.size() &&
      endpoints_[index].stage.load(std::memory_order_acquire) == Stage::kLive &&
      endpoints_[index].id.load(std::memory_order_acquire) == id) {
    return endpoints_[index];
  }
  return endpoints_[0];
}

size_t SimNic::LineRoom() const {
  const size_t used = static_cast<size_t>(line_tail_.load(std::memory_order_relaxed) -
                                          line_head_.load(std::memory_order_acquire));
  return ring_size_ - used - chain_.size();
}

size_t SimNic::SendRoom(EndpointId endpoint) const {
  const Endpoint& found = const_cast<SimNic*>(this)->Find(endpoint);
  const auto used = static_cast<size_t>(found.prepared.load(std::memory_order_relaxed) -
                                        found.retired.load(std::memory_order_acquire));
  return std::min(options_.send_queue_depth - used, LineRoom());
}

bool SimNic::Prepare(const WorkRequest& request) {
  if (chain_.empty()) {
    preparing_.store(true, std::memory_order_relaxed);
    FullFence();
  }
  Endpoint& endpoint = Find(request.endpoint);
  const uint64_t sequence = endpoint.prepared.load(std::memory_order_relaxed);
  if (sequence - endpoint.retired.load(std::memory_order_acquire) == options_.send_queue_depth ||
      LineRoom() == 0) {
    if (chain_.empty()) preparing_.store(false, std::memory_order_release);
    return false;
  }
  RequestAt(endpoint, sequence).work = request;
  chain_.push_back({.endpoint = &endpoint, .sequence = sequence});
  endpoint.prepared.store(sequence + 1, std::memory_order_release);
  return true;
}

void SimNic::Submit() {
  if (chain_.empty()) return;
  const uint64_t now = options_.clock.Now();
  const bool link_up = link_up_.load(std::memory_order_relaxed);
  uint64_t tail = line_tail_.load(std::memory_order_relaxed);
  uint64_t first_event = Nic::kNoDeadline;
  for (LineEntry& entry : chain_) {
    Endpoint& endpoint = *entry.endpoint;
    Request& request = RequestAt(endpoint, entry.sequence);
    const bool doomed = endpoint.closing.load(std::memory_order_relaxed) ||
                        endpoint.broken.load(std::memory_order_relaxed);
    if (doomed) {
      request.slot = {.start = now, .complete = now};  // the poller flushes it
    } else {
      request.slot = line_model_.Schedule(now, request.work.length, link_up);
    }
    request.state.store(State(entry.sequence, kPosted), std::memory_order_release);
    endpoint.posted.store(entry.sequence + 1, std::memory_order_release);
    first_event = std::min(first_event, doomed ? 0 : request.slot.complete);
    if (doomed || options_.mode == SimMode::kModel) continue;
    entry.start = request.slot.start;
    line_[tail++ & (ring_size_ - 1)] = entry;
  }
  chain_.clear();
  line_tail_.store(tail, std::memory_order_release);
  preparing_.store(false, std::memory_order_release);
  FullFence();
  parker_.WakeIfParked();
  WakePoller(first_event);
}

// --- Carrying out.

void SimNic::RunWorker() {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, nullptr);  // signals are the application's
  pthread_setname_np(pthread_self(), "sim-nic");
  prctl(PR_SET_TIMERSLACK, 1000);
  const uint64_t ahead = Cycles(kAhead);
  while (!stop_.load(std::memory_order_acquire)) {
    const uint64_t head = line_head_.load(std::memory_order_relaxed);
    if (line_tail_.load(std::memory_order_acquire) == head) {
      parker_.PreparePark();
      if (line_tail_.load(std::memory_order_acquire) == head &&
          !stop_.load(std::memory_order_acquire)) {
        parker_.Block(std::chrono::hours(1));
      }
      parker_.FinishPark();
      continue;
    }
    const LineEntry& entry = line_[head & (ring_size_ - 1)];
    const uint64_t now = options_.clock.Now();
    if (entry.start > now + ahead) {
      const uint64_t cycles = entry.start - now - ahead / 4;
      const double wait = static_cast<double>(cycles) / cycles_per_nanosecond_;
      parker_.Block(std::min(kLongestNap, nanoseconds(static_cast<int64_t>(std::min(wait, 1e9)))));
      continue;
    }
    CarryOut(*entry.endpoint, entry.sequence);
    line_head_.store(head + 1, std::memory_order_release);
  }
}

size_t SimNic::Step(size_t count) {
  size_t done = 0;
  for (; done < count; ++done) {
    const uint64_t head = line_head_.load(std::memory_order_relaxed);
    if (line_tail_.load(std::memory_order_acquire) == head) break;
    const LineEntry& entry = line_[head & (ring_size_ - 1)];
    CarryOut(*entry.endpoint, entry.sequence);
    line_head_.store(head + 1, std::memory_order_release);
  }
  return done;
}

// The poller and the worker may both want it. Without a worker nobody else does.
bool SimNic::TakePosted(Request& request, uint64_t sequence) const {
  uint64_t posted = State(sequence, kPosted);
  if (options_.mode == SimMode::kModel) {
    return request.state.load(std::memory_order_acquire) == posted;
  }
  return request.state.compare_exchange_strong(posted, State(sequence, kTaken),
                                               std::memory_order_acq_rel);
}

void SimNic::CarryOut(Endpoint& endpoint, uint64_t sequence) {
  Request& request = RequestAt(endpoint, sequence);
  // What is not taken here the poller flushes.
  if (endpoint.broken.load(std::memory_order_relaxed) ||
      endpoint.stalled.load(std::memory_order_relaxed) ||
      endpoint.closing.load(std::memory_order_acquire) || !TakePosted(request, sequence)) {
    return;
  }
  if (request.slot.fault == SimFault::Kind::kDrop) {
    endpoint.stalled.store(true, std::memory_order_relaxed);
    request.state.store(State(sequence, kStalled), std::memory_order_release);
    return;
  }
  const uint64_t complete = request.slot.complete;
  request.status = Access(endpoint, request);
  request.ended = complete;
  if (request.status != FabricStatus::kOk) {
    const bool noticed_late = request.status == FabricStatus::kTargetDead ||
                              request.slot.fault == SimFault::Kind::kLinkDown;
    if (noticed_late) request.ended += error_delay_;
    endpoint.broken.store(true, std::memory_order_relaxed);
  }
  request.state.store(State(sequence, kDone), std::memory_order_release);
  if (options_.mode == SimMode::kModel) return;  // this is the poller
  FullFence();
  if (parked_until_.load(std::memory_order_relaxed) != 0 &&
      complete <= options_.clock.Now() + Cycles(kWakeMargin)) {
    WakePoller(0);
  }
}

FabricStatus SimNic::Access(Endpoint& endpoint, const Request& request) {
  if (request.slot.fault == SimFault::Kind::kError ||
      request.slot.fault == SimFault::Kind::kLinkDown) {
    return request.slot.status;
  }
  const WorkRequest& work = request.work;
  const auto address = reinterpret_cast<uint64_t>(work.local);
  const bool dead = endpoint.remote->Dead(options_.clock.Now(), liveness_interval_);
  if (options_.mode == SimMode::kModel) {
    if (!local_keys_->Covers(work.lkey, address, work.length)) {
      return FabricStatus::kLocalProtection;
    }
    return dead ? FabricStatus::kTargetDead
                : endpoint.remote->Check(work.rkey, work.remote_address, work.length);
  }
  KeyTable::Entry* const local = local_keys_->Acquire(work.lkey, address, work.length);
  if (local == nullptr) return FabricStatus::kLocalProtection;
  const FabricStatus status = dead ? FabricStatus::kTargetDead
                                   : endpoint.remote->Move(work.opcode, work.local, work.length,
                                                           work.remote_address, work.rkey);
  KeyTable::Release(local);
  return status;
}

// --- Poll side.

bool SimNic::HasEnded(Endpoint& endpoint, uint64_t sequence, uint64_t now, FabricStatus* status) {
  Request& request = RequestAt(endpoint, sequence);
  uint64_t state = request.state.load(std::memory_order_acquire);
  const bool give_up = endpoint.failed || endpoint.closing.load(std::memory_order_acquire);
  if (options_.mode == SimMode::kModel && !give_up && state == State(sequence, kPosted) &&
      now >= request.slot.complete) {
    CarryOut(endpoint, sequence);
    state = request.state.load(std::memory_order_relaxed);
  }
  if (state == State(sequence, kDone)) {
    *status = request.status;
    if (now >= request.ended) return true;
    if (give_up && request.status == FabricStatus::kOk) *status = FabricStatus::kFlushed;
    return give_up;
  }
  *status = FabricStatus::kFlushed;
  return give_up && state != State(sequence, kTaken) &&
         request.state.compare_exchange_strong(state, State(sequence, kDone),
                                               std::memory_order_acq_rel);
}

void SimNic::HarvestEndpoint(Endpoint& endpoint, uint64_t now) {
  const uint64_t posted = endpoint.posted.load(std::memory_order_acquire);
  while (endpoint.harvested != posted && ready_tail_ - ready_head_ != ring_size_) {
    const uint64_t sequence = endpoint.harvested;
    FabricStatus status;
    if (!HasEnded(endpoint, sequence, now, &status)) return;
    ++endpoint.harvested;
    if (status != FabricStatus::kOk) endpoint.failed = true;
    const WorkRequest& work = RequestAt(endpoint, sequence).work;
    if (status == FabricStatus::kOk && !work.signaled) continue;
    ready_[ready_tail_++ & (ring_size_ - 1)] = {
        .completion = {.user_data = work.user_data,
                       .status = status,
                       .bytes = status == FabricStatus::kOk ? work.length : 0},
        .endpoint = &endpoint,
        .sequence = sequence};
    ++endpoint.shown;
  }
  MarkIfDrained(endpoint);
}

void SimNic::MarkIfDrained(Endpoint& endpoint) {
  if (!endpoint.closing.load(std::memory_order_acquire) || endpoint.shown != 0 ||
      endpoint.id.load(std::memory_order_relaxed) == 0 ||
      endpoint.harvested != endpoint.posted.load(std::memory_order_acquire)) {
    return;
  }
  endpoint.retired.store(endpoint.harvested, std::memory_order_release);
  endpoint.stage.store(Stage::kDrained, std::memory_order_release);
}

// Whether the poller may touch the endpoint.
bool SimNic::Live(Endpoint& endpoint) {
  Stage stage = endpoint.stage.load(std::memory_order_acquire);
  if (stage != Stage::kDrained) return stage == Stage::kLive;
  return endpoint.posted.load(std::memory_order_acquire) !=
             endpoint.retired.load(std::memory_order_relaxed) &&
         endpoint.stage.compare_exchange_strong(stage, Stage::kLive, std::memory_order_acq_rel);
}

void SimNic::Harvest() {
  const uint64_t now = options_.clock.Now();
  const uint32_t count = endpoint_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (Live(endpoints_[i])) HarvestEndpoint(endpoints_[i], now);
  }
}

size_t SimNic::Peek(std::span<NicCompletion> completions) {
  Harvest();
  const size_t count = std::min(completions.size(), static_cast<size_t>(ready_tail_ - ready_head_));
  for (size_t i = 0; i < count; ++i) {
    completions[i] = ready_[(ready_head_ + i) & (ring_size_ - 1)].completion;
  }
  return count;
}

void SimNic::Advance(size_t count) {
  for (; count != 0; --count) {
    const ReadyEntry& entry = ready_[ready_head_++ & (ring_size_ - 1)];
    Endpoint& endpoint = *entry.endpoint;
    --endpoint.shown;
    endpoint.retired.store(entry.sequence + 1, std::memory_order_release);
    MarkIfDrained(endpoint);
  }
}

// When the next completion of an endpoint is to be expected; see PrepareToPark for the values.
uint64_t SimNic::NextTime(Endpoint& endpoint, uint64_t now) {
  const uint64_t posted = endpoint.posted.load(std::memory_order_acquire);
  uint64_t time = Nic::kNoDeadline;
  bool moved = true;
  for (uint64_t sequence = endpoint.harvested; sequence != posted; ++sequence) {
    const Request& request = RequestAt(endpoint, sequence);
    const uint64_t state = request.state.load(std::memory_order_acquire);
    if (state == State(sequence, kStalled)) return Nic::kNoDeadline;  // until Disconnect
    const bool done = state == State(sequence, kDone);
    if (sequence == endpoint.harvested) time = 0;
    // They end in order: none before those ahead of it.
    time = std::max(time, done ? request.ended : request.slot.complete);
    moved = moved && done;
    if (request.work.signaled || (done && request.status != FabricStatus::kOk)) break;
  }
  if (time > now) return time;  // or there is none
  // Its time has come: look at once, or else whoever moves it will tell.
  return moved || options_.mode == SimMode::kModel ? 0 : Nic::kNoDeadline;
}

uint64_t SimNic::PrepareToPark() {
  parked_until_.store(Nic::kNoDeadline, std::memory_order_relaxed);
  FullFence();
  Harvest();
  uint64_t time = ready_head_ == ready_tail_ ? Nic::kNoDeadline : 0;
  const uint64_t now = options_.clock.Now();
  const uint32_t count = endpoint_count_.load(std::memory_order_acquire);
  for (uint32_t i = 0; i < count; ++i) {
    if (Live(endpoints_[i])) time = std::min(time, NextTime(endpoints_[i], now));
  }
  if (time != Nic::kNoDeadline) {
    // Unless it was woken meanwhile: then the descriptor is readable already.
    uint64_t armed = Nic::kNoDeadline;
    parked_until_.compare_exchange_strong(armed, time, std::memory_order_relaxed);
  }
  return time;
}

void SimNic::FinishPark() {
  parked_until_.store(0, std::memory_order_relaxed);
}

void SimNic::WakePoller(uint64_t event_time) {
  if (event_time >= parked_until_.load(std::memory_order_relaxed) ||
      parked_until_.exchange(0, std::memory_order_relaxed) == 0) {
    return;
  }
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(event_fd_.get(), &one, sizeof(one));
}

}  // namespace railhop
