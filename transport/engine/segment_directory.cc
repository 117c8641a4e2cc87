#include "transport/engine/segment_directory.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_handshake.h"
#include "transport/fabric/sim/segment_file.h"
#include "transport/fabric/tcp/tcp_target.h"
#include "transport/topology/memory_location.h"

namespace railhop {
namespace {

using std::chrono::steady_clock;

// How the target's data is reached: the host of its listener, and its data port.
absl::StatusOr<TargetInfo> MakeTcpTarget(const SegmentDescriptor& descriptor, Metadata& metadata,
                                         const SegmentAccess& access) {
  if (descriptor.tcp_data_port == 0) {
    return absl::UnavailableError(
        fmt::format("segment {} has no TCP data port (yet)", descriptor.name));
  }
  const absl::StatusOr<HostPort> address = metadata.Locate(descriptor.name);
  if (!address.ok()) return address.status();
  TargetInfo info;
  info.name = descriptor.name;
  info.kind = kTcpFabricKind;
  for (const SegmentBuffer& buffer : descriptor.buffers) {
    RemoteBuffer& known = info.buffers.emplace_back();
    known.address = buffer.address;
    known.length = buffer.length;
  }
  const int version = descriptor.tcp_proto_version >= 2 ? access.tcp_version : 1;
  const bool drain = version == 2 && descriptor.railhop_drain != 0;
  const bool local = drain && access.tcp_local;
  info.nics = {{.name = descriptor.name,
                .connection = FormatTcpTarget({.host = address->host,
                                               .port = descriptor.tcp_data_port,
                                               .version = version,
                                               .drain = drain,
                                               .local = local ? descriptor.railhop_local : ""})}};
  return info;
}

// Those of `names` that the target has, since a NIC of its matrix may be out of use.
std::vector<std::string> DevicesAmong(const std::vector<std::string>& names,
                                      const SegmentDescriptor& descriptor) {
  std::vector<std::string> found;
  for (const std::string& name : names) {
    const auto& devices = descriptor.devices;
    if (std::any_of(devices.begin(), devices.end(),
                    [&](const SegmentDevice& device) { return device.name == name; })) {
      found.push_back(name);
    }
  }
  return found;
}

// By name: where a NIC stands in a peer's matrix means nothing here (mooncake-compat (e)).
std::vector<std::string> NicsNear(const SegmentBuffer& buffer,
                                  const SegmentDescriptor& descriptor) {
  const PriorityMatrix::Row& row =
      descriptor.priority_matrix.RowOf(LocationAt(buffer.name, buffer.length, 0));
  std::vector<std::string> preferred = DevicesAmong(row.preferred, descriptor);
  return preferred.empty() ? DevicesAmong(row.available, descriptor) : preferred;
}

absl::StatusOr<TargetInfo> MakeRdmaTarget(const SegmentDescriptor& descriptor) {
  if (descriptor.devices.empty()) {
    return absl::UnavailableError(fmt::format("segment {} has no RDMA device", descriptor.name));
  }
  const std::string& server =
      descriptor.rdma_server_name.empty() ? descriptor.name : descriptor.rdma_server_name;
  TargetInfo info;
  info.name = descriptor.name;
  info.kind = kRdmaFabricKind;
  for (const SegmentDevice& device : descriptor.devices) {
    info.nics.push_back(
        {.name = device.name, .connection = FormatNicPath({.server = server, .nic = device.name})});
  }
  for (const SegmentBuffer& buffer : descriptor.buffers) {
    if (buffer.rkeys.empty()) continue;  // not for others
    info.buffers.push_back({.address = buffer.address,
                            .length = buffer.length,
                            .rkeys = buffer.rkeys,
                            .preferred_nics = NicsNear(buffer, descriptor)});
  }
  return info;
}

absl::StatusOr<TargetInfo> MakeTargetInfo(const SegmentDescriptor& descriptor, Metadata& metadata,
                                          const SegmentAccess& access) {
  if (descriptor.protocol != access.protocol) {
    return absl::UnimplementedError(fmt::format(
        "segment {} is reached by \"{}\", and this engine speaks \"{}\" only; start both with the "
        "same protocol",
        descriptor.name, SegmentProtocolName(descriptor.protocol),
        SegmentProtocolName(access.protocol)));
  }
  switch (access.protocol) {
    case SegmentProtocol::kSim:
      return LoadSimTarget(access.sim_directory, descriptor.name);
    case SegmentProtocol::kRdma:
      return MakeRdmaTarget(descriptor);
    case SegmentProtocol::kTcp:
      break;
  }
  return MakeTcpTarget(descriptor, metadata, access);
}

}  // namespace

SegmentView::SegmentView(SegmentDescriptor descriptor, steady_clock::time_point read_at)
    : descriptor_(std::move(descriptor)), read_at_(read_at) {
  for (const SegmentBuffer& buffer : descriptor_.buffers) {
    ranges_.push_back({buffer.address, buffer.address + buffer.length});
  }
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.first < b.first; });
  std::vector<Range> merged;
  for (const Range& range : ranges_) {
    if (!merged.empty() && range.first <= merged.back().end) {
      merged.back().end = std::max(merged.back().end, range.end);
    } else {
      merged.push_back(range);
    }
  }
  ranges_ = std::move(merged);
}

