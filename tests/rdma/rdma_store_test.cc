// RdmaNic as a store of endpoints: its cap, who has to go, and paths that fail again and again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <string>
#include <vector>

#include "tests/rdma/rdma_support.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

// Peers are processes of other names, all of them served by one target here.
std::string Peer(int number) {
  return "there:" + std::to_string(100 + number) + "@rxe1";
}

class RdmaStoreTest : public RdmaRails {
 protected:
  // In place of the fixture's NIC, which knows its endpoint no more.
  void Use(uint32_t max_endpoints, EvictionPolicy eviction = EvictionPolicy::kSieve,
           RdmaRetry retry = kQuickRetry) {
    nic_ = MakeNic({.server_name = "here:3",
                    .exchange = AskTarget(),
                    .send_queue_depth = kDepth,
                    .max_endpoints = max_endpoints,
                    .eviction = eviction,
                    .retry = retry});
  }
  EndpointId Connect(int peer) {
    auto endpoint = nic_->Connect(Info(Peer(peer)), 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.value_or(0);
  }
  FabricStatus RunOn(EndpointId endpoint) {
    endpoint_ = endpoint;
    return Run(Write(0, 4096));
  }
};

TEST_F(RdmaStoreTest, AtTheCapTheOneThatWasNotUsedGoes) {
  Use(2);
  const EndpointId used = Connect(0);
  const EndpointId idle = Connect(1);
  EXPECT_EQ(RunOn(used), FabricStatus::kOk);
  const EndpointId third = Connect(2);
  EXPECT_THAT(nic_->Describe(idle), HasSubstr("there:101@rxe1: evicted"));
  EXPECT_EQ(RunOn(used), FabricStatus::kOk);
  EXPECT_EQ(RunOn(third), FabricStatus::kOk);
  EXPECT_EQ(RunOn(idle), FabricStatus::kTransport);
  EXPECT_EQ(RunOn(idle), FabricStatus::kFlushed);
}

TEST_F(RdmaStoreTest, FifoEvictsTheOldestWhetherItWasUsedOrNot) {
  Use(2, EvictionPolicy::kFifo);
  const EndpointId oldest = Connect(0);
  const EndpointId idle = Connect(1);
  EXPECT_EQ(RunOn(oldest), FabricStatus::kOk);
  Connect(2);
  EXPECT_EQ(RunOn(oldest), FabricStatus::kTransport);
  EXPECT_EQ(RunOn(idle), FabricStatus::kOk);
}

TEST_F(RdmaStoreTest, APeerThatIsNotReachedCostsNobodyItsConnection) {
  Use(1);
  const EndpointId endpoint = Connect(0);
  EXPECT_FALSE(nic_->Connect(Info("there:2@rxe9"), 0).ok());
  EXPECT_EQ(RunOn(endpoint), FabricStatus::kOk);
}

TEST_F(RdmaStoreTest, AnEvictedEndpointCompletesWhatWasPosted) {
  Use(1);
  endpoint_ = Connect(0);
  constexpr uint32_t kPiece = 60'000;
  for (uint32_t i = 0; i < 8; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * kPiece, kPiece)));
  nic_->Submit();
  Connect(1);
  for (uint32_t i = 8; i < 12; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * kPiece, kPiece)));
  nic_->Submit();
  Tend();  // ends nothing before its time
  const std::vector<FabricStatus> statuses = StatusesOf(Await(*nic_, 12));
  EXPECT_THAT(std::vector(statuses.begin(), statuses.begin() + 8), Each(FabricStatus::kOk));
  EXPECT_EQ(statuses[8], FabricStatus::kTransport);
  EXPECT_THAT(std::vector(statuses.begin() + 9, statuses.end()), Each(FabricStatus::kFlushed));
  EXPECT_EQ(memcmp(remote_.data(), local_.data(), size_t{8} * kPiece), 0);
  EXPECT_EQ(remote_[size_t{8} * kPiece], std::byte{0});
}

TEST_F(RdmaStoreTest, EvictedEndpointsAreFreedWithoutAnotherConnect) {
  Use(1);
  Connect(0);
  const std::string one = KernelResources();
  const EndpointId second = Connect(1);
  Connect(2);
  ASSERT_EQ(RunOn(second), FabricStatus::kTransport);
  Tend();
  Tend();
  // Two more queue pairs for each peer at the target, none at the NIC.
  const std::string kept = KernelResources();
  EXPECT_EQ(kept.substr(0, kept.find("rxe1")), one.substr(0, one.find("rxe1")));
  EXPECT_EQ(RunOn(second), FabricStatus::kTransport) << "an id that does not dangle";
}

