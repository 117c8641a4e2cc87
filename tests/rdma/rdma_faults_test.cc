// Links that go down, connections that do not come about, targets that start anew.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/rdma/rdma_support.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RdmaFaultsTest : public RdmaRails {
 protected:
  absl::Status ConnectError(const std::string& connection = "there:2@rxe1") {
    return nic_->Connect(Info(connection), 0).status();
  }
};

TEST_F(RdmaFaultsTest, APulledCableFailsWritesUntilItIsInAgain) {
  ASSERT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
  {
    const PulledCable pulled(1);
    ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
    ASSERT_TRUE(nic_->Prepare(Write(64, 64)));
    nic_->Submit();
    EXPECT_THAT(StatusesOf(Await(*nic_, 2)),
                ElementsAre(FabricStatus::kTransport, FabricStatus::kFlushed));
    EXPECT_THAT(nic_->Describe(endpoint_), HasSubstr("retry"));
  }
  nic_->Disconnect(endpoint_);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kOk);
  EXPECT_EQ(memcmp(remote_.data(), local_.data(), 4096), 0);
}

TEST_F(RdmaFaultsTest, OneRailDownLeavesTheOtherAlone) {
  auto other = OpenRail(2);
  auto nic = RdmaNic::Create(other, {.server_name = "here:1",
                                     .exchange = AskTarget(),
                                     .send_queue_depth = kDepth,
                                     .max_endpoints = 4,
                                     .retry = kQuickRetry});
  ASSERT_TRUE(nic.ok()) << nic.status();
  const auto endpoint = (*nic)->Connect(Info(), 0);
  ASSERT_TRUE(endpoint.ok()) << endpoint.status();
  const auto key = other->Register(local_.data(), kBytes);
  const PulledCable pulled(0);
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  WorkRequest request = Write(0, 64);
  request.endpoint = *endpoint;
  request.lkey = key->lkey;
  ASSERT_TRUE((*nic)->Prepare(request));
  (*nic)->Submit();
  EXPECT_EQ(Await(**nic, 1)[0].status, FabricStatus::kOk);
}

TEST_F(RdmaFaultsTest, ATargetThatStartsAnewIsConnectedAnew) {
  ASSERT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
  target_ = MakeTarget();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
}

