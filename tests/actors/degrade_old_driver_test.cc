// The degrade table, rows about what a driver does not have: a process loads it once, so they are
// in a program of their own.
#include <gmock/gmock.h>

#include "tests/actors/cuda_rank_support.h"

namespace railhop {
namespace {

TEST_F(CudaRankTest, WithoutBatchCopiesItCopiesOneByOne) {
  fake_.missing["cuMemcpyBatchAsync"] = true;
  const std::unique_ptr<Child> relay = StartRelay();
  MakeSender(OnGpu("copy { way: BATCH }"));
  ASSERT_TRUE(rank_->WaitForRelay("sim1", kForever));
  const BatchStatus status = Finish(Submit({}));
  EXPECT_EQ(status.state, BatchState::kCompleted);
  EXPECT_EQ(status.relayed_bytes, kBytes);
  EXPECT_TRUE(Arrived(content_));
  EXPECT_EQ(fake_.calls.count("cuMemcpyBatchAsync"), 0U);
  EXPECT_THAT(warnings_, testing::ElementsAre(testing::HasSubstr("async is used")));
}

}  // namespace
}  // namespace railhop
