#include "actors/inbound_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/cycle_clock.h"
#include "runtime/fault_point.h"
#include "runtime/log.h"

namespace railhop {
namespace {

constexpr size_t kMostWarnings = 1024;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

}  // namespace

void InboundWatch::Start(EventLoop* loop, std::function<void()> wake) {
  loop_ = loop;
  wake_ = std::move(wake);
}

size_t InboundWatch::Run(uint64_t now) {
  due_ = now + ToCycles(kLook);
  size_t changed = 0;
  for (uint32_t i = 0; i < kLaneCount; ++i) {
    if (RunLane(i, now)) ++changed;
  }
  return changed;
}

bool InboundWatch::RunLane(uint32_t number, uint64_t now) {
  Lane& lane = lanes_[number];
  CheckReserved(number);
  if (lane.phase == Phase::kLost) return RunLost(number, now);
  if (lane.phase != Phase::kNone && lane.process->Ended()) {
    Lose(number);
    return true;
  }
  const std::optional<LaneSender> holder = ReadSender(HeaderOf(number));
  if (!holder.has_value() || *holder == member_.sender()) return false;
  if (lane.phase != Phase::kNone && *holder == lane.sender) return false;
  if (now < lane.retry_at) {
    RetryAt(lane.retry_at);
    return false;
  }
  return Accept(number, *holder, now);
}

bool InboundWatch::Accept(uint32_t number, const LaneSender& sender, uint64_t now) {
  Lane& lane = lanes_[number];
  const auto refuse = [&](const std::string& why) {
    WarnOnce(sender, fmt::format("{} holds lane {} but is not relayed for: {}",
                                 ToString(sender.identity), number, why));
    lane.retry_at = now + ToCycles(kAdmitRetry);
    return false;
  };
  if (sender.identity.uid != geteuid()) return refuse("it belongs to another user");
  RegistryDirectory& directory = member_.self().directory();
  auto process = std::make_unique<WatchedProcess>(*loop_, sender.identity, wake_);
  const Liveness liveness = ProbeLiveness(sender.identity);
  const bool dead = liveness == Liveness::kDead;
  if (liveness == Liveness::kEnding) {
    lane.retry_at = now + ToCycles(kAdmitRetry);
    return false;
  }
  if (dead && !directory.IsGone(sender.identity, sender.epoch)) {
    return refuse("it lives in another PID namespace, where its end would not be seen");
  }
  if (liveness == Liveness::kUnknown) return refuse("/proc does not show whether it lives");

  std::unique_ptr<PeerSide> side;
  if (!dead) {
    absl::StatusOr<PeerSide> opened =
        directory.side().OpenPeer(MakeKey(sender.identity, sender.epoch));
    if (opened.ok()) {
      side = std::make_unique<PeerSide>(*std::move(opened));
    } else if (!absl::IsNotFound(opened.status())) {
      WarnOnce(sender, fmt::format("{}; its owner is treated as a version-1 process",
                                   Text(opened.status())));
    }
  }
  lane.sender = sender;
  lane.process = std::move(process);
  lane.phase = Phase::kIntroduced;
  TellSide(number, std::move(side));
  if (dead) {
    Lose(number);
  } else if (lane.reserving == nullptr) {
    lane.reserving =
        worker_.Start([&arena = member_.arena(), number] { return arena.ReserveLane(number); });
  }
  return true;
}

void InboundWatch::CheckReserved(uint32_t number) {
  Lane& lane = lanes_[number];
  if (lane.reserving == nullptr || !lane.reserving->done()) return;
  const absl::Status status = std::exchange(lane.reserving, nullptr)->status();
  if (status.ok()) return;
  WarnOnce(lane.sender,
           fmt::format("lane {} takes page faults while data flows: {}", number, Text(status)));
}

// The relay's post actor is told even of a sender that was never admitted: its answer says that
// nothing of the lane is posted.
void InboundWatch::Lose(uint32_t number) {
  Lane& lane = lanes_[number];
  lane.phase = Phase::kLost;
  lane.process.reset();
  lane.drained = false;
  lane.taken = false;
  lane.quiet.emplace(grace_);
  relay_.Send(SenderLost{.sender_epoch = lane.sender.epoch, .lane = number});
  TellSide(number, nullptr);
  due_ = 0;
}

bool InboundWatch::RunLost(uint32_t number, uint64_t now) {
  Lane& lane = lanes_[number];
  const std::optional<LaneSender> holder = ReadSender(HeaderOf(number));
  if (!lane.taken && holder == lane.sender) {
    // At once, so that nobody else may take it for a free lane.
    lane.taken = TakeOverLane(member_.self(), number, lane.sender).ok();
    if (!lane.taken) {
      RetryAt(now + ToCycles(kLockRetry));
      return false;
    }
    RAILHOP_FAULT_POINT("relay.lane_taken_over");
  }
  if (!lane.drained) return false;
  if (lane.taken) {
    if (!lane.quiet->Observe(HeaderOf(number), std::chrono::steady_clock::now())) {
      RetryAt(now + ToCycles(grace_) / 4 + 1);
      return false;
    }
    if (!FreeTakenLane(member_.self(), number).ok()) {
      RetryAt(now + ToCycles(kLockRetry));
      return false;
    }
    RAILHOP_FAULT_POINT("relay.lane_freed");
  }
  lane.phase = Phase::kNone;
  lane.retry_at = 0;
  due_ = 0;  // somebody may hold it already
  return true;
}

void InboundWatch::TellSide(uint32_t number, std::unique_ptr<PeerSide> side) {
  Lane& lane = lanes_[number];
  if (lane.side != nullptr) lane.former_sides.push_back(std::move(lane.side));
  lane.side = std::move(side);
  ++lane.unanswered;
  cq_poll_.Send(
      SenderSide{.side = lane.side.get(), .sender_epoch = lane.sender.epoch, .lane = number});
}

void InboundWatch::OnSenderSideTaken(const SenderSideTaken& message) {
  Lane& lane = lanes_[message.lane];
  if (--lane.unanswered != 0) return;
  lane.former_sides.clear();
  if (lane.phase != Phase::kIntroduced) return;
  // Only now, so that its first completion finds whom to wake.
  lane.phase = Phase::kAdmitted;
  relay_.Send(SenderAdmitted{.sender_epoch = lane.sender.epoch, .lane = message.lane});
}

void InboundWatch::OnSenderDrained(const SenderDrained& message) {
  Lane& lane = lanes_[message.lane];
  if (lane.phase != Phase::kLost || message.sender_epoch != lane.sender.epoch) return;
  lane.drained = true;
  due_ = 0;
}

void InboundWatch::WarnOnce(const LaneSender& sender, const std::string& what) {
  if (warned_.size() >= kMostWarnings) warned_.clear();
  if (warned_.insert(fmt::format("{} {}", sender.epoch, what)).second) {
    Log(LogLevel::kWarning, what);
  }
}

}  // namespace railhop
