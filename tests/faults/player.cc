#include "tests/faults/player.h"

#include <fmt/format.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "tools/demo/batches.h"

namespace railhop {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

// A pending batch is stuck when it is so much beyond its deadline: what a busy machine may take
// away from the thread that acts on the deadline.
constexpr int64_t kOverdueMs = 1'000;
constexpr milliseconds kLook{20};
constexpr std::byte kSentinel{0xA5};

uint64_t NextSeed() {
  static uint64_t seed = 0;
  return ++seed;
}

}  // namespace

void Findings::Add(uint64_t Findings::*count, std::string text) {
  ++(this->*count);
  texts.push_back(std::move(text));
}

Player::Player(uint32_t number, std::string folder, Findings* findings)
    : number_(number),
      name_(fmt::format("rank {}", number)),
      folder_(std::move(folder)),
      findings_(*findings) {}

void Player::SetMemory(std::span<std::byte> memory) {
  memory_ = memory;
  sealed_ = {};
}

Player::Life Player::life() const {
  if (!process_.has_value() || process_->pid() <= 0) return Life::kEnded;
  siginfo_t seen{};
  const int flags = WEXITED | WSTOPPED | WNOHANG | WNOWAIT;
  if (waitid(P_PID, static_cast<id_t>(process_->pid()), &seen, flags) != 0) return Life::kEnded;
  if (seen.si_pid == 0) return Life::kRuns;
  return seen.si_code == CLD_STOPPED ? Life::kStopped : Life::kEnded;
}

absl::Status Player::Start(const std::string& fault) {
  process_.reset();
  owed_ = 0;
  ++life_count_;
  delay_excused_ = success_expected_ = false;
  batches_ = {};
  if (!fault.empty()) setenv("RAILHOP_FAULT", fault.c_str(), 1);
  absl::StatusOr<ChildProcess> process = ChildProcess::Spawn(
      name_, {"rank", "--number", std::to_string(number_), "--folder", folder_});
  unsetenv("RAILHOP_FAULT");
  if (!process.ok()) return process.status();
  process_.emplace(*std::move(process));
  return absl::OkStatus();
}

void Player::Kill() {
  process_.reset();
  batches_ = {};
}

absl::Status Player::Finish() {
  absl::Status status = process_->Finish(kPatience);
  Kill();
  return status;
}

absl::StatusOr<json> Player::Ask(const json& request, milliseconds patience) {
  if (life() != Life::kRuns) return absl::UnavailableError(name_ + " does not run");
  if (absl::Status sent = process_->Send(request); !sent.ok()) return sent;
  ++asked_;
  ++owed_;
  const auto until = std::chrono::steady_clock::now() + patience;
  while (true) {
    absl::StatusOr<json> reply = process_->Receive(kLook);
    if (reply.ok() && --owed_ == 0) return reply;
    if (reply.ok()) continue;
    if (!absl::IsDeadlineExceeded(reply.status())) return reply;
    if (life() != Life::kRuns) return absl::UnavailableError(name_ + " does not run");
    if (std::chrono::steady_clock::now() > until) {
      return absl::DeadlineExceededError(fmt::format("{} did not answer \"{}\" within {} ms", name_,
                                                     request["command"].get<std::string>(),
                                                     patience.count()));
    }
  }
}

