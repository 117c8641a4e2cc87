#include "transport/fabric/rdma/rdma_nic.h"

#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/fence.h"
#include "transport/fabric/rdma/neighbor.h"
#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

constexpr uint32_t kMaxDepth = 16384;
constexpr int kNumberBits = 48;  // of ibv_send_wr::wr_id; the rest is the slot
constexpr size_t kCompletionsInTurn = 64;
constexpr size_t kReadyEntries = 16 * kCompletionsInTurn;

using Clock = std::chrono::steady_clock;

absl::Status CheckOptions(const RdmaDevice& device, const RdmaNicOptions& options, uint32_t slots) {
  const auto check = [&](const char* what, uint64_t value, uint64_t lowest, uint64_t highest) {
    if (value >= lowest && value <= highest) return absl::OkStatus();
    return absl::InvalidArgumentError(fmt::format("RDMA NIC {}: {} {} not in {}..{}", device.name(),
                                                  what, value, lowest, highest));
  };
  absl::Status status;
  status.Update(check("send queue depth", options.send_queue_depth, 1, kMaxDepth));
  status.Update(check("endpoints", options.max_endpoints, 1, RdmaNic::kMaxEndpoints));
  status.Update(check("endpoints, with those being drained, x send queue depth",
                      uint64_t{slots} * options.send_queue_depth, 1,
                      static_cast<uint64_t>(device.max_completions())));
  status.Update(check("queue pairs", options.queue_pairs, 1, RdmaHandshake::kMaxQueuePairs));
  status.Update(check("retry timeout", options.retry.timeout, 1, 31));
  status.Update(check("retry count", options.retry.count, 0, 7));
  return status;
}

FabricStatus ToFabricStatus(int status) {
  switch (status) {
    case IBV_WC_SUCCESS:
      return FabricStatus::kOk;
    case IBV_WC_LOC_PROT_ERR:
    case IBV_WC_LOC_LEN_ERR:
    case IBV_WC_LOC_ACCESS_ERR:
      return FabricStatus::kLocalProtection;
    case IBV_WC_REM_ACCESS_ERR:
      return FabricStatus::kRemoteAccess;
    case IBV_WC_WR_FLUSH_ERR:
      return FabricStatus::kFlushed;
    default:
      return FabricStatus::kTransport;
  }
}

}  // namespace

uint32_t RdmaNic::SlotsFor(uint32_t endpoints) {
  return endpoints + std::clamp(endpoints / 4, 4u, 64u);
}

uint32_t RdmaNic::EndpointsFor(uint32_t slots) {
  uint32_t endpoints = std::min(kMaxEndpoints, slots);
  while (endpoints != 0 && SlotsFor(endpoints) > slots) --endpoints;
  return endpoints;
}

uint32_t RdmaNic::DeepestSendQueue(const RdmaDevice& device) {
  return static_cast<uint32_t>(device.max_completions()) / SlotsFor(1);
}

uint32_t RdmaNic::MostEndpoints(const RdmaDevice& device, uint32_t send_queue_depth,
                                uint32_t queue_pairs) {
  return EndpointsFor(std::min(static_cast<uint32_t>(device.max_completions()) / send_queue_depth,
                               static_cast<uint32_t>(device.max_queue_pairs()) / queue_pairs));
}