TEST_F(RdmaStoreTest, ADrainThatDoesNotEndIsEnded) {
  Use(1, EvictionPolicy::kSieve, {.timeout = 20, .count = 6});  // half a minute
  endpoint_ = Connect(0);
  ASSERT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
  const auto third_rail = OpenRail(2);
  auto other = RdmaTarget::Create({third_rail});
  ASSERT_TRUE(other.ok()) << other.status();
  const PulledCable pulled(1);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64)));
  nic_->Submit();
  std::swap(target_, *other);
  ASSERT_TRUE(nic_->Connect(Info("there:2@rxe2"), 0).ok());
  Tend(RdmaNic::kDrainTime - std::chrono::seconds(1));
  NicCompletion completion;
  EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
  Tend(RdmaNic::kDrainTime + std::chrono::seconds(1));
  EXPECT_THAT(StatusesOf(Await(*nic_, 3)),
              testing::ElementsAre(FabricStatus::kTransport, FabricStatus::kFlushed,
                                   FabricStatus::kFlushed));
}

TEST_F(RdmaStoreTest, ThreePeersInTurnWithRoomForTwo) {
  Use(2);
  std::vector<EndpointId> endpoints(3, 0);
  int connects = 0;
  for (int turn = 0; turn < 30; ++turn) {
    EndpointId& endpoint = endpoints[static_cast<size_t>(turn % 3)];
    std::fill(remote_.begin(), remote_.end(), std::byte{0});
    int tries = 0;
    while (endpoint == 0 || RunOn(endpoint) != FabricStatus::kOk) {
      ASSERT_LT(++tries, 3);
      if (endpoint != 0) nic_->Disconnect(endpoint);
      endpoint = Connect(turn % 3);
      ++connects;
    }
    ASSERT_EQ(memcmp(remote_.data(), local_.data(), 4096), 0);
  }
  EXPECT_LE(connects, 30);
  EXPECT_GE(connects, 3 + 9) << "somebody has to go at least every third turn";
}

// Every request that all endpoints may have, posted at once: the completion queue holds them all.
TEST_F(RdmaStoreTest, AllEndpointsMayBeFullAtOnce) {
  Use(4);
  std::vector<EndpointId> endpoints;
  for (int i = 0; i < 4; ++i) endpoints.push_back(Connect(i));
  for (int round = 0; round < 2; ++round) {
    for (const EndpointId endpoint : endpoints) {
      endpoint_ = endpoint;
      for (uint32_t i = 0; i < kDepth; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64)));
      EXPECT_FALSE(nic_->Prepare(Write(0, 64)));
    }
    nic_->Submit();
    EXPECT_THAT(StatusesOf(Await(*nic_, size_t{4} * kDepth)), Each(FabricStatus::kOk));
  }
}

// More than the completion queue has room for at first, as a power of two, to which the driver
// rounds up: it grows while completions are in it.
TEST_F(RdmaStoreTest, WithManyEndpointsTheCompletionQueueGrows) {
  constexpr int kEndpoints = RdmaNic::kFirstEndpoints + 76;
  target_ = *RdmaTarget::Create({far_}, {.max_endpoints = kEndpoints});
  Use(kEndpoints);
  std::vector<EndpointId> endpoints;
  for (int i = 0; i < kEndpoints; ++i) {
    endpoints.push_back(endpoint_ = Connect(i));
    for (uint32_t j = 0; j < kDepth; ++j) ASSERT_TRUE(nic_->Prepare(Write(j * 64, 64)));
    nic_->Submit();
  }
  const auto completions = Await(*nic_, size_t{kEndpoints} * kDepth);
  ASSERT_EQ(completions.size(), size_t{kEndpoints} * kDepth);
  EXPECT_THAT(StatusesOf(completions), Each(FabricStatus::kOk));
  for (const EndpointId endpoint : endpoints) ASSERT_EQ(RunOn(endpoint), FabricStatus::kOk);
}

class RdmaApproachTest : public RdmaStoreTest {
 protected:
  void SetUp() override {
    RdmaStoreTest::SetUp();
    nic_ = MakeNic({.server_name = "here:3",
                    .exchange = [this, ask = AskTarget()](
                                    const std::string& server,
                                    const std::string& json) -> absl::StatusOr<std::string> {
                      ++asked_;
                      if (refuse_) return R"({"reply_msg": "no room"})";
                      return ask(server, json);
                    },
                    .send_queue_depth = kDepth,
                    .max_endpoints = 2,
                    .retry = kQuickRetry});
  }
  bool refuse_ = false;
  int asked_ = 0;
};

TEST_F(RdmaApproachTest, TheNextConnectHasItsOutcomeAtOnce) {
  nic_->Approach(Info(), 0);
  nic_->Approach(Info(), 0);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kOk);
  EXPECT_EQ(asked_, 1) << "of the handshake's messages one is not waited for";
  nic_->Settle();
  nic_->Settle();
  EXPECT_EQ(asked_, 2);
  nic_->Approach(Info(), 0);  // it has a connection that works
  EXPECT_EQ(asked_, 2);
  Connected();
  EXPECT_EQ(asked_, 4);
}

