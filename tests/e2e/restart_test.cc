// Sender, relay and target are restarted in turn while both senders are at work: rank processes end
// in order, or are killed; every byte of what completes is right, nothing lands in what has ended,
// and all is well afterwards. (The trials of tests/faults without their faults.)
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/faults/fault_rank.h"
#include "tests/faults/fault_trials.h"
#include "tests/support/scale.h"

namespace railhop {
namespace {

class RestartTest : public testing::Test {
 protected:
  void SetUp() override {
    const absl::Status status = trials_.SetUp();
    ASSERT_TRUE(status.ok()) << status;
  }
  void ExpectNoFindings() {
    for (const std::string& text : trials_.findings().texts) ADD_FAILURE() << text;
    if (HasFailure()) std::cerr << trials_.Logs();
  }

  FaultTrials trials_;
  const uint32_t rounds_ = static_cast<uint32_t>(std::max<uint64_t>(2, StressCount(4, 40)));
};

TEST_F(RestartTest, ARankRestartsUnderLoad) {
  for (uint32_t round = 0; round < rounds_ && !HasFailure(); ++round) {
    for (const RankRole role : {RankRole::kSender, RankRole::kRelay}) {
      const absl::Status status = trials_.Restart(role, round % 2 == 0);
      ASSERT_TRUE(status.ok()) << status;
      ExpectNoFindings();
    }
  }
}

TEST_F(RestartTest, TheTargetRestartsUnderLoad) {
  for (uint32_t round = 0; round < rounds_ && !HasFailure(); ++round) {
    const absl::Status status = trials_.RestartTarget();
    ASSERT_TRUE(status.ok()) << status;
    ExpectNoFindings();
  }
}

}  // namespace
}  // namespace railhop

// Rank processes are this program, too.
int main(int argc, char** argv) {
  if (argc == 6 && std::string_view(argv[1]) == "rank") {
    return railhop::RunFaultRank(
        {.number = static_cast<uint32_t>(std::atoi(argv[3])), .folder = argv[5]});
  }
  signal(SIGPIPE, SIG_IGN);  // a child that died is an error of the write
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