bool SegmentView::Covers(uint64_t address, uint64_t length) const {
  auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), address,
                       [](uint64_t wanted, const Range& range) { return wanted < range.first; });
  if (after == ranges_.begin()) return false;
  const Range& range = *--after;
  return address < range.end && length <= range.end - address;
}

SegmentDirectory::SegmentDirectory(std::string own_name, std::unique_ptr<Metadata> metadata,
                                   SegmentAccess access)
    : own_name_(std::move(own_name)), metadata_(std::move(metadata)), access_(std::move(access)) {
  segments_[kLocalSegment] = std::make_unique<Segment>();
  segments_[kLocalSegment]->name = own_name_;
  by_name_.emplace(own_name_, kLocalSegment);
}

absl::StatusOr<std::shared_ptr<const SegmentView>> SegmentDirectory::Read(
    const std::string& name, const Patience& patience) {
  absl::StatusOr<SegmentDescriptor> descriptor = metadata_->Fetch(name, patience);
  if (!descriptor.ok()) return descriptor.status();
  return std::make_shared<const SegmentView>(*std::move(descriptor), steady_clock::now());
}

absl::StatusOr<SegmentHandle> SegmentDirectory::Open(std::string name, const Patience& patience) {
  if (name.starts_with('/')) name.erase(0, 1);
  {
    const std::lock_guard lock(mutex_);
    const auto known = by_name_.find(name);
    if (known != by_name_.end()) return known->second;
  }
  auto view = Read(name, patience);
  if (!view.ok()) return view.status();
  const std::lock_guard lock(mutex_);
  const auto known = by_name_.find(name);  // another thread may have been quicker
  if (known != by_name_.end()) return known->second;
  const size_t handle = count_.load(std::memory_order_relaxed);
  if (handle == kMaxSegments) {
    return absl::ResourceExhaustedError(fmt::format(
        "segment {} is not opened: this engine has {} segments open, which is the limit "
        "for its life",
        name, kMaxSegments));
  }
  segments_[handle] = std::make_unique<Segment>();
  segments_[handle]->name = name;
  segments_[handle]->view_ = *std::move(view);
  by_name_.emplace(std::move(name), handle);
  count_.store(handle + 1, std::memory_order_release);
  return handle;
}

SegmentDirectory::Segment* SegmentDirectory::Find(SegmentHandle handle) {
  return handle < size() ? segments_[handle].get() : nullptr;
}

SegmentDirectory::Segment* SegmentDirectory::FindByName(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto known = by_name_.find(name);
  return known == by_name_.end() ? nullptr : segments_[known->second].get();
}

absl::Status SegmentDirectory::Refresh(Segment& segment, std::chrono::milliseconds max_age,
                                       const Patience& patience) {
  const auto view = segment.view();
  if (view != nullptr && steady_clock::now() - view->read_at() < max_age) return absl::OkStatus();
  auto anew = Read(segment.name, patience);
  if (!anew.ok()) return anew.status();
  std::atomic_store_explicit(&segment.view_, *std::move(anew), std::memory_order_release);
  return absl::OkStatus();
}

bool SegmentDirectory::Look(Segment& segment, uint64_t address, uint64_t length,
                            const Patience& patience) {
  if (segment.view()->Covers(address, length)) return true;
  if (steady_clock::now() - segment.in_vain_.load() < kInVain) return false;
  Refresh(segment, std::chrono::milliseconds(0), patience).IgnoreError();
  if (segment.view()->Covers(address, length)) return true;
  segment.in_vain_.store(steady_clock::now());
  return false;
}

absl::StatusOr<TargetInfo> SegmentDirectory::Resolve(const std::string& name,
                                                     std::stop_token stop) {
  const Patience patience{.until = steady_clock::now() + kResolve, .stop = std::move(stop)};
  Segment* segment = FindByName(name);
  if (segment == nullptr) {
    const absl::StatusOr<SegmentHandle> opened = Open(name, patience);
    if (!opened.ok()) return opened.status();
    segment = Find(*opened);
  }
  const auto max_age = access_.cached ? kFresh : std::chrono::milliseconds(0);
  if (absl::Status status = Refresh(*segment, max_age, patience); !status.ok()) return status;
  auto view = segment->view();
  absl::StatusOr<TargetInfo> info = MakeTargetInfo(view->descriptor(), *metadata_, access_);
  if (info.ok()) {
    std::atomic_store_explicit(&segment->resolved_, std::move(view), std::memory_order_release);
  }
  return info;
}

}  // namespace railhop
