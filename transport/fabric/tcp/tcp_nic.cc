#include "transport/fabric/tcp/tcp_nic.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/fence.h"
#include "transport/fabric/tcp/local_socket.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;

constexpr uint32_t kMaxConnections = 16;
constexpr uint32_t kMaxDepth = 65536;
constexpr uint32_t kIndexBits = 12;  // of an EndpointId; the rest is the generation
constexpr uint32_t kIndexMask = (1u << kIndexBits) - 1;
constexpr uint32_t kMaxEndpoints = 4000;
constexpr nanoseconds kShortestTimeout = std::chrono::milliseconds(1);
constexpr nanoseconds kLongestTimeout = std::chrono::hours(24);
constexpr uint64_t kMaxRequests = 1 << 20;
constexpr int kEvents = 64;
constexpr std::chrono::milliseconds kDeregisterTimeout{1000};
// How soon a copy of a GPU is asked after: the shortest take some 5 us.
constexpr std::chrono::microseconds kCopyPoll{2};

absl::Status CheckOptions(const TcpNicOptions& options) {
  if (options.name.empty()) return absl::InvalidArgumentError("TCP NIC without a name");
  const auto check = [&](const char* what, uint64_t value, uint64_t lowest, uint64_t highest) {
    if (value >= lowest && value <= highest) return absl::OkStatus();
    return absl::InvalidArgumentError(
        fmt::format("TCP NIC {}: {} {} not in {}..{}", options.name, what, value, lowest, highest));
  };
  const auto check_time = [&](const char* what, nanoseconds time) {
    return check(what, static_cast<uint64_t>(std::max(nanoseconds(0), time).count()),
                 kShortestTimeout.count(), kLongestTimeout.count());
  };
  absl::Status status;
  status.Update(check("connections", options.connections, 1, kMaxConnections));
  status.Update(check("send queue depth", options.send_queue_depth, 1, kMaxDepth));
  status.Update(check("endpoints", options.max_endpoints, 1, kMaxEndpoints));
  status.Update(check("endpoints x send queue depth",
                      uint64_t{options.max_endpoints} * options.send_queue_depth, 1, kMaxRequests));
  status.Update(check_time("connect timeout (ns)", options.connect_timeout));
  status.Update(check_time("status timeout (ns)", options.status_timeout));
  status.Update(check_time("finish timeout (ns)", options.finish_timeout));
  return status;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpNic>> TcpNic::Create(TcpNicOptions options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::unique_ptr<TcpNic> nic(new TcpNic(std::move(options)));
  epoll_event event{.events = EPOLLIN | EPOLLET, .data = {.ptr = nullptr}};
  if (!nic->epoll_.valid() || !nic->wake_.valid() ||
      epoll_ctl(nic->epoll_.get(), EPOLL_CTL_ADD, nic->wake_.get(), &event) != 0) {
    return absl::ResourceExhaustedError(fmt::format(
        "TCP NIC {}: no descriptor: {}; raise `ulimit -n`", nic->options_.name, strerror(errno)));
  }
  return nic;
}

TcpNic::TcpNic(TcpNicOptions options)
    : options_(std::move(options)),
      cycles_per_nanosecond_(options_.cycles_per_nanosecond > 0 ? options_.cycles_per_nanosecond
                                                                : CyclesPerNanosecond()),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      keys_(std::make_unique<KeyTable>()),
      slots_(options_.max_endpoints + 1),
      ring_size_(std::bit_ceil(size_t{options_.max_endpoints + 1} * options_.send_queue_depth)),
      posts_(ring_size_),
      ready_(ring_size_) {}

uint64_t TcpNic::Cycles(nanoseconds time) const {
  return static_cast<uint64_t>(
      std::llround(static_cast<double>(time.count()) * cycles_per_nanosecond_));
}

// --- Control.

absl::StatusOr<MemoryKey> TcpNic::Register(void* address, size_t length) {
  uint32_t device = KeyTable::kNoMemory;
  if (options_.bounces != nullptr) {
    const absl::StatusOr<TcpBounce*> bounce = options_.bounces->Find(address, length);
    if (!bounce.ok()) return bounce.status();
    if (*bounce != nullptr) device = static_cast<uint32_t>((*bounce)->device());
  }
  absl::StatusOr<uint32_t> key = keys_->Add(reinterpret_cast<uint64_t>(address), length, device);
  if (!key.ok()) return key.status();
  return MemoryKey{.lkey = *key, .rkey = 0};
}

absl::Status TcpNic::Deregister(const MemoryKey& key) {
  return keys_->Remove(key.lkey, kDeregisterTimeout);
}

absl::StatusOr<EndpointId> TcpNic::Connect(const TargetInfo& target, size_t remote_nic) {
  if (target.kind != kTcpFabricKind) {
    return absl::InvalidArgumentError(
        fmt::format("TCP NIC {} cannot reach segment {} of fabric \"{}\"", options_.name,
                    target.name, target.kind));
  }
  absl::StatusOr<TcpTarget> parsed = ParseTcpTarget(target.nics[remote_nic].connection);
  if (!parsed.ok()) return parsed.status();
  absl::StatusOr<std::vector<TcpAddress>> addresses = ResolveTcpHost(parsed->host, parsed->port);
  if (!addresses.ok()) return addresses.status();
  // Tried first; on another host nobody listens there.
  if (!parsed->local.empty()) {
    addresses->insert(addresses->begin(), LocalSocketAddress(parsed->local));
  }

  const uint32_t count = slot_count_.load(std::memory_order_relaxed);
  uint32_t index = 1;
  while (index < count && (slots_[index].word.load(std::memory_order_acquire) & kLive) != 0) {
    ++index;
  }
  if (index == slots_.size()) {
    return absl::ResourceExhaustedError(fmt::format("TCP NIC {} has all its {} endpoints in use",
                                                    options_.name, options_.max_endpoints));
  }
  Slot& slot = slots_[index];
  std::random_device random;
  slot.endpoint = std::make_unique<TcpEndpoint>(
      TcpConnection::Peer{.addresses = *std::move(addresses),
                          .acknowledged = parsed->version >= 2,
                          .drains = parsed->drain,
                          .token = uint64_t{random()} << 32 | random(),
                          .epoll = epoll_.get(),
                          .connect_timeout = Cycles(options_.connect_timeout),
                          .status_timeout = Cycles(options_.status_timeout),
                          .finish_timeout = Cycles(options_.finish_timeout),
                          .copy_poll = Cycles(kCopyPoll)},
      options_.connections, std::bit_ceil(size_t{options_.send_queue_depth}), keys_.get(),
      options_.bounces.get());
  slot.exposed = 0;
  const auto old_id = static_cast<EndpointId>(slot.word.load(std::memory_order_relaxed));
  const EndpointId id = (old_id == 0 ? index : old_id) + (1u << kIndexBits);
  slot.word.store(id | kLive, std::memory_order_release);
  slot_count_.store(std::max(count, index + 1), std::memory_order_release);
  return id;
}

void TcpNic::Disconnect(EndpointId endpoint) {
  uint64_t live = endpoint | kLive;
  slots_[SlotOf(endpoint)].word.compare_exchange_strong(live, live | kClosing,
                                                        std::memory_order_acq_rel);
  FullFence();
  WakePoller();
}

// --- Post side.

uint32_t TcpNic::SlotOf(EndpointId id) const {
  const uint32_t index = id & kIndexMask;
  return index < slots_.size() ? index : 0;
}

size_t TcpNic::SendRoom(EndpointId endpoint) const {
  const Slot& slot = slots_[SlotOf(endpoint)];
  return options_.send_queue_depth -
         static_cast<size_t>(slot.prepared - slot.retired.load(std::memory_order_acquire));
}

bool TcpNic::Prepare(const WorkRequest& request) {
  if (SendRoom(request.endpoint) == 0) return false;
  ++slots_[SlotOf(request.endpoint)].prepared;
  posts_[prepared_++ & (ring_size_ - 1)] = request;
  return true;
}

void TcpNic::Submit() {
  if (posted_.load(std::memory_order_relaxed) == prepared_) return;
  posted_.store(prepared_, std::memory_order_release);
  FullFence();
  WakePoller();
}

void TcpNic::WakePoller() {
  if (!parked_.load(std::memory_order_relaxed) ||
      !parked_.exchange(false, std::memory_order_relaxed)) {
    return;
  }
  Ring();
}

void TcpNic::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));
}