absl::StatusOr<std::unique_ptr<RdmaNic>> RdmaNic::Create(std::shared_ptr<RdmaDevice> device,
                                                         RdmaNicOptions options) {
  const uint32_t slots = SlotsFor(options.max_endpoints);
  if (absl::Status status = CheckOptions(*device, options, slots); !status.ok()) return status;
  std::unique_ptr<RdmaNic> nic(new RdmaNic(device, std::move(options)));
  auto queue = CompletionQueue::Create(
      std::move(device), static_cast<int>(nic->room_ * nic->options_.send_queue_depth));
  if (!queue.ok()) return queue.status();
  nic->queue_ = *std::move(queue);
  epoll_event event{.events = EPOLLIN, .data = {.ptr = nullptr}};
  if (!nic->epoll_.valid() || !nic->wake_.valid() ||
      epoll_ctl(nic->epoll_.get(), EPOLL_CTL_ADD, nic->queue_->fd(), &event) != 0 ||
      epoll_ctl(nic->epoll_.get(), EPOLL_CTL_ADD, nic->wake_.get(), &event) != 0) {
    return absl::ResourceExhaustedError(fmt::format(
        "RDMA NIC {}: no descriptor: {}; raise `ulimit -n`", nic->name(), strerror(errno)));
  }
  return nic;
}

RdmaNic::RdmaNic(std::shared_ptr<RdmaDevice> device, RdmaNicOptions options)
    : device_(std::move(device)),
      options_(std::move(options)),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      domain_(options_.one_thread ? ThreadDomain::Create(device_) : nullptr),
      slots_(SlotsFor(options_.max_endpoints) + 1),
      order_(static_cast<uint32_t>(slots_.size()), options_.eviction),
      room_(SlotsFor(std::min(options_.max_endpoints, kFirstEndpoints))),
      limit_(options_.max_endpoints),
      breakers_(options_.breaker),
      port_changes_(device_->port_changes()),
      ready_(kReadyEntries) {
  chained_.reserve(slots_.size());
  MakeRings(0);
  slots_[0].refused.store(0, std::memory_order_relaxed);
}

// --- Control.

absl::StatusOr<MemoryKey> RdmaNic::Register(void* address, size_t length) {
  return device_->Register(address, length);
}

absl::StatusOr<std::vector<MemoryPart>> RdmaNic::RegisterParts(void* address, size_t length) {
  return device_->RegisterParts(address, length);
}

absl::Status RdmaNic::Deregister(const MemoryKey& key) {
  return device_->Deregister(key);
}

void RdmaNic::MakeRings(uint32_t index) {
  Slot& slot = slots_[index];
  const size_t size = std::bit_ceil(size_t{options_.send_queue_depth});
  slot.requests.resize(size);
  slot.spans.resize(size);
  slot.work.resize(size);
  for (size_t i = 0; i < size; ++i) {
    slot.work[i].sg_list = &slot.spans[i];
    slot.work[i].next = &slot.work[(i + 1) & (size - 1)];
  }
}

absl::Status RdmaNic::CheckTarget(const TargetInfo& target, size_t remote_nic) const {
  if (target.kind == kRdmaFabricKind) {
    return ParseNicPath(target.nics[remote_nic].connection).status();
  }
  return absl::InvalidArgumentError(fmt::format(
      "RDMA NIC {} cannot reach segment {} of fabric \"{}\"", name(), target.name, target.kind));
}

absl::StatusOr<EndpointId> RdmaNic::Connect(const TargetInfo& target, size_t remote_nic) {
  if (absl::Status status = CheckTarget(target, remote_nic); !status.ok()) return status;
  const std::string& connection = target.nics[remote_nic].connection;
  std::optional<absl::StatusOr<Connection>> made = TakeApproached(connection);
  if (!made.has_value()) made = Establish(connection, nullptr);
  if (!made->ok()) return made->status();
  return Publish(**std::move(made), connection, Clock::now());
}

