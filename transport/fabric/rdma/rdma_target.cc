#include "transport/fabric/rdma/rdma_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "transport/fabric/rdma/neighbor.h"

namespace railhop {
namespace {

// For the question who is gone: other handshakes wait that long.
constexpr std::chrono::milliseconds kAskTime{200};
// Shorter than the initiators', whose tries are not to meet this one's pauses.
constexpr PathBreakerOptions kBreaker{.longest_pause = std::chrono::milliseconds(2000)};

using Clock = std::chrono::steady_clock;

std::string ServerOfPath(const std::string& path) {
  const absl::StatusOr<NicPath> parsed = ParseNicPath(path);
  return parsed.ok() ? parsed->server : path;
}

}  // namespace

RdmaTarget::RdmaTarget(const RdmaTargetOptions& options)
    : options_(options), breakers_(kBreaker), ending_([] {}) {}

absl::StatusOr<std::unique_ptr<RdmaTarget>> RdmaTarget::Create(
    std::vector<std::shared_ptr<RdmaDevice>> devices, const RdmaTargetOptions& options) {
  std::unique_ptr<RdmaTarget> target(new RdmaTarget(options));
  for (std::shared_ptr<RdmaDevice>& device : devices) {
    for (const Device& other : target->devices_) {
      if (other.device->name() != device->name()) continue;
      return absl::InvalidArgumentError(
          fmt::format("an RDMA target has device {} twice", device->name()));
    }
    auto completions = CompletionQueue::Create(device, 1);
    if (!completions.ok()) return completions.status();
    target->devices_.push_back({std::move(device), *std::move(completions)});
  }
  return target;
}

std::optional<std::string> RdmaTarget::Answer(std::string_view json) {
  const absl::StatusOr<RdmaHandshake> request = RdmaHandshake::Decode(json);
  if (!request.ok()) return std::nullopt;
  absl::StatusOr<RdmaHandshake> reply = Accept(*request);
  if (reply.ok()) return reply->Encode();
  RdmaHandshake refusal;
  refusal.reply_msg = std::string(reply.status().message());
  return refusal.Encode();
}

absl::StatusOr<const RdmaTarget::Device*> RdmaTarget::FindDevice(const std::string& path) const {
  const absl::StatusOr<NicPath> parsed = ParseNicPath(path);
  if (!parsed.ok()) return parsed.status();
  for (const Device& device : devices_) {
    if (device.device->name() == parsed->nic) return &device;
  }
  return absl::NotFoundError(fmt::format("{} has no NIC {} in use", parsed->server, parsed->nic));
}

RdmaTarget::Endpoints::iterator RdmaTarget::FindEndpoint(const RdmaHandshake& request) {
  return std::find_if(endpoints_.begin(), endpoints_.end(), [&request](const Endpoint& endpoint) {
    return endpoint.local_nic_path == request.peer_nic_path &&
           endpoint.peer_nic_path == request.local_nic_path;
  });
}

// Beside the handshakes: a device takes 3 s to end a queue pair whose link is dead.
void RdmaTarget::End(Endpoints::iterator endpoint) {
  const auto ended = std::make_shared<Endpoints>();
  ended->splice(ended->end(), endpoints_, endpoint);
  ending_.Start([ended] {
    ended->clear();
    return absl::OkStatus();
  });
}

absl::StatusOr<RdmaTarget::Endpoint> RdmaTarget::Establish(const Device& device,
                                                           const RdmaHandshake& request) const {
  const absl::StatusOr<RdmaAddress> peer = request.SenderAddress(options_.address_of);
  if (!peer.ok()) return peer.status();
  Endpoint endpoint{.local_nic_path = request.peer_nic_path,
                    .peer_nic_path = request.local_nic_path,
                    .peer_qp_numbers = request.qp_numbers,
                    .request = 0,
                    .queue_pairs = {}};
  const GidEntry own = device.device->gid();
  FindNeighbor(own.interface, own.gid, peer->gid);
  for (const uint32_t number : request.qp_numbers) {
    auto made = QueuePair::Create(device.device, device.completions->get(), 1);
    if (!made.ok()) return made.status();
    const absl::Status status =
        (*made)->Connect({.gid = peer->gid, .lid = peer->lid, .number = number}, options_.retry);
    if (!status.ok()) return status;
    endpoint.queue_pairs.push_back(*std::move(made));
  }
  return endpoint;
}

absl::Status RdmaTarget::MakeRoom() {
  const auto until = Clock::now() + kAskTime;
  for (size_t asked = 0; endpoints_.size() + establishing_ >= options_.max_endpoints; ++asked) {
    if (options_.is_gone == nullptr && !endpoints_.empty()) {
      End(endpoints_.begin());
      continue;
    }
    if (asked == endpoints_.size() || Clock::now() > until) {
      return absl::ResourceExhaustedError(fmt::format(
          "it has {} connections, its limit, and of none the process is known to be gone",
          endpoints_.size() + establishing_));
    }
    const std::string server = ServerOfPath(endpoints_.front().peer_nic_path);
    if (options_.is_gone(server)) {
      for (auto it = endpoints_.begin(); it != endpoints_.end();) {
        const auto each = it++;
        if (ServerOfPath(each->peer_nic_path) == server) End(each);
      }
    } else {
      endpoints_.splice(endpoints_.end(), endpoints_, endpoints_.begin());
    }
  }
  return absl::OkStatus();
}

absl::Status RdmaTarget::Admit(const RdmaHandshake& request) {
  if (request.qp_numbers.empty()) {
    return absl::InvalidArgumentError("a handshake needs qp_num");
  }
  // The same NIC with other queue pairs: its process was started anew, or has given up the old.
  if (const auto found = FindEndpoint(request); found != endpoints_.end()) End(found);
  if (absl::Status room = MakeRoom(); !room.ok()) return room;
  breakers_.Prune(Clock::now());
  return breakers_.Admit(request.local_nic_path, Clock::now());
}

absl::StatusOr<RdmaHandshake> RdmaTarget::Accept(const RdmaHandshake& request) {
  const absl::StatusOr<const Device*> device = FindDevice(request.peer_nic_path);
  if (!device.ok()) return device.status();
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    const auto found = FindEndpoint(request);
    const bool known = found != endpoints_.end() && found->peer_qp_numbers == request.qp_numbers;
    if (request.ready_ack.value_or(false)) {
      if (known) return RdmaHandshake{};
      return absl::FailedPreconditionError(
          fmt::format("{} is not connected with these queue pairs", request.local_nic_path));
    }
    if (known) return Reply(**device, request, *found);
    if (absl::Status admitted = Admit(request); !admitted.ok()) return admitted;
    ++establishing_;
    number = ++requests_;
  }
  return Connect(**device, request, number);
}

