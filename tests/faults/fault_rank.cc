#include "tests/faults/fault_rank.h"

#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <span>
#include <vector>

#include "actors/bootstrap.h"
#include "tools/demo/batches.h"
#include "tools/demo/child_process.h"

namespace railhop {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kStopDeadline{2'000};

// Short times, so that everything that waits for one comes to pass within a trial. The line is slow
// enough for work to pile up.
std::string ConfigText(const FaultRankOptions& options) {
  return fmt::format(
      "name: \"prefill-{0}\" sim_directory: \"{1}\" registry_root: \"{1}\"\n"
      "ranks_on_host: 3 local_rank: {0} piece_timeout_ms: 300\n"
      "nics {{ name: \"sim{0}\" sim {{ line_rate_bytes_per_s: 300000000 }} }}\n"
      "pxn {{ enable: true group_id: \"faults\" preattach: true credit_timeout_ms: 200\n"
      "  heartbeat_ms: 100 heartbeat_timeout_ms: 600 }}\n",
      options.number, options.folder);
}

const char* StateName(BatchState state) {
  constexpr const char* kNames[] = {"PENDING", "COMPLETED", "FAILED", "CANCELED", "TIMEOUT"};
  return kNames[static_cast<size_t>(state)];
}

class FaultRank {
 public:
  // Empty, or what went wrong.
  std::string Create(const FaultRankOptions& options) {
    std::string error;
    rank_ = Rank::Create(ConfigText(options), "the fault trial's config", &error);
    if (rank_ == nullptr) return error;
    if (!rank_->pxn_off_reason().empty()) return "PXN is off: " + rank_->pxn_off_reason();
    if (!rank_->RegisterMemory(source_.data(), source_.size(), "cpu:0", &error)) return error;
    target_ = rank_->OpenSegment(kFaultTarget, &error);
    return target_ == 0 ? error : "";
  }

  json Handle(const json& request) {
    const auto command = request["command"].get<std::string>();
    if (command == "submit") return Submit(request);
    if (command == "poll") return Poll();
    if (command == "wait_relay") {
      const milliseconds timeout(request["timeout_ms"].get<int64_t>());
      return {{"ready", rank_->WaitForRelay(request["rail"].get<std::string>(), timeout)}};
    }
    if (command == "leave") {
      rank_->Stop(kStopDeadline);
      return json::object();
    }
    Batch& batch = batches_.at(request["slot"].get<size_t>());
    if (command == "cancel") {
      rank_->Cancel(batch.id);
    } else if (rank_->Free(batch.id) == FreeResult::kOk) {
      batch.id = {};
    } else {
      return {{"error", "a batch in a terminal state cannot be freed"}};
    }
    return json::object();
  }

 private:
  struct Batch {
    BatchId id;
    Clock::time_point deadline;
  };

  json Submit(const json& request) {
    const auto slot = request["slot"].get<size_t>();
    Batch& batch = batches_.at(slot);
    const auto source = std::span(source_).subspan(slot * kBatchBytes, kBatchBytes);
    FillPattern(source, request["seed"].get<uint64_t>());
    const auto address = request["address"].get<uint64_t>();
    std::vector<TransferRequest> requests;
    for (uint64_t at = 0; at < kBatchBytes; at += kBatchRequestBytes) {
      requests.push_back({Opcode::kWrite, &source[at], target_, address + at, kBatchRequestBytes});
    }
    const milliseconds timeout(request["timeout_ms"].get<int64_t>());
    batch.deadline = Clock::now() + timeout;
    const SubmitResult result = rank_->Submit(requests, timeout, &batch.id);
    if (result != SubmitResult::kOk) return {{"error", "a batch was not accepted"}};
    return json::object();
  }

  json Poll() const {
    json batches = json::array();
    for (size_t slot = 0; slot < batches_.size(); ++slot) {
      const Batch& batch = batches_[slot];
      if (!batch.id.valid()) continue;
      // The time first: a state is never older than how late it is said to be.
      const auto overdue =
          std::chrono::duration_cast<milliseconds>(Clock::now() - batch.deadline).count();
      const BatchStatus status = rank_->Status(batch.id);
      batches.push_back({{"slot", slot},
                         {"state", StateName(status.state)},
                         {"error", TransferErrorName(status.error)},
                         {"bytes", status.bytes},
                         {"relayed_bytes", status.relayed_bytes},
                         {"overdue_ms", overdue}});
    }
    return {{"batches", batches}};
  }

  std::vector<std::byte> source_ = std::vector<std::byte>(kBatchSlots * kBatchBytes);
  std::unique_ptr<Rank> rank_;
  SegmentId target_ = 0;
  std::array<Batch, kBatchSlots> batches_;
};

}  // namespace

int RunFaultRank(const FaultRankOptions& options) {
  const std::string log = fmt::format("{}/rank{}.log", options.folder, options.number);
  if (std::freopen(log.c_str(), "a", stderr) == nullptr) return 1;
  FaultRank rank;
  const std::string error = rank.Create(options);
  return ServeRequests([&](const json& request) -> json {
    if (!error.empty()) return {{"error", error}};
    return rank.Handle(request);
  });
}

}  // namespace railhop
