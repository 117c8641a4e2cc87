#include "tests/bench/harness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

TEST(MedianTest, TakesTheMiddle) {
  EXPECT_EQ(Median({3, 1, 2}), 2);
  EXPECT_EQ(Median({4, 1, 2, 3}), 2.5);
  EXPECT_EQ(Median({}), 0);
}

// A figure whose samples come from two lists; `order` records who was asked.
class MeasureTest : public testing::Test {
 protected:
  Figure Scripted(std::vector<double> subjects, std::vector<double> references) {
    return {.name = "x.y",
            .unit = "ns",
            .subject_is = "subject",
            .reference_is = "reference",
            .goal = "<= 2",
            .includes = {"all"},
            .subject =
                [this, subjects, i = size_t{0}]() mutable {
                  order_ += 'S';
                  return subjects[i++ % subjects.size()];
                },
            .reference =
                [this, references, i = size_t{0}]() mutable {
                  order_ += 'R';
                  return references[i++ % references.size()];
                }};
  }
  std::string order_;
};

TEST_F(MeasureTest, AlternatesWhoGoesFirst) {
  Measure(Scripted({1}, {1}), 4, false);
  EXPECT_EQ(order_, "SRRSSRRS");
}

TEST_F(MeasureTest, RatioIsTheMedianOfThePairs) {
  // Pairs: 10/10, 30/10, 20/40. The quotient of the medians would be 20/10.
  const Result result = Measure(Scripted({10, 30, 20}, {10, 10, 40}), 3, false);
  EXPECT_EQ(result.value, 20);
  EXPECT_EQ(result.reference, 10);
  EXPECT_EQ(result.ratio, 1);
  EXPECT_EQ(result.ratio_low, 0.75);
  EXPECT_EQ(result.ratio_high, 2);
  EXPECT_EQ(result.pairs, 3);
  EXPECT_FALSE(result.control.has_value());
}

TEST_F(MeasureTest, WhatIsMeasuredBesideHasMediansOfItsOwn) {
  Figure figure = Scripted({}, {});
  figure.beside = {"p99_us"};
  figure.subject = [i = 0]() mutable { return Sample(1, {std::vector<double>{6, 8, 4}[i++]}); };
  figure.reference = [i = 0]() mutable { return Sample(1, {std::vector<double>{2, 2, 4}[i++]}); };
  const Result result = Measure(figure, 3, false);
  EXPECT_THAT(result.beside, ElementsAre(6));
  EXPECT_THAT(result.reference_beside, ElementsAre(2));
  EXPECT_THAT(result.ratio_beside, ElementsAre(3));
}

TEST_F(MeasureTest, ControlComparesTheSubjectWithItself) {
  const Result result = Measure(Scripted({10, 11}, {5}), 5, true);
  ASSERT_TRUE(result.control.has_value());
  EXPECT_DOUBLE_EQ(*result.control, 1.1);
  EXPECT_EQ(order_, "SRSRSSSRSRSSSRS");
}

TEST_F(MeasureTest, NeedsNoReference) {
  Figure figure = Scripted({7}, {1});
  figure.reference = nullptr;
  const Result result = Measure(figure, 3, true);
  EXPECT_EQ(order_, "SSS");
  EXPECT_FALSE(result.control.has_value());
  EXPECT_EQ(result.value, 7);
  EXPECT_EQ(result.ratio, 0);
}

class BenchTest : public MeasureTest {
 protected:
  std::string Output(BenchOptions options, const Figure& figure) {
    std::ostringstream out;
    Bench bench(std::move(options), {.first = 2, .second = 5, .relation = "other core"}, out);
    bench.Run(figure);
    code_ = bench.Finish();
    return out.str();
  }
  int code_ = -1;
};

