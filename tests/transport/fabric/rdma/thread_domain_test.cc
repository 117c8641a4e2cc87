#include "transport/fabric/rdma/thread_domain.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "tests/support/fake_verbs/fake_verbs.h"
#include "transport/fabric/rdma/rdma_nic.h"
#include "transport/fabric/rdma/rdma_target.h"

namespace railhop {
namespace {

class ThreadDomainTest : public testing::Test {
 protected:
  ThreadDomainTest() {
    fake_.Reset();
    device_ = *RdmaDevice::Open({.name = "fake0"});
  }
  ~ThreadDomainTest() override {
    device_ = nullptr;
    EXPECT_EQ(fake_.objects, 0);
  }
  // A NIC that is connected to a target of the same device.
  void Connect(bool one_thread) {
    const auto target = *RdmaTarget::Create({device_});
    const auto nic = *RdmaNic::Create(
        device_, {.server_name = "here:1",
                  .exchange = [&target](const std::string&, const std::string& json)
                      -> absl::StatusOr<std::string> { return *target->Answer(json); },
                  .one_thread = one_thread});
    const auto endpoint = nic->Connect(
        {.name = "there", .kind = "rdma", .buffers = {}, .nics = {{"fake0", "there:2@fake0"}}}, 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
  }

  FakeVerbs& fake_ = FakeVerbs::Get();
  std::shared_ptr<RdmaDevice> device_;
};

TEST_F(ThreadDomainTest, ANicOfOneThreadHasItsQueuePairsInOne) {
  Connect(true);
  EXPECT_EQ(fake_.in_thread_domains, 2);  // and not those of the target
  EXPECT_EQ(fake_.calls["ibv_create_qp"], 4);
}

TEST_F(ThreadDomainTest, ANicOfTwoThreadsHasNone) {
  Connect(false);
  EXPECT_EQ(fake_.in_thread_domains, 0);
  EXPECT_EQ(fake_.calls["ibv_alloc_td"], 0);
}

TEST_F(ThreadDomainTest, ADeviceWithoutThemDoesAsWell) {
  fake_.thread_domains = false;
  EXPECT_EQ(ThreadDomain::Create(device_), nullptr);
  Connect(true);
  EXPECT_EQ(fake_.in_thread_domains, 0);
}

TEST_F(ThreadDomainTest, WhatIsHalfMadeIsUndone) {
  fake_.fail["ibv_alloc_parent_domain"] = {.after = 0, .error = ENOMEM};
  EXPECT_EQ(ThreadDomain::Create(device_), nullptr);
  EXPECT_EQ(fake_.calls["ibv_dealloc_td"], 1);
}

}  // namespace
}  // namespace railhop
