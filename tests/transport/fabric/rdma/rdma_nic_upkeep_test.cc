// What an RdmaNic does beside its users, on a device that takes its time.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "tests/support/fake_verbs/fake_verbs.h"
#include "tests/support/flag.h"
#include "transport/fabric/rdma/rdma_nic.h"
#include "transport/fabric/rdma/rdma_target.h"

namespace railhop {
namespace {

class RdmaNicUpkeepTest : public testing::Test {
 protected:
  RdmaNicUpkeepTest() {
    FakeVerbs::Get().Reset();
    target_ = *RdmaTarget::Create({*RdmaDevice::Open({.name = "fake1"})});
    nic_ = *RdmaNic::Create(
        *RdmaDevice::Open({.name = "fake0"}),
        {.server_name = "here:1", .exchange = [this](const std::string&, const std::string& json) {
           const std::optional<std::string> answer = target_->Answer(json);
           return answer.has_value() ? absl::StatusOr<std::string>(*answer)
                                     : absl::UnavailableError("closed without answer");
         }});
  }
  EndpointId Connect(const std::string& server) {
    const TargetInfo info{.name = "there",
                          .kind = std::string(kRdmaFabricKind),
                          .buffers = {},
                          .nics = {{"fake1", server + "@fake1"}}};
    const auto endpoint = nic_->Connect(info, 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.value_or(0);
  }
  void Tend() { nic_->Tend(std::chrono::steady_clock::now()); }

  std::unique_ptr<RdmaTarget> target_;
  std::unique_ptr<RdmaNic> nic_;
};

// While packets of a queue pair are in the kernel's hands its end takes seconds.
TEST_F(RdmaNicUpkeepTest, AConnectionThatEndsSlowlyHoldsUpNoOther) {
  const EndpointId old = Connect("there:1");
  Flag ending, go;
  FakeVerbs::Get().before_destroy_qp = [&] {
    ending.Set();
    EXPECT_TRUE(go.Wait());
  };
  nic_->Disconnect(old);
  Tend();
  std::thread keeper([this] { nic_->Settle(); });
  EXPECT_TRUE(ending.Wait());
  const EndpointId other = Connect("there:2");
  Tend();
  EXPECT_NE(nic_->Describe(other).find("there:2@fake1"), std::string::npos);
  EXPECT_FALSE(go.IsSet());
  go.Set();
  keeper.join();
  FakeVerbs::Get().before_destroy_qp = nullptr;
}

}  // namespace
}  // namespace railhop