// `connection` is a path of a NIC.
absl::StatusOr<RdmaNic::Connection> RdmaNic::Establish(const std::string& connection,
                                                       std::optional<Acknowledgement>* later) {
  const auto failed = [&](const absl::Status& status) {
    return absl::Status(
        status.code(),
        fmt::format("RDMA NIC {} (GID index {}) does not reach {}: {}", name(),
                    device_->gid().index, connection, std::string(status.message())));
  };
  const absl::StatusOr<uint32_t> slot = TakeSlot(connection, Clock::now());
  if (!slot.ok()) return failed(slot.status());
  absl::StatusOr<QueuePairs> queue_pairs = MakeQueuePairs();
  if (absl::IsResourceExhausted(queue_pairs.status())) {
    EndOld();
    queue_pairs = MakeQueuePairs();
  }
  absl::Status status = queue_pairs.status();
  if (status.ok()) {
    auto shaken = Handshake(*ParseNicPath(connection), *queue_pairs);
    status = shaken.status();
    if (later != nullptr && status.ok()) {
      *later = *std::move(shaken);
    } else if (status.ok() && shaken->has_value()) {
      status = Acknowledge(**shaken);
    }
  }
  if (!status.ok()) queue_pairs = status;  // they end outside the lock
  NoteOutcome(*slot, connection, status, Clock::now());
  if (!status.ok()) return failed(status);
  return Connection{.slot = *slot, .queue_pairs = *std::move(queue_pairs)};
}

absl::StatusOr<RdmaNic::QueuePairs> RdmaNic::MakeQueuePairs() const {
  QueuePairs queue_pairs;
  for (uint32_t i = 0; i < options_.queue_pairs; ++i) {
    auto made = QueuePair::Create(device_, queue_->get(), i == 0 ? options_.send_queue_depth : 1,
                                  domain_ == nullptr ? nullptr : domain_->get());
    if (!made.ok()) return made.status();
    queue_pairs.push_back(*std::move(made));
  }
  return queue_pairs;
}

absl::StatusOr<RdmaHandshake> RdmaNic::Exchange(const NicPath& remote,
                                                const RdmaHandshake& message) {
  const absl::StatusOr<std::string> answer = options_.exchange(remote.server, message.Encode());
  if (!answer.ok()) return answer.status();
  absl::StatusOr<RdmaHandshake> reply = RdmaHandshake::Decode(*answer);
  if (reply.ok() && !reply->reply_msg.empty()) {
    return absl::FailedPreconditionError(fmt::format("refused, \"{}\"", reply->reply_msg));
  }
  return reply;
}

absl::StatusOr<std::optional<RdmaNic::Acknowledgement>> RdmaNic::Handshake(
    const NicPath& remote, const QueuePairs& queue_pairs) {
  RdmaHandshake message;
  message.local_nic_path = FormatNicPath({.server = options_.server_name, .nic = device_->name()});
  message.peer_nic_path = FormatNicPath(remote);
  for (const auto& queue_pair : queue_pairs) message.qp_numbers.push_back(queue_pair->number());
  message.lid = device_->lid();
  message.gid = device_->gid().gid;
  message.ready_ack = false;
  absl::StatusOr<RdmaHandshake> reply = Exchange(remote, message);
  if (!reply.ok()) return reply.status();
  if (reply->local_nic_path != message.peer_nic_path ||
      reply->peer_nic_path != message.local_nic_path) {
    return absl::FailedPreconditionError(fmt::format("\"{}\" answers to \"{}\" instead",
                                                     reply->local_nic_path, reply->peer_nic_path));
  }
  if (reply->qp_numbers.size() != message.qp_numbers.size()) {
    return absl::FailedPreconditionError(fmt::format("it answers with {} queue pairs, not with {}",
                                                     reply->qp_numbers.size(),
                                                     message.qp_numbers.size()));
  }
  const absl::StatusOr<RdmaAddress> peer = reply->SenderAddress(options_.address_of);
  if (!peer.ok()) return peer.status();
  FindNeighbor(device_->gid().interface, device_->gid().gid, peer->gid);
  for (size_t i = 0; i < queue_pairs.size(); ++i) {
    absl::Status status = queue_pairs[i]->Connect(
        {.gid = peer->gid, .lid = peer->lid, .number = reply->qp_numbers[i]}, options_.retry);
    if (!status.ok()) return status;
  }
  if (!reply->ready_ack.has_value()) return std::nullopt;
  message.ready_ack = true;
  return Acknowledgement{.remote = remote, .message = std::move(message)};
}

