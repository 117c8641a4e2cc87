#include "transport/engine/rdma_segment.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>
#include <utility>

#include "transport/cuda/memory.h"
#include "transport/engine/handshake_client.h"
#include "transport/fabric/memory_parts.h"
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

// What peers are told: a GPU's memory as such, even if the application does not say so.
std::string KnownLocation(const void* address, size_t length, std::string_view location) {
  if (!location.empty() && location != kAnyLocation) return std::string(location);
  const CudaDriver* const driver = CudaDriver::GetIfLoaded();
  const auto gpu = driver == nullptr ? std::optional<cuda::Device>()
                                     : FindGpuOf(*driver, address, length).value_or(std::nullopt);
  return gpu.has_value() ? fmt::format("cuda:{}", *gpu) : std::string(kAnyLocation);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RdmaSegment>> RdmaSegment::Start(
    const std::string& host, const std::string& name, Options options,
    const EngineEnvironment& environment) {
  // Without a name it is in P2P mode, where names of engines are addresses of their listeners.
  RdmaTargetOptions target_options;
  if (name.empty()) target_options.is_gone = IsGone;
  target_options.address_of = options.address_of;
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

absl::StatusOr<RdmaSegment::Registered> RdmaSegment::Register(void* address, size_t length) const {
  Registered registered;
  for (const std::shared_ptr<RdmaDevice>& device : options_.devices) {
    auto parts = device->RegisterParts(address, length);
    if (!parts.ok()) {
      Deregister(registered).IgnoreError();
      return parts.status();
    }
    registered.push_back(*std::move(parts));
  }
  return registered;
}

absl::Status RdmaSegment::Deregister(const Registered& registered) const {
  absl::Status status;
  for (size_t i = 0; i < registered.size(); ++i) {
    for (const MemoryPart& part : registered[i]) {
      status.Update(options_.devices[i]->Deregister(part.key));
    }
  }
  return status;
}

// A buffer for each part, since each has keys of its own.
absl::Status RdmaSegment::Add(void* address, size_t length, std::string_view location) {
  absl::StatusOr<Registered> registered = Register(address, length);
  if (!registered.ok()) return registered.status();
  const auto first = reinterpret_cast<uint64_t>(address);
  const std::string known = KnownLocation(address, length, location);
  const std::vector<CommonPart> parts = CommonParts(*registered);
  {
    const std::lock_guard lock(mutex_);
    registered_.emplace(first, *std::move(registered));
  }
  for (const CommonPart& part : parts) {
    SegmentBuffer buffer{.name = parts.size() == 1 ? known : LocationAt(known, length, part.offset),
                         .address = first + part.offset,
                         .length = part.length,
                         .rkeys = {},
                         .lkeys = {}};
    for (const MemoryKey& key : part.keys) {
      buffer.rkeys.push_back(key.rkey);
      buffer.lkeys.push_back(key.lkey);
    }
    listener_->AddBuffer(std::move(buffer));
  }
  return absl::OkStatus();
}

// Taken out of the descriptor first, so that nobody learns of it any more.
absl::Status RdmaSegment::Remove(void* address) {
  const auto first = reinterpret_cast<uint64_t>(address);
  Registered registered;
  {
    const std::lock_guard lock(mutex_);
    const auto found = registered_.find(first);
    if (found == registered_.end()) return absl::OkStatus();
    registered = std::move(found->second);
    registered_.erase(found);
  }
  for (const CommonPart& part : CommonParts(registered)) {
    listener_->RemoveBuffer(first + part.offset);
  }
  return Deregister(registered);
}

}  // namespace railhop
