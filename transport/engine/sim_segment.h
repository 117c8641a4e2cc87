// The segment of an engine on simulated NICs: a SimTarget that NICs of this host write to, and the
// listener by which peers find it.
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
#include "transport/fabric/sim/sim_target.h"
#include "transport/topology/priority_matrix.h"

namespace railhop {

class SimSegment final : public LocalSegment {
 public:
  struct Options {
    std::string directory = {};  // of the host's simulated targets
    // Which of the engine's NICs are near which memory.
    PriorityMatrix matrix = {};
  };

  // `host`, `name`: as of TcpSegment.
  static absl::StatusOr<std::unique_ptr<SimSegment>> Start(const std::string& host,
                                                           const std::string& name, Options options,
                                                           const EngineEnvironment& environment);

  const std::string& name() const override { return listener_->name(); }
  HostPort listener() const override { return listener_->address(); }
  std::string Encoded() const override { return listener_->Encoded(); }
  std::string Topology() const override { return options_.matrix.Encode(); }

  // A segmented location counts as that of its first byte.
  absl::Status Add(void* address, size_t length, std::string_view location) override;
  absl::Status Remove(void* address) override;
  std::vector<Notification> TakeNotifications() override { return listener_->TakeNotifications(); }

 private:
  SimSegment(Options options, std::unique_ptr<SegmentListener> listener,
             std::unique_ptr<SimTarget> target)
      : options_(std::move(options)), listener_(std::move(listener)), target_(std::move(target)) {}

  const Options options_;
  const std::unique_ptr<SegmentListener> listener_;
  std::mutex mutex_;  // the target has one control thread at a time
  const std::unique_ptr<SimTarget> target_;
  std::map<uint64_t, uint32_t> keys_;  // by address
};

}  // namespace railhop
