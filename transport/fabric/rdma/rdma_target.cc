#include "transport/fabric/rdma/rdma_target.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace railhop {

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

absl::StatusOr<RdmaTarget::Endpoint> RdmaTarget::Connect(const Device& device,
                                                         const RdmaHandshake& request) const {
  Endpoint endpoint{.local_nic_path = request.peer_nic_path,
                    .peer_nic_path = request.local_nic_path,
                    .peer_qp_numbers = request.qp_numbers,
                    .queue_pairs = {}};
  for (const uint32_t number : request.qp_numbers) {
    auto made = QueuePair::Create(device.device, device.completions->get(), 1);
    if (!made.ok()) return made.status();
    const absl::Status status = (*made)->Connect(
        {.gid = *request.gid, .lid = request.lid, .number = number}, options_.retry);
    if (!status.ok()) return status;
    endpoint.queue_pairs.push_back(*std::move(made));
  }
  return endpoint;
}

absl::StatusOr<RdmaHandshake> RdmaTarget::Accept(const RdmaHandshake& request) {
  const absl::StatusOr<const Device*> device = FindDevice(request.peer_nic_path);
  if (!device.ok()) return device.status();
  auto found = FindEndpoint(request);
  const bool known = found != endpoints_.end() && found->peer_qp_numbers == request.qp_numbers;
  if (request.ready_ack.value_or(false)) {
    if (known) return RdmaHandshake{};
    return absl::FailedPreconditionError(
        fmt::format("{} is not connected with these queue pairs", request.local_nic_path));
  }
  if (!known) {
    if (request.qp_numbers.empty() || !request.gid.has_value()) {
      return absl::InvalidArgumentError("a handshake needs qp_num and local_gid");
    }
    // The same NIC with other queue pairs: its process was started anew, or has given up the old.
    if (found != endpoints_.end()) endpoints_.erase(found);
    absl::StatusOr<Endpoint> made = Connect(**device, request);
    if (!made.ok()) return made.status();
    if (endpoints_.size() == options_.max_endpoints) endpoints_.pop_front();
    found = endpoints_.insert(endpoints_.end(), *std::move(made));
  }
  RdmaHandshake reply;
  reply.local_nic_path = request.peer_nic_path;
  reply.peer_nic_path = request.local_nic_path;
  for (const auto& queue_pair : found->queue_pairs)
    reply.qp_numbers.push_back(queue_pair->number());
  reply.lid = (*device)->device->lid();
  reply.gid = (*device)->device->gid().gid;
  if (request.ready_ack.has_value()) reply.ready_ack = false;
  return reply;
}

}  // namespace railhop