// --- Poll side.

void TcpNic::Show(const NicCompletion& completion, uint32_t slot, uint32_t requests) {
  ready_[ready_tail_++ & (ring_size_ - 1)] = {
      .completion = completion, .slot = slot, .requests = requests};
}

void TcpNic::TakePosted(uint64_t now) {
  const uint64_t posted = posted_.load(std::memory_order_acquire);
  for (; taken_ != posted; ++taken_) {
    const WorkRequest& work = posts_[taken_ & (ring_size_ - 1)];
    const uint32_t index = SlotOf(work.endpoint);
    Slot& slot = slots_[index];
    const uint64_t word = slot.word.load(std::memory_order_acquire);
    if (index != 0 && (word & ~kClosing) == (work.endpoint | kLive)) {
      slot.endpoint->Post(work, now);
    } else {
      Show({.user_data = work.user_data, .status = FabricStatus::kFlushed, .bytes = 0}, index, 1);
    }
  }
}

// Whether there was one of a socket.
bool TcpNic::TakeEvents() {
  std::array<epoll_event, kEvents> events;
  bool any = false;
  int count;
  do {
    count = epoll_wait(epoll_.get(), events.data(), kEvents, 0);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.ptr == nullptr) continue;  // woken: that is all
      static_cast<TcpConnection*>(events[i].data.ptr)->Notice(events[i].events);
      any = true;
    }
  } while (count == kEvents);
  return any;
}

