#include "transport/engine/handshake_server.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/log.h"
#include "transport/json_text.h"
#include "transport/port_listener.h"

namespace railhop {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

// Per wake-up, so that one busy client, or a flood of them, leaves room for the others.
constexpr int kAcceptsPerWake = 64;
constexpr int kReadsPerWake = 4;
constexpr size_t kReadBytes = 64 << 10;
// What a client can make the kernel hold of what we do not read (while we wait to write, say).
constexpr int kReceiveBufferBytes = 128 << 10;
constexpr size_t kLeastMaxBufferedBytes = 64 << 20;
// How late a deadline may be met.
constexpr std::chrono::milliseconds kTimerPeriod{100};

// What an engine without RDMA answers to an RDMA handshake.
constexpr std::string_view kEmptyHandshake =
    R"({"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"",)"
    R"("qp_num":[],"reply_msg":""})"
    "\n";
constexpr std::string_view kNotifySuccess = "{\"name\":\"\",\"notify_msg\":\"success\"}\n";
constexpr std::string_view kNotifyFailure = "{\"name\":\"\",\"notify_msg\":\"\"}\n";
constexpr std::string_view kProbeSuccess = "{\"status\":\"success\"}\n";

bool IsTransient(int error) {
  return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

// What is answered at once; an RDMA handshake here is one that nobody takes.
std::optional<std::string> Reply(const HandshakeHandlers& handlers, FrameType type,
                                 const std::string& text, const json& request) {
  switch (type) {
    case FrameType::kConnection:
      return std::string(kEmptyHandshake);
    case FrameType::kMetadata: {
      std::optional<std::string> reply;
      if (handlers.on_metadata) reply = handlers.on_metadata(text);
      return reply.has_value() ? reply : "null\n";
    }
    case FrameType::kNotify: {
      if (!request.is_object()) return std::nullopt;
      const auto name = request.find("name");
      const auto message = request.find("notify_msg");
      if (name == request.end() || !name->is_string() || message == request.end() ||
          !message->is_string()) {
        return std::nullopt;
      }
      const bool taken = handlers.on_notify &&
                         handlers.on_notify(name->get<std::string>(), message->get<std::string>());
      return std::string(taken ? kNotifySuccess : kNotifyFailure);
    }
    case FrameType::kProbe:
      if (handlers.on_probe && !handlers.on_probe()) return std::nullopt;
      return std::string(kProbeSuccess);
  }
  return std::nullopt;
}

}  // namespace

// What one call of on_connection works with; it ends with its connection.
struct HandshakeServer::Connecting {
  std::string json;
  std::optional<std::string> reply;
};

struct HandshakeServer::Connection {
  Connection(int descriptor, uint64_t max_length, Clock::time_point end)
      : fd(descriptor), reader(max_length), deadline(end) {}
  ~Connection() { close(fd); }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const int fd;
  FrameReader reader;
  const Clock::time_point deadline;
  EventLoop::WatchId watch = 0;
  HandshakeFrame frame;                        // the request
  std::shared_ptr<Connecting> connecting;      // while on_connection has not returned
  std::shared_ptr<BackgroundWorker::Job> job;  // with `connecting`
  std::string reply;                           // what of it is still to be sent begins at `sent`
  size_t sent = 0;
  bool answering = false;       // the request is complete
  bool answered = false;        // the reply is sent; waits for the client to close
  bool waits_to_write = false;  // what `watch` is for
  size_t accounted = 0;         // of the server's buffered bytes
};

HandshakeServer::HandshakeServer(EventLoop* loop, const HandshakeServerOptions& options,
                                 HandshakeHandlers handlers)
    : loop_(loop),
      options_(options),
      handlers_(std::move(handlers)),
      scratch_(kReadBytes),
      connected_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      connecting_([this] { eventfd_write(connected_.get(), 1); }, kConnecting) {}

absl::StatusOr<std::unique_ptr<HandshakeServer>> HandshakeServer::Start(
    EventLoop* loop, const HandshakeServerOptions& options, HandshakeHandlers handlers) {
  absl::StatusOr<PortListener> listener = ListenOnSomePort({.address = options.address,
                                                            .use_ipv6 = options.use_ipv6,
                                                            .lowest_port = options.min_port,
                                                            .highest_port = options.max_port,
                                                            .backlog = options.backlog,
                                                            .receive_buffer = kReceiveBufferBytes},
                                                           "handshake listener");
  if (!listener.ok()) return listener.status();
  std::unique_ptr<HandshakeServer> server(new HandshakeServer(loop, options, std::move(handlers)));
  server->listener_ = std::move(listener->fd);
  server->port_ = listener->port;
  if (absl::Status status = server->ResumeAccepting(); !status.ok()) return status;
  if (!server->connected_.valid()) {
    return absl::ResourceExhaustedError(
        "handshake listener: no descriptor is left for an eventfd; raise `ulimit -n`");
  }
  const auto watch = loop->WatchFd(server->connected_.get(), Trigger::kLevel,
                                   [server = server.get()] { server->OnConnected(); });
  if (!watch.ok()) return watch.status();
  server->connected_watch_ = *watch;
  return server;
}

