// What the target side of the TCP fabric may touch: the registered regions, and for whom.
//
// Threads: everything from any thread; a lock is held for a look-up once per request. Sessions keep
// what they found, and enter its gate for each single read or write of the socket, or copy of a
// GPU: nothing is held while a client is slow, so removing a region never waits for one.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>

#include "absl/status/status.h"
#include "transport/fabric/tcp/tcp_bounce.h"
#include "transport/fabric/tcp/use_gate.h"

namespace railhop {

struct TcpRegion {
  const uint64_t address;
  const uint64_t length;    // bytes
  TcpBounce* const bounce;  // of the GPU whose memory it is; nullptr: the CPU's to touch
  UseGate gate;             // closed by its removal
};

class TcpMemory {
 public:
  // InvalidArgument: empty or wraps. AlreadyExists: overlaps a region.
  absl::Status Add(uint64_t address, uint64_t length, TcpBounce* bounce);
  // From its start no new access begins. OK: none is under way any more. NotFound: no region begins
  // there. DeadlineExceeded: one was under way all the time, and may yet be.
  absl::Status Remove(uint64_t address, std::chrono::milliseconds timeout);
  // The region that contains the whole range, which is not empty; nullptr: there is none.
  std::shared_ptr<TcpRegion> Find(uint64_t address, uint64_t length) const;

 private:
  mutable std::shared_mutex mutex_;
  std::map<uint64_t, std::shared_ptr<TcpRegion>> regions_;  // by address
};

// The connections of each Railhop initiator (TcpOperation::kJoin), so that all of them can be ended
// at once. A group lives as long as a session of it does.
class TcpGroups {
 public:
  struct Group {
    const uint64_t token;
    UseGate gate;
    size_t members = 0;  // sessions that have not left; under the lock
  };

  std::shared_ptr<Group> Join(uint64_t token);
  void Leave(const std::shared_ptr<Group>& group);
  // From now on no session that has joined begins to touch memory; when the gate is quiet, none
  // does any more. nullptr: nobody has.
  std::shared_ptr<Group> Close(uint64_t token);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Group>> groups_;
};

}  // namespace railhop