absl::Status RdmaNic::Acknowledge(const Acknowledgement& acknowledgement) {
  return Exchange(acknowledgement.remote, acknowledgement.message).status();
}

void RdmaNic::Disconnect(EndpointId endpoint) {
  const uint32_t index = Find(endpoint);
  if (index == 0) return;
  slots_[index].disconnected.store(true, std::memory_order_release);
  End(slots_[index], endpoint);
}

// Nobody reclaims the queue pairs between the two stages. False: it is ended already.
bool RdmaNic::End(Slot& slot, EndpointId id) {
  uint64_t live = Word(kLive, id);
  uint64_t draining = Word(kDraining, id);
  if (!slot.word.compare_exchange_strong(live, Word(kClosing, id), std::memory_order_acq_rel) &&
      !slot.word.compare_exchange_strong(draining, Word(kClosing, id), std::memory_order_acq_rel)) {
    return false;
  }
  for (const auto& queue_pair : slot.queue_pairs) queue_pair->Fail();
  slot.word.store(Word(kClosed, id), std::memory_order_release);
  return true;
}

std::string RdmaNic::Describe(EndpointId endpoint) const {
  const std::lock_guard lock(store_mutex_);
  const uint32_t index = Find(endpoint);
  if (index == 0) return fmt::format("{}: no endpoint {}", name(), endpoint);
  const Slot& slot = slots_[index];
  const char* const why = slot.why.load(std::memory_order_relaxed);
  const auto error = static_cast<ibv_wc_status>(slot.first_error.load(std::memory_order_relaxed));
  return fmt::format("{} (GID index {}) -> {}: {}", name(), device_->gid().index, slot.remote,
                     why != nullptr ? why : device_->verbs().wc_status_str(error));
}

// --- Post side.

uint32_t RdmaNic::Find(EndpointId id) const {
  const uint32_t index = id & ((1u << kIndexBits) - 1);
  if (index == 0 || index >= slots_.size()) return 0;
  const uint64_t word = slots_[index].word.load(std::memory_order_acquire);
  const uint64_t stage = word >> kStageShift;
  return static_cast<EndpointId>(word) == id && stage >= kLive && stage <= kClosed ? index : 0;
}

size_t RdmaNic::SendRoom(EndpointId endpoint) const {
  const Slot& slot = slots_[Find(endpoint)];
  return options_.send_queue_depth -
         static_cast<size_t>(slot.prepared.load(std::memory_order_relaxed) -
                             slot.retired.load(std::memory_order_acquire));
}

bool RdmaNic::Prepare(const WorkRequest& request) {
  if (const uint64_t chain = chain_.load(std::memory_order_relaxed); chain % 2 == 0) {
    chain_.store(chain + 1, std::memory_order_relaxed);
    FullFence();
  }
  const uint32_t index = Find(request.endpoint);
  Slot& slot = slots_[index];
  const uint64_t number = slot.prepared.load(std::memory_order_relaxed);
  if (number - slot.retired.load(std::memory_order_acquire) == options_.send_queue_depth) {
    return false;
  }
  if (number == slot.submitted.load(std::memory_order_relaxed)) {
    chained_.push_back(index);
    slot.visited.store(true, std::memory_order_relaxed);
  }
  const size_t place = number & (slot.requests.size() - 1);
  slot.requests[place] = {.user_data = request.user_data, .signaled = request.signaled};
  slot.spans[place] = {.addr = reinterpret_cast<uint64_t>(request.local),
                       .length = request.length,
                       .lkey = request.lkey};
  ibv_send_wr& work = slot.work[place];
  work.wr_id = uint64_t{index} << kNumberBits | number;
  // A span of 0 bytes means 2 GiB to some devices.
  work.num_sge = request.length == 0 ? 0 : 1;
  work.opcode = request.opcode == FabricOpcode::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_RDMA_READ;
  work.send_flags = request.signaled ? IBV_SEND_SIGNALED : 0;
  work.wr.rdma.remote_addr = request.remote_address;
  work.wr.rdma.rkey = request.rkey;
  slot.prepared.store(number + 1, std::memory_order_release);
  return true;
}