absl::Status Player::Load(uint32_t slots) {
  for (uint32_t slot = 0; slot < slots; ++slot) {
    if (batches_[slot].under_way) continue;
    if (absl::Status status = Submit(slot); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Player::Submit(uint32_t slot) {
  const size_t range = RangeOf(slot);
  CheckRange(range);
  sealed_[range] = false;
  batches_[slot] = {.under_way = true, .pending = true, .seed = NextSeed()};
  const uint64_t asked = asked_;
  absl::Status status = Ask({{"command", "submit"},
                             {"slot", slot},
                             {"seed", batches_[slot].seed},
                             {"address", reinterpret_cast<uint64_t>(Memory(range).data())},
                             {"timeout_ms", kDeadline.count()}})
                            .status();
  // Without an answer it is under way all the same, or will be when the process goes on.
  if (asked_ == asked) batches_[slot] = {};
  return status;
}

absl::Status Player::Cancel(uint32_t slot) {
  if (!batches_[slot].under_way) return absl::OkStatus();
  batches_[slot].canceled = true;
  return Ask({{"command", "cancel"}, {"slot", slot}}).status();
}

absl::Status Player::Observe() {
  absl::StatusOr<json> seen = Ask({{"command", "poll"}});
  if (!seen.ok()) return seen.status();
  for (const json& batch : (*seen)["batches"]) {
    if (absl::Status status = Note(batch); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Player::Note(const json& seen) {
  const auto slot = seen["slot"].get<uint32_t>();
  Batch& batch = batches_.at(slot);
  if (!batch.under_way) return absl::OkStatus();
  const auto state = seen["state"].get<std::string>();
  batch.seen = seen.dump();
  batch.pending = state == "PENDING";
  if (batch.pending) {
    const auto overdue = seen["overdue_ms"].get<int64_t>();
    if (overdue > kOverdueMs && !delay_excused_ && !std::exchange(batch.reported, true)) {
      findings_.Add(
          &Findings::stuck,
          fmt::format("a batch of {} is PENDING {} ms after its deadline", name_, overdue));
    }
    return absl::OkStatus();
  }
  const bool as_asked = state == "COMPLETED" || (batch.canceled && state == "CANCELED");
  if (success_expected_ && !as_asked && !std::exchange(batch.reported, true)) {
    findings_.Add(&Findings::unhealthy,
                  fmt::format("a batch of {}, which is not concerned: {}", name_, batch.seen));
  }
  if (state == "TIMEOUT") return absl::OkStatus();
  const size_t range = RangeOf(slot);
  if (state == "COMPLETED" && !memory_.empty()) {
    const int64_t at = FindMismatch(Memory(range), batch.seed);
    if (at >= 0) {
      findings_.Add(&Findings::wrong_or_late,
                    fmt::format("a COMPLETED batch of {} has a wrong byte at {} of {}", name_, at,
                                kBatchBytes));
    }
  }
  batch.relayed = state == "COMPLETED" && seen["relayed_bytes"] == kBatchBytes;
  batch.under_way = false;
  Seal(range);
  return Ask({{"command", "free"}, {"slot", slot}}).status();
}

bool Player::AnyPending() const {
  return std::any_of(batches_.begin(), batches_.end(),
                     [](const Batch& batch) { return batch.under_way && batch.pending; });
}

bool Player::AnyUnderWay() const {
  return std::any_of(batches_.begin(), batches_.end(),
                     [](const Batch& batch) { return batch.under_way; });
}

void Player::ReportStuck(const std::string& when) {
  for (Batch& batch : batches_) {
    if (!batch.under_way) continue;
    findings_.Add(&Findings::stuck,
                  fmt::format("a batch of {} has not ended {}: {}", name_, when, batch.seen));
    batch.under_way = false;
  }
}

void Player::CheckSealed() {
  for (size_t range = 0; range < sealed_.size(); ++range) CheckRange(range);
}

void Player::Seal(size_t range) {
  if (memory_.empty()) return;
  const std::span<std::byte> memory = Memory(range);
  std::memset(memory.data(), static_cast<int>(kSentinel), memory.size());
  sealed_[range] = true;
}

void Player::CheckRange(size_t range) {
  if (!sealed_[range]) return;
  const std::span<std::byte> memory = Memory(range);
  const auto at =
      std::find_if(memory.begin(), memory.end(), [](std::byte byte) { return byte != kSentinel; });
  if (at == memory.end()) return;
  findings_.Add(&Findings::wrong_or_late,
                fmt::format("bytes landed at {} of a batch of {} that had ended",
                            at - memory.begin(), name_));
  Seal(range);
}

}  // namespace railhop