TEST_F(BenchTest, JsonIsOneObjectALine) {
  const std::string out = Output({.json = true, .control = true, .pairs = 3}, Scripted({6}, {2}));
  EXPECT_EQ(std::count(out.begin(), out.end(), '\n'), 1);
  const auto line = nlohmann::json::parse(out);
  EXPECT_EQ(line["name"], "x.y");
  EXPECT_EQ(line["value"], 6);
  EXPECT_EQ(line["reference"], 2);
  EXPECT_EQ(line["ratio"], 3);
  EXPECT_EQ(line["unit"], "ns");
  EXPECT_EQ(line["pairs"], 3);
  EXPECT_EQ(line["control"], 1);
  EXPECT_EQ(line["goal"], "<= 2");
  EXPECT_EQ(line["goal_met"], false);
  EXPECT_THAT(line["includes"], ElementsAre("all"));
  EXPECT_THAT(line["placement"]["cores"], ElementsAre(2, 5));
  EXPECT_EQ(line["placement"]["relation"], "other core");
  EXPECT_EQ(code_, 0);
}

TEST_F(BenchTest, JsonWithoutReferenceHasNoRatio) {
  Figure figure = Scripted({6}, {2});
  figure.reference = nullptr;
  const auto line = nlohmann::json::parse(Output({.json = true, .pairs = 1}, figure));
  EXPECT_FALSE(line.contains("ratio"));
  EXPECT_FALSE(line.contains("reference"));
}

TEST_F(BenchTest, TableNamesBothSidesAndTheGoal) {
  const std::string out = Output({.pairs = 1}, Scripted({6}, {2}));
  EXPECT_THAT(out, HasSubstr("cores 2 and 5 (other core"));
  EXPECT_THAT(out, HasSubstr("x.y"));
  EXPECT_THAT(out, HasSubstr("3.00"));
  EXPECT_THAT(out, HasSubstr("<= 2 MISSED"));
  EXPECT_THAT(out, HasSubstr("subject / reference"));
}

TEST_F(BenchTest, GoalsThatAreMetHaveNoMark) {
  EXPECT_THAT(Output({.pairs = 1}, Scripted({4}, {2})), Not(HasSubstr("MISSED")));
}

// Of a ratio where there is a reference, of the value where not.
TEST_F(BenchTest, WhatIsMeasuredBesideHasGoalsToo) {
  Figure figure = Scripted({}, {});
  figure.beside = {"p99_us", {"cpu", "<= 1.02"}};
  figure.subject = [] { return Sample(1, {7, 3}); };
  figure.reference = [] { return Sample(1, {7, 2}); };
  auto beside = nlohmann::json::parse(Output({.json = true, .pairs = 1}, figure))["beside"];
  EXPECT_FALSE(beside["p99_us"].contains("goal"));
  EXPECT_EQ(beside["cpu"]["goal"], "<= 1.02");
  EXPECT_EQ(beside["cpu"]["goal_met"], false);
  EXPECT_THAT(Output({.pairs = 1}, figure), HasSubstr("<= 1.02 MISSED"));
  figure.subject = [] { return Sample(1, {7, 1}); };
  figure.reference = nullptr;
  beside = nlohmann::json::parse(Output({.json = true, .pairs = 1}, figure))["beside"];
  EXPECT_EQ(beside["cpu"]["goal_met"], true);
}

TEST(MeetsGoalTest, EachComparison) {
  EXPECT_TRUE(MeetsGoal("", 3));
  EXPECT_TRUE(MeetsGoal(">= 2", 2));
  EXPECT_FALSE(MeetsGoal("> 2", 2));
  EXPECT_TRUE(MeetsGoal("<= 0.8", 0.8));
  EXPECT_FALSE(MeetsGoal("< 0.01", 0.01));
  EXPECT_TRUE(MeetsGoal("== 0", 0));
  EXPECT_FALSE(MeetsGoal("== 0", 1));
}

// What has to hold for the goal to mean anything is looked at in the result itself.
TEST_F(BenchTest, AGoalThatDoesNotCountSaysWhy) {
  Figure figure = Scripted({6}, {2});
  figure.objection = [](const Result& result) {
    return result.value == result.reference ? "" : "6 is not 2";
  };
  EXPECT_THAT(Output({.pairs = 1}, figure), HasSubstr("the goal does not count: 6 is not 2"));
  const std::string json = Output({.json = true, .pairs = 1}, figure);
  EXPECT_EQ(nlohmann::json::parse(json)["goal_does_not_count"], "6 is not 2");
  Figure equal = Scripted({2}, {2});
  equal.objection = figure.objection;
  EXPECT_THAT(Output({.pairs = 1}, equal), Not(HasSubstr("does not count")));
  EXPECT_FALSE(nlohmann::json::parse(Output({.json = true, .pairs = 1}, equal))
                   .contains("goal_does_not_count"));
}

