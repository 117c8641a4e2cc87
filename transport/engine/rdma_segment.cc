#include "transport/engine/rdma_segment.h"

#include <chrono>
#include <utility>

#include "transport/engine/handshake_client.h"
#include "transport/topology/memory_location.h"

namespace railhop {
namespace {

// One that does not answer in time may be stopped, or slow.
bool IsGone(const std::string& server) {
  const absl::StatusOr<HostPort> listener = ParseHostPort(server);
  if (!listener.ok()) return false;
  constexpr std::chrono::milliseconds kPatience{50};
  HandshakeClientOptions options;
  options.connect_timeout = options.reply_timeout = kPatience;
  options.use_ipv6 = true;
  return absl::IsUnavailable(HandshakeClient(options).SendProbe(*listener));
}

}  // namespace

absl::StatusOr<std::unique_ptr<RdmaSegment>> RdmaSegment::Start(
    const std::string& host, const std::string& name, Options options,
    const EngineEnvironment& environment) {
  // Without a name it is in P2P mode, where names of engines are addresses of their listeners.
  RdmaTargetOptions target_options;
  if (name.empty()) target_options.is_gone = IsGone;
  auto target = RdmaTarget::Create(options.devices, target_options);
  if (!target.ok()) return target.status();
  SegmentDescriptor descriptor;
  descriptor.name = name;
  descriptor.protocol = SegmentProtocol::kRdma;
  descriptor.priority_matrix = options.matrix;
  for (const std::shared_ptr<RdmaDevice>& device : options.devices) {
    descriptor.devices.push_back(
        {.name = device->name(), .lid = device->lid(), .gid = FormatGid(device->gid().gid)});
  }
  std::unique_ptr<RdmaSegment> segment(new RdmaSegment(std::move(options), *std::move(target)));
  auto listener = SegmentListener::Start(
      host, std::move(descriptor), environment,
      [target = segment->target_.get()](std::string_view json) { return target->Answer(json); });
  if (!listener.ok()) return listener.status();
  segment->listener_ = *std::move(listener);
  return segment;
}

absl::Status RdmaSegment::Deregister(const std::vector<MemoryKey>& keys) {
  absl::Status status;
  for (size_t i = 0; i < keys.size(); ++i) status.Update(options_.devices[i]->Deregister(keys[i]));
  return status;
}

absl::Status RdmaSegment::Add(void* address, size_t length, std::string_view location) {
  SegmentBuffer buffer{.name = std::string(location.empty() ? kAnyLocation : location),
                       .address = reinterpret_cast<uint64_t>(address),
                       .length = length,
                       .rkeys = {},
                       .lkeys = {}};
  std::vector<MemoryKey> keys;
  for (const std::shared_ptr<RdmaDevice>& device : options_.devices) {
    const absl::StatusOr<MemoryKey> key = device->Register(address, length);
    if (!key.ok()) {
      Deregister(keys).IgnoreError();
      return key.status();
    }
    keys.push_back(*key);
    buffer.rkeys.push_back(key->rkey);
    buffer.lkeys.push_back(key->lkey);
  }
  {
    const std::lock_guard lock(mutex_);
    keys_.emplace(buffer.address, std::move(keys));
  }
  listener_->AddBuffer(std::move(buffer));
  return absl::OkStatus();
}

// Taken out of the descriptor first, so that nobody learns of it any more.
absl::Status RdmaSegment::Remove(void* address) {
  const auto first = reinterpret_cast<uint64_t>(address);
  listener_->RemoveBuffer(first);
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(first);
  if (found == keys_.end()) return absl::OkStatus();
  absl::Status status = Deregister(found->second);
  keys_.erase(found);
  return status;
}

}  // namespace railhop
