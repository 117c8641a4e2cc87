#include "transport/fabric/rdma/rdma_target.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>

#include "tests/support/fake_verbs/fake_verbs.h"
#include "tests/support/flag.h"

namespace railhop {
namespace {

using testing::HasSubstr;

constexpr uint32_t kLostPeer = 666;  // the number of a queue pair whose link is dead

// One target; initiators are messages.
class RdmaTargetTest : public testing::Test {
 protected:
  RdmaTargetTest() {
    fake_.Reset();
    device_ = *RdmaDevice::Open({.name = "fake0"});
  }
  ~RdmaTargetTest() override {
    release_.Set();
    if (lost_.joinable()) lost_.join();
    target_ = nullptr;
    fake_.before_destroy_qp = nullptr;
    device_ = nullptr;
    fake_.looks_for_peer = nullptr;
    EXPECT_EQ(fake_.objects, 0);
  }
  void Create(const RdmaTargetOptions& options = {}) {
    target_ = *RdmaTarget::Create({device_}, options);
  }

  RdmaHandshake Ask(const std::string& initiator, uint32_t number, bool ready_ack = false) {
    RdmaHandshake request;
    request.local_nic_path = initiator;
    request.peer_nic_path = "here:1@fake0";
    request.qp_numbers = {number};
    request.gid = device_->gid().gid;
    request.ready_ack = ready_ack;
    return *RdmaHandshake::Decode(*target_->Answer(request.Encode()));
  }
  // An initiator whose link is dead asks on a thread of its own; returns once the kernel is looking
  // for it, which it does until release_.
  void AskFromALostPeer(const std::string& initiator) {
    fake_.looks_for_peer = [this](uint32_t number) {
      if (number != kLostPeer) return;
      looking_.Set();
      EXPECT_TRUE(release_.Wait());
    };
    lost_ = std::thread([=, this] { lost_reply_ = Ask(initiator, kLostPeer); });
    ASSERT_TRUE(looking_.Wait());
  }

  FakeVerbs& fake_ = FakeVerbs::Get();
  std::shared_ptr<RdmaDevice> device_;
  std::unique_ptr<RdmaTarget> target_;
  Flag looking_, release_;
  std::thread lost_;
  RdmaHandshake lost_reply_;
};

TEST_F(RdmaTargetTest, AnInitiatorWhoseLinkIsDeadHoldsUpNoOther) {
  Create();
  AskFromALostPeer("lost:1@fake1");
  EXPECT_EQ(Ask("other:1@fake1", 7).reply_msg, "");
  EXPECT_EQ(Ask("other:1@fake1", 7, true).reply_msg, "");
  EXPECT_EQ(target_->endpoints(), 1u);
  release_.Set();
  lost_.join();
  EXPECT_EQ(lost_reply_.reply_msg, "");
  EXPECT_EQ(target_->endpoints(), 2u);
}

// It has given up the first connection, which took too long.
TEST_F(RdmaTargetTest, OfTwoConnectionsOfTheSameNicTheOneAskedForLastStays) {
  Create();
  AskFromALostPeer("twice:1@fake1");
  EXPECT_EQ(Ask("twice:1@fake1", 7).reply_msg, "");
  release_.Set();
  lost_.join();
  EXPECT_THAT(lost_reply_.reply_msg, HasSubstr("asked for another connection since"));
  EXPECT_EQ(target_->endpoints(), 1u);
  EXPECT_EQ(Ask("twice:1@fake1", 7, true).reply_msg, "");
}

// As where its link is dead.
TEST_F(RdmaTargetTest, AConnectionThatEndsSlowlyHoldsUpNoOther) {
  Create();
  EXPECT_EQ(Ask("anew:1@fake1", 7).reply_msg, "");
  fake_.before_destroy_qp = [this] {
    looking_.Set();
    EXPECT_TRUE(release_.Wait());
  };
  EXPECT_EQ(Ask("anew:1@fake1", 8).reply_msg, "");
  EXPECT_TRUE(looking_.Wait());
  EXPECT_EQ(Ask("other:1@fake1", 9).reply_msg, "");
  EXPECT_EQ(target_->endpoints(), 2u);
}

TEST_F(RdmaTargetTest, WhatIsBeingEstablishedHasItsPlace) {
  Create({.max_endpoints = 1});
  AskFromALostPeer("lost:1@fake1");
  EXPECT_THAT(Ask("other:1@fake1", 7).reply_msg, HasSubstr("1 connections, its limit"));
  release_.Set();
  lost_.join();
  EXPECT_EQ(lost_reply_.reply_msg, "");
  EXPECT_EQ(Ask("other:1@fake1", 7).reply_msg, "") << "the oldest makes room";
  EXPECT_EQ(target_->endpoints(), 1u);
}

}  // namespace
}  // namespace railhop
