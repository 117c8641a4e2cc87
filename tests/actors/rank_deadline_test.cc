// A rank keeps its deadlines whatever holds up its control reactor.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/bootstrap.h"
#include "actors/bootstrap_config.h"
#include "actors/bootstrap_layout.h"
#include "actors/bootstrap_rank.h"
#include "actors/bootstrap_staging.h"
#include "tests/actors/scripted_nic.h"
#include "tests/support/flag.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;

// Its first connection breaks at the first request, and connecting anew takes until the test says
// so.
class BreakingNic : public ScriptedNic {
 public:
  BreakingNic(Flag* connecting, Flag* go) : connecting_(*connecting), go_(*go) {}

  absl::StatusOr<EndpointId> Connect(const TargetInfo&, size_t) override {
    const EndpointId id = ++connects_;
    if (id == kFirst) return id;
    connecting_.Set();
    EXPECT_TRUE(go_.Wait());
    return absl::UnavailableError("the target does not answer");
  }
  size_t Peek(std::span<NicCompletion> completions) override {
    if (outstanding(kFirst) != 0) Fail(kFirst, FabricStatus::kTransport);
    return ScriptedNic::Peek(completions);
  }

 private:
  static constexpr EndpointId kFirst = 1;

  Flag& connecting_;
  Flag& go_;
  EndpointId connects_ = 0;
};

class RankDeadlineTest : public testing::Test {
 protected:
  void Start(std::unique_ptr<Nic> nic) {
    const auto read = [this](const std::string& name, const std::stop_token&) {
      return absl::StatusOr<TargetInfo>({.name = name,
                                         .kind = "scripted",
                                         .buffers = {{Address(), memory_.size(), {7}, {"there0"}}},
                                         .nics = {{"there0", "there"}}});
    };
    std::string error;
    RankConfig config;
    ASSERT_TRUE(
        LoadRankConfig("name: 'here' layout: ONE_CORE sim_directory: '/nowhere' "
                       "nics { name: 'scripted0' sim {} }",
                       "test", std::getenv, &config, &error))
        << error;
    ResolvedLayout layout;
    ASSERT_TRUE(ResolveLayout(config, DetectHostCores(), &layout, &error)) << error;
    RankStaging staging = MakeStaging(&config);
    std::vector<std::unique_ptr<Nic>> nics;
    nics.push_back(std::move(nic));
    rank_ = MakeRank(std::move(config), layout, std::move(staging), read, std::move(nics), &error);
    ASSERT_NE(rank_, nullptr) << error;
    ASSERT_TRUE(rank_->RegisterMemory(memory_.data(), memory_.size(), "cpu:0", &error)) << error;
    target_ = rank_->OpenSegment("there", &error);
    ASSERT_NE(target_, 0u) << error;
  }
  uint64_t Address() const { return reinterpret_cast<uint64_t>(memory_.data()); }
  BatchId Submit(const SubmitOptions& options) {
    const TransferRequest request{.source = memory_.data(),
                                  .target = target_,
                                  .target_address = Address(),
                                  .length = memory_.size()};
    BatchId batch;
    EXPECT_EQ(rank_->SubmitWith({&request, 1}, options, &batch), SubmitResult::kOk);
    return batch;
  }
  BatchStatus Ended(BatchId batch) {
    EXPECT_TRUE(rank_->Wait(batch, std::chrono::duration_cast<milliseconds>(kTestPatience)));
    return rank_->Status(batch);
  }

  Flag connecting_, go_;  // they outlive the NIC
  std::vector<std::byte> memory_{4096};
  std::unique_ptr<Rank> rank_;
  SegmentId target_ = 0;
};

TEST_F(RankDeadlineTest, AControlReactorThatIsHeldUpHoldsUpNoDeadline) {
  Start(std::make_unique<BreakingNic>(&connecting_, &go_));
  const BatchId batch = Submit({.timeout = milliseconds(200)});
  EXPECT_TRUE(connecting_.Wait());
  // Its slice waits for the connection.
  const BatchStatus status = Ended(batch);
  EXPECT_EQ(status.state, BatchState::kFailed);
  EXPECT_EQ(status.error, TransferError::kDeadline);
  go_.Set();
}

TEST_F(RankDeadlineTest, WhatItsCallerHasWaitedCounts) {
  Start(std::make_unique<ScriptedNic>());  // which carries nothing out
  const auto hour = std::chrono::hours(1);
  const BatchId batch = Submit({.timeout = hour, .since = std::chrono::steady_clock::now() - hour});
  EXPECT_EQ(Ended(batch).state, BatchState::kTimeout);
  rank_->Stop(milliseconds(0));
}

}  // namespace
}  // namespace railhop
