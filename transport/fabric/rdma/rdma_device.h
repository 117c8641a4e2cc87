// One port of one RDMA device, opened: what NICs, targets and registrations of this process share.
//
//   auto device = RdmaDevice::Open({.name = "mlx5_0"});
//   auto nic = RdmaNic::Create(*device, ...);        auto target = RdmaTarget::Create({*device},
//   ...);
//
// One protection domain, so that memory registered once may be reached through every queue pair of
// the device, whoever began the connection.
// Threads: any; calls may take milliseconds. Ownership: shared; the last owner closes the device.
// A forked child must not use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/rdma/gid.h"
#include "transport/fabric/rdma/rdma_event.h"
#include "transport/fabric/rdma/rdma_memory.h"

struct ibv_context;
struct ibv_pd;

namespace railhop {

struct Verbs;

inline constexpr std::string_view kRdmaFabricKind = "rdma";

// The devices of this machine, whatever the state of their ports. Empty: none. Errors: those of
// Verbs::Get.
absl::StatusOr<std::vector<std::string>> ListRdmaDevices();

struct RdmaDeviceOptions {
  std::string name;                        // "mlx5_0"
  uint8_t port = 1;                        // MC_IB_PORT
  int gid_index = kAnyGidIndex;            // MC_GID_INDEX
  uint16_t pkey_index = 0;                 // MC_PKEY_INDEX
  uint32_t max_mtu = 4096;                 // MC_MTU; the port may have less
  uint8_t traffic_class = 0;               // MC_IB_TC
  uint8_t service_level = 0;               // MC_IB_SL
  uint64_t max_region_bytes = UINT64_MAX;  // MC_MAX_MR_SIZE; the device may take less at once
  // MC_IB_PCI_RELAXED_ORDERING: a device that can may write registered memory in any order.
  bool relaxed_ordering = true;
};

class RdmaDevice {
 public:
  // NotFound: no library, no such device (the text lists those there are), or no GID to use.
  // Unavailable: its port is not up, or it cannot be opened.
  static absl::StatusOr<std::shared_ptr<RdmaDevice>> Open(RdmaDeviceOptions options);
  ~RdmaDevice();
  RdmaDevice(const RdmaDevice&) = delete;
  RdmaDevice& operator=(const RdmaDevice&) = delete;

  const std::string& name() const { return options_.name; }
  const RdmaDeviceOptions& options() const { return options_; }
  uint8_t port() const { return options_.port; }
  int max_reads() const { return max_reads_; }              // that a queue pair may have under way
  int max_completions() const { return max_completions_; }  // of a completion queue
  int max_queue_pairs() const { return max_queue_pairs_; }

  // The port, as ReadPortAnew found it last.
  GidEntry gid() const { return port_state().gid; }
  uint16_t lid() const { return port_state().lid; }       // InfiniBand only, else 0
  int path_mtu() const { return port_state().path_mtu; }  // an enum ibv_mtu
  // FailedPrecondition: the port is down or the device broken, and nothing can be connected.
  absl::Status usable() const;
  // How often usable() or the address has changed: connections made before do not work any more.
  uint64_t port_changes() const;

  // Readable when the device has something to tell, without blocking. It tells each event once.
  int event_fd() const;
  std::optional<RdmaEvent> TakeEvent();
  void ReadPortAnew();
  // It does not come back.
  void Break(const std::string& why);

  // Memory of this process, of the host or of a GPU, for local use and for peers. It stays pinned
  // until Deregister, and must stay mapped. The same range again gets the same keys, until each was
  // deregistered: NIC and target pin it once. ResourceExhausted: the limit of locked memory, and
  // how to raise it. FailedPrecondition: a GPU's, by neither of two ways; both reasons, and what to
  // load.
  absl::StatusOr<MemoryKey> Register(void* address, size_t length) {
    return memory_->Register(address, length);
  }
  // In parts where it exceeds the device's limit, or the driver of a GPU offers it by mappings
  // only.
  absl::StatusOr<std::vector<MemoryPart>> RegisterParts(void* address, size_t length) {
    return memory_->RegisterParts(address, length);
  }
  // When the last one returns OK, the device touches the range no more by this key.
  absl::Status Deregister(const MemoryKey& key) { return memory_->Deregister(key); }

  const Verbs& verbs() const { return *verbs_; }
  ibv_context* context() const { return context_; }
  ibv_pd* protection_domain() const { return protection_domain_; }

 private:
  RdmaDevice(RdmaDeviceOptions options, const Verbs* verbs)
      : options_(std::move(options)), verbs_(verbs) {}

  struct PortState {
    GidEntry gid;
    uint16_t lid = 0;
    int path_mtu = 0;
  };

  absl::Status OpenContext();
  absl::Status ReadLimits();
  absl::StatusOr<PortState> ReadPort() const;
  absl::StatusOr<GidEntry> FindGid(bool infiniband) const;
  PortState port_state() const;
  std::string PortName() const;

  const RdmaDeviceOptions options_;
  const Verbs* const verbs_;
  ibv_context* context_ = nullptr;
  ibv_pd* protection_domain_ = nullptr;
  int max_reads_ = 0;
  int max_completions_ = 0;
  int max_queue_pairs_ = 0;

  mutable std::mutex port_mutex_;
  PortState port_;
  absl::Status usable_;
  bool broken_ = false;
  uint64_t port_changes_ = 0;

  std::unique_ptr<RdmaMemory> memory_;
};

}  // namespace railhop
