#include "transport/engine/tcp_segment.h"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <utility>

#include "runtime/fence.h"
#include "runtime/log.h"
#include "transport/engine/host_port.h"

namespace railhop {

absl::StatusOr<std::unique_ptr<TcpSegment>> TcpSegment::Start(
    const std::string& host, const std::string& name, const EngineEnvironment& environment) {
  std::unique_ptr<TcpSegment> segment(new TcpSegment);
  segment->host_ = host;
  if (absl::Status status = segment->Listen(environment); !status.ok()) return status;
  segment->descriptor_.name = name.empty() ? JoinHostPort(host, segment->handshake_->port()) : name;
  segment->thread_ = std::thread(&TcpSegment::Serve, segment.get());
  return segment;
}

absl::Status TcpSegment::Listen(const EngineEnvironment& environment) {
  TcpServerOptions data;
  data.address = !environment.tcp_bind_address.empty() ? environment.tcp_bind_address
                 : environment.use_ipv6                ? "::"
                                                       : "0.0.0.0";
  data.lowest_port = static_cast<uint16_t>(environment.min_rpc_port);
  data.highest_port = static_cast<uint16_t>(environment.max_rpc_port);
  absl::StatusOr<std::unique_ptr<TcpServer>> server = TcpServer::Start(std::move(data));
  if (!server.ok()) return server.status();
  data_ = *std::move(server);
  descriptor_.tcp_data_port = data_->port();
  descriptor_.tcp_proto_version = 2;
  descriptor_.railhop_drain = 1;

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
  handlers.on_notify = [this](std::string name, std::string message) {
    return OnNotify(std::move(name), std::move(message));
  };
  auto handshake = HandshakeServer::Start(loop_.get(), options, std::move(handlers));
  if (!handshake.ok()) return handshake.status();
  handshake_ = *std::move(handshake);
  return absl::OkStatus();
}

TcpSegment::~TcpSegment() {
  if (!thread_.joinable()) return;
  stop_.store(true, std::memory_order_release);
  FullFence();
  parker_.WakeIfParked();
  thread_.join();
}

void TcpSegment::Serve() {
  pthread_setname_np(pthread_self(), "handshake");
  while (true) {
    parker_.PreparePark(false);
    if (stop_.load(std::memory_order_acquire)) break;
    loop_->RunOnce(std::chrono::hours(1));
    parker_.FinishPark();
  }
}

std::string TcpSegment::Encoded() const {
  const std::lock_guard lock(mutex_);
  return descriptor_.Encode();
}

absl::Status TcpSegment::Add(void* address, size_t length, std::string_view) {
  const auto first = reinterpret_cast<uint64_t>(address);
  if (absl::Status status = data_->AddRegion(first, length); !status.ok()) return status;
  const std::lock_guard lock(mutex_);
  // TCP names a buffer after its segment; the location matters to RDMA only.
  SegmentBuffer& buffer = descriptor_.buffers.emplace_back();
  buffer.name = descriptor_.name;
  buffer.address = first;
  buffer.length = length;
  descriptor_.timestamp = SegmentTimestamp(std::chrono::system_clock::now());
  return absl::OkStatus();
}

// Taken out of the descriptor first, so that nobody learns of it any more.
absl::Status TcpSegment::Remove(void* address) {
  const auto first = reinterpret_cast<uint64_t>(address);
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(descriptor_.buffers,
                  [&](const SegmentBuffer& buffer) { return buffer.address == first; });
    descriptor_.timestamp = SegmentTimestamp(std::chrono::system_clock::now());
  }
  return data_->RemoveRegion(first);
}

bool TcpSegment::OnNotify(std::string name, std::string message) {
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

std::vector<Notification> TcpSegment::TakeNotifications() {
  const std::lock_guard lock(mutex_);
  return std::exchange(notifications_, {});
}

}  // namespace railhop
