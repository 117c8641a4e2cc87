#include "tools/demo/run_watch.h"

#include <algorithm>

namespace railhop {

using nlohmann::json;

void RunWatch::Begin() {
  // What came in between, as relay of another rank's last run, is not of this one.
  AddActors(-1);
  begun_ = std::chrono::steady_clock::now();
  ended_ = false;
  thread_ = std::thread([this] {
    std::unique_lock lock(mutex_);
    const auto ended_within = [&](std::chrono::milliseconds time) {
      return ended_changed_.wait_for(lock, time, [this] { return ended_; });
    };
    for (bool ended = ended_within(kFirstLook); !ended; ended = ended_within(kInterval)) Look();
  });
}

void RunWatch::End() {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
  }
  ended_changed_.notify_one();
  thread_.join();
  const std::chrono::duration<double> ran = std::chrono::steady_clock::now() - begun_;
  seconds_ += ran.count();
  AddActors(1);
  TakeRecords();
}

void RunWatch::Look() {
  for (const LaneSlots& lane : rank_.Stats().lanes) {
    LaneSums& sums = lanes_[lane.lane];
    sums.relay_pid = lane.relay_pid;
    ++sums.samples;
    const uint32_t slots[] = {lane.free, lane.copying, lane.rung, lane.posted, lane.completed};
    for (size_t i = 0; i < sums.slots.size(); ++i) sums.slots[i] += slots[i];
  }
  TakeRecords();
}

void RunWatch::TakeRecords() {
  const PieceTrace taken = rank_.TakePieceTrace();
  const size_t kept = std::min(taken.records.size(), kMaxRecords - trace_.records.size());
  trace_.records.insert(trace_.records.end(), taken.records.begin(),
                        taken.records.begin() + static_cast<ptrdiff_t>(kept));
  trace_.lost += taken.lost + taken.records.size() - kept;
}

void RunWatch::AddActors(double sign) {
  for (const ActorStats& actor : rank_.Stats().actors) {
    ActorSums& sums = actors_[actor.actor];
    sums.reactor = actor.reactor;
    sums.busy_s += sign * actor.busy_s;
  }
}

json RunWatch::Take() {
  // A relay's last records of a run may be made after its own batch was over.
  TakeRecords();
  json records = json::array();
  for (const PieceRecord& record : trace_.records) {
    records.push_back({record.at, record.submitted, record.relay_epoch, record.sender_epoch,
                       record.sequence, record.lane, static_cast<uint32_t>(record.stage),
                       record.bytes, record.status});
  }
  json lanes = json::array();
  for (const auto& [lane, sums] : lanes_) {
    lanes.push_back({{"lane", lane},
                     {"relay_pid", sums.relay_pid},
                     {"samples", sums.samples},
                     {"slots", sums.slots}});
  }
  json actors = json::array();
  for (const auto& [actor, sums] : actors_) {
    const double busy = seconds_ > 0 ? sums.busy_s / seconds_ : 0;
    actors.push_back({{"actor", actor}, {"reactor", sums.reactor}, {"busy", busy}});
  }
  json taken{{"records", records}, {"lost", trace_.lost}, {"lanes", lanes}, {"actors", actors}};
  trace_ = {};
  return taken;
}

}  // namespace railhop
