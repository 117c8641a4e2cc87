// The message by which two ends of an RDMA connection tell each other their queue pairs, as JSON,
// byte for byte Mooncake's (mooncake-compat (c), type 0):
//
//   initiator                                       target
//   {paths, qp_num, gid, ready_ack: false}  ---->   makes its queue pairs, ready to receive
//                                           <----   the same of its own; reply_msg: why not
//   makes its own ready; if the reply has ready_ack:
//   {..., ready_ack: true}                  ---->   now it may send, too
//                                           <----   an empty message
//
// A NIC path is `server@nic`, "10.0.0.1:15432@mlx5_0": the server is where the process' handshake
// listener answers. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/fabric/rdma/gid.h"

namespace railhop {

struct NicPath {
  std::string server;
  std::string nic;
  friend bool operator==(const NicPath&, const NicPath&) = default;
};

std::string FormatNicPath(const NicPath& path);
// Split at the last '@'. InvalidArgument: no '@', or nothing before or after it.
absl::StatusOr<NicPath> ParseNicPath(std::string_view text);

// Where a NIC is reached.
struct RdmaAddress {
  Gid gid{};
  uint16_t lid = 0;
};
// That of a peer's NIC, as the descriptor of its segment has it. May block for a second or so.
using RdmaAddressOf = std::function<absl::StatusOr<RdmaAddress>(const NicPath&)>;

struct RdmaHandshake {
  // MC_NUM_QP_PER_EP; bounds what a peer can make us create.
  static constexpr size_t kMaxQueuePairs = 255;

  // Seen from whoever sends the message.
  std::string local_nic_path;
  std::string peer_nic_path;
  std::vector<uint32_t> qp_numbers;
  uint16_t lid = 0;
  // Missing in messages of older Mooncakes: it is in the sender's segment descriptor then.
  std::optional<Gid> gid;
  // Missing: the sender knows of no second message.
  std::optional<bool> ready_ack;
  std::string reply_msg;  // not empty: refused, and why

  // Compact, keys sorted, one '\n' at the end.
  std::string Encode() const;
  // InvalidArgument: no JSON, or a key, named, of another type or out of its range. All keys may be
  // missing, and keys that are not known are skipped.
  static absl::StatusOr<RdmaHandshake> Decode(std::string_view json);

  // Where the sender's NIC is: as the message says, else as `address_of` does, whose errors it
  // passes on. FailedPrecondition: neither does.
  absl::StatusOr<RdmaAddress> SenderAddress(const RdmaAddressOf& address_of) const;
};

}  // namespace railhop
