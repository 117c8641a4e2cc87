// RDMA engines on devices that have less than they were asked for. On the stand-in for libibverbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "actors/bootstrap.h"
#include "runtime/log.h"
#include "tests/support/fake_verbs/fake_verbs.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;

// An engine that is made and ended, and what it logs.
class RdmaLimitsTest : public testing::Test {
 protected:
  RdmaLimitsTest() {
    FakeVerbs::Get().Reset();
    before_ = SetLogSink([this](LogLevel, std::string_view text) { log_.emplace_back(text); });
  }
  ~RdmaLimitsTest() override {
    SetLogSink(std::move(before_));
    FakeVerbs::Get().max_cqe = 1 << 20;
  }
  void Make(EngineOptions options) {
    options.host = "127.0.0.1";
    options.protocol = "rdma";
    std::string error;
    EXPECT_NE(MakeTransferEngine(options, &error), nullptr) << error;
  }

  LogSink before_;
  std::vector<std::string> log_;
};

// MC_MAX_WR takes up to 16384, whatever the device.
TEST_F(RdmaLimitsTest, ASendQueueThatIsTooLongForItsDeviceIsMadeShorter) {
  FakeVerbs::Get().max_cqe = 32767;
  Make({.config_text = "nics { name: 'fake0' rdma { queue_depth: 16384 } }"});
  EXPECT_THAT(log_, Contains(AllOf(HasSubstr("fake0"), HasSubstr("16384 requests (MC_MAX_WR"),
                                   HasSubstr("; 6553 are used"))));
}

TEST_F(RdmaLimitsTest, ADeviceNameThatThereIsNotIsSaid) {
  Make({.device_names = "fake0,nosuch"});
  EXPECT_THAT(log_, Contains(AllOf(HasSubstr("device_name = \"fake0,nosuch\""),
                                   HasSubstr("names nosuch"))));
}

}  // namespace
}  // namespace railhop
