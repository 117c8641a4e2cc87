// The far end of RDMA connections: answers the handshakes of initiators with queue pairs that serve
// their reads and writes. The device does the rest, without this process.
//
//   auto target = RdmaTarget::Create({device});
//   handlers.on_connection = [&](std::string_view json) { return target->Answer(json); };
//   auto key = device->Register(memory, bytes);       // key->rkey is for the initiators
//
// Threads: one, that of the handshake listener; Answer may block for milliseconds.
// By which name an initiator knows this process is its own affair: the NIC in the path counts.
// Nobody says goodbye in this protocol: a connection ends when the same NIC of the same process
// connects anew, or when it is the oldest and `max_endpoints` are there. An initiator that still
// used that one gets kTransport, and connects anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/rdma/completion_queue.h"
#include "transport/fabric/rdma/queue_pair.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_handshake.h"

namespace railhop {

struct RdmaTargetOptions {
  size_t max_endpoints = 1024;
  RdmaRetry retry = {};
};

class RdmaTarget {
 public:
  // InvalidArgument: two devices of one name. ResourceExhausted: as CompletionQueue::Create.
  static absl::StatusOr<std::unique_ptr<RdmaTarget>> Create(
      std::vector<std::shared_ptr<RdmaDevice>> devices, const RdmaTargetOptions& options = {});

  // A handshake, JSON for JSON. What cannot be granted is answered with the reason; nullopt: it is
  // no handshake.
  std::optional<std::string> Answer(std::string_view json);

  size_t endpoints() const { return endpoints_.size(); }

 private:
  struct Device {
    std::shared_ptr<RdmaDevice> device;
    std::unique_ptr<CompletionQueue> completions;  // nothing is posted, so none come
  };
  struct Endpoint {
    std::string local_nic_path;  // of this process
    std::string peer_nic_path;
    std::vector<uint32_t> peer_qp_numbers;
    std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  };
  using Endpoints = std::list<Endpoint>;  // the oldest first

  explicit RdmaTarget(const RdmaTargetOptions& options) : options_(options) {}

  absl::StatusOr<RdmaHandshake> Accept(const RdmaHandshake& request);
  absl::StatusOr<const Device*> FindDevice(const std::string& path) const;
  Endpoints::iterator FindEndpoint(const RdmaHandshake& request);
  absl::StatusOr<Endpoint> Connect(const Device& device, const RdmaHandshake& request) const;

  const RdmaTargetOptions options_;
  std::vector<Device> devices_;
  Endpoints endpoints_;
};

}  // namespace railhop
