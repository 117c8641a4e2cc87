#include "runtime/cpu_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <thread>

#include "runtime/log.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string Text(const absl::Status& status) {
  return std::string(status.message());
}

// Warnings logged while it lives.
class WarningCapture {
 public:
  WarningCapture() {
    previous_ =
        SetLogSink([this](LogLevel, std::string_view message) { lines_.emplace_back(message); });
  }
  ~WarningCapture() { SetLogSink(previous_); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
  LogSink previous_;
};

TEST(CoreListTest, ParsesTheKernelsForm) {
  EXPECT_THAT(*ParseCoreList("0,2-5"), ElementsAre(0, 2, 3, 4, 5));
  EXPECT_THAT(*ParseCoreList("4-7\n"), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(*ParseCoreList("3,1,3,2-3"), ElementsAre(1, 2, 3));
  EXPECT_THAT(*ParseCoreList(" \n"), IsEmpty());
}

TEST(CoreListTest, RefusesWhatIsNoList) {
  for (const char* text : {"x", "1,", ",1", "5-2", "-1", "1-", "1--2", "0-99999999999", "1 2",
                           "65536", "+1", "1-2-3"}) {
    const absl::StatusOr<std::vector<int>> cores = ParseCoreList(text);
    ASSERT_FALSE(cores.ok()) << text;
    EXPECT_THAT(Text(cores.status()), HasSubstr(text));
  }
}

TEST(CoreListTest, FormatsRanges) {
  EXPECT_EQ(FormatCoreList(std::vector<int>{0, 2, 3, 4, 5}), "0,2-5");
  EXPECT_EQ(FormatCoreList(std::vector<int>{4, 5, 6, 7}), "4-7");
  EXPECT_EQ(FormatCoreList(std::vector<int>{1, 3}), "1,3");
  EXPECT_EQ(FormatCoreList(std::vector<int>{}), "");
}

TEST(PinTest, PinsTheCallingThreadAndNoOther) {
  const std::vector<int> before = AllowedCores();
  ASSERT_FALSE(before.empty());
  const int core = before.back();
  std::thread thread([core] {
    const absl::Status status = PinThisThread(core, PinPolicy::kRequired);
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_THAT(AllowedCores(), ElementsAre(core));
    EXPECT_EQ(PinnedCore(), core);
  });
  thread.join();
  EXPECT_EQ(AllowedCores(), before);
}

// Row by row: what a config may ask for while the process may use 4-7.
class PinOutsideTest : public testing::TestWithParam<int> {
 protected:
  AffinityCalls Calls() {
    return {.get =
                [](std::vector<int>* cores) {
                  *cores = {4, 5, 6, 7};
                  return 0;
                },
            .set =
                [this](std::span<const int> cores) {
                  set_core_ = cores.front();
                  return 0;
                }};
  }
  int set_core_ = -2;
};

TEST_P(PinOutsideTest, RequiredIsAnErrorNamingBoth) {
  const absl::Status status = PinThisThread(GetParam(), PinPolicy::kRequired, Calls());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("core " + std::to_string(GetParam()) + " "), HasSubstr("(4-7)")));
  EXPECT_EQ(set_core_, -2) << "the affinity must not be touched";
}

TEST_P(PinOutsideTest, PreferredIsOneWarningNamingBoth) {
  const WarningCapture warnings;
  EXPECT_TRUE(PinThisThread(GetParam(), PinPolicy::kPreferred, Calls()).ok());
  EXPECT_THAT(warnings.lines(),
              ElementsAre(AllOf(HasSubstr("core " + std::to_string(GetParam()) + " "),
                                HasSubstr("(4-7)"))));
  EXPECT_EQ(set_core_, -2);
}

INSTANTIATE_TEST_SUITE_P(Cores, PinOutsideTest, testing::Values(0, 63, 9999, -1));

TEST_F(PinOutsideTest, InsideIsPinned) {
  EXPECT_TRUE(PinThisThread(5, PinPolicy::kRequired, Calls()).ok());
  EXPECT_EQ(set_core_, 5);
}

TEST(PinRefusedTest, GettingTheAffinityRefused) {
  const AffinityCalls calls{.get = [](std::vector<int>*) { return EPERM; },
                            .set = [](std::span<const int>) { return 0; }};
  const absl::Status status = PinThisThread(2, PinPolicy::kRequired, calls);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status), AllOf(HasSubstr("core 2"), HasSubstr("sched_getaffinity")));
  const WarningCapture warnings;
  EXPECT_TRUE(PinThisThread(2, PinPolicy::kPreferred, calls).ok());
  EXPECT_EQ(warnings.lines().size(), 1U);
}

TEST(PinRefusedTest, SettingTheAffinityRefused) {
  const AffinityCalls calls{.get =
                                [](std::vector<int>* cores) {
                                  *cores = {4, 5, 6, 7};
                                  return 0;
                                },
                            .set = [](std::span<const int>) { return EPERM; }};
  const absl::Status status = PinThisThread(5, PinPolicy::kRequired, calls);
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(Text(status),
              AllOf(HasSubstr("core 5"), HasSubstr("4-7"), HasSubstr("sched_setaffinity")));
  const WarningCapture warnings;
  EXPECT_TRUE(PinThisThread(5, PinPolicy::kPreferred, calls).ok());
  EXPECT_EQ(warnings.lines().size(), 1U);
}