TEST_F(RdmaFaultsTest, RefusalsSayWho) {
  EXPECT_THAT(std::string(ConnectError("there:2@rxe9").message()),
              AllOf(HasSubstr("rxe0 (GID index 1)"), HasSubstr("there:2@rxe9"),
                    HasSubstr("has no NIC rxe9 in use")));
  EXPECT_EQ(ConnectError("nonsense").code(), absl::StatusCode::kInvalidArgument);
  TargetInfo info = Info();
  info.kind = "tcp";
  EXPECT_EQ(nic_->Connect(info, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

// Field fault L10: at every step of the handshake at which one can fail.
TEST_F(RdmaFaultsTest, FailedConnectsLeaveNothingBehind) {
  int asked = 0;
  nic_ = MakeNic(
      {.server_name = "here:1",
       .exchange = [&, ask = AskTarget()](const std::string& server,
                                          const std::string& json) -> absl::StatusOr<std::string> {
         switch (++asked % 6) {
           case 0:
             return absl::UnavailableError("nobody listens");
           case 1:
             return "no JSON";
           case 2:
             return RdmaHandshake{}.Encode();
           case 3:
             ask(server, json).IgnoreError();  // its answer gets lost
             return absl::DeadlineExceededError("no answer");
           case 4:
             return ask(server, json);  // and then the second message is refused:
           default:
             return std::string(R"({"reply_msg": "busy"})");
         }
       },
       .send_queue_depth = kDepth,
       .max_endpoints = 4,
       .retry = kQuickRetry,
       .breaker = {.failures = UINT32_MAX}});
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(ConnectError().ok());
  const std::string before = KernelResources();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(ConnectError().ok());
  EXPECT_EQ(KernelResources(), before);
  EXPECT_EQ(target_->endpoints(), 1u);
}

TEST_F(RdmaFaultsTest, ReconnectingLeavesNothingBehind) {
  const std::string before = KernelResources();
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
    nic_->Disconnect(endpoint_);
    endpoint_ = Connected();
  }
  // Beside the handshakes, at both ends.
  EXPECT_TRUE(WaitUntil([&] {
    Tend();
    return KernelResources() == before;
  })) << KernelResources();
}

TEST_F(RdmaFaultsTest, TheOldestConnectionsMakeRoomForNewOnes) {
  std::vector<std::unique_ptr<RdmaNic>> nics;
  for (int i = 0; i < 8; ++i) {  // one more than the target keeps beside ours
    nics.push_back(MakeNic({.server_name = "here:" + std::to_string(100 + i),
                            .exchange = AskTarget(),
                            .send_queue_depth = kDepth,
                            .max_endpoints = 1,
                            .retry = kQuickRetry}));
    ASSERT_TRUE(nics.back()->Connect(Info(), 0).ok());
  }
  EXPECT_EQ(target_->endpoints(), 8u);
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
}

TEST_F(RdmaFaultsTest, OnlyConnectionsOfProcessesThatAreGoneMakeRoom) {
  std::set<std::string> gone;
  int asked = 0;
  auto target = RdmaTarget::Create({far_}, {.max_endpoints = 8, .is_gone = [&](const auto& server) {
                                              ++asked;
                                              return gone.contains(server);
                                            }});
  ASSERT_TRUE(target.ok()) << target.status();
  target_ = *std::move(target);
  endpoint_ = Connected();
  std::vector<std::unique_ptr<RdmaNic>> nics;
  const auto connect = [&](const std::string& name) {
    nics.push_back(MakeNic({.server_name = name,
                            .exchange = AskTarget(),
                            .send_queue_depth = kDepth,
                            .max_endpoints = 1,
                            .retry = kQuickRetry}));
    return nics.back()->Connect(Info(), 0).status();
  };
  for (int i = 1; i < 8; ++i) ASSERT_TRUE(connect("here:" + std::to_string(100 + i)).ok());
  EXPECT_EQ(asked, 0);
  EXPECT_THAT(std::string(connect("here:200").message()), HasSubstr("it has 8 connections"));
  EXPECT_EQ(asked, 8);
  gone = {"here:103"};
  EXPECT_TRUE(connect("here:201").ok());
  EXPECT_EQ(target_->endpoints(), 8u);
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk) << "the oldest, still in use";
}

TEST_F(RdmaFaultsTest, TheSameHandshakeTwiceGetsTheSameAnswer) {
  RdmaHandshake request;
  request.local_nic_path = "other:9@rxe0";
  request.peer_nic_path = "there:2@rxe1";
  request.qp_numbers = {1234, 1235};
  request.gid = near_->gid().gid;
  const std::optional<std::string> first = target_->Answer(request.Encode());
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(target_->Answer(request.Encode()), first);
  const auto reply = RdmaHandshake::Decode(*first);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->qp_numbers.size(), 2u);
  EXPECT_EQ(reply->ready_ack, std::nullopt);
  EXPECT_EQ(target_->endpoints(), 2u);
  request.qp_numbers = {1236, 1237};
  EXPECT_NE(target_->Answer(request.Encode()), first);
  EXPECT_EQ(target_->endpoints(), 2u);
  // A second message for queue pairs that are not (any more) connected.
  request.qp_numbers = {1234, 1235};
  request.ready_ack = true;
  EXPECT_THAT(target_->Answer(request.Encode()), testing::Optional(HasSubstr("not connected")));
  EXPECT_EQ(target_->Answer("{"), std::nullopt);
}

}  // namespace
}  // namespace railhop
