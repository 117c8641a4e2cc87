#include "transport/engine/handshake_client.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <utility>
#include <vector>

#include "transport/json_text.h"

namespace railhop {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr size_t kReadBytes = 64 << 10;

struct FreeAddresses {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using Addresses = std::unique_ptr<addrinfo, FreeAddresses>;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor& operator=(Descriptor&&) = delete;

  int fd() const { return fd_; }

 private:
  int fd_;
};

absl::Status SystemError(const char* what, int error) {
  return absl::UnavailableError(fmt::format("{}: {}", what, std::strerror(error)));
}

// Waits for sockets, within a caller's patience.
class Waiter {
 public:
  explicit Waiter(const Patience& patience)
      : until_(patience.until),
        stopped_(patience.stop.stop_possible() ? eventfd(0, EFD_CLOEXEC) : -1),
        on_stop_(patience.stop, [this] { eventfd_write(stopped_.fd(), 1); }) {}

  Clock::time_point DeadlineAfter(std::chrono::milliseconds timeout) const {
    return std::min(until_, Clock::now() + timeout);
  }

  absl::Status WaitFor(int fd, short events, Clock::time_point deadline, const char* what) const {
    for (;;) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
      if (left <= left.zero()) {
        return absl::DeadlineExceededError(fmt::format("{}: timed out", what));
      }
      // poll passes over a descriptor of -1.
      pollfd entries[] = {{.fd = fd, .events = events, .revents = 0},
                          {.fd = stopped_.fd(), .events = POLLIN, .revents = 0}};
      const int ready =
          poll(entries, 2, static_cast<int>(std::min<int64_t>(left.count(), INT32_MAX)));
      if (ready > 0 && entries[1].revents != 0) {
        return absl::CancelledError(
            fmt::format("{}: given up, because this engine is being stopped", what));
      }
      if (ready > 0) return absl::OkStatus();
      if (ready < 0 && errno != EINTR) return SystemError(what, errno);
    }
  }

 private:
  const Clock::time_point until_;
  const Descriptor stopped_;  // readable once the caller is asked to stop
  const std::stop_callback<std::function<void()>> on_stop_;
};

absl::StatusOr<Addresses> Resolve(const HostPort& peer, bool use_ipv6) {
  addrinfo hints{};
  hints.ai_family = use_ipv6 ? AF_UNSPEC : AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(peer.host.c_str(), std::to_string(peer.port).c_str(), &hints, &found);
  if (error == 0) return Addresses(found);
  return absl::NotFoundError(fmt::format(
      "no {} address: {}", use_ipv6 ? "IP" : "IPv4 (MC_USE_IPV6 is off)", gai_strerror(error)));
}

absl::StatusOr<Descriptor> ConnectTo(const addrinfo& address, std::chrono::milliseconds timeout,
                                     const Waiter& waiter) {
  Descriptor socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (socket.fd() < 0) return SystemError("no socket", errno);
  if (connect(socket.fd(), address.ai_addr, address.ai_addrlen) == 0) return socket;
  // Interrupted, a non-blocking connect goes on too.
  if (errno != EINPROGRESS && errno != EINTR) return SystemError("connect", errno);
  absl::Status connected =
      waiter.WaitFor(socket.fd(), POLLOUT, waiter.DeadlineAfter(timeout), "connect");
  if (!connected.ok()) return connected;
  int error = 0;
  socklen_t length = sizeof error;
  getsockopt(socket.fd(), SOL_SOCKET, SO_ERROR, &error, &length);
  if (error != 0) return SystemError("connect", error);
  return socket;
}