void RdmaNic::Submit() {
  const uint64_t chain = chain_.load(std::memory_order_relaxed);
  if (chain % 2 == 0) return;
  const uint64_t refused = refused_.load(std::memory_order_relaxed);
  for (const uint32_t index : chained_) Post(index);
  chained_.clear();
  chain_.store(chain + 1, std::memory_order_release);
  if (refused_.load(std::memory_order_relaxed) == refused) return;
  FullFence();
  if (parked_.load(std::memory_order_relaxed)) Ring();
}

void RdmaNic::Post(uint32_t index) {
  Slot& slot = slots_[index];
  const uint64_t first = slot.submitted.load(std::memory_order_relaxed);
  const uint64_t end = slot.prepared.load(std::memory_order_relaxed);
  const size_t mask = slot.work.size() - 1;
  const bool may_post = slot.refused.load(std::memory_order_relaxed) == Slot::kNever;
  const bool evicted = slot.word.load(std::memory_order_relaxed) >> kStageShift == kDraining;
  if (may_post && evicted) slot.refused.store(first, std::memory_order_release);
  slot.submitted.store(end, std::memory_order_release);
  if (may_post && !evicted) {
    ibv_send_wr* const head = &slot.work[first & mask];
    ibv_send_wr& tail = slot.work[(end - 1) & mask];
    ibv_send_wr* const next = std::exchange(tail.next, nullptr);
    tail.send_flags |= IBV_SEND_SIGNALED;
    ibv_send_wr* bad = head;
    const int error = ibv_post_send(slot.queue_pairs[0]->get(), head, &bad);
    tail.next = next;
    if (error == 0) return;
    Refuse(slot, first, bad);
  }
  const uint64_t from = std::max(first, slot.refused.load(std::memory_order_relaxed));
  refused_.fetch_add(end - from, std::memory_order_release);
}

// What was posted before `bad` and is not signaled would end without a word: it counts as refused,
// too, which it may since its queue pair sends no more.
void RdmaNic::Refuse(Slot& slot, uint64_t first, const ibv_send_wr* bad) {
  slot.queue_pairs[0]->Fail();
  const size_t mask = slot.work.size() - 1;
  uint64_t from = first + ((static_cast<uint64_t>(bad - slot.work.data()) - first) & mask);
  while (from != first && !slot.requests[(from - 1) & mask].signaled) --from;
  slot.refused.store(from, std::memory_order_release);
}

void RdmaNic::Ring() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t put = write(wake_.get(), &one, sizeof(one));
}

// --- Poll side.

// Whether there may be more.
bool RdmaNic::PollDevice() {
  std::array<ibv_wc, kCompletionsInTurn> completions;
  const auto wanted = static_cast<int>(std::min(kCompletionsInTurn, ReadyRoom()));
  if (wanted == 0) return false;
  const int count = ibv_poll_cq(queue_->get(), wanted, completions.data());
  for (int i = 0; i < count; ++i) {
    const uint64_t id = completions[i].wr_id;
    Harvest(static_cast<uint32_t>(id >> kNumberBits), id & ((uint64_t{1} << kNumberBits) - 1),
            completions[i].status);
  }
  return count == wanted;
}

