#include "transport/fabric/tcp/tcp_server.h"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "runtime/log.h"
#include "transport/fabric/tcp/tcp_target.h"

namespace railhop {
namespace {

constexpr int kPortTries = 500;
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
  if (options.lowest_port == 0 || options.lowest_port > options.highest_port) {
    return error(fmt::format("no ports in {}..{}", options.lowest_port, options.highest_port));
  }
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

void SetPort(TcpAddress& address, uint16_t port) {
  if (address.storage.ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = htons(port);
  }
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
  server->shards_[0]->Listen(server->listener_.get(),
                             [server = server.get()] { return server->AcceptSome(); });
  return server;
}

absl::Status TcpServer::Bind() {
  auto addresses = ResolveTcpHost(options_.address, options_.lowest_port);
  if (!addresses.ok()) return addresses.status();
  TcpAddress& address = addresses->front();
  std::mt19937 random(std::random_device{}());
  std::uniform_int_distribution<int> ports(options_.lowest_port, options_.highest_port);
  int error = 0;
  for (int i = 0; i < kPortTries; ++i) {
    const auto port = static_cast<uint16_t>(ports(random));
    SetPort(address, port);
    const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) {
      return absl::ResourceExhaustedError(
          fmt::format("TCP server: no socket: {}", strerror(errno)));
    }
    GuardedFd listener(fd);
    const int on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    if (bind(fd, address.get(), address.length) == 0 && listen(fd, kBacklog) == 0) {
      listener_ = std::move(listener);
      port_ = port;
      return absl::OkStatus();
    }
    error = errno;
    if (error != EADDRINUSE && error != EACCES) break;
  }
  return absl::UnavailableError(fmt::format("TCP server: cannot listen at {}, ports {}..{}: {}",
                                            options_.address, options_.lowest_port,
                                            options_.highest_port, strerror(error)));
}

absl::Status TcpServer::AddRegion(uint64_t address, uint64_t length, TcpMover* mover) {
  return shared_.memory.Add(address, length, mover);
}

absl::Status TcpServer::RemoveRegion(uint64_t address) {
  return shared_.memory.Remove(address, kRemoveTimeout);
}

// Runs on the thread of the first shard.
bool TcpServer::AcceptSome() {
  for (int i = 0; i < kAcceptsInTurn; ++i) {
    if (connections() >= options_.max_connections) {
      LogOnce(LogLevel::kWarning, "tcp server: connections",
              fmt::format("TCP server at port {}: all {} connections are in use; more wait until "
                          "some end",
                          port_, options_.max_connections));
      return false;
    }
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
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
    const int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    connections_.fetch_add(1, std::memory_order_relaxed);
    shards_[next_shard_++ % shards_.size()]->Adopt(fd);
  }
  return true;
}

}  // namespace railhop
