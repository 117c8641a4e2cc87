// The far end of RDMA connections: answers the handshakes of initiators with queue pairs that serve
// their reads and writes. The device does the rest, without this process.
//
//   auto target = RdmaTarget::Create({device});
//   handlers.on_connection = [&](std::string_view json) { return target->Answer(json); };
//   auto key = device->Register(memory, bytes);       // key->rkey is for the initiators
//
// Threads: Answer on several at a time. It takes as long as the kernel needs to find the device
// behind an address, a second if its link is dead, and holds no other handshake up meanwhile. By
// which name an initiator knows this process is its own affair: the NIC in the path counts. Nobody
// says goodbye in this protocol, and no device tells whether a connection is used: one ends when
// the same NIC of the same process connects anew, or when `max_endpoints` are there and its process
// is gone. `is_gone` finds that out, for a bounded time, those first that were asked least lately.
// If all are there, the new one is refused: it may try again, and others are asked then. Without
// `is_gone` the oldest ends. An initiator that still used it gets kTransport, and connects anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/background_worker.h"
#include "transport/fabric/rdma/completion_queue.h"
#include "transport/fabric/rdma/path_breaker.h"
#include "transport/fabric/rdma/queue_pair.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_handshake.h"

namespace railhop {

struct RdmaTargetOptions {
  size_t max_endpoints = 1024;
  RdmaRetry retry = {};
  // Whether the process whose handshake listener is at `server` has surely ended; may take some
  // milliseconds. nullptr: nobody knows.
  std::function<bool(const std::string& server)> is_gone = nullptr;
  // For initiators whose handshakes have no GID; nullptr: they are refused. Others wait meanwhile.
  RdmaAddressOf address_of = nullptr;
};

class RdmaTarget {
 public:
  // InvalidArgument: two devices of one name. ResourceExhausted: as CompletionQueue::Create.
  static absl::StatusOr<std::unique_ptr<RdmaTarget>> Create(
      std::vector<std::shared_ptr<RdmaDevice>> devices, const RdmaTargetOptions& options = {});

  // A handshake, JSON for JSON. What cannot be granted is answered with the reason; nullopt: it is
  // no handshake.
  std::optional<std::string> Answer(std::string_view json);

  size_t endpoints() const;

 private:
  struct Device {
    std::shared_ptr<RdmaDevice> device;
    std::unique_ptr<CompletionQueue> completions;  // nothing is posted, so none come
  };
  struct Endpoint {
    std::string local_nic_path;  // of this process
    std::string peer_nic_path;
    std::vector<uint32_t> peer_qp_numbers;
    uint64_t request = 0;  // the how many-eth to be admitted
    std::vector<std::unique_ptr<QueuePair>> queue_pairs;
  };
  using Endpoints = std::list<Endpoint>;  // the one that was made or asked for first

  explicit RdmaTarget(const RdmaTargetOptions& options);

  absl::StatusOr<RdmaHandshake> Accept(const RdmaHandshake& request);
  absl::StatusOr<const Device*> FindDevice(const std::string& path) const;
  absl::StatusOr<RdmaHandshake> Connect(const Device& device, const RdmaHandshake& request,
                                        uint64_t number);
  absl::StatusOr<Endpoint> Establish(const Device& device, const RdmaHandshake& request) const;
  static RdmaHandshake Reply(const Device& device, const RdmaHandshake& request,
                             const Endpoint& endpoint);
  // Under mutex_:
  absl::Status Admit(const RdmaHandshake& request);
  Endpoints::iterator FindEndpoint(const RdmaHandshake& request);
  void End(Endpoints::iterator endpoint);
  absl::Status MakeRoom();

  const RdmaTargetOptions options_;
  std::vector<Device> devices_;
  mutable std::mutex mutex_;
  PathBreakers breakers_;  // an initiator whose link is dead costs a second each time
  Endpoints endpoints_;
  size_t establishing_ = 0;  // that will want a place among them
  uint64_t requests_ = 0;    // admitted
  BackgroundWorker ending_;
};

}  // namespace railhop