absl::Status Send(int fd, std::string_view bytes, Clock::time_point deadline,
                  const Waiter& waiter) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      absl::Status status = waiter.WaitFor(fd, POLLOUT, deadline, "send");
      if (!status.ok()) return status;
    } else if (errno != EINTR) {
      return SystemError("send", errno);
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<HandshakeFrame> Receive(int fd, uint64_t max_length, Clock::time_point deadline,
                                       const Waiter& waiter) {
  FrameReader reader(max_length);
  std::vector<char> buffer(kReadBytes);
  for (;;) {
    const ssize_t n = recv(fd, buffer.data(), std::min(reader.wanted(), buffer.size()), 0);
    if (n == 0) {
      return absl::UnavailableError(
          fmt::format("the peer closed the connection after {} bytes of a reply", reader.size()));
    }
    if (n > 0) {
      const absl::StatusOr<bool> complete = reader.Take({buffer.data(), static_cast<size_t>(n)});
      if (!complete.ok()) {
        return absl::UnavailableError(
            fmt::format("the reply is {}", std::string(complete.status().message())));
      }
      if (*complete) return reader.TakeFrame();
    } else if (errno == EAGAIN) {
      absl::Status status = waiter.WaitFor(fd, POLLIN, deadline, "reply");
      if (!status.ok()) return status;
    } else if (errno != EINTR) {
      return SystemError("receive", errno);
    }
  }
}

// The first of the addresses that takes a connection. What goes wrong after that is not tried
// again elsewhere: the peer may have acted on the message.
absl::StatusOr<Descriptor> ConnectToAny(const addrinfo* addresses,
                                        std::chrono::milliseconds timeout, const Waiter& waiter) {
  absl::Status last;
  for (const addrinfo* address = addresses; address != nullptr; address = address->ai_next) {
    absl::StatusOr<Descriptor> socket = ConnectTo(*address, timeout, waiter);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

absl::Status WithPeer(const HostPort& peer, const absl::Status& status) {
  return absl::Status(status.code(), fmt::format("{}: {}", JoinHostPort(peer.host, peer.port),
                                                 std::string(status.message())));
}

absl::StatusOr<std::string> ExchangeFrames(const HostPort& peer, FrameType type,
                                           std::string_view text,
                                           const HandshakeClientOptions& options,
                                           const Patience& patience) {
  const Waiter waiter(patience);
  const absl::StatusOr<Addresses> addresses = Resolve(peer, options.use_ipv6);
  if (!addresses.ok()) return addresses.status();
  const absl::StatusOr<Descriptor> socket =
      ConnectToAny(addresses->get(), options.connect_timeout, waiter);
  if (!socket.ok()) return socket.status();
  const Clock::time_point deadline = waiter.DeadlineAfter(options.reply_timeout);
  const std::string request = EncodeFrame({.type = type, .typed = true, .json = std::string(text)});
  absl::Status sent = Send(socket->fd(), request, deadline, waiter);
  if (!sent.ok()) return sent;
  absl::StatusOr<HandshakeFrame> reply =
      Receive(socket->fd(), options.max_frame_length, deadline, waiter);
  if (!reply.ok()) return reply.status();
  if (!reply->typed || reply->type != type) {
    return absl::UnavailableError(fmt::format("a reply of type {} to a {} message",
                                              reply->typed ? FrameTypeName(reply->type) : "none",
                                              FrameTypeName(type)));
  }
  return std::move(reply->json);
}

}  // namespace

absl::StatusOr<std::string> HandshakeClient::Call(const HostPort& peer, FrameType type,
                                                  std::string_view json,
                                                  const Patience& patience) const {
  // The peer would hang up, and not say why.
  if (json.size() >= options_.max_frame_length) {
    return WithPeer(peer, absl::FailedPreconditionError(fmt::format(
                              "a {} message of {} bytes as JSON is not sent: with its type it must "
                              "have at most {} (MC_HANDSHAKE_MAX_LENGTH, of both engines)",
                              FrameTypeName(type), json.size(), options_.max_frame_length)));
  }
  absl::StatusOr<std::string> reply = ExchangeFrames(peer, type, json, options_, patience);
  if (!reply.ok()) return WithPeer(peer, reply.status());
  return reply;
}

absl::StatusOr<SegmentDescriptor> HandshakeClient::FetchDescriptor(const HostPort& peer,
                                                                   std::string_view own,
                                                                   const Patience& patience) const {
  const absl::StatusOr<std::string> reply = Call(peer, FrameType::kMetadata, own, patience);
  if (!reply.ok()) return reply.status();
  absl::StatusOr<SegmentDescriptor> descriptor = SegmentDescriptor::Decode(*reply);
  if (!descriptor.ok()) return WithPeer(peer, descriptor.status());
  return descriptor;
}

absl::Status HandshakeClient::SendNotify(const HostPort& peer, std::string_view name,
                                         std::string_view message) const {
  const json fields = {{"name", std::string(name)}, {"notify_msg", std::string(message)}};
  const std::string request = fields.dump(-1, ' ', true, json::error_handler_t::replace) + '\n';
  const absl::StatusOr<std::string> text = Call(peer, FrameType::kNotify, request);
  if (!text.ok()) return text.status();
  json reply;
  if (absl::Status status = ParseJsonText(*text, &reply); !status.ok()) {
    return WithPeer(peer, status);
  }
  const bool taken = reply.is_object() && reply.contains("notify_msg") &&
                     reply["notify_msg"].is_string() &&
                     !reply["notify_msg"].get_ref<const std::string&>().empty();
  if (taken) return absl::OkStatus();
  return WithPeer(peer, absl::FailedPreconditionError("the peer did not take the notification"));
}

absl::Status HandshakeClient::SendProbe(const HostPort& peer) const {
  return Call(peer, FrameType::kProbe, "{}\n").status();
}

absl::StatusOr<std::string> HandshakeClient::Exchange(const HostPort& peer,
                                                      std::string_view connection) const {
  absl::StatusOr<std::string> reply = Call(peer, FrameType::kConnection, connection);
  if (!reply.ok()) return reply;
  json parsed;
  if (absl::Status status = ParseJsonText(*reply, &parsed); !status.ok()) {
    return WithPeer(peer, status);
  }
  return reply;
}

int HandshakeErrorCode(const absl::Status& status) {
  constexpr int kDns = -101;
  constexpr int kSocket = -102;
  constexpr int kMalformedJson = -103;
  constexpr int kMetadata = -200;
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kNotFound:
      return kDns;
    case absl::StatusCode::kInvalidArgument:
      return kMalformedJson;
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return kMetadata;
    default:
      return kSocket;
  }
}

}  // namespace railhop