TEST(PinTest, TheKernelRefusesACoreThatDoesNotExist) {
  // Through the real calls, above 1024 cores: an error, and no write outside a cpu_set_t.
  const int core = 9999;
  EXPECT_EQ(SystemAffinityCalls().set({&core, 1}), EINVAL);
}

class LeaveThisCoreTest : public testing::Test {
 protected:
  // The core that the thread runs on is `here`, as far as this is known before it is moved.
  AffinityCalls Calls(const std::vector<int>& allowed) {
    return {.get =
                [allowed](std::vector<int>* cores) {
                  *cores = allowed;
                  return 0;
                },
            .set =
                [this](std::span<const int> cores) {
                  sets_.emplace_back(cores.begin(), cores.end());
                  return SystemAffinityCalls().set(cores);
                }};
  }
  std::vector<std::vector<int>> sets_;
};

TEST_F(LeaveThisCoreTest, ThereIsNoOther) {
  std::thread([this] {
    const int core = AllowedCores().front();
    ASSERT_TRUE(PinThisThread(core, PinPolicy::kRequired).ok());
    EXPECT_FALSE(LeaveThisCore(Calls({core})));
    EXPECT_THAT(AllowedCores(), ElementsAre(core));
  }).join();
  EXPECT_TRUE(sets_.empty());
}

TEST_F(LeaveThisCoreTest, TheOtherCoresThenAllAgain) {
  const std::vector<int> allowed = AllowedCores();
  if (allowed.size() < 2) GTEST_SKIP() << "needs two cores";
  std::thread([&] {
    EXPECT_TRUE(LeaveThisCore(Calls(allowed)));
    EXPECT_EQ(AllowedCores(), allowed);
  }).join();
  ASSERT_EQ(sets_.size(), 2U);
  EXPECT_EQ(sets_[0].size(), allowed.size() - 1);
  EXPECT_EQ(sets_[1], allowed);
}

class CoreTopologyTest : public testing::Test {
 protected:
  void SetUp() override {
    // Of this process alone: the cases run beside each other.
    root_ = std::filesystem::path(testing::TempDir()) /
            ("railhop_core_topology." + std::to_string(getpid()));
    // Two nodes of two cores with two hyper-threads: 0,4 1,5 on node 0 and 2,6 3,7 on node 1.
    for (int core = 0; core < 8; ++core) {
      const std::filesystem::path folder = root_ / "cpu" / ("cpu" + std::to_string(core));
      std::filesystem::create_directories(folder / "topology");
      std::filesystem::create_directories(folder / (core % 4 < 2 ? "node0" : "node1"));
      std::filesystem::create_directories(folder / "node_stray");
      std::ofstream(folder / "topology" / "thread_siblings_list")
          << core % 4 << ',' << core % 4 + 4 << '\n';
    }
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  std::filesystem::path root_;
};

TEST_F(CoreTopologyTest, ReadsSiblingsAndNodes) {
  const CoreTopology topology(root_.string());
  EXPECT_THAT(topology.Siblings(1), ElementsAre(1, 5));
  EXPECT_THAT(topology.Siblings(6), ElementsAre(2, 6));
  EXPECT_EQ(topology.NumaNode(5), 0);
  EXPECT_EQ(topology.NumaNode(2), 1);
}

TEST_F(CoreTopologyTest, AnUnknownCoreIsAlone) {
  const CoreTopology topology(root_.string());
  EXPECT_THAT(topology.Siblings(64), ElementsAre(64));
  EXPECT_EQ(topology.NumaNode(64), -1);
}

TEST_F(CoreTopologyTest, AGarbledFileIsAsGoodAsNone) {
  std::ofstream(root_ / "cpu/cpu3/topology/thread_siblings_list") << "3;7";
  EXPECT_THAT(CoreTopology(root_.string()).Siblings(3), ElementsAre(3));
}

TEST_F(CoreTopologyTest, WarnsOfReactorsThatShareACore) {
  const std::vector<ReactorPlacement> reactors = {{"send", 1, true},  {"relay", 1, false},
                                                  {"poll", 5, false}, {"other", 2, false},
                                                  {"control", -1},    {"loose", -1}};
  EXPECT_THAT(
      PlacementWarnings(reactors, CoreTopology(root_.string())),
      ElementsAre(
          AllOf(HasSubstr("\"send\" and \"relay\""), HasSubstr("core 1"), HasSubstr("never parks")),
          AllOf(HasSubstr("\"send\" (core 1) and \"poll\" (core 5)"), HasSubstr("hyper-threads")),
          AllOf(HasSubstr("\"relay\" (core 1) and \"poll\" (core 5)"),
                testing::Not(HasSubstr("never parks")))));
}

TEST_F(CoreTopologyTest, NoWarningForCoresOfTheirOwn) {
  const std::vector<ReactorPlacement> reactors = {{"a", 0, true}, {"b", 1, true}, {"c", 2, true}};
  EXPECT_THAT(PlacementWarnings(reactors, CoreTopology(root_.string())), IsEmpty());
}

TEST(IsVirtualisedTest, AgreesWithTheKernel) {
#if defined(__x86_64__)
  std::ifstream file("/proc/cpuinfo");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  EXPECT_EQ(IsVirtualised(), text.find(" hypervisor") != std::string::npos);
#else
  GTEST_SKIP() << "only x86 tells";
#endif
}

}  // namespace
}  // namespace railhop
