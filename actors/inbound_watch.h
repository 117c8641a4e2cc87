// InboundWatch: who holds the lanes of this rank, and what becomes of those whose sender dies.
//
//   none -> [alive, its side file opened] -> kIntroduced (SenderSide)
//        -> [SenderSideTaken] -> kAdmitted (SenderAdmitted)
//   its process ended -> kLost (SenderLost; the rank makes itself the lane's sender)
//        -> [SenderDrained, doorbell quiet for the grace time] -> the lane is free -> none
//
// The sender has reserved the lane's pages before it offers anything; mapping them here as well
// only spares the first pieces their page faults, so it goes on in the background meanwhile.
//
// A lane that its sender released by itself keeps its record: the same sender may come back. Part
// of PeerActor, on its thread. Steps that need the entry lock are tried again when it is taken.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/group_member.h"
#include "actors/messages.h"
#include "actors/ordered_ports.h"
#include "actors/watched_process.h"
#include "runtime/background_worker.h"
#include "transport/ring/lane_claim.h"

namespace railhop {

class InboundWatch {
 public:
  static constexpr std::chrono::milliseconds kLook{200};
  static constexpr std::chrono::milliseconds kLockRetry{5};
  static constexpr std::chrono::milliseconds kAdmitRetry{1000};

  using CqPollPorts = OrderedPorts<SenderSide>;
  using RelayPorts = OrderedPorts<SenderAdmitted, SenderLost>;

  // Everything outlives this object. `wake` makes the reactor call Run.
  InboundWatch(GroupMember& member, BackgroundWorker& worker, std::chrono::milliseconds grace,
               CqPollPorts& cq_poll, RelayPorts& relay)
      : member_(member), worker_(worker), grace_(grace), cq_poll_(cq_poll), relay_(relay) {}

  void Start(EventLoop* loop, std::function<void()> wake);

  // Looks at every lane; `now` in cycles. Returns how many changed.
  size_t Run(uint64_t now);
  // When Run is wanted next, unless something happens before.
  uint64_t due() const { return due_; }

  // Somebody may have claimed a lane: look soon.
  void Nudge() { due_ = 0; }
  void OnSenderSideTaken(const SenderSideTaken& message);
  void OnSenderDrained(const SenderDrained& message);

 private:
  enum class Phase : uint8_t { kNone, kIntroduced, kAdmitted, kLost };

  struct Lane {
    Phase phase = Phase::kNone;
    LaneSender sender{};
    std::unique_ptr<WatchedProcess> process;
    std::shared_ptr<BackgroundWorker::Job> reserving;
    std::unique_ptr<PeerSide> side;
    std::vector<std::unique_ptr<PeerSide>> former_sides;  // that CqPollActor may still use
    uint32_t unanswered = 0;                              // SenderSide messages
    uint64_t retry_at = 0;                                // cycles; kNone: not before
    // kLost:
    bool drained = false;
    bool taken = false;
    std::optional<QuietDoorbell> quiet;
  };

  bool RunLane(uint32_t number, uint64_t now);
  bool Accept(uint32_t number, const LaneSender& sender, uint64_t now);
  bool RunLost(uint32_t number, uint64_t now);
  void CheckReserved(uint32_t number);
  void Lose(uint32_t number);
  void TellSide(uint32_t number, std::unique_ptr<PeerSide> side);
  void RetryAt(uint64_t when) { due_ = std::min(due_, when); }
  void WarnOnce(const LaneSender& sender, const std::string& what);
  const LaneHeader& HeaderOf(uint32_t number) const {
    return member_.self().block().lanes[number].header;
  }

  GroupMember& member_;
  BackgroundWorker& worker_;
  const std::chrono::milliseconds grace_;
  CqPollPorts& cq_poll_;
  RelayPorts& relay_;
  EventLoop* loop_ = nullptr;
  std::function<void()> wake_;
  std::array<Lane, kLaneCount> lanes_;
  std::set<std::string> warned_;
  uint64_t due_ = 0;
};

}  // namespace railhop