absl::StatusOr<RdmaHandshake> RdmaTarget::Connect(const Device& device,
                                                  const RdmaHandshake& request, uint64_t number) {
  absl::StatusOr<Endpoint> made = Establish(device, request);
  const std::lock_guard lock(mutex_);
  --establishing_;
  const std::string& peer = request.local_nic_path;
  if (!made.ok()) {
    breakers_.Failed(peer, Clock::now(), std::string(made.status().message()));
    return made.status();
  }
  breakers_.Connected(peer, Clock::now());
  // Of two for the same NICs at a time the one that was asked for last stays: its initiator has
  // given up the other.
  if (const auto other = FindEndpoint(request); other != endpoints_.end()) {
    if (other->request > number) {
      return absl::AbortedError(fmt::format("{} has asked for another connection since", peer));
    }
    End(other);
  }
  made->request = number;
  return Reply(device, request, endpoints_.emplace_back(*std::move(made)));
}

RdmaHandshake RdmaTarget::Reply(const Device& device, const RdmaHandshake& request,
                                const Endpoint& endpoint) {
  RdmaHandshake reply;
  reply.local_nic_path = request.peer_nic_path;
  reply.peer_nic_path = request.local_nic_path;
  for (const auto& queue_pair : endpoint.queue_pairs) {
    reply.qp_numbers.push_back(queue_pair->number());
  }
  reply.lid = device.device->lid();
  reply.gid = device.device->gid().gid;
  if (request.ready_ack.has_value()) reply.ready_ack = false;
  return reply;
}

size_t RdmaTarget::endpoints() const {
  const std::lock_guard lock(mutex_);
  return endpoints_.size();
}

}  // namespace railhop
