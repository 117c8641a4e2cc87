#include "transport/fabric/rdma/rdma_device.h"

#include <fmt/format.h>
#include <sys/resource.h>

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
// What peers may do to registered memory, and what our own reads need.
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kMaxReads = 16;  // as Mooncake has it (mooncake-compat (e))

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
  if (absl::Status status = device->ReadPort(); !status.ok()) return status;
  return device;
}

RdmaDevice::~RdmaDevice() {
  for (const auto& [range, region] : regions_) verbs_->dereg_mr(region.handle);
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
  if (protection_domain_ != nullptr) return absl::OkStatus();
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
  max_region_bytes_ = limits.max_mr_size;
  return absl::OkStatus();
}

absl::Status RdmaDevice::ReadPort() {
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
  lid_ = port.lid;
  path_mtu_ = port.active_mtu;
  return FindGid(port.link_layer == IBV_LINK_LAYER_INFINIBAND);
}

absl::Status RdmaDevice::FindGid(bool infiniband) {
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
    read.type = infiniband ? GidType::kInfiniBand : ToGidType(entry.gid_type);
    std::copy_n(entry.gid.raw, read.gid.size(), read.gid.begin());
  }
  absl::StatusOr<GidEntry> chosen = ChooseGid(table, options_.gid_index, PortName());
  if (!chosen.ok()) return chosen.status();
  gid_ = *chosen;
  return absl::OkStatus();
}

absl::Status RdmaDevice::RegistrationError(int error, void* address, size_t length) const {
  const std::string what = fmt::format("RDMA device {} cannot register {} bytes at {}: {}",
                                       options_.name, length, address, strerror(error));
  rlimit locked{};
  if (error == ENOMEM && getrlimit(RLIMIT_MEMLOCK, &locked) == 0 &&
      locked.rlim_cur != RLIM_INFINITY) {
    return absl::ResourceExhaustedError(fmt::format(
        "{}. Locked memory is limited to {} KiB here: raise that, with `ulimit -l unlimited`, "
        "LimitMEMLOCK=infinity of a systemd unit, or --ulimit memlock=-1 of a container",
        what, locked.rlim_cur / 1024));
  }
  if (length > max_region_bytes_) {
    return absl::InvalidArgumentError(fmt::format(
        "{}; its limit is {} bytes: register the memory in parts", what, max_region_bytes_));
  }
  return absl::InvalidArgumentError(fmt::format("{}; is all of it mapped, and writable?", what));
}

absl::StatusOr<MemoryKey> RdmaDevice::Register(void* address, size_t length) {
  const std::lock_guard lock(mutex_);
  const Range range(address, length);
  Region& region = regions_[range];
  if (region.uses == 0) {
    region.handle = verbs_->reg_mr(protection_domain_, address, length, kAccess);
    if (region.handle == nullptr) {
      const int error = errno;
      regions_.erase(range);
      return RegistrationError(error, address, length);
    }
    ranges_.emplace(region.handle->lkey, range);
  }
  ++region.uses;
  return MemoryKey{.lkey = region.handle->lkey, .rkey = region.handle->rkey};
}

absl::Status RdmaDevice::Deregister(const MemoryKey& key) {
  const std::lock_guard lock(mutex_);
  const auto range = ranges_.find(key.lkey);
  if (range == ranges_.end()) {
    return absl::NotFoundError(
        fmt::format("RDMA device {} has no registration of key {:#x}", options_.name, key.lkey));
  }
  const auto region = regions_.find(range->second);
  if (region->second.uses > 1) {
    --region->second.uses;
    return absl::OkStatus();
  }
  if (const int error = verbs_->dereg_mr(region->second.handle); error != 0) {
    return absl::InternalError(fmt::format("RDMA device {} cannot deregister key {:#x}: {}",
                                           options_.name, key.lkey, strerror(error)));
  }
  regions_.erase(region);
  ranges_.erase(range);
  return absl::OkStatus();
}

}  // namespace railhop
