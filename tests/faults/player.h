// A rank process of a fault trial as the driver of the trial sees it: its life, its batches, and
// what each may and may not have done to the target's memory, which is the driver's own.
//
// Once a batch has been shown in a terminal state its range of the target is filled with a sentinel
// and watched ("sealed"): nothing may land there any more. Each life of the process has ranges of
// its own, since a relay may still send what a killed sender left in its lane. One thread.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tests/faults/fault_rank.h"
#include "tools/demo/child_process.h"

namespace railhop {

struct Findings {
  uint64_t stuck = 0;          // batches
  uint64_t wrong_or_late = 0;  // batches
  uint64_t unhealthy = 0;      // ranks and batches that had nothing to do with the fault
  std::vector<std::string> texts = {};

  void Add(uint64_t Findings::*count, std::string text);
};

class Player {
 public:
  enum class Life { kRuns, kStopped, kEnded };
  static constexpr uint32_t kLives = 4;  // with ranges of their own
  static constexpr uint64_t kMemoryBytes = kLives * kBatchSlots * kBatchBytes;
  static constexpr std::chrono::milliseconds kDeadline{1'000};  // of a batch

  // `findings` outlives the player.
  Player(uint32_t number, std::string folder, Findings* findings);
  // kMemoryBytes of the target's; none: the target is away, and what completes is not looked at.
  void SetMemory(std::span<std::byte> memory);

  const std::string& name() const { return name_; }
  std::string rail() const { return "sim" + std::to_string(number_); }
  pid_t pid() const { return process_->pid(); }
  Life life() const;

  // A new life. `fault`: what it finds in RAILHOP_FAULT; empty: nothing.
  absl::Status Start(const std::string& fault);
  void Kill();
  // Ends it in order.
  absl::Status Finish();

  // An error: no answer for `patience`, or the process stands still or has ended. Answers of one
  // that was stopped are taken, and dropped, when it goes on.
  absl::StatusOr<nlohmann::json> Ask(const nlohmann::json& request,
                                     std::chrono::milliseconds patience = kPatience);

  // One new batch in each of the first `slots` slots that have none under way.
  absl::Status Load(uint32_t slots);
  absl::Status Submit(uint32_t slot);
  absl::Status Cancel(uint32_t slot);
  // Looks at every batch under way and notes what is not as it should be.
  absl::Status Observe();
  // The process stood still: its batches may be past their deadlines.
  void ExcuseDelay() { delay_excused_ = true; }
  // Some other rank stands still or has ended, and this one has nothing to do with it: each of its
  // batches must complete.
  void ExpectSuccess(bool expected) { success_expected_ = expected; }

  bool AnyPending() const;
  bool AnyUnderWay() const;  // not in a terminal state
  void ReportStuck(const std::string& when);
  // Of the batch that was last in the slot: completed, with each byte relayed.
  bool WasRelayed(uint32_t slot) const { return batches_.at(slot).relayed; }
  // Notes what landed in sealed ranges since the last look.
  void CheckSealed();

 private:
  static constexpr std::chrono::seconds kPatience{30};

  struct Batch {
    bool under_way = false;
    bool pending = false;
    bool relayed = false;
    bool canceled = false;  // was asked to be, if it is not over
    bool reported = false;
    uint64_t seed = 0;
    std::string seen = {};  // the last look at it
  };

  size_t RangeOf(uint32_t slot) const { return life_count_ % kLives * kBatchSlots + slot; }
  std::span<std::byte> Memory(size_t range) const {
    return memory_.subspan(range * kBatchBytes, kBatchBytes);
  }
  absl::Status Note(const nlohmann::json& seen);
  void Seal(size_t range);
  void CheckRange(size_t range);

  const uint32_t number_;
  const std::string name_;
  const std::string folder_;
  std::span<std::byte> memory_;
  Findings& findings_;
  std::optional<ChildProcess> process_;
  uint64_t asked_ = 0;  // requests
  uint32_t owed_ = 0;   // answers
  uint32_t life_count_ = 0;
  bool delay_excused_ = false;
  bool success_expected_ = false;
  std::array<Batch, kBatchSlots> batches_;
  std::array<bool, kLives * kBatchSlots> sealed_{};
};

}  // namespace railhop
