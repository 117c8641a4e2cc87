// Trials: two senders and the relay of both, real processes, under load; one of them stops or dies
// at a named protocol point, and everything that it leaves behind must come to a good end.
//
//   rank 0 --lane--> rank 1 --NIC sim1--> target (this process)
//   rank 2 --lane-->   '
//
// A trial: start the victim (rank 0 or rank 1) with its fault; load both senders until it is hit;
// killed: the others' batches end within 5 s; stopped: they leave PENDING by their deadlines, it
// goes on, and all batches end within 5 s. Then the victim is started anew if need be, and each
// sender must get a batch relayed. Findings are counted as in Findings. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "tests/faults/fault_points.h"
#include "tests/faults/player.h"
#include "tools/demo/workplace.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {

enum class RankRole { kSender, kRelay };
enum class FaultAction { kKill, kStop };
const char* ToString(FaultAction action);

class FaultTrials {
 public:
  // Makes the folder and the target, and starts the ranks.
  absl::Status SetUp();

  // `number` chooses which pass of the point is the one, and details like it. What was found comes
  // in findings(); an error means that the trial could not be held.
  absl::Status Run(const NamedPoint& point, FaultAction action, uint32_t number);

  // Without a fault point: under load the rank, or the target, ends and is started anew.
  absl::Status Restart(RankRole role, bool in_order);
  absl::Status RestartTarget();

  const Findings& findings() const { return findings_; }
  // What the ranks have logged.
  std::string Logs() const;

 private:
  Player& sender() { return *players_[0]; }
  Player& relay() { return *players_[1]; }
  Player& other_sender() { return *players_[2]; }

  absl::Status StartTarget();
  absl::Status StartAll();
  absl::Status LoadForAWhile();
  absl::Status Hit(const NamedPoint& point, Player& victim);
  absl::Status AwaitLane(Player& from, const Player& to);
  absl::Status AfterKill(Player& victim);
  absl::Status AfterStop(Player& victim, uint32_t number);
  // Waits until no batch is under way; those that still are then are stuck, `when` says since when.
  absl::Status AwaitEnd(const std::string& when);
  absl::Status Recover(const NamedPoint& point, FaultAction action, Player& victim);
  absl::Status CheckHealthOfAll();
  absl::Status CheckHealth(Player& player);
  // Looks at all that run until `done` holds. False: `patience` ended first.
  template <class Done>
  absl::StatusOr<bool> ObserveUntil(std::chrono::milliseconds patience, Done done);

  Findings findings_;
  Workplace workplace_;
  std::unique_ptr<SimTarget> target_;
  std::array<std::optional<Player>, 3> players_;
};

}  // namespace railhop
