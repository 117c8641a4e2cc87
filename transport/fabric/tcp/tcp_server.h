// The target side of the TCP fabric: listening sockets, and threads that move bytes between
// connections and registered memory. Speaks versions 1 and 2 to any initiator, and confirms drains
// to Railhop's (tcp_protocol.h). docs/tcp.md has the picture.
//
// Threads: AddRegion and RemoveRegion from any thread. The server's own threads are not actors and
// are not pinned.
// Bounds: `max_connections`; 5 KiB a connection here, besides the kernel's buffers; a request that
// does not get on (a slow client, a half header) ends with its connection after `request_timeout`
// and 100 ns a byte; a connection that asks for nothing may stay for ever. When no descriptor is
// left, accepting pauses: one warning, another try every 100 ms, and those in the listen queue
// wait. Bytes are stored and sent only inside registered regions. Who can reach the port can read
// and write these: the protocol has no authentication. Fork: a child inherits open connections (not
// the listening socket); one that neither executes nor exits keeps them open towards their clients.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transport/fabric/tcp/local_socket.h"
#include "transport/fabric/tcp/tcp_memory.h"
#include "transport/fabric/tcp/tcp_session.h"
#include "transport/fabric/tcp/tcp_shard.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

struct TcpServerOptions {
  std::string address;  // to listen at, numeric; "0.0.0.0" or "::" for all
  // A random port of this range. The defaults are those of other implementations of the protocol.
  uint16_t lowest_port = 15000;
  uint16_t highest_port = 17000;
  uint32_t threads = 2;            // 1..64; connections take turns
  size_t max_connections = 16384;  // more wait in the listen queue
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(30);
  bool local = true;  // listen at a local socket, too
  // For regions of GPU memory; nullptr: the process uses no GPU, and all are the CPU's to touch.
  std::shared_ptr<TcpBounces> bounces = {};
};

class TcpServer {
 public:
  // InvalidArgument: an option out of its range, named. Unavailable: as ListenOnSomePort.
  static absl::StatusOr<std::unique_ptr<TcpServer>> Start(TcpServerOptions options);
  // Ends all connections. Afterwards no region is touched.
  ~TcpServer();

  uint16_t port() const { return port_; }
  // Of its local socket (local_socket.h); empty: there is none.
  const std::string& local_name() const { return local_.name; }
  size_t connections() const { return connections_.load(std::memory_order_relaxed); }

  // The range may be read and written by clients until it is removed. Errors are those of
  // TcpMemory::Add and TcpBounces::Find.
  absl::Status AddRegion(uint64_t address, uint64_t length);
  // No access begins after its start, and when it returns OK none is under way: requests of the
  // range are refused, those in the middle of a payload too. Waits for the moment that a read of a
  // socket or a GPU's copy takes, at most a second: then DeadlineExceeded.
  absl::Status RemoveRegion(uint64_t address);

 private:
  explicit TcpServer(TcpServerOptions options);

  absl::Status Bind();
  bool AcceptSome(int listener);

  const TcpServerOptions options_;
  TcpSession::Shared shared_;
  GuardedFd listener_;
  uint16_t port_ = 0;
  LocalListener local_;
  std::atomic<size_t> connections_{0};
  size_t next_shard_ = 0;  // of the accepting thread
  std::vector<std::unique_ptr<TcpShard>> shards_;
};

}  // namespace railhop
