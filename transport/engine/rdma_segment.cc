#include "transport/engine/rdma_segment.h"

#include <utility>

#include "transport/topology/memory_location.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<RdmaSegment>> RdmaSegment::Start(
    const std::string& host, const std::string& name, Options options,
    const EngineEnvironment& environment) {
  auto target = RdmaTarget::Create(options.devices);
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