void RdmaNic::Harvest(uint32_t index, uint64_t number, int status) {
  Slot& slot = slots_[index];
  // Pairs with the poster's store before it posted; and what was refused has been shown already.
  const uint64_t submitted = slot.submitted.load(std::memory_order_acquire);
  if (number < slot.harvested || number >= submitted) return;
  slot.harvested = number + 1;
  if (status == IBV_WC_SUCCESS && !slot.requests[number & (slot.requests.size() - 1)].signaled) {
    if (slot.shown == 0) slot.retired.store(slot.harvested, std::memory_order_release);
    return;
  }
  Show(index, number, status == IBV_WC_SUCCESS ? FabricStatus::kOk : NoteError(slot, status));
}

// What an endpoint's user has to hear: an endpoint that ended by itself has an error, whatever its
// first request that failed met.
FabricStatus RdmaNic::NoteError(Slot& slot, int status) {
  if (slot.first_error.load(std::memory_order_relaxed) != IBV_WC_SUCCESS) {
    return ToFabricStatus(status);
  }
  slot.first_error.store(status, std::memory_order_relaxed);
  if (status != IBV_WC_WR_FLUSH_ERR) return ToFabricStatus(status);
  return slot.disconnected.load(std::memory_order_acquire) ? FabricStatus::kFlushed
                                                           : FabricStatus::kTransport;
}

// Once the device has told the end of all that it took of the endpoint.
void RdmaNic::FlushRefused() {
  if (refused_.load(std::memory_order_acquire) == flushed_) return;
  for (uint32_t i = 0; i < slots_.size(); ++i) {
    Slot& slot = slots_[i];
    if (slot.harvested < slot.refused.load(std::memory_order_acquire)) continue;
    const uint64_t submitted = slot.submitted.load(std::memory_order_acquire);
    for (; slot.harvested != submitted && ReadyRoom() != 0; ++flushed_) {
      const uint64_t number = slot.harvested++;
      // Whose id that was is not known any more, nor whether he knows.
      Show(i, number, i == 0 ? FabricStatus::kTransport : NoteError(slot, IBV_WC_WR_FLUSH_ERR));
    }
  }
}

void RdmaNic::Show(uint32_t index, uint64_t number, FabricStatus status) {
  Slot& slot = slots_[index];
  const size_t place = number & (slot.requests.size() - 1);
  ++slot.shown;
  ready_[ready_tail_++ & (ready_.size() - 1)] = {
      .completion = {.user_data = slot.requests[place].user_data,
                     .status = status,
                     .bytes = status == FabricStatus::kOk ? slot.spans[place].length : 0},
      .slot = index,
      .number = number};
}

size_t RdmaNic::Peek(std::span<NicCompletion> completions) {
  PollDevice();
  FlushRefused();
  const size_t count = std::min(completions.size(), static_cast<size_t>(ready_tail_ - ready_head_));
  for (size_t i = 0; i < count; ++i) {
    completions[i] = ready_[(ready_head_ + i) & (ready_.size() - 1)].completion;
  }
  // The look between PrepareToPark and the block: what it leaves behind must not be slept through.
  if (HasReady() && parked_.load(std::memory_order_relaxed)) Ring();
  return count;
}

void RdmaNic::Advance(size_t count) {
  for (; count != 0; --count) {
    const ReadyEntry& entry = ready_[ready_head_++ & (ready_.size() - 1)];
    Slot& slot = slots_[entry.slot];
    // With the last one shown goes the room of what ended after it without being shown.
    const uint64_t retired = --slot.shown == 0 ? slot.harvested : entry.number + 1;
    slot.retired.store(retired, std::memory_order_release);
  }
}

uint64_t RdmaNic::PrepareToPark() {
  parked_.store(true, std::memory_order_relaxed);
  FullFence();
  queue_->Arm();
  while (PollDevice()) {
  }
  FlushRefused();
  return HasReady() ? 0 : kNoDeadline;
}

void RdmaNic::FinishPark() {
  parked_.store(false, std::memory_order_relaxed);
  uint64_t rung = 0;
  [[maybe_unused]] const ssize_t got = read(wake_.get(), &rung, sizeof(rung));
}

}  // namespace railhop
