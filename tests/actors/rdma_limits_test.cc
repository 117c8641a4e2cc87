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

// MC_MAX_WR takes up to 16384, whatever the device.
TEST(RdmaLimitsTest, ASendQueueThatIsTooLongForItsDeviceIsMadeShorter) {
  FakeVerbs::Get().Reset();
  FakeVerbs::Get().max_cqe = 32767;
  std::vector<std::string> log;
  LogSink before =
      SetLogSink([&](LogLevel, std::string_view message) { log.emplace_back(message); });
  std::string error;
  auto engine =
      MakeTransferEngine({.host = "127.0.0.1",
                          .protocol = "rdma",
                          .config_text = "nics { name: 'fake0' rdma { queue_depth: 16384 } }"},
                         &error);
  EXPECT_NE(engine, nullptr) << error;
  engine = nullptr;
  SetLogSink(std::move(before));
  EXPECT_THAT(log, Contains(AllOf(HasSubstr("fake0"), HasSubstr("16384 requests (MC_MAX_WR"),
                                  HasSubstr("; 6553 are used"))));
  FakeVerbs::Get().max_cqe = 1 << 20;
}

}  // namespace
}  // namespace railhop
