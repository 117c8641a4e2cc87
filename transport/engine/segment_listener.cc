#include "transport/engine/segment_listener.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "runtime/fence.h"
#include "runtime/log.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<SegmentListener>> SegmentListener::Start(
    const std::string& host, SegmentDescriptor descriptor, const EngineEnvironment& environment,
    HandshakeHandlers::OnConnection on_connection) {
  std::unique_ptr<SegmentListener> listener(new SegmentListener(host, std::move(descriptor)));
  if (absl::Status status = listener->Listen(environment, std::move(on_connection)); !status.ok()) {
    return status;
  }
  std::string& name = listener->descriptor_.name;
  if (name.empty()) name = JoinHostPort(host, listener->server_->port());
  listener->thread_ = std::thread(&SegmentListener::Serve, listener.get());
  return listener;
}

absl::Status SegmentListener::Listen(const EngineEnvironment& environment,
                                     HandshakeHandlers::OnConnection on_connection) {
  absl::StatusOr<std::unique_ptr<EventLoop>> loop = EventLoop::Create();
  if (!loop.ok()) return loop.status();
  loop_ = *std::move(loop);
  if (parker_.fd() < 0) {
    return absl::ResourceExhaustedError("no descriptor is left for an eventfd; raise `ulimit -n`");
  }
  const auto watch = loop_->WatchFd(parker_.fd(), Trigger::kEdge, [] {});
  if (!watch.ok()) return watch.status();
  HandshakeServerOptions options;
  options.address = environment.tcp_bind_address;
  options.use_ipv6 = environment.use_ipv6;
  options.min_port = static_cast<uint16_t>(environment.min_rpc_port);
  options.max_port = static_cast<uint16_t>(environment.max_rpc_port);
  options.backlog = static_cast<int>(environment.handshake_listen_backlog);
  options.max_frame_length = environment.handshake_max_length;
  HandshakeHandlers handlers;
  handlers.on_metadata = [this](std::string_view) { return Encoded(); };
  handlers.on_connection = std::move(on_connection);
  handlers.on_notify = [this](std::string name, std::string message) {
    return OnNotify(std::move(name), std::move(message));
  };
  auto server = HandshakeServer::Start(loop_.get(), options, std::move(handlers));
  if (!server.ok()) return server.status();
  server_ = *std::move(server);
  return absl::OkStatus();
}

SegmentListener::~SegmentListener() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  FullFence();
  parker_.WakeIfParked();
  thread_.join();
}

void SegmentListener::Serve() {
  pthread_setname_np(pthread_self(), "handshake");
  while (true) {
    parker_.PreparePark(false);
    if (stop_.load(std::memory_order_acquire)) break;
    loop_->RunOnce(std::chrono::hours(1));
    parker_.FinishPark();
  }
}

std::string SegmentListener::Encoded() const {
  const std::lock_guard lock(mutex_);
  return descriptor_.Encode();
}

void SegmentListener::AddBuffer(SegmentBuffer buffer) {
  const std::lock_guard lock(mutex_);
  descriptor_.buffers.push_back(std::move(buffer));
  descriptor_.timestamp = SegmentTimestamp(std::chrono::system_clock::now());
}

void SegmentListener::RemoveBuffer(uint64_t address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(descriptor_.buffers,
                [&](const SegmentBuffer& buffer) { return buffer.address == address; });
  descriptor_.timestamp = SegmentTimestamp(std::chrono::system_clock::now());
}

bool SegmentListener::OnNotify(std::string name, std::string message) {
  const std::lock_guard lock(mutex_);
  if (notifications_.size() == kMaxNotifications) {
    Log(LogLevel::kWarning,
        fmt::format("a notification \"{}\" is refused: {} are waiting and nobody takes them", name,
                    kMaxNotifications));
    return false;
  }
  notifications_.push_back({std::move(name), std::move(message)});
  return true;
}

std::vector<Notification> SegmentListener::TakeNotifications() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notifications_, {});
}

}  // namespace railhop
