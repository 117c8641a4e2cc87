// Looks at a rank while it relays a batch: which slots are used, what its actors do, and the
// records of its pieces. The rank process's end of piece_report.h.
//
// One thread beside the caller's, between Begin and End; what it gathers is then Take()'s. It looks
// every 10 ms, which costs the rank well below 1 % of a core.
#pragma once

#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>

#include "actors/bootstrap.h"

namespace railhop {

class RunWatch {
 public:
  // Batches that are over before are left alone: their time is that of a few wake-ups.
  static constexpr std::chrono::milliseconds kFirstLook{1};
  static constexpr std::chrono::milliseconds kInterval{10};
  static constexpr size_t kMaxRecords = 200'000;  // of one run; more are counted as lost

  explicit RunWatch(Rank* rank) : rank_(*rank) {}

  void Begin();
  void End();
  // What ReadRankTrace of piece_report.h reads; records and losses since the last Take, everything
  // else since the first Begin.
  nlohmann::json Take();

 private:
  struct LaneSums {
    int32_t relay_pid = 0;
    uint64_t samples = 0;
    std::array<uint64_t, 5> slots{};  // free, copying, rung, posted, completed
  };
  struct ActorSums {
    std::string reactor;
    double busy_s = 0;
  };

  void Look();
  void TakeRecords();
  void AddActors(double sign);

  Rank& rank_;
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable ended_changed_;
  bool ended_ = false;  // under mutex_

  // The watching thread's while there is one.
  std::map<uint32_t, LaneSums> lanes_;
  std::map<std::string, ActorSums> actors_;
  PieceTrace trace_;
  std::chrono::steady_clock::time_point begun_;
  double seconds_ = 0;
};

}  // namespace railhop
