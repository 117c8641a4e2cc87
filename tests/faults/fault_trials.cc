#include "tests/faults/fault_trials.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <thread>

#include "tools/demo/interrupt.h"

namespace railhop {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr seconds kToTheEnd{5};   // of a batch, after the SIGKILL or the SIGCONT
constexpr seconds kToTheHit{60};  // only a point that is never passed takes so long
constexpr seconds kToHealth{60};  // until a lane is there and used
constexpr milliseconds kBetweenLooks{2};
constexpr uint32_t kLoadedSlots = 4;
constexpr int kLooksUnderLoad = 20;
constexpr uint32_t kAfterwards = 4;  // the slot of a batch that is submitted after the fault
constexpr uint32_t kHealth = 5;      // the slot of batches that show a rank's health

// Early and late passes: in an empty ring, a full one, and around its end.
uint64_t PassOf(const NamedPoint& point, uint32_t number) {
  switch (point.when) {
    case PassedWhen::kLoaded:
      return 1 + number * 7 % 40;
    case PassedWhen::kAttaching:
    case PassedWhen::kLeaving:
      return 1 + number % 2;  // two peers
    case PassedWhen::kSenderDies:
      return 1;
  }
  return 1;
}

}  // namespace

const char* ToString(FaultAction action) {
  return action == FaultAction::kKill ? "kill" : "stop";
}

absl::Status FaultTrials::SetUp() {
  if (absl::Status status = workplace_.Create(); !status.ok()) return status;
  for (uint32_t i = 0; i < players_.size(); ++i) {
    players_[i].emplace(i, workplace_.path(), &findings_);
  }
  if (absl::Status status = StartTarget(); !status.ok()) return status;
  return StartAll();
}

absl::Status FaultTrials::StartTarget() {
  auto target = SimTarget::Create(workplace_.path(), kFaultTarget);
  if (!target.ok()) return target.status();
  target_ = *std::move(target);
  for (auto& player : players_) {
    auto memory = target_->AllocateMemory(Player::kMemoryBytes);
    if (!memory.ok()) return memory.status();
    auto buffer = target_->Register(memory->data(), memory->size(), {relay().rail()});
    if (!buffer.ok()) return buffer.status();
    player->SetMemory(*memory);
  }
  return target_->Publish();
}

