// The handshake listener of one process: answers the frames of handshake_frame.h, one exchange per
// connection, for all connections at once and without ever waiting for one.
//
// Threads: everything, the handlers too, on the thread of the event loop, but for on_connection,
// which is called on threads of its own, kConnecting at a time, and may take seconds. The others
// may block for milliseconds (other clients wait that long). None may destroy the server, which
// waits for those under way when it ends. Bounds, so that no number of idle, slow or huge clients
// hurts: kMaxConnections connections and MaxBufferedBytes() bytes. A connection too many takes the
// place of the oldest that was answered already, else of the oldest; a byte too many that of the
// oldest that hold some. So a client is served however many others are idle, unless kMaxConnections
// of them connect before its request is here. Each connection ends `deadline` after it was
// accepted. Errors: Start says what it tried. A connection that breaks the protocol is closed
// without answer and counted. After its reply a connection waits, in nobody's way, for the client
// to close.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/background_worker.h"
#include "runtime/event_loop.h"
#include "transport/engine/handshake_frame.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {

// JSON in, JSON out. Each may be empty: then the engine has no use for that message.
struct HandshakeHandlers {
  using OnConnection = std::function<std::optional<std::string>(std::string_view json)>;

  // A peer's descriptor, for ours. nullopt, or no handler: the answer is null, no segment (yet).
  std::function<std::optional<std::string>(std::string_view json)> on_metadata = nullptr;
  // An RDMA handshake; several may be under way. nullopt: closed without answer. No handler: an
  // empty one is the answer.
  OnConnection on_connection = nullptr;
  // False, or no handler: the sender is told that it failed.
  std::function<bool(std::string name, std::string message)> on_notify = nullptr;
  // Is this process alive? False: closed without answer. No handler: it is.
  std::function<bool()> on_probe = nullptr;
};

struct HandshakeServerOptions {
  std::string address = {};   // numeric; empty: all, of IPv6 too if `use_ipv6`
  bool use_ipv6 = false;      // MC_USE_IPV6
  uint16_t min_port = 15000;  // MC_MIN_RPC_PORT; drawn from the range, up to 500 times
  uint16_t max_port = 17000;  // MC_MAX_RPC_PORT
  int backlog = 128;          // MC_HANDSHAKE_LISTEN_BACKLOG
  uint64_t max_frame_length = kDefaultMaxFrameLength;  // MC_HANDSHAKE_MAX_LENGTH
  std::chrono::milliseconds deadline{5000};            // as peers have it
};

struct HandshakeServerStats {
  uint64_t answered = 0;
  uint64_t refused = 0;  // broke the protocol, or a handler gave no answer
  uint64_t evicted = 0;  // made room for another
  uint64_t expired = 0;  // met the deadline
};

class HandshakeServer {
 public:
  static constexpr size_t kMaxConnections = 256;
  static constexpr size_t kConnecting = 16;

  // `loop` must outlive the server.
  static absl::StatusOr<std::unique_ptr<HandshakeServer>> Start(
      EventLoop* loop, const HandshakeServerOptions& options, HandshakeHandlers handlers);
  ~HandshakeServer();
  HandshakeServer(const HandshakeServer&) = delete;
  HandshakeServer& operator=(const HandshakeServer&) = delete;

  uint16_t port() const { return port_; }
  size_t connections() const { return connections_.size(); }
  size_t buffered_bytes() const { return buffered_bytes_; }
  size_t MaxBufferedBytes() const;
  const HandshakeServerStats& stats() const { return stats_; }

 private:
  struct Connecting;
  struct Connection;
  using Connections = std::list<Connection>;  // in the order of their deadlines

  HandshakeServer(EventLoop* loop, const HandshakeServerOptions& options,
                  HandshakeHandlers handlers);

  absl::Status ResumeAccepting();
  void Accept();
  absl::Status WatchReadable(Connections::iterator connection);
  void OnReadable(Connections::iterator connection);
  void Answer(Connections::iterator connection);
  void StartConnecting(Connections::iterator connection);
  void OnConnected();
  void Send(Connections::iterator connection, std::optional<std::string> reply);
  void Write(Connections::iterator connection);
  void Account(Connections::iterator connection);
  void MakeRoomForOne();
  void Evict(Connections::iterator connection);
  void Close(Connections::iterator connection);
  void StartTimer();
  void OnTimer();

  EventLoop* const loop_;
  const HandshakeServerOptions options_;
  const HandshakeHandlers handlers_;
  GuardedFd listener_;
  uint16_t port_ = 0;
  EventLoop::WatchId accept_watch_ = 0;  // 0: paused, no descriptor is free
  EventLoop::WatchId timer_ = 0;         // runs while there is something that it ends
  Connections connections_;
  size_t buffered_bytes_ = 0;
  std::vector<char> scratch_;
  HandshakeServerStats stats_;
  GuardedFd connected_;  // an eventfd: an on_connection has returned
  EventLoop::WatchId connected_watch_ = 0;
  BackgroundWorker connecting_;  // last: its threads use the others
};

}  // namespace railhop