TEST_F(RdmaApproachTest, AConnectionThatTheTargetHasGivenUpEnds) {
  nic_->Approach(Info(), 0);
  endpoint_ = Connected();
  target_ = MakeTarget();
  nic_->Settle();
  EXPECT_THAT(nic_->Describe(endpoint_), HasSubstr("given up"));
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
}

TEST_F(RdmaApproachTest, ABrokenConnectionIsNone) {
  nic_->Approach(Info(), 0);
  endpoint_ = Connected();
  target_ = MakeTarget();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  nic_->Approach(Info(), 0);
  EXPECT_EQ(asked_, 2);
  endpoint_ = Connected();
  EXPECT_EQ(asked_, 2);
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
}

TEST_F(RdmaApproachTest, AFailureIsTheNextConnectsToo) {
  refuse_ = true;
  nic_->Approach(Info(), 0);
  refuse_ = false;
  EXPECT_THAT(std::string(nic_->Connect(Info(), 0).status().message()), HasSubstr("no room"));
  EXPECT_EQ(asked_, 1);
  EXPECT_NE(Connected(), 0u);
}

TEST_F(RdmaApproachTest, WhatNobodyComesForIsGivenBack) {
  const std::string before = KernelResources();
  nic_->Approach(Info(), 0);
  EXPECT_NE(KernelResources(), before);
  Tend();
  EXPECT_NE(KernelResources(), before);
  Tend(RdmaNic::kApproachTime + std::chrono::seconds(1));
  const std::string after = KernelResources();
  EXPECT_EQ(after.substr(0, after.find("rxe1")), before.substr(0, before.find("rxe1")));
  EXPECT_NE(Connected(), 0u);
  EXPECT_EQ(asked_, 4);
}

TEST_F(RdmaStoreTest, APathThatFailsAgainAndAgainIsLeftAlone) {
  int asked = 0;
  nic_ = MakeNic(
      {.server_name = "here:3",
       .exchange = [&](const std::string&, const std::string&) -> absl::StatusOr<std::string> {
         ++asked;
         return R"({"reply_msg": "no room"})";
       },
       .send_queue_depth = kDepth,
       .max_endpoints = 2,
       .retry = kQuickRetry,
       .breaker = {.failures = 3, .first_pause = std::chrono::hours(1)}});
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(nic_->Connect(Info(), 0).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_EQ(asked, 3);
  const absl::Status refused = nic_->Connect(Info(), 0).status();
  EXPECT_EQ(asked, 3);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("rxe0 (GID index 1)"), HasSubstr("there:2@rxe1"),
                    HasSubstr("failed 3 times in a row"), HasSubstr("tried again in"),
                    HasSubstr("refused, \"no room\"")));
  EXPECT_FALSE(nic_->Connect(Info(Peer(1)), 0).ok());
  EXPECT_EQ(asked, 4) << "another path";
}

TEST_F(RdmaStoreTest, APathThatBreaksAfterEachConnectIsLeftAlone) {
  nic_ = MakeNic(
      {.server_name = "here:3",
       .exchange = AskTarget(),
       .send_queue_depth = kDepth,
       .max_endpoints = 2,
       .retry = kQuickRetry,
       .breaker = {
           .failures = 2, .first_pause = std::chrono::hours(1), .early = std::chrono::hours(1)}});
  for (int i = 0; i < 2; ++i) {
    endpoint_ = Connected();
    target_ = MakeTarget();  // starts anew, and knows nobody
    EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
    nic_->Disconnect(endpoint_);
  }
  EXPECT_THAT(std::string(nic_->Connect(Info(), 0).status().message()),
              AllOf(HasSubstr("failed 2 times in a row"), HasSubstr("retry")));
}

// Wrong requests say nothing about the path.
TEST_F(RdmaStoreTest, RefusedAccessIsNoFaultOfThePath) {
  nic_ = MakeNic({.server_name = "here:3",
                  .exchange = AskTarget(),
                  .send_queue_depth = kDepth,
                  .max_endpoints = 2,
                  .retry = kQuickRetry,
                  .breaker = {.failures = 1, .early = std::chrono::hours(1)}});
  for (int i = 0; i < 3; ++i) {
    endpoint_ = Connected();
    WorkRequest wrong = Write(0, 64);
    wrong.rkey ^= 0xff;
    EXPECT_EQ(Run(wrong), FabricStatus::kRemoteAccess);
    nic_->Disconnect(endpoint_);
  }
}

}  // namespace
}  // namespace railhop
