// The segment of an engine that is reached over TCP: a handshake listener that gives out the
// descriptor and takes notifications, and a data port through which registered memory is reached.
//
// Threads: one for the listener ("handshake"), the data server's own; every method from any thread.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/event_loop.h"
#include "runtime/parker.h"
#include "transport/engine/environment.h"
#include "transport/engine/handshake_server.h"
#include "transport/engine/local_segment.h"
#include "transport/engine/segment_descriptor.h"
#include "transport/fabric/tcp/tcp_server.h"

namespace railhop {

class TcpSegment final : public LocalSegment {
 public:
  // Notifications that nobody takes; later ones are refused.
  static constexpr size_t kMaxNotifications = 4096;

  // `host`: how peers reach this host, a name or an address, taken verbatim. `name`: what they
  // open; empty: listener() as text. The ports are drawn from the environment's range.
  static absl::StatusOr<std::unique_ptr<TcpSegment>> Start(const std::string& host,
                                                           const std::string& name,
                                                           const EngineEnvironment& environment);
  ~TcpSegment() override;

  const std::string& name() const override { return descriptor_.name; }
  HostPort listener() const override { return {.host = host_, .port = handshake_->port()}; }
  // As peers get it.
  std::string Encoded() const;

  absl::Status Add(void* address, size_t length, std::string_view location) override;
  absl::Status Remove(void* address) override;
  std::vector<Notification> TakeNotifications() override;

 private:
  TcpSegment() = default;
  absl::Status Listen(const EngineEnvironment& environment);
  void Serve();
  bool OnNotify(std::string name, std::string message);

  std::string host_;
  std::unique_ptr<TcpServer> data_;
  Parker parker_;  // wakes the listener's thread to its end
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HandshakeServer> handshake_;
  std::atomic<bool> stop_{false};
  std::thread thread_;

  mutable std::mutex mutex_;
  SegmentDescriptor descriptor_;  // name and ports do not change
  std::vector<Notification> notifications_;
};

}  // namespace railhop
