// A blocking socket in a test's hands: plays a client or a target byte by byte.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transport/fabric/tcp/tcp_protocol.h"

namespace railhop {

class RawSocket {
 public:
  explicit RawSocket(int fd = -1) : fd_(fd) {
    // No test waits for ever.
    const timeval patience{.tv_sec = 60, .tv_usec = 0};
    if (fd_ >= 0) {
      EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
      EXPECT_EQ(setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)), 0);
      const int on = 1;
      EXPECT_EQ(setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)), 0);
    }
  }
  RawSocket(RawSocket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  RawSocket& operator=(RawSocket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~RawSocket() { Close(); }

  static RawSocket ConnectTo(uint16_t port) {
    RawSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(port);
    EXPECT_EQ(connect(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    return made;
  }
  static RawSocket ListenAnywhere() {
    RawSocket made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(made.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(made.fd_, 16), 0);
    return made;
  }
  RawSocket Accept() const { return RawSocket(accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC)); }
  uint16_t port() const {
    sockaddr_in address{};
    socklen_t size = sizeof(address);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    return ntohs(address.sin_port);
  }
  int fd() const { return fd_; }
  // Bytes that Receive would get at once.
  size_t Available() const {
    int bytes = 0;
    EXPECT_EQ(ioctl(fd_, FIONREAD, &bytes), 0);
    return static_cast<size_t>(bytes);
  }

  void Send(std::span<const std::byte> bytes) const {
    EXPECT_EQ(send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  void SendHeader(const TcpHeader& header) const {
    std::array<std::byte, kTcpHeaderBytes> bytes;
    EncodeTcpHeader(header, bytes);
    Send(bytes);
  }
  void SendStatus(TcpCode code) const {
    std::array<std::byte, kTcpStatusBytes> bytes;
    EncodeTcpStatus(code, bytes);
    Send(bytes);
  }
  // Fewer bytes than wanted: the other side has hung up.
  std::vector<std::byte> Receive(size_t wanted) const {
    std::vector<std::byte> bytes(wanted);
    const ssize_t got = recv(fd_, bytes.data(), wanted, MSG_WAITALL);
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }
  TcpHeader ReceiveHeader() const {
    const std::vector<std::byte> bytes = Receive(kTcpHeaderBytes);
    EXPECT_EQ(bytes.size(), kTcpHeaderBytes);
    if (bytes.size() != kTcpHeaderBytes) return {};
    return DecodeTcpHeader(
        std::span<const std::byte, kTcpHeaderBytes>(bytes.data(), kTcpHeaderBytes));
  }
  // -1: no status came.
  int ReceiveStatus() const {
    const std::vector<std::byte> bytes = Receive(kTcpStatusBytes);
    TcpCode code;
    if (bytes.size() != kTcpStatusBytes ||
        !DecodeTcpStatus(std::span<const std::byte, kTcpStatusBytes>(bytes.data(), kTcpStatusBytes),
                         &code)) {
      return -1;
    }
    return static_cast<int>(code);
  }
  // Whether the other side has hung up, after nothing more.
  bool Ended() const { return Receive(1).empty(); }
  void ShutDown() const { shutdown(fd_, SHUT_WR); }
  void Close() {
    if (fd_ >= 0) close(std::exchange(fd_, -1));
  }

 private:
  static sockaddr_in Loopback(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  int fd_;
};

}  // namespace railhop
