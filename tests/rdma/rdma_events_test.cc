// What a device tells by itself: its port goes down and comes back, its address changes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "tests/rdma/rdma_support.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class RdmaEventsTest : public RdmaRails {
 protected:
  RdmaEventsTest() {
    previous_ = SetLogSink([this](LogLevel level, std::string_view text) {
      if (level != LogLevel::kInfo) warnings_.emplace_back(text);
    });
  }
  ~RdmaEventsTest() override { SetLogSink(previous_); }

  bool Usable() const { return near_->usable().ok(); }

  std::vector<std::string> warnings_;
  LogSink previous_;
};

TEST_F(RdmaEventsTest, APortThatGoesDownTakesItsNicOutUntilItIsBack) {
  ASSERT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
  const EndpointId before = endpoint_;
  {
    const PulledCable pulled(0);
    ASSERT_TRUE(TendUntil([this] { return !Usable(); }));
    EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
    const absl::Status refused = nic_->Connect(Info(), 0).status();
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("RDMA device rxe0 port 1 is down"), HasSubstr("there:2@rxe1")));
  }
  ASSERT_TRUE(TendUntil([this] { return Usable(); }));
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport) << "connections do not come back";
  nic_->Disconnect(before);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kOk);
  EXPECT_EQ(memcmp(remote_.data(), local_.data(), 4096), 0);
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("RDMA NIC rxe0 is not used for now"),
                                     HasSubstr("RDMA NIC rxe0 is used again")));
}

TEST_F(RdmaEventsTest, WhatIsUnderWayWhenThePortGoesDownFailsAtOnce) {
  nic_ = MakeNic({.server_name = "here:3",
                  .exchange = AskTarget(),
                  .send_queue_depth = kDepth,
                  .max_endpoints = 1,
                  .retry = {.timeout = 20, .count = 6}});  // half a minute
  endpoint_ = Connected();
  const PulledCable pulled(0);
  for (uint32_t i = 0; i < 3; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64)));
  nic_->Submit();
  ASSERT_TRUE(TendUntil([this] { return !Usable(); }));
  EXPECT_THAT(
      StatusesOf(Await(*nic_, 3)),
      ElementsAre(FabricStatus::kTransport, FabricStatus::kFlushed, FabricStatus::kFlushed));
}

TEST_F(RdmaEventsTest, AnAddressThatChangesIsReadAnew) {
  const auto set = [](const char* action, const char* address) {
    const std::string command = std::string("ip addr ") + action + " " + address + "/24 dev rail0";
    ASSERT_EQ(std::system(command.c_str()), 0);
  };
  const std::string before = FormatGid(near_->gid().gid);
  set("del", "10.77.0.1");
  set("add", "10.77.0.101");
  EXPECT_TRUE(TendUntil([this] {
    return Usable() &&
           FormatGid(near_->gid().gid) == "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:65";
  }));
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  nic_->Disconnect(endpoint_);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kOk);
  set("del", "10.77.0.101");
  set("add", "10.77.0.1");
  EXPECT_TRUE(TendUntil([&] { return Usable() && FormatGid(near_->gid().gid) == before; }));
}

// With the device's own words, from a device that never says them here.
TEST_F(RdmaEventsTest, ADeviceThatIsBrokenStaysOut) {
  near_->Break("fatal device error");
  Tend();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kTransport);
  near_->ReadPortAnew();
  EXPECT_THAT(std::string(nic_->Connect(Info(), 0).status().message()),
              AllOf(HasSubstr("fatal device error"), HasSubstr("starts anew")));
}

}  // namespace
}  // namespace railhop
