#include "tests/bench/rdma/stuck.h"

#include <signal.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "actors/bootstrap.h"
#include "fmt/format.h"
#include "tests/bench/rdma/rails.h"

namespace railhop {
namespace {

using std::chrono::steady_clock;

constexpr size_t kSliceBytes = 64 * 1024;
// More than the rails, which are shaped for that, carry until the fault.
constexpr size_t kSlices = 256;
constexpr int kShapedMbit = 50;
constexpr std::chrono::milliseconds kDeadline{3000};
// From a deadline to the look whether it was kept: two ticks of the watchdog, on a busy machine.
constexpr std::chrono::milliseconds kLookAfter{250};
constexpr std::chrono::seconds kEndsWithin{5};
constexpr std::chrono::milliseconds kLook{1};
constexpr std::chrono::milliseconds kAttachesWithin{30'000};

// The processes beside this one.
struct Sides {
  std::unique_ptr<Side> target;
  std::unique_ptr<Side> relay;  // nullptr: none
};

// Brings the fault about; the destructor ends it.
class Fault {
 public:
  Fault(RdmaFault kind, const Sides& sides)
      : kind_(kind), victim_((IsOfRelay(kind) ? sides.relay : sides.target)->pid()) {
    switch (kind_) {
      case RdmaFault::kTargetKilled:
      case RdmaFault::kRelayKilled:
        kill(victim_, SIGKILL);
        break;
      case RdmaFault::kTargetStopped:
      case RdmaFault::kRelayStopped:
        kill(victim_, SIGSTOP);
        break;
      default:
        status_ = SetLink(Link(), false);
    }
  }
  ~Fault() {
    const bool stopped = kind_ == RdmaFault::kTargetStopped || kind_ == RdmaFault::kRelayStopped;
    if (stopped) kill(victim_, SIGCONT);
    if (*Link() != '\0') SetLink(Link(), true).IgnoreError();
  }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  const absl::Status& status() const { return status_; }

 private:
  // Empty: the fault is not one of a link.
  const char* Link() const {
    switch (kind_) {
      case RdmaFault::kOwnCablePulled:
        return "port0";
      case RdmaFault::kTargetCablePulled:
        return "port1";
      case RdmaFault::kOwnLinkDown:
        return "rail0";
      default:
        return "";
    }
  }

  const RdmaFault kind_;
  const pid_t victim_;
  absl::Status status_;
};

class Trial {
 public:
  absl::Status Begin(const FaultSite& site, const Side& target) {
    std::string error;
    engine_ = MakeTransferEngine(
        {.host = "127.0.0.1", .protocol = "rdma", .config_text = site.config}, &error);
    if (engine_ == nullptr) return absl::UnavailableError(error);
    relayed_ = site.relay.has_value();
    if (relayed_ && !rank().WaitForRelay(site.rail, kAttachesWithin)) {
      return absl::UnavailableError("the relay was not attached");
    }
    if (engine_->RegisterMemory(memory_.data(), memory_.size(), "cpu:0") != EngineError::kOk) {
      return LastError();
    }
    const SegmentHandle segment = engine_->OpenSegment(target.name());
    const uint64_t address = std::strtoull(target.address().c_str(), nullptr, 10);
    std::vector<TransferTask> tasks(kSlices);
    for (size_t i = 0; i < kSlices; ++i) {
      const uint64_t at = i * kSliceBytes % memory_.size();
      tasks[i] = {.source = memory_.data() + at,
                  .target = segment,
                  .target_address = address + at,
                  .length = kSliceBytes};
    }
    batch_ = engine_->AllocateBatch(kSlices);
    deadline_ = steady_clock::now() + kDeadline;
    deadline_ += std::chrono::nanoseconds(kSlices * kSliceBytes);
    if (engine_->Submit(batch_, tasks, kDeadline) != EngineError::kOk) return LastError();
    return absl::OkStatus();
  }

  // Until bytes are there, by the way that is wanted. False: none were.
  bool WaitForTraffic() {
    while (!HasMoved() && steady_clock::now() < deadline_) std::this_thread::sleep_for(kLook);
    return HasMoved();
  }
  void WaitForDeadline() { std::this_thread::sleep_until(deadline_ + kLookAfter); }
  void WaitForEnd() {
    const auto until = steady_clock::now() + kEndsWithin;
    while (Count(&Trial::IsOpen) != 0 && steady_clock::now() < until) {
      std::this_thread::sleep_for(kLook);
    }
  }

  static bool IsCompleted(TransferState state) { return state == TransferState::kCompleted; }
  static bool IsOpen(TransferState state) { return !HasEnded(state); }
  static bool IsSilent(TransferState state) {
    return !HasEnded(state) && state != TransferState::kTimeout;
  }
  size_t Count(bool (*wanted)(TransferState)) {
    size_t count = 0;
    for (size_t i = 0; i < kSlices; ++i) {
      TransferStatus status;
      if (engine_->TaskStatus(batch_, i, &status) == EngineError::kOk && wanted(status.state)) {
        ++count;
      }
    }
    return count;
  }

 private:
  static absl::Status LastError() { return absl::UnavailableError(TransferEngine::last_error()); }
  Rank& rank() { return dynamic_cast<Rank&>(engine_->data_path()); }
  bool HasMoved() {
    return relayed_ ? rank().Stats().bytes_relayed != 0 : Count(&Trial::IsCompleted) != 0;
  }

  std::vector<std::byte> memory_{4 << 20};  // outlives the engine
  std::unique_ptr<TransferEngine> engine_;
  bool relayed_ = false;
  BatchHandle batch_ = kNoBatch;
  steady_clock::time_point deadline_;
};

}  // namespace

std::string_view RdmaFaultName(RdmaFault fault) {
  switch (fault) {
    case RdmaFault::kTargetKilled:
      return "target_killed";
    case RdmaFault::kTargetStopped:
      return "target_stopped";
    case RdmaFault::kOwnCablePulled:
      return "own_cable_pulled";
    case RdmaFault::kTargetCablePulled:
      return "target_cable_pulled";
    case RdmaFault::kOwnLinkDown:
      return "own_link_down";
    case RdmaFault::kRelayKilled:
      return "relay_killed";
    case RdmaFault::kRelayStopped:
      return "relay_stopped";
  }
  return "";
}

absl::StatusOr<StuckSlices> TryRdmaFault(RdmaFault fault, const FaultSite& site) {
  auto target = Side::Start(site.target);
  if (!target.ok()) return target.status();
  Sides sides{.target = *std::move(target), .relay = nullptr};
  if (site.relay.has_value()) {
    auto relay = Side::Start(*site.relay);
    if (!relay.ok()) return relay.status();
    sides.relay = *std::move(relay);
  }
  const ShapedRails slow({0, 1}, kShapedMbit);
  if (!slow.status().ok()) return slow.status();
  Trial trial;
  if (absl::Status status = trial.Begin(site, *sides.target); !status.ok()) return status;
  if (!trial.WaitForTraffic()) {
    return absl::DeadlineExceededError("no byte had moved when it was to be brought about");
  }
  StuckSlices found{.slices = kSlices};
  {
    const Fault broken(fault, sides);
    if (!broken.status().ok()) return broken.status();
    if (trial.Count(&Trial::IsCompleted) == kSlices) {
      return absl::DeadlineExceededError("all had been moved when it came about");
    }
    trial.WaitForDeadline();
    found.at_deadline = trial.Count(&Trial::IsSilent);
  }
  trial.WaitForEnd();
  found.after_end = trial.Count(&Trial::IsOpen);
  found.completed = trial.Count(&Trial::IsCompleted);
  return found;
}

}  // namespace railhop
