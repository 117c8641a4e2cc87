#include "runtime/credit_window.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

TEST(CreditWindowTest, TakesAllOrNothing) {
  CreditWindow window(18);
  EXPECT_TRUE(window.idle());
  EXPECT_TRUE(window.TryTake(17));
  EXPECT_FALSE(window.TryTake(2));
  EXPECT_EQ(window.available(), 1U);
  EXPECT_TRUE(window.TryTake());
  EXPECT_FALSE(window.TryTake());
  EXPECT_EQ(window.in_flight(), 18U);
  EXPECT_FALSE(window.idle());
}

TEST(CreditWindowTest, IsIdleWhenEverythingCameBack) {
  CreditWindow window(4);
  ASSERT_TRUE(window.TryTake(3));
  window.Return(2);
  EXPECT_FALSE(window.idle());
  window.Return();
  EXPECT_TRUE(window.idle());
  EXPECT_EQ(window.available(), window.capacity());
}

TEST(CreditWindowTest, HugeAmountsDoNotWrap) {
  CreditWindow window(UINT64_MAX);
  EXPECT_TRUE(window.TryTake(UINT64_MAX));
  EXPECT_FALSE(window.TryTake(1));
  window.Return(UINT64_MAX);
  EXPECT_TRUE(window.idle());
}

TEST(CreditWindowTest, ReturningTooMuchIsABug) {
  CreditWindow window(2);
  ASSERT_TRUE(window.TryTake(1));
#ifdef NDEBUG
  window.Return(2);
  EXPECT_EQ(window.available(), 2U) << "stays within its capacity";
#else
  EXPECT_DEATH(window.Return(2), "more credit returned than was taken");
#endif
}

}  // namespace
}  // namespace railhop
