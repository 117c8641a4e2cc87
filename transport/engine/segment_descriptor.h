// What a process says of its segment: how it is reached, and what memory it has registered. The
// JSON that peers exchange, byte for byte as Mooncake's (mooncake-compat (c), (g)).
//
// Addresses are those of the process that owns the segment. A value: one thread at a time, or any
// while nobody changes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/topology/priority_matrix.h"

namespace railhop {

// How the segment's memory is reached: it is the target that decides.
enum class SegmentProtocol { kTcp, kRdma, kSim };  // kSim: Railhop's own, among its engines only
const char* SegmentProtocolName(SegmentProtocol protocol);  // "tcp", "rdma", "sim"

// An HCA of an rdma segment.
struct SegmentDevice {
  std::string name;
  uint16_t lid = 0;
  std::string gid;  // 16 lower-case hex bytes, separated by colons
};

struct SegmentBuffer {
  std::string name;  // rdma, sim: the location, "cpu:0"; tcp: the segment's name
  uint64_t address = 0;
  uint64_t length = 0;  // bytes
  // rdma: one per device, in the order of `devices`; both empty: not accessible to others.
  std::vector<uint32_t> rkeys;
  std::vector<uint32_t> lkeys;
};

struct SegmentDescriptor {
  // "host:port" of the owner's handshake listener, as peers reach it.
  std::string name;
  SegmentProtocol protocol = SegmentProtocol::kTcp;
  uint16_t tcp_data_port = 0;  // 0: none
  // 2: acknowledged framing; 1: what a peer speaks that does not say.
  uint32_t tcp_proto_version = 1;
  // Railhop's own keys, which others skip (docs/tcp.md). 1: the data port confirms drains.
  uint32_t railhop_drain = 0;
  std::string railhop_local;     // the data port's local socket; empty: none
  std::string timestamp;         // SegmentTimestamp; a peer may leave it out
  std::string rdma_server_name;  // empty: the NIC paths use `name`
  std::vector<SegmentDevice> devices;
  std::vector<SegmentBuffer> buffers;
  PriorityMatrix priority_matrix;  // of an rdma segment

  // Compact JSON, keys sorted, ASCII, one '\n' at the end. What the protocol does not have is left
  // out: devices, keys and matrix of a tcp segment.
  std::string Encode() const;

  // The segment is refused as a whole if
  //   - `name` or `protocol` is missing, or a value is of another type or out of its range;
  //   - a buffer has no name, address 0, length 0, or wraps around the address space;
  //   - a device has no name or no gid;
  //   - a buffer has rkeys, and not as many rkeys and lkeys as there are devices;
  //   - the priority matrix is malformed.
  // Anything else may be missing or null, and keys that are not known are skipped. An HCA of the
  // matrix need not be in `devices`, nor have the same index there: look it up by name.
  //
  // Errors name the key. INVALID_ARGUMENT: one of the above, or no JSON; FAILED_PRECONDITION: the
  // peer says null, it has no segment yet; UNIMPLEMENTED: a protocol, named, that is not spoken.
  static absl::StatusOr<SegmentDescriptor> Decode(std::string_view json);
};

// "YYYY-mm-dd HH:MM:SS.uuuuuu", local time.
std::string SegmentTimestamp(std::chrono::system_clock::time_point time);

}  // namespace railhop