void TcpNic::RunSlot(uint32_t index, uint64_t now, bool events) {
  Slot& slot = slots_[index];
  const uint64_t word = slot.word.load(std::memory_order_acquire);
  if ((word & kLive) == 0) return;
  TcpEndpoint& endpoint = *slot.endpoint;
  if ((word & kClosing) != 0) endpoint.Abort();
  if (endpoint.Idle() && !events) return;
  endpoint.Run(now);
  NicCompletion completion;
  uint32_t requests;
  while (endpoint.NextCompletion(&completion, &requests)) Show(completion, index, requests);
  if (endpoint.exposed() != slot.exposed) {
    exposed_writes_.fetch_add(endpoint.exposed() - std::exchange(slot.exposed, endpoint.exposed()),
                              std::memory_order_relaxed);
  }
  if ((word & kClosing) == 0 || !endpoint.Drained(&requests)) return;
  slot.retired.fetch_add(requests, std::memory_order_acq_rel);
  slot.word.store(word & ~(kLive | kClosing), std::memory_order_release);
}

void TcpNic::Progress() {
  const uint64_t now = options_.clock.Now();
  const uint32_t count = slot_count_.load(std::memory_order_acquire);
  const bool events = count > 1 && TakeEvents();
  TakePosted(now);
  for (uint32_t i = 1; i < count; ++i) RunSlot(i, now, events);
}

size_t TcpNic::Peek(std::span<NicCompletion> completions) {
  Progress();
  const size_t count = std::min(completions.size(), static_cast<size_t>(ready_tail_ - ready_head_));
  for (size_t i = 0; i < count; ++i) {
    completions[i] = ready_[(ready_head_ + i) & (ring_size_ - 1)].completion;
  }
  // The look between PrepareToPark and the block: what it leaves behind must not be slept through.
  // It may also have taken the event of a wake that came just before it.
  if (armed_ && (!parked_.load(std::memory_order_relaxed) || HasReady() || Runnable() ||
                 Deadline() < promised_)) {
    Ring();
  }
  return count;
}

void TcpNic::Advance(size_t count) {
  for (; count != 0; --count) {
    const ReadyEntry& entry = ready_[ready_head_++ & (ring_size_ - 1)];
    slots_[entry.slot].retired.fetch_add(entry.requests, std::memory_order_release);
  }
}

bool TcpNic::Runnable() const {
  const uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (uint32_t i = 1; i < count; ++i) {
    if ((slots_[i].word.load(std::memory_order_acquire) & kLive) != 0 &&
        slots_[i].endpoint->Runnable()) {
      return true;
    }
  }
  return false;
}

uint64_t TcpNic::Deadline() const {
  uint64_t deadline = kNoDeadline;
  const uint32_t count = slot_count_.load(std::memory_order_acquire);
  for (uint32_t i = 1; i < count; ++i) {
    if ((slots_[i].word.load(std::memory_order_acquire) & kLive) != 0) {
      deadline = std::min(deadline, slots_[i].endpoint->Deadline());
    }
  }
  return deadline;
}

uint64_t TcpNic::PrepareToPark() {
  promised_ = 0;
  armed_ = true;
  parked_.store(true, std::memory_order_relaxed);
  FullFence();
  Progress();
  if (!HasReady() && !Runnable()) promised_ = Deadline();
  return promised_;
}

void TcpNic::FinishPark() {
  armed_ = false;
  parked_.store(false, std::memory_order_relaxed);
}

}  // namespace railhop