absl::Status FaultTrials::StartAll() {
  for (auto& player : players_) {
    if (absl::Status status = player->Start(""); !status.ok()) return status;
  }
  for (Player* player : {&sender(), &other_sender()}) {
    if (absl::Status status = AwaitLane(*player, relay()); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status FaultTrials::AwaitLane(Player& from, const Player& to) {
  absl::StatusOr<json> reply = from.Ask({{"command", "wait_relay"},
                                         {"rail", to.rail()},
                                         {"timeout_ms", milliseconds(kToHealth).count()}},
                                        2 * kToHealth);
  if (!reply.ok()) return reply.status();
  if ((*reply)["ready"].get<bool>()) return absl::OkStatus();
  return absl::DeadlineExceededError(
      fmt::format("{} has no lane to {} after {} s", from.name(), to.name(), kToHealth.count()));
}

template <class Done>
absl::StatusOr<bool> FaultTrials::ObserveUntil(milliseconds patience, Done done) {
  const auto until = Clock::now() + patience;
  while (true) {
    for (auto& player : players_) {
      if (player->life() != Player::Life::kRuns) continue;
      absl::Status status = player->Observe();
      // It may have been hit just now.
      if (!status.ok() && player->life() == Player::Life::kRuns) return status;
    }
    if (InterruptedBy() != 0) return absl::CancelledError("interrupted");
    if (done()) return true;
    if (Clock::now() > until) return false;
    std::this_thread::sleep_for(kBetweenLooks);
  }
}

absl::Status FaultTrials::Run(const NamedPoint& point, FaultAction action, uint32_t number) {
  const Findings before = findings_;
  Player& victim = point.name.starts_with("sender.") ? sender() : relay();
  if (number % 2 == 0) {
    if (absl::Status status = victim.Finish(); !status.ok()) return status;
  }
  absl::Status status =
      victim.Start(fmt::format("{}:{}:{}", point.name, PassOf(point, number), ToString(action)));
  if (status.ok()) status = Hit(point, victim);
  if (status.ok()) {
    status = action == FaultAction::kKill ? AfterKill(victim) : AfterStop(victim, number);
  }
  if (status.ok()) status = Recover(point, action, victim);
  for (auto& player : players_) player->CheckSealed();
  if (status.ok() && findings_.texts.size() == before.texts.size()) return status;
  if (InterruptedBy() != 0) return status;
  if (!status.ok()) findings_.Add(&Findings::unhealthy, std::string(status.message()));
  return StartAll();
}

// Keeps both senders at work until the victim is hit.
absl::Status FaultTrials::Hit(const NamedPoint& point, Player& victim) {
  const bool attached = point.when == PassedWhen::kLeaving || point.when == PassedWhen::kSenderDies;
  // A lane that is known to be ready may still be one to the victim's life before.
  if (attached) {
    if (absl::Status status = CheckHealth(sender()); !status.ok()) return status;
    if (absl::Status status = AwaitLane(sender(), other_sender()); !status.ok()) return status;
  }
  for (auto& player : players_) player->ExpectSuccess(false);
  other_sender().ExpectSuccess(&victim == &sender());
  bool provoked = !attached;
  absl::Status loaded;
  absl::StatusOr<bool> hit = ObserveUntil(kToTheHit, [&] {
    if (victim.life() != Player::Life::kRuns) return true;
    if (provoked && point.when == PassedWhen::kLeaving) return false;
    for (Player* player : {&sender(), &other_sender()}) {
      if (player->life() != Player::Life::kRuns) continue;
      absl::Status status = player->Load(kLoadedSlots);
      if (!status.ok() && player->life() == Player::Life::kRuns) loaded.Update(status);
    }
    if (std::exchange(provoked, true)) return !loaded.ok();
    if (point.when == PassedWhen::kSenderDies) sender().Kill();
    if (point.when == PassedWhen::kLeaving) {
      // The answer comes when it has left: it is hit before.
      absl::Status status = victim.Ask({{"command", "leave"}}).status();
      if (!absl::IsUnavailable(status)) loaded.Update(status);
    }
    return !loaded.ok();
  });
  if (!hit.ok()) return hit.status();
  if (!loaded.ok()) return loaded;
  if (*hit) return absl::OkStatus();
  return absl::InternalError(
      fmt::format("{} did not pass {} within {} s", victim.name(), point.name, kToTheHit.count()));
}

absl::Status FaultTrials::AfterKill(Player& victim) {
  victim.Kill();
  for (auto& player : players_) {
    if (player->life() != Player::Life::kRuns) continue;
    if (absl::Status status = player->Submit(kAfterwards); !status.ok()) return status;
  }
  return AwaitEnd("5 s after the SIGKILL of " + victim.name());
}

absl::Status FaultTrials::AfterStop(Player& victim, uint32_t number) {
  for (auto& player : players_) {
    if (player->life() != Player::Life::kRuns) continue;
    absl::Status status = player->Submit(kAfterwards);
    if (number % 4 >= 2) status.Update(player->Cancel(0));
    if (!status.ok()) return status;
  }
  const auto none_pending = [&] {
    return std::none_of(players_.begin(), players_.end(), [&](const auto& player) {
      return &*player != &victim && player->AnyPending();
    });
  };
  // Observe() has its own, tighter limit.
  if (auto left = ObserveUntil(2 * Player::kDeadline + kToTheEnd, none_pending); !left.ok()) {
    return left.status();
  }
  victim.ExcuseDelay();
  if (kill(victim.pid(), SIGCONT) != 0) return absl::ErrnoToStatus(errno, "SIGCONT");
  return AwaitEnd("5 s after the SIGCONT of " + victim.name());
}

absl::Status FaultTrials::AwaitEnd(const std::string& when) {
  const auto over = [&] {
    return std::none_of(players_.begin(), players_.end(),
                        [](const auto& player) { return player->AnyUnderWay(); });
  };
  absl::StatusOr<bool> ended = ObserveUntil(kToTheEnd, over);
  if (!ended.ok()) return ended.status();
  for (auto& player : players_) player->ReportStuck(when);
  return absl::OkStatus();
}

absl::Status FaultTrials::Recover(const NamedPoint& point, FaultAction action, Player& victim) {
  const bool gone = action == FaultAction::kKill || point.when == PassedWhen::kLeaving;
  if (gone) {
    if (absl::Status status = victim.Start(""); !status.ok()) return status;
  }
  if (sender().life() == Player::Life::kEnded) {
    if (absl::Status status = sender().Start(""); !status.ok()) return status;
  }
  return CheckHealthOfAll();
}

absl::Status FaultTrials::LoadForAWhile() {
  absl::Status loaded;
  int looks = 0;
  absl::StatusOr<bool> done = ObserveUntil(kToTheHit, [&] {
    for (Player* player : {&sender(), &other_sender()}) loaded.Update(player->Load(kLoadedSlots));
    return !loaded.ok() || ++looks == kLooksUnderLoad;
  });
  loaded.Update(done.status());
  return loaded;
}

absl::Status FaultTrials::Restart(RankRole role, bool in_order) {
  Player& victim = role == RankRole::kSender ? sender() : relay();
  for (auto& player : players_) player->ExpectSuccess(false);
  other_sender().ExpectSuccess(role == RankRole::kSender);
  absl::Status status = LoadForAWhile();
  if (status.ok() && in_order) status = victim.Finish();
  if (status.ok()) status = AfterKill(victim);
  if (status.ok()) status = victim.Start("");
  if (status.ok()) status = CheckHealthOfAll();
  for (auto& player : players_) player->CheckSealed();
  return status;
}

absl::Status FaultTrials::RestartTarget() {
  for (auto& player : players_) player->ExpectSuccess(false);
  if (absl::Status status = LoadForAWhile(); !status.ok()) return status;
  for (auto& player : players_) {
    player->CheckSealed();
    player->SetMemory({});
  }
  target_.reset();
  const auto over = [&] { return !sender().AnyUnderWay() && !other_sender().AnyUnderWay(); };
  if (auto ended = ObserveUntil(kToTheEnd, over); !ended.ok()) return ended.status();
  for (auto& player : players_) player->ReportStuck("5 s after the target ended");
  if (absl::Status status = StartTarget(); !status.ok()) return status;
  // Until a rank has connected to the new target, what it sends there fails.
  absl::Status status = CheckHealth(sender());
  if (status.ok()) status = CheckHealth(other_sender());
  for (auto& player : players_) player->CheckSealed();
  return status;
}

absl::Status FaultTrials::CheckHealthOfAll() {
  for (Player* player : {&sender(), &other_sender()}) {
    player->ExpectSuccess(true);
    if (absl::Status status = CheckHealth(*player); !status.ok()) return status;
  }
  return absl::OkStatus();
}

// A batch of the player goes through the relay, whole. Its first ones may go direct.
absl::Status FaultTrials::CheckHealth(Player& player) {
  const auto until = Clock::now() + kToHealth;
  if (absl::Status status = AwaitLane(player, relay()); !status.ok()) return status;
  do {
    if (absl::Status status = player.Submit(kHealth); !status.ok()) return status;
    absl::StatusOr<bool> ended = ObserveUntil(kToTheEnd, [&] { return !player.AnyUnderWay(); });
    if (!ended.ok()) return ended.status();
    player.ReportStuck("when all is well again");
    if (player.WasRelayed(kHealth)) return absl::OkStatus();
  } while (Clock::now() < until);
  return absl::DeadlineExceededError(fmt::format("nothing of {} is relayed {} s after the fault",
                                                 player.name(), kToHealth.count()));
}

std::string FaultTrials::Logs() const {
  std::ostringstream text;
  for (size_t i = 0; i < players_.size(); ++i) {
    std::ifstream log(fmt::format("{}/rank{}.log", workplace_.path(), i));
    text << "---- log of rank " << i << "\n" << log.rdbuf() << "\n";
    text.clear();
  }
  return text.str();
}

}  // namespace railhop
