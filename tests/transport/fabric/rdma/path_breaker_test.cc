#include "transport/fabric/rdma/path_breaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::AllOf;
using testing::HasSubstr;

const std::string kPath = "10.0.0.7:15001@mlx5_0";
const std::string kOther = "10.0.0.7:15001@mlx5_1";

class PathBreakersTest : public testing::Test {
 protected:
  absl::Status Admit(const std::string& path = kPath) { return breakers_.Admit(path, now_); }
  void Fail(int times = 1) {
    for (int i = 0; i < times; ++i) {
      ASSERT_TRUE(Admit().ok());
      breakers_.Failed(kPath, now_, "no way to GID");
    }
  }
  void Pass(int ms) { now_ += milliseconds(ms); }
  // How long nobody is let in.
  int Pause() {
    int ms = 0;
    for (; !breakers_.Admit(kPath, now_).ok() && ms < 100'000; ++ms) Pass(1);
    breakers_.Withdraw(kPath);
    return ms;
  }

  PathBreakers::Time now_{std::chrono::hours(1)};
  PathBreakers breakers_{{.failures = 3,
                          .first_pause = milliseconds(500),
                          .longest_pause = milliseconds(3000),
                          .early = milliseconds(2000)}};
};

TEST_F(PathBreakersTest, AFewFailuresAreNoReason) {
  Fail(2);
  EXPECT_TRUE(Admit().ok());
}

TEST_F(PathBreakersTest, ManyInARowOpenItAndTheTextSaysAll) {
  Fail(3);
  Pass(100);
  const absl::Status refused = Admit();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("failed 3 times in a row"), HasSubstr("tried again in 400 ms"),
                    HasSubstr("no way to GID")));
  EXPECT_TRUE(Admit(kOther).ok());
}

TEST_F(PathBreakersTest, PausesDoubleUpToTheLongest) {
  Fail(3);
  EXPECT_EQ(Pause(), 500);
  Fail();
  EXPECT_EQ(Pause(), 1000);
  Fail();
  EXPECT_EQ(Pause(), 2000);
  Fail();
  EXPECT_EQ(Pause(), 3000);
  Fail();
  EXPECT_EQ(Pause(), 3000);
}

TEST_F(PathBreakersTest, OneProbesAndTheOthersWaitForIt) {
  Fail(3);
  Pass(500);
  EXPECT_TRUE(Admit().ok());
  EXPECT_THAT(std::string(Admit().message()), HasSubstr("being tried again just now"));
  breakers_.Connected(kPath, now_);
  EXPECT_TRUE(Admit().ok());
  EXPECT_TRUE(Admit().ok());
}

TEST_F(PathBreakersTest, AProbeThatShowsNothingMakesRoomForTheNext) {
  Fail(3);
  Pass(500);
  EXPECT_TRUE(Admit().ok());
  breakers_.Withdraw(kPath);
  EXPECT_TRUE(Admit().ok());
}

// A handshake may go another way than the data.
TEST_F(PathBreakersTest, ErrorsSoonAfterConnectingCount) {
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Admit().ok());
    const PathBreakers::Time connected = now_;
    breakers_.Connected(kPath, connected);
    Pass(1500);
    breakers_.Broke(kPath, connected, now_, "retry counter exceeded");
  }
  EXPECT_FALSE(Admit().ok());
  Pass(500);
  ASSERT_TRUE(Admit().ok());
  breakers_.Connected(kPath, now_);
  breakers_.Broke(kPath, now_, now_, "retry counter exceeded");
  EXPECT_EQ(Pause(), 1000);
}

TEST_F(PathBreakersTest, AConnectionThatLastedClosesIt) {
  Fail(3);
  Pass(500);
  ASSERT_TRUE(Admit().ok());
  const PathBreakers::Time connected = now_;
  breakers_.Connected(kPath, connected);
  Pass(2001);
  breakers_.Broke(kPath, connected, now_, "retry counter exceeded");
  Fail(2);
  EXPECT_TRUE(Admit().ok());
}

TEST_F(PathBreakersTest, OldNewsIsForgotten) {
  Fail(2);
  ASSERT_TRUE(Admit(kOther).ok());
  breakers_.Failed(kOther, now_, "refused");
  breakers_.Connected(kOther, now_);
  Pass(2001);
  breakers_.Prune(now_);
  EXPECT_EQ(breakers_.size(), 1u);  // the other one's connection has lasted
  Pass(4000);
  breakers_.Prune(now_);
  EXPECT_EQ(breakers_.size(), 0u);
}

TEST_F(PathBreakersTest, APathUnderProbeIsNotForgotten) {
  Fail(3);
  Pass(500);
  ASSERT_TRUE(Admit().ok());
  Pass(100'000);
  breakers_.Prune(now_);
  EXPECT_EQ(breakers_.size(), 1u);
}

TEST_F(PathBreakersTest, TheNicsOwnReturnClearsThemAll) {
  Fail(3);
  breakers_.Clear();
  EXPECT_TRUE(Admit().ok());
}

}  // namespace
}  // namespace railhop
