#include "transport/fabric/rdma/rdma_device.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "transport/fabric/rdma/verbs.h"

namespace railhop {
namespace {

constexpr size_t kMaxGids = 256;  // an index is a byte
constexpr int kMaxReads = 16;     // as Mooncake has it (mooncake-compat (e))

class DeviceList {
 public:
  explicit DeviceList(const Verbs& verbs) : verbs_(verbs), list_(verbs.get_device_list(&count_)) {}
  ~DeviceList() {
    if (list_ != nullptr) verbs_.free_device_list(list_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::span<ibv_device* const> devices() const {
    return {list_, list_ == nullptr ? 0 : static_cast<size_t>(count_)};
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (ibv_device* device : devices()) names.emplace_back(verbs_.get_device_name(device));
    return names;
  }

 private:
  const Verbs& verbs_;
  int count_ = 0;
  ibv_device** const list_;
};

GidType ToGidType(uint32_t type) {
  if (type == IBV_GID_TYPE_ROCE_V1) return GidType::kRoceV1;
  return type == IBV_GID_TYPE_ROCE_V2 ? GidType::kRoceV2 : GidType::kInfiniBand;
}

// The largest that is not larger.
ibv_mtu ToMtu(uint32_t bytes) {
  if (bytes >= 4096) return IBV_MTU_4096;
  if (bytes >= 2048) return IBV_MTU_2048;
  if (bytes >= 1024) return IBV_MTU_1024;
  return bytes >= 512 ? IBV_MTU_512 : IBV_MTU_256;
}

const char* PortStateName(ibv_port_state state) {
  switch (state) {
    case IBV_PORT_DOWN:
      return "down";
    case IBV_PORT_INIT:
      return "initialising (it waits for a subnet manager)";
    case IBV_PORT_ARMED:
      return "armed, not active yet";
    default:
      return "in an unknown state";
  }
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListRdmaDevices() {
  const absl::StatusOr<const Verbs*> verbs = Verbs::Get();
  if (!verbs.ok()) return verbs.status();
  return DeviceList(**verbs).Names();
}

absl::StatusOr<std::shared_ptr<RdmaDevice>> RdmaDevice::Open(RdmaDeviceOptions options) {
  const absl::StatusOr<const Verbs*> verbs = Verbs::Get();
  if (!verbs.ok()) return verbs.status();
  std::shared_ptr<RdmaDevice> device(new RdmaDevice(std::move(options), *verbs));
  if (absl::Status status = device->OpenContext(); !status.ok()) return status;
  if (absl::Status status = device->ReadLimits(); !status.ok()) return status;
  absl::StatusOr<PortState> port = device->ReadPort();
  if (!port.ok()) return port.status();
  device->port_ = *port;
  return device;
}

RdmaDevice::~RdmaDevice() {
  memory_ = nullptr;
  if (protection_domain_ != nullptr) verbs_->dealloc_pd(protection_domain_);
  if (context_ != nullptr) verbs_->close_device(context_);
}

std::string RdmaDevice::PortName() const {
  return fmt::format("RDMA device {} port {}", options_.name, options_.port);
}

absl::Status RdmaDevice::OpenContext() {
  const DeviceList list(*verbs_);
  for (ibv_device* device : list.devices()) {
    if (options_.name == verbs_->get_device_name(device)) context_ = verbs_->open_device(device);
  }
  if (context_ != nullptr) protection_domain_ = verbs_->alloc_pd(context_);
  const int flags = context_ == nullptr ? -1 : fcntl(context_->async_fd, F_GETFL);
  if (protection_domain_ != nullptr && flags >= 0 &&
      fcntl(context_->async_fd, F_SETFL, flags | O_NONBLOCK) == 0) {
    return absl::OkStatus();
  }
  const int error = errno;
  const std::vector<std::string> names = list.Names();
  if (std::find(names.begin(), names.end(), options_.name) == names.end()) {
    return absl::NotFoundError(
        fmt::format("there is no RDMA device {} here; there are: {}", options_.name,
                    names.empty() ? "none (`rdma link` shows what the kernel has)"
                                  : fmt::format("{}", fmt::join(names, " "))));
  }
  return absl::UnavailableError(fmt::format(
      "RDMA device {} cannot be opened: {}; may this user open /dev/infiniband/uverbs*?",
      options_.name, strerror(error)));
}

absl::Status RdmaDevice::ReadLimits() {
  ibv_device_attr limits{};
  if (const int error = verbs_->query_device(context_, &limits); error != 0) {
    return absl::UnavailableError(
        fmt::format("RDMA device {} does not tell its limits: {}", options_.name, strerror(error)));
  }
  max_reads_ = std::min({kMaxReads, limits.max_qp_rd_atom, limits.max_qp_init_rd_atom});
  max_completions_ = limits.max_cqe;
  max_queue_pairs_ = limits.max_qp;
  memory_ = std::make_unique<RdmaMemory>(
      *verbs_, protection_domain_,
      RdmaMemory::Options{
          .device = options_.name,
          .max_part_bytes = std::min<uint64_t>(limits.max_mr_size, options_.max_region_bytes),
          .relaxed_ordering = options_.relaxed_ordering});
  return absl::OkStatus();
}

absl::StatusOr<RdmaDevice::PortState> RdmaDevice::ReadPort() const {
  ibv_port_attr port{};
  const int error =
      verbs_->query_port(context_, options_.port, reinterpret_cast<_compat_ibv_port_attr*>(&port));
  if (error != 0) {
    return absl::NotFoundError(fmt::format(
        "{} cannot be asked: {}; has the device that many ports?", PortName(), strerror(error)));
  }
  if (port.state != IBV_PORT_ACTIVE) {
    return absl::UnavailableError(fmt::format("{} is {}; is the cable in, is its interface up?",
                                              PortName(), PortStateName(port.state)));
  }
  const absl::StatusOr<GidEntry> gid = FindGid(port.link_layer == IBV_LINK_LAYER_INFINIBAND);
  if (!gid.ok()) return gid.status();
  return PortState{
      .gid = *gid, .lid = port.lid, .path_mtu = std::min(port.active_mtu, ToMtu(options_.max_mtu))};
}

absl::StatusOr<GidEntry> RdmaDevice::FindGid(bool infiniband) const {
  std::array<ibv_gid_entry, kMaxGids> entries{};
  const ssize_t count =
      verbs_->query_gid_table(context_, entries.data(), entries.size(), 0, sizeof(entries[0]));
  if (count < 0) {
    return absl::UnavailableError(fmt::format("{} does not tell its GIDs: {}", PortName(),
                                              strerror(static_cast<int>(-count))));
  }
  std::vector<GidEntry> table;
  for (const ibv_gid_entry& entry : std::span(entries.data(), static_cast<size_t>(count))) {
    if (entry.port_num != options_.port) continue;
    GidEntry& read = table.emplace_back();
    read.index = entry.gid_index;
    read.interface = entry.ndev_ifindex;
    read.type = infiniband ? GidType::kInfiniBand : ToGidType(entry.gid_type);
    std::copy_n(entry.gid.raw, read.gid.size(), read.gid.begin());
  }
  return ChooseGid(table, options_.gid_index, PortName());
}

RdmaDevice::PortState RdmaDevice::port_state() const {
  const std::lock_guard lock(port_mutex_);
  return port_;
}

absl::Status RdmaDevice::usable() const {
  const std::lock_guard lock(port_mutex_);
  return usable_;
}

uint64_t RdmaDevice::port_changes() const {
  const std::lock_guard lock(port_mutex_);
  return port_changes_;
}

int RdmaDevice::event_fd() const {
  return context_->async_fd;
}

std::optional<RdmaEvent> RdmaDevice::TakeEvent() {
  ibv_async_event event{};
  if (verbs_->get_async_event(context_, &event) != 0) return std::nullopt;
  const RdmaEvent taken = ReadEvent(event);
  // Whoever destroys what the event is about waits for this.
  verbs_->ack_async_event(&event);
  return taken;
}

void RdmaDevice::ReadPortAnew() {
  const absl::StatusOr<PortState> read = ReadPort();
  const std::lock_guard lock(port_mutex_);
  if (broken_) return;
  if (!read.ok()) {
    if (usable_.ok()) ++port_changes_;
    usable_ = absl::FailedPreconditionError(read.status().message());
    return;
  }
  const bool same = usable_.ok() && read->gid.index == port_.gid.index &&
                    read->gid.gid == port_.gid.gid && read->lid == port_.lid;
  if (!same) ++port_changes_;
  port_ = *read;
  usable_ = absl::OkStatus();
}

void RdmaDevice::Break(const std::string& why) {
  const std::lock_guard lock(port_mutex_);
  if (broken_) return;
  broken_ = true;
  ++port_changes_;
  usable_ = absl::FailedPreconditionError(fmt::format(
      "RDMA device {} is out of order ({}) until this process starts anew", options_.name, why));
}

}  // namespace railhop
