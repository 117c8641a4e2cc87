#include "transport/engine/sim_segment.h"

#include <utility>

#include "transport/topology/memory_location.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<SimSegment>> SimSegment::Start(
    const std::string& host, const std::string& name, Options options,
    const EngineEnvironment& environment) {
  SegmentDescriptor descriptor;
  descriptor.name = name;
  descriptor.protocol = SegmentProtocol::kSim;
  auto listener = SegmentListener::Start(host, std::move(descriptor), environment);
  if (!listener.ok()) return listener.status();
  auto target = SimTarget::Create(options.directory, (*listener)->name());
  if (!target.ok()) return target.status();
  if (absl::Status status = (*target)->Publish(); !status.ok()) return status;
  return std::unique_ptr<SimSegment>(
      new SimSegment(std::move(options), *std::move(listener), *std::move(target)));
}

absl::Status SimSegment::Add(void* address, size_t length, std::string_view location) {
  const auto first = reinterpret_cast<uint64_t>(address);
  const PriorityMatrix::Row& row = options_.matrix.RowOf(LocationAt(location, length, 0));
  {
    const std::lock_guard lock(mutex_);
    absl::StatusOr<RemoteBuffer> buffer =
        target_->Register(address, length, row.preferred.empty() ? row.available : row.preferred);
    if (!buffer.ok()) return buffer.status();
    if (absl::Status status = target_->Publish(); !status.ok()) {
      target_->Deregister(buffer->rkeys.front()).IgnoreError();
      return status;
    }
    keys_.emplace(first, buffer->rkeys.front());
  }
  const std::string_view name = location.empty() ? kAnyLocation : location;
  listener_->AddBuffer(
      {.name = std::string(name), .address = first, .length = length, .rkeys = {}, .lkeys = {}});
  return absl::OkStatus();
}

// Taken out of the descriptor first, so that nobody learns of it any more. The key is dead even if
// the file that names it cannot be replaced.
absl::Status SimSegment::Remove(void* address) {
  const auto first = reinterpret_cast<uint64_t>(address);
  listener_->RemoveBuffer(first);
  const std::lock_guard lock(mutex_);
  const auto found = keys_.find(first);
  if (found != keys_.end()) {
    if (absl::Status status = target_->Deregister(found->second); !status.ok()) return status;
    keys_.erase(found);
  }
  return target_->Publish();
}

}  // namespace railhop
