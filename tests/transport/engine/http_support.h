// A hand-made HTTP server: reads one whole request per connection, and answers with the bytes that
// the test gives, well-formed or not.
#pragma once

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace railhop {

struct ReceivedRequest {
  std::string line;  // "GET /path HTTP/1.1"
  std::string body;
};

inline std::string HttpText(int status, const std::string& body) {
  return "HTTP/1.1 " + std::to_string(status) +
         " x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

class ScriptedHttpServer {
 public:
  // Called on the server's thread, one request at a time. Empty: no answer; the connection stays
  // open until the client closes it.
  using Answer = std::function<std::string(const ReceivedRequest&)>;

  explicit ScriptedHttpServer(Answer answer)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)), answer_(std::move(answer)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<const sockaddr*>(&address), length), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~ScriptedHttpServer() {
    shutdown(listener_, SHUT_RDWR);  // ends the accept
    thread_.join();
    close(listener_);
  }
  ScriptedHttpServer(const ScriptedHttpServer&) = delete;
  ScriptedHttpServer& operator=(const ScriptedHttpServer&) = delete;

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  std::string url() const { return "http://" + address() + "/metadata"; }

 private:
  void Serve() {
    while (true) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) return;
      const std::string reply = answer_(ReadRequest(fd));
      std::string_view left = reply;
      while (!left.empty()) {
        const ssize_t n = send(fd, left.data(), left.size(), MSG_NOSIGNAL);
        if (n <= 0) break;
        left.remove_prefix(static_cast<size_t>(n));
      }
      char byte = 0;
      while (reply.empty() && recv(fd, &byte, 1, 0) > 0) {
      }
      close(fd);
    }
  }

  static ReceivedRequest ReadRequest(int fd) {
    std::string text;
    size_t end = std::string::npos;
    size_t wanted = 0;
    while (end == std::string::npos || text.size() < wanted) {
      char buffer[65536];
      const ssize_t n = recv(fd, buffer, sizeof buffer, 0);
      if (n <= 0) return {};
      text.append(buffer, static_cast<size_t>(n));
      end = text.find("\r\n\r\n");
      if (end == std::string::npos) continue;
      const size_t at = text.find("Content-Length: ");
      wanted = end + 4 + (at < end ? std::strtoul(text.c_str() + at + 16, nullptr, 10) : 0);
    }
    return {.line = text.substr(0, text.find("\r\n")), .body = text.substr(end + 4)};
  }

  const int listener_;
  const Answer answer_;
  uint16_t port_ = 0;
  std::thread thread_;
};

// An address at which nobody listens.
inline std::string RefusingAddress() {
  return ScriptedHttpServer([](const ReceivedRequest&) { return std::string(); }).address();
}

}  // namespace railhop