TEST_F(BenchTest, OnlyMatchingFiguresRun) {
  EXPECT_EQ(Output({.only = "z", .pairs = 1}, Scripted({6}, {2})), "");
  EXPECT_EQ(order_, "");
  EXPECT_EQ(code_, 2);
}

TEST_F(BenchTest, WhatIsWantedIsKnownBeforeItIsSetUp) {
  const auto wants = [](const std::string& only, const std::string& name) {
    std::ostringstream out;
    return Bench({.only = only}, {}, out).Wants(name);
  };
  EXPECT_TRUE(wants("", "x.relay"));
  EXPECT_TRUE(wants("relay", "x.relay"));
  EXPECT_TRUE(wants("x.relay_2m", "x.relay"));
  EXPECT_FALSE(wants("x.direct", "x.relay"));
}

TEST_F(BenchTest, SavesLinesBesideTheTable) {
  const std::string path = testing::TempDir() + "/harness_test_results." + std::to_string(getpid());
  std::filesystem::remove(path);
  Output({.save = path, .pairs = 1}, Scripted({6}, {2}));
  Output({.save = path, .pairs = 1}, Scripted({8}, {2}));
  std::ifstream file(path);
  std::string first, second;
  std::getline(file, first);
  std::getline(file, second);
  EXPECT_EQ(nlohmann::json::parse(first)["ratio"], 3);
  EXPECT_EQ(nlohmann::json::parse(second)["ratio"], 4);
  std::filesystem::remove(path);
}

TEST_F(BenchTest, ALineThatCannotBeSavedIsSaidByTheExitCode) {
  std::ostringstream out;
  for (const auto& [path, code] : {std::pair{"/dev/full", 1}, std::pair{"/dev/null", 0}}) {
    Bench bench({.save = path, .pairs = 1}, {}, out);
    bench.Run(Scripted({6}, {2}));
    EXPECT_EQ(bench.Finish(), code) << path;
  }
}

// A machine with cores 0..3: 0 and 1 share a core, 2 is another on node 0, 3 is on node 1.
class ChooseCoresTest : public testing::Test {
 protected:
  void SetUp() override {
    root_ = testing::TempDir() + "/harness_test_cores." + std::to_string(getpid());
    const char* siblings[] = {"0-1", "0-1", "2", "3"};
    for (int core = 0; core < 4; ++core) {
      Write("/cpu/cpu" + std::to_string(core) + "/topology/thread_siblings_list", siblings[core]);
      Write("/cpu/cpu" + std::to_string(core) + "/node" + (core == 3 ? "1" : "0") + "/cpulist", "");
    }
    Write("/node/node0/cpulist", "0-2");
    Write("/node/node1/cpulist", "3");
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void Write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << "\n";
  }
  std::string root_;
};

TEST_F(ChooseCoresTest, PrefersTheNearestThatIsNoSibling) {
  const CoreTopology topology(root_);
  const auto pick = [&](const std::vector<int>& allowed) {
    const absl::StatusOr<CorePair> pair = ChooseCores({}, allowed, topology);
    return pair.ok() ? std::to_string(pair->second) + " " + pair->relation : "none";
  };
  EXPECT_EQ(pick({0, 1, 2, 3}), "2 other core");
  EXPECT_EQ(pick({0, 1, 3}), "3 other NUMA node");
  EXPECT_EQ(pick({0, 1}), "1 hyper-thread sibling");
  EXPECT_EQ(pick({0}), "none");
}

TEST_F(ChooseCoresTest, TakesWhatIsAskedForIfItIsAllowed) {
  const CoreTopology topology(root_);
  EXPECT_EQ(ChooseCores({1, 1}, {0, 1}, topology)->relation, "same core");
  EXPECT_EQ(ChooseCores({1, 0}, {0, 1}, topology)->relation, "hyper-thread sibling");
  EXPECT_THAT(std::string(ChooseCores({0, 3}, {0, 1}, topology).status().message()),
              HasSubstr("core 3"));
  EXPECT_FALSE(ChooseCores({0}, {0, 1}, topology).ok());
}

}  // namespace
}  // namespace railhop
