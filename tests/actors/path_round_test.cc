#include "actors/path_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/scripted_nic.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

// Connects to the target's NICs but for some.
class PickyNic : public ScriptedNic {
 public:
  absl::StatusOr<EndpointId> Connect(const TargetInfo& target, size_t remote_nic) override {
    const std::string& name = target.nics[remote_nic].name;
    asked.push_back(name);
    if (const auto found = refused.find(name); found != refused.end()) return found->second;
    return ++last_;
  }
  std::vector<std::string> asked;
  std::map<std::string, absl::Status> refused;

 private:
  EndpointId last_ = 0;
};

class PathRoundTest : public testing::Test {
 protected:
  PathRoundTest() {
    for (const char* nic : {"a", "b", "c"}) info_.nics.push_back({nic, nic});
  }
  void Prefer(std::vector<std::string> nics) {
    const uint64_t address = 0x1000 * (info_.buffers.size() + 1);
    info_.buffers.push_back({address, 16, {1, 2, 3}, std::move(nics)});
  }
  PathRound Connect() {
    const absl::StatusOr<TargetPlan> plan = PlanTarget(info_, options_);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return ConnectPaths(std::vector<Nic*>{&nics_[0], &nics_[1]}, info_, plan->paths, &endpoints_);
  }

  PickyNic nics_[2];
  TargetInfo info_{.name = "t", .kind = "rdma", .buffers = {}, .nics = {}};
  RouteOptions options_{.own_rails = {"a", "b"}};
  std::vector<EndpointId> endpoints_ = std::vector<EndpointId>(PathCount(2));
};

TEST_F(PathRoundTest, ConnectsWhatBuffersAlternateOverAndEachOwnNicOnce) {
  Prefer({"a"});
  Prefer({"c"});
  const PathRound round = Connect();
  EXPECT_TRUE(round.complete);
  EXPECT_THAT(round.errors, IsEmpty());
  // The first one's own rail; the second one's NIC from both; that is a path from each already.
  EXPECT_THAT(round.made, ElementsAre(MakePath(0, 0), MakePath(0, 2), MakePath(1, 2)));
  EXPECT_NE(endpoints_[MakePath(1, 2)], 0u);
}

TEST_F(PathRoundTest, AnOwnNicThatNoBufferWantsIsConnectedAsWell) {
  Prefer({"a"});
  EXPECT_THAT(Connect().made, ElementsAre(MakePath(0, 0), MakePath(1, 0)));
}

TEST_F(PathRoundTest, ATargetWithoutBuffersIsConnectedOnceFromEachNic) {
  EXPECT_THAT(Connect().made, ElementsAre(MakePath(0, 0), MakePath(1, 1)));
}

TEST_F(PathRoundTest, WhatIsConnectedIsLeftAlone) {
  Prefer({"a"});
  endpoints_[MakePath(0, 0)] = 99;
  EXPECT_THAT(Connect().made, ElementsAre(MakePath(1, 0)));
  EXPECT_EQ(endpoints_[MakePath(0, 0)], 99u);
  EXPECT_THAT(nics_[0].asked, IsEmpty());
}

TEST_F(PathRoundTest, AnotherNicOfTheTargetStandsInForOneThatCannotBeReached) {
  Prefer({"a"});
  nics_[0].refused["a"] = absl::FailedPreconditionError("no link");
  nics_[0].refused["b"] = absl::FailedPreconditionError("no link");
  const PathRound round = Connect();
  EXPECT_FALSE(round.complete) << "it is not the one that is wanted";
  EXPECT_THAT(round.made, ElementsAre(MakePath(1, 0), MakePath(0, 2)));
  ASSERT_THAT(round.errors, SizeIs(2));
  EXPECT_THAT(std::string(round.errors[0].message()), HasSubstr("to a of target t: no link"));
}

TEST_F(PathRoundTest, NothingStandsInWhereAnotherPathIsLeft) {
  Prefer({"a"});
  Prefer({"c"});
  nics_[0].refused["a"] = absl::FailedPreconditionError("no link");
  const PathRound round = Connect();
  EXPECT_FALSE(round.complete);
  EXPECT_THAT(round.made, ElementsAre(MakePath(0, 2), MakePath(1, 2)));
}

TEST_F(PathRoundTest, ARoundEndsWhenTheTargetsListenerDoesNotAnswer) {
  for (const absl::Status& silent : {absl::UnavailableError("refused"), absl::NotFoundError("who"),
                                     absl::DeadlineExceededError("timed out")}) {
    nics_[0].refused = {{"a", silent}};
    nics_[0].asked.clear();
    nics_[1].asked.clear();
    endpoints_.assign(PathCount(2), 0);
    const PathRound round = Connect();
    EXPECT_FALSE(round.complete);
    EXPECT_THAT(round.made, IsEmpty());
    ASSERT_THAT(round.errors, SizeIs(1));
    EXPECT_EQ(round.errors[0].code(), silent.code());
    EXPECT_THAT(nics_[0].asked, ElementsAre("a"));
    EXPECT_THAT(nics_[1].asked, IsEmpty());
  }
}

}  // namespace
}  // namespace railhop
