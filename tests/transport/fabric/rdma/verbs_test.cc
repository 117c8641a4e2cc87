// Machines without the RDMA library, or with one that is no such library.
#include "transport/fabric/rdma/verbs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "transport/fabric/rdma/rdma_device.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(VerbsTest, WithoutTheLibraryAnErrorSaysWhatToInstall) {
  const auto verbs = Verbs::Load("libibverbs-of-nobody.so.1");
  EXPECT_EQ(verbs.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(verbs.status().message()),
              AllOf(HasSubstr("libibverbs-of-nobody.so.1"), HasSubstr("ibverbs-providers")));
}

TEST(VerbsTest, ALibraryThatLacksAFunctionIsRefusedByName) {
  const auto verbs = Verbs::Load("libc.so.6");
  EXPECT_EQ(verbs.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(verbs.status().message()),
              AllOf(HasSubstr("libc.so.6"), HasSubstr("ibv_fork_init")));
}

// Whatever the machine has: with the library or without, with devices or without.
TEST(VerbsTest, ADeviceThatIsNotThereIsAnErrorThatNamesIt) {
  const auto device = RdmaDevice::Open({.name = "nobody_0"});
  EXPECT_EQ(device.status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace railhop