HandshakeServer::~HandshakeServer() {
  if (accept_watch_ != 0) loop_->Unwatch(accept_watch_);
  if (connected_watch_ != 0) loop_->Unwatch(connected_watch_);
  if (timer_ != 0) loop_->Unwatch(timer_);
  while (!connections_.empty()) Close(connections_.begin());
}

size_t HandshakeServer::MaxBufferedBytes() const {
  // Room for a few of the largest, requests and replies.
  return std::max<size_t>(kLeastMaxBufferedBytes, 4 * options_.max_frame_length);
}

absl::Status HandshakeServer::ResumeAccepting() {
  auto watch = loop_->WatchFd(listener_.get(), Trigger::kLevel, [this] { Accept(); });
  if (!watch.ok()) return watch.status();
  accept_watch_ = *watch;
  return absl::OkStatus();
}

void HandshakeServer::Accept() {
  for (int i = 0; i < kAcceptsPerWake; ++i) {
    const int fd = accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
      if (IsTransient(errno)) return;
      if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
      // The listener stays readable: watched on, it would spin until a descriptor is free.
      LogOnce(LogLevel::kWarning, "handshake accept",
              fmt::format("handshake listener: connections wait: {} (ulimit -n)",
                          std::strerror(errno)));
      loop_->Unwatch(std::exchange(accept_watch_, 0));
      StartTimer();
      return;
    }
    MakeRoomForOne();
    const auto connection = connections_.emplace(connections_.end(), fd, options_.max_frame_length,
                                                 Clock::now() + options_.deadline);
    StartTimer();
    if (timer_ == 0 || !WatchReadable(connection).ok()) Close(connection);
  }
}

absl::Status HandshakeServer::WatchReadable(Connections::iterator connection) {
  auto watch = loop_->WatchFd(connection->fd, Trigger::kLevel,
                              [this, connection] { OnReadable(connection); });
  if (!watch.ok()) return watch.status();
  connection->watch = *watch;
  connection->waits_to_write = false;
  return absl::OkStatus();
}

void HandshakeServer::OnReadable(Connections::iterator connection) {
  for (int i = 0; i < kReadsPerWake; ++i) {
    // Beyond its one request a client has nothing to say but that it closes.
    const size_t most = connection->answering
                            ? scratch_.size()
                            : std::min(connection->reader.wanted(), scratch_.size());
    const ssize_t got = recv(connection->fd, scratch_.data(), most, 0);
    if (got < 0 && IsTransient(errno)) return;
    if (got <= 0) {
      if (!connection->answered) ++stats_.refused;
      return Close(connection);
    }
    if (connection->answering) continue;
    const absl::StatusOr<bool> complete =
        connection->reader.Take({scratch_.data(), static_cast<size_t>(got)});
    if (!complete.ok()) {
      Log(LogLevel::kInfo,
          fmt::format("handshake: refused {}", std::string(complete.status().message())));
      ++stats_.refused;
      return Close(connection);
    }
    Account(connection);
    if (*complete) return Answer(connection);
  }
}

void HandshakeServer::Answer(Connections::iterator connection) {
  connection->frame = connection->reader.TakeFrame();
  connection->answering = true;
  const HandshakeFrame& frame = connection->frame;
  json request;
  if (absl::Status status = ParseJsonText(frame.json, &request); !status.ok()) {
    Log(LogLevel::kInfo, fmt::format("handshake: refused a {} message: {}",
                                     FrameTypeName(frame.type), std::string(status.message())));
    return Send(connection, std::nullopt);
  }
  if (frame.type == FrameType::kConnection && handlers_.on_connection) {
    return StartConnecting(connection);
  }
  Send(connection, Reply(handlers_, frame.type, frame.json, request));
}

