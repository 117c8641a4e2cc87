// The segment of an engine that is reached over TCP: its listener, and a data port through which
// registered memory is reached.
//
// Threads: that of the listener, the data server's own; every method from any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/engine/local_segment.h"
#include "transport/engine/segment_listener.h"
#include "transport/fabric/tcp/tcp_server.h"

namespace railhop {

class TcpSegment final : public LocalSegment {
 public:
  // `host`: how peers reach this host, a name or an address, taken verbatim. `name`: what they
  // open; empty: listener() as text. The ports are drawn from the environment's range. `bounces`:
  // TcpServerOptions.
  static absl::StatusOr<std::unique_ptr<TcpSegment>> Start(
      const std::string& host, const std::string& name, const EngineEnvironment& environment,
      std::shared_ptr<TcpBounces> bounces = nullptr);

  const std::string& name() const override { return listener_->name(); }
  HostPort listener() const override { return listener_->address(); }
  std::string Encoded() const override { return listener_->Encoded(); }
  // Without RDMA devices there is nothing to have priority.
  std::string Topology() const override { return "{}"; }

  absl::Status Add(void* address, size_t length, std::string_view location) override;
  absl::Status Remove(void* address) override;
  std::vector<Notification> TakeNotifications() override { return listener_->TakeNotifications(); }

 private:
  TcpSegment(std::unique_ptr<TcpServer> data, std::unique_ptr<SegmentListener> listener)
      : data_(std::move(data)), listener_(std::move(listener)) {}

  const std::unique_ptr<TcpServer> data_;
  const std::unique_ptr<SegmentListener> listener_;
};

}  // namespace railhop
