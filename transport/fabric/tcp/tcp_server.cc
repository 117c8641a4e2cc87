#include "transport/fabric/tcp/tcp_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/log.h"
#include "transport/port_listener.h"

namespace railhop {
namespace {

constexpr int kBacklog = 1024;  // clients that connect anew for each request come in bursts
constexpr int kAcceptsInTurn = 64;
constexpr uint32_t kMostThreads = 64;
constexpr std::chrono::milliseconds kRemoveTimeout{1000};

absl::Status CheckOptions(const TcpServerOptions& options) {
  if (options.address.empty()) {
    return absl::InvalidArgumentError("TCP server without an address to listen at");
  }
  const auto error = [&](const std::string& what) {
    return absl::InvalidArgumentError(fmt::format("TCP server at {}: {}", options.address, what));
  };
  if (options.threads == 0 || options.threads > kMostThreads) {
    return error(fmt::format("{} threads not in 1..{}", options.threads, kMostThreads));
  }
  if (options.max_connections == 0) return error("room for no connection");
  if (options.request_timeout < std::chrono::milliseconds(1)) {
    return error(fmt::format("request timeout of {} ns is below a millisecond",
                             options.request_timeout.count()));
  }
  return absl::OkStatus();
}

}  // namespace

TcpServer::TcpServer(TcpServerOptions options) : options_(std::move(options)) {
  shared_.request_timeout = options_.request_timeout;
}

TcpServer::~TcpServer() = default;

absl::StatusOr<std::unique_ptr<TcpServer>> TcpServer::Start(TcpServerOptions options) {
  if (absl::Status status = CheckOptions(options); !status.ok()) return status;
  std::unique_ptr<TcpServer> server(new TcpServer(std::move(options)));
  if (absl::Status status = server->Bind(); !status.ok()) return status;
  for (uint32_t i = 0; i < server->options_.threads; ++i) {
    auto shard = TcpShard::Start(&server->shared_, &server->connections_);
    if (!shard.ok()) return shard.status();
    server->shards_.push_back(*std::move(shard));
  }
  std::vector<int> listeners = {server->listener_.get()};
  if (server->local_.fd.valid()) listeners.push_back(server->local_.fd.get());
  server->shards_[0]->Listen(std::move(listeners), [server = server.get()](int listener) {
    return server->AcceptSome(listener);
  });
  return server;
}

absl::Status TcpServer::Bind() {
  absl::StatusOr<PortListener> listener = ListenOnSomePort({.address = options_.address,
                                                            .lowest_port = options_.lowest_port,
                                                            .highest_port = options_.highest_port,
                                                            .backlog = kBacklog},
                                                           "TCP server");
  if (!listener.ok()) return listener.status();
  listener_ = std::move(listener->fd);
  port_ = listener->port;
  // Without it, clients of this host come by TCP as all others do.
  if (!options_.local) return absl::OkStatus();
  if (absl::StatusOr<LocalListener> local = ListenOnLocalSocket(kBacklog); local.ok()) {
    local_ = *std::move(local);
  }
  return absl::OkStatus();
}

absl::Status TcpServer::AddRegion(uint64_t address, uint64_t length) {
  TcpBounce* bounce = nullptr;
  if (options_.bounces != nullptr) {
    const absl::StatusOr<TcpBounce*> found = options_.bounces->Find(
        reinterpret_cast<void*>(address),  // NOLINT(performance-no-int-to-ptr)
        length);
    if (!found.ok()) return found.status();
    bounce = *found;
  }
  return shared_.memory.Add(address, length, bounce);
}

absl::Status TcpServer::RemoveRegion(uint64_t address) {
  return shared_.memory.Remove(address, kRemoveTimeout);
}

// Runs on the thread of the first shard.
bool TcpServer::AcceptSome(int listener) {
  for (int i = 0; i < kAcceptsInTurn; ++i) {
    if (connections() >= options_.max_connections) {
      LogOnce(LogLevel::kWarning, "tcp server: connections",
              fmt::format("TCP server at port {}: all {} connections are in use; more wait until "
                          "some end",
                          port_, options_.max_connections));
      return false;
    }
    const int fd = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) {
      const int error = errno;
      if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        LogOnce(LogLevel::kWarning, "tcp server: descriptors",
                fmt::format("TCP server at port {}: no descriptor is left for another connection "
                            "({}); more wait until some end. Raise `ulimit -n`",
                            port_, strerror(error)));
        return false;
      }
      if (error == EAGAIN) return true;
      continue;  // a connection that was gone before it was accepted
    }
    if (listener == local_.fd.get()) {
      if (!PeerIsSameUser(fd)) {
        close(fd);
        continue;
      }
    } else {
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    }
    connections_.fetch_add(1, std::memory_order_relaxed);
    shards_[next_shard_++ % shards_.size()]->Adopt(fd);
  }
  return true;
}

}  // namespace railhop