// To know the device behind an address may take the kernel a second, and nobody else waits for it.
void HandshakeServer::StartConnecting(Connections::iterator connection) {
  connection->connecting = std::make_shared<Connecting>();
  connection->connecting->json = std::move(connection->frame.json);
  // Nobody is connected who has gone meanwhile.
  connection->job = connecting_.Start([this, begun = std::weak_ptr(connection->connecting)] {
    const std::shared_ptr<Connecting> connecting = begun.lock();
    if (connecting != nullptr) connecting->reply = handlers_.on_connection(connecting->json);
    return absl::OkStatus();
  });
  Account(connection);
}

void HandshakeServer::OnConnected() {
  eventfd_t count = 0;
  eventfd_read(connected_.get(), &count);
  for (auto it = connections_.begin(); it != connections_.end();) {
    const auto connection = it++;
    if (connection->job == nullptr || !connection->job->done()) continue;
    connection->job = nullptr;
    Send(connection, std::exchange(connection->connecting, nullptr)->reply);
  }
}

void HandshakeServer::Send(Connections::iterator connection, std::optional<std::string> reply) {
  if (!reply.has_value()) {
    ++stats_.refused;
    return Close(connection);
  }
  HandshakeFrame& frame = connection->frame;
  frame.json = *std::move(reply);
  connection->reply = EncodeFrame(frame);
  if (frame.json.size() >= options_.max_frame_length) {
    LogOnce(LogLevel::kWarning, "handshake reply",
            fmt::format("handshake: a {} message of {} bytes is longer than {}: peers refuse it "
                        "unless they and this process have a larger MC_HANDSHAKE_MAX_LENGTH",
                        FrameTypeName(frame.type), frame.json.size(), options_.max_frame_length));
  }
  frame.json = std::string();
  Account(connection);
  Write(connection);
}

void HandshakeServer::Write(Connections::iterator connection) {
  Connection& c = *connection;
  while (c.sent < c.reply.size()) {
    const ssize_t n = send(c.fd, c.reply.data() + c.sent, c.reply.size() - c.sent, MSG_NOSIGNAL);
    if (n >= 0) {
      c.sent += static_cast<size_t>(n);
      continue;
    }
    if (!IsTransient(errno)) return Close(connection);
    if (c.waits_to_write) return;
    loop_->Unwatch(c.watch);
    auto watch = loop_->WatchWritable(c.fd, [this, connection] { Write(connection); });
    if (!watch.ok()) return Close(connection);
    c.watch = *watch;
    c.waits_to_write = true;
    return;
  }
  ++stats_.answered;
  c.answered = true;
  c.reply = std::string();
  Account(connection);
  shutdown(c.fd, SHUT_WR);
  if (!c.waits_to_write) return;
  loop_->Unwatch(c.watch);
  if (!WatchReadable(connection).ok()) Close(connection);
}

void HandshakeServer::Account(Connections::iterator connection) {
  const Connection& c = *connection;
  const size_t request = c.connecting == nullptr ? 0 : c.connecting->json.size();
  const size_t held = c.answering ? request + c.reply.size() : c.reader.size();
  buffered_bytes_ += held - std::exchange(connection->accounted, held);
  for (auto it = connections_.begin();
       it != connections_.end() && buffered_bytes_ > MaxBufferedBytes();) {
    const auto oldest = it++;
    if (oldest != connection && oldest->accounted != 0) Evict(oldest);
  }
}

void HandshakeServer::MakeRoomForOne() {
  if (connections_.size() < kMaxConnections) return;
  const auto answered = std::find_if(connections_.begin(), connections_.end(),
                                     [](const Connection& c) { return c.answered; });
  Evict(answered != connections_.end() ? answered : connections_.begin());
}

void HandshakeServer::Evict(Connections::iterator connection) {
  ++stats_.evicted;
  Close(connection);
}

void HandshakeServer::Close(Connections::iterator connection) {
  if (connection->watch != 0) loop_->Unwatch(connection->watch);
  buffered_bytes_ -= connection->accounted;
  connections_.erase(connection);
}

void HandshakeServer::StartTimer() {
  if (timer_ != 0) return;
  const auto timer = loop_->AddTimer(kTimerPeriod, [this] { OnTimer(); });
  if (timer.ok()) timer_ = *timer;
}

void HandshakeServer::OnTimer() {
  const Clock::time_point now = Clock::now();
  while (!connections_.empty() && connections_.front().deadline <= now) {
    ++stats_.expired;
    Close(connections_.begin());
  }
  if (accept_watch_ == 0 && !ResumeAccepting().ok()) return;
  if (connections_.empty()) loop_->Unwatch(std::exchange(timer_, 0));
}

}  // namespace railhop
