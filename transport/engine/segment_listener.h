// The part of an engine's own segment that is the same over every fabric: a handshake listener that
// gives out the descriptor and takes notifications.
//
// Threads: one for the listener ("handshake"); every method from any thread.
#pragma once

#include <atomic>
#include <cstdint>
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
#include "transport/engine/host_port.h"
#include "transport/engine/segment_descriptor.h"
#include "transport/engine/transfer_engine.h"

namespace railhop {

class SegmentListener {
 public:
  // Notifications that nobody takes; later ones are refused.
  static constexpr size_t kMaxNotifications = 4096;

  // `host`: how peers reach this host, a name or an address, taken verbatim. `descriptor`: what
  // they are told from the start; if its name is empty, it gets the listener's address as text. The
  // port is drawn from the environment's range. `on_connection`: as HandshakeHandlers has it.
  static absl::StatusOr<std::unique_ptr<SegmentListener>> Start(
      const std::string& host, SegmentDescriptor descriptor, const EngineEnvironment& environment,
      HandshakeHandlers::OnConnection on_connection = nullptr);
  ~SegmentListener();

  const std::string& name() const { return descriptor_.name; }
  HostPort address() const { return {.host = host_, .port = server_->port()}; }
  // The descriptor as peers get it.
  std::string Encoded() const;

  // From now on the descriptor has that buffer; its address is that of no other one.
  void AddBuffer(SegmentBuffer buffer);
  void RemoveBuffer(uint64_t address);
  std::vector<Notification> TakeNotifications();

 private:
  SegmentListener(std::string host, SegmentDescriptor descriptor)
      : host_(std::move(host)), descriptor_(std::move(descriptor)) {}
  absl::Status Listen(const EngineEnvironment& environment,
                      HandshakeHandlers::OnConnection on_connection);
  void Serve();
  bool OnNotify(std::string name, std::string message);

  const std::string host_;
  Parker parker_;  // wakes the listener's thread to its end
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HandshakeServer> server_;
  std::atomic<bool> stop_{false};
  std::thread thread_;

  mutable std::mutex mutex_;
  SegmentDescriptor descriptor_;  // its name does not change once the thread runs
  std::vector<Notification> notifications_;
};

}  // namespace railhop
