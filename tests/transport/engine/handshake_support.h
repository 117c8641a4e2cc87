// What tests of both ends of the handshake share: a server on a thread of its own, and a client
// that sends any bytes it likes.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/event_loop.h"
#include "tests/support/flag.h"
#include "transport/engine/handshake_server.h"

namespace railhop {

inline HandshakeServerOptions LoopbackOptions() {
  return {.address = "127.0.0.1"};
}

inline sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

// A connection that does not know the protocol. Nothing but Connect blocks.
class RawClient {
 public:
  explicit RawClient(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    Connect(port);
  }
  RawClient() : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {}
  RawClient(RawClient&& other) noexcept
      : fd_(std::exchange(other.fd_, -1)),
        received_(std::move(other.received_)),
        closed_(other.closed_) {}
  ~RawClient() { Close(); }
  RawClient& operator=(RawClient&&) = delete;

  void Connect(uint16_t port) {
    const sockaddr_in address = Loopback(port);
    ASSERT_EQ(connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0)
        << errno;
  }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }
  int fd() const { return fd_; }

  // Sends what the socket takes; returns what is left.
  std::string_view Send(std::string_view bytes) {
    const ssize_t n = send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n > 0) bytes.remove_prefix(static_cast<size_t>(n));
    return bytes;
  }
  // Takes in what has come.
  void Receive() {
    char buffer[65536];
    ssize_t n = 0;
    while ((n = recv(fd_, buffer, sizeof buffer, MSG_DONTWAIT)) > 0) {
      received_.append(buffer, static_cast<size_t>(n));
    }
    if (n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK)) closed_ = true;
  }
  const std::string& received() const { return received_; }
  // The peer has closed, or shut down its sending.
  bool closed() const { return closed_; }

 private:
  int fd_;
  std::string received_;
  bool closed_ = false;
};

// A server that runs until the object goes. Its handlers are called on its thread.
class ServerThread {
 public:
  explicit ServerThread(HandshakeHandlers handlers,
                        const HandshakeServerOptions& options = LoopbackOptions())
      : stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        thread_([this, options, handlers = std::move(handlers)]() mutable {
          Run(options, std::move(handlers));
        }) {
    EXPECT_TRUE(started_.Wait());
  }
  ~ServerThread() {
    const uint64_t one = 1;
    EXPECT_EQ(write(stop_, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    thread_.join();
    close(stop_);
  }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;

  uint16_t port() const { return port_; }

 private:
  void Run(const HandshakeServerOptions& options, HandshakeHandlers handlers) {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    bool stopped = false;
    ASSERT_TRUE((*loop)->WatchFd(stop_, Trigger::kLevel, [&stopped] { stopped = true; }).ok());
    auto server = HandshakeServer::Start(loop->get(), options, std::move(handlers));
    EXPECT_TRUE(server.ok()) << server.status().message();
    if (server.ok()) port_ = (*server)->port();
    started_.Set();
    while (!stopped) (*loop)->RunOnce(kTestPatience);
  }

  const int stop_;
  uint16_t port_ = 0;
  Flag started_;
  std::thread thread_;  // last: it uses the others
};

}  // namespace railhop
