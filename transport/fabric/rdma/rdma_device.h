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
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/rdma/gid.h"

struct ibv_context;
struct ibv_mr;
struct ibv_pd;

namespace railhop {

struct Verbs;

inline constexpr std::string_view kRdmaFabricKind = "rdma";

// The devices of this machine, whatever the state of their ports. Empty: none. Errors: those of
// Verbs::Get.
absl::StatusOr<std::vector<std::string>> ListRdmaDevices();

struct RdmaDeviceOptions {
  std::string name;              // "mlx5_0"
  uint8_t port = 1;              // MC_IB_PORT
  int gid_index = kAnyGidIndex;  // MC_GID_INDEX
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
  uint8_t port() const { return options_.port; }
  const GidEntry& gid() const { return gid_; }
  uint16_t lid() const { return lid_; }         // InfiniBand only, else 0
  int path_mtu() const { return path_mtu_; }    // an enum ibv_mtu: what the port has now
  int max_reads() const { return max_reads_; }  // that a queue pair may have under way
  int max_completions() const { return max_completions_; }  // of a completion queue

  // Memory of this process, for local use and for peers. It stays pinned until Deregister, and must
  // stay mapped. The same range again gets the same keys, until each was deregistered: NIC and
  // target pin it once. ResourceExhausted: the limit of locked memory, and how to raise it.
  absl::StatusOr<MemoryKey> Register(void* address, size_t length);
  // When the last one returns OK, the device touches the range no more by this key.
  absl::Status Deregister(const MemoryKey& key);

  const Verbs& verbs() const { return *verbs_; }
  ibv_context* context() const { return context_; }
  ibv_pd* protection_domain() const { return protection_domain_; }

 private:
  RdmaDevice(RdmaDeviceOptions options, const Verbs* verbs)
      : options_(std::move(options)), verbs_(verbs) {}

  absl::Status OpenContext();
  absl::Status ReadLimits();
  absl::Status ReadPort();
  absl::Status FindGid(bool infiniband);
  std::string PortName() const;
  absl::Status RegistrationError(int error, void* address, size_t length) const;

  const RdmaDeviceOptions options_;
  const Verbs* const verbs_;
  ibv_context* context_ = nullptr;
  ibv_pd* protection_domain_ = nullptr;
  GidEntry gid_;
  uint16_t lid_ = 0;
  int path_mtu_ = 0;
  int max_reads_ = 0;
  int max_completions_ = 0;
  uint64_t max_region_bytes_ = 0;

  struct Region {
    ibv_mr* handle = nullptr;
    int uses = 0;
  };
  using Range = std::pair<void*, size_t>;

  std::mutex mutex_;
  std::map<Range, Region> regions_;
  std::unordered_map<uint32_t, Range> ranges_;  // of regions_, by lkey
};

}  // namespace railhop
