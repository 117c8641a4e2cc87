// The segment of an engine that is reached over RDMA: its listener, which answers the handshakes of
// initiators, and registered memory of its devices.
//
// Threads: that of the listener; every method from any thread.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "transport/engine/local_segment.h"
#include "transport/engine/segment_listener.h"
#include "transport/fabric/rdma/rdma_device.h"
#include "transport/fabric/rdma/rdma_target.h"
#include "transport/topology/priority_matrix.h"

namespace railhop {

class RdmaSegment final : public LocalSegment {
 public:
  struct Options {
    // In the order of the matrix' NICs, which is that of each buffer's keys.
    std::vector<std::shared_ptr<RdmaDevice>> devices = {};
    PriorityMatrix matrix = {};
    RdmaAddressOf address_of = nullptr;  // as of RdmaTargetOptions
  };

  // `host`, `name`: as of TcpSegment.
  static absl::StatusOr<std::unique_ptr<RdmaSegment>> Start(const std::string& host,
                                                            const std::string& name,
                                                            Options options,
                                                            const EngineEnvironment& environment);

  const std::string& name() const override { return listener_->name(); }
  HostPort listener() const override { return listener_->address(); }
  std::string Encoded() const override { return listener_->Encoded(); }
  std::string Topology() const override { return options_.matrix.Encode(); }

  absl::Status Add(void* address, size_t length, std::string_view location) override;
  absl::Status Remove(void* address) override;
  std::vector<Notification> TakeNotifications() override { return listener_->TakeNotifications(); }

 private:
  RdmaSegment(Options options, std::unique_ptr<RdmaTarget> target)
      : options_(std::move(options)), target_(std::move(target)) {}

  // What each device has registered of one range, by device.
  using Registered = std::vector<std::vector<MemoryPart>>;

  absl::StatusOr<Registered> Register(void* address, size_t length) const;
  absl::Status Deregister(const Registered& registered) const;

  const Options options_;
  const std::unique_ptr<RdmaTarget> target_;  // the listener's thread uses it
  std::unique_ptr<SegmentListener> listener_;
  std::mutex mutex_;
  std::map<uint64_t, Registered> registered_;  // by address
};

}  // namespace railhop
