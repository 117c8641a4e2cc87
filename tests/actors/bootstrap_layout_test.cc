#include "actors/bootstrap_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

// `count` cores from `first` on, each a physical one, half of them on each of two nodes.
HostCores Host(int count, int first = 0) {
  HostCores host;
  for (int i = 0; i < count; ++i) {
    host.allowed.push_back(
        {.core = first + i, .numa_node = i < count / 2 ? 0 : 1, .physical = first + i});
  }
  return host;
}

ResolvedLayout Resolve(const RankConfig& config, const HostCores& host) {
  ResolvedLayout layout;
  std::string error;
  EXPECT_TRUE(ResolveLayout(config, host, &layout, &error)) << error;
  EXPECT_EQ(error, "");
  return layout;
}
std::string ResolveError(const RankConfig& config, const HostCores& host) {
  ResolvedLayout layout;
  std::string error;
  EXPECT_FALSE(ResolveLayout(config, host, &layout, &error));
  return error;
}

std::vector<std::string> Names(const ResolvedLayout& layout) {
  std::vector<std::string> names;
  for (const ReactorConfig& reactor : layout.reactors) names.push_back(reactor.name);
  return names;
}
std::vector<int> Cores(const ResolvedLayout& layout) {
  std::vector<int> cores;
  for (const ReactorConfig& reactor : layout.reactors) cores.push_back(reactor.core);
  return cores;
}
std::string ReactorNameOf(const ResolvedLayout& layout, ActorKind kind) {
  return layout.ReactorOf(kind).name;
}

RankConfig Preset(LayoutPreset preset) {
  RankConfig config;
  config.layout = preset;
  config.nics.resize(1);
  return config;
}

// An explicit layout that is right: "data" on core 2 and the control reactor.
RankConfig Explicit() {
  RankConfig config;
  config.reactors = {{.name = "data", .core = 2, .where = "rank.textproto:4: "}};
  for (const ActorKind kind :
       {ActorKind::kSubmit, ActorKind::kCopy, ActorKind::kRelayPost, ActorKind::kCqPoll}) {
    config.placement.push_back({.actor = kind, .reactor = "data", .where = "rank.textproto:5: "});
  }
  return config;
}

TEST(LayoutTest, EachPresetSpreadsTheDataActorsAsItsNameSays) {
  const HostCores host = Host(8);
  EXPECT_THAT(Names(Resolve(Preset(LayoutPreset::kOneCore), host)), ElementsAre("main", "control"));
  EXPECT_THAT(Names(Resolve(Preset(LayoutPreset::kTwoCore), host)),
              ElementsAre("sender", "relay", "control"));
  EXPECT_THAT(Names(Resolve(Preset(LayoutPreset::kFourCore), host)),
              ElementsAre("submit", "copy", "relay_post", "cq_poll", "control"));
  EXPECT_THAT(Names(Resolve(Preset(LayoutPreset::kPerNic), host)),
              ElementsAre("nic", "submit", "copy", "control"));

  const ResolvedLayout two = Resolve(Preset(LayoutPreset::kTwoCore), host);
  EXPECT_EQ(ReactorNameOf(two, ActorKind::kSubmit), "sender");
  EXPECT_EQ(ReactorNameOf(two, ActorKind::kCopy), "sender");
  EXPECT_EQ(ReactorNameOf(two, ActorKind::kRelayPost), "relay");
  EXPECT_EQ(ReactorNameOf(two, ActorKind::kCqPoll), "relay");
  EXPECT_EQ(two.preset, LayoutPreset::kTwoCore);
}

TEST(LayoutTest, ControlActorsLiveOnAnUnpinnedEventReactor) {
  for (const LayoutPreset preset : {LayoutPreset::kOneCore, LayoutPreset::kTwoCore,
                                    LayoutPreset::kFourCore, LayoutPreset::kPerNic}) {
    const ResolvedLayout layout = Resolve(Preset(preset), Host(8));
    for (const ActorKind kind : {ActorKind::kPeer, ActorKind::kEndpoint}) {
      EXPECT_EQ(ReactorNameOf(layout, kind), "control");
      EXPECT_EQ(layout.ReactorOf(kind).core, -1);
      EXPECT_EQ(layout.ReactorOf(kind).idle, ReactorIdle::kEvent);
    }
  }
}

TEST(LayoutTest, TheWatchdogLivesWithSubmit) {
  for (const LayoutPreset preset : {LayoutPreset::kOneCore, LayoutPreset::kTwoCore,
                                    LayoutPreset::kFourCore, LayoutPreset::kPerNic}) {
    const ResolvedLayout layout = Resolve(Preset(preset), Host(8));
    EXPECT_EQ(ReactorNameOf(layout, ActorKind::kWatchdog),
              ReactorNameOf(layout, ActorKind::kSubmit));
  }
  RankConfig moved = Preset(LayoutPreset::kTwoCore);
  moved.placement = {{.actor = ActorKind::kSubmit, .reactor = "relay"}};
  EXPECT_EQ(ReactorNameOf(Resolve(moved, Host(8)), ActorKind::kWatchdog), "relay");
}

TEST(LayoutTest, APresetPinsToCoresOfItsOwnAndLeavesTheFirst) {
  EXPECT_THAT(Cores(Resolve(Preset(LayoutPreset::kTwoCore), Host(4, 4))), ElementsAre(5, 6, -1));
  EXPECT_THAT(Cores(Resolve(Preset(LayoutPreset::kFourCore), Host(8))),
              ElementsAre(1, 2, 3, 4, -1));
}

TEST(LayoutTest, APresetThatDoesNotFitRunsUnpinned) {
  EXPECT_THAT(Cores(Resolve(Preset(LayoutPreset::kFourCore), Host(4))),
              ElementsAre(-1, -1, -1, -1, -1));
  EXPECT_THAT(Cores(Resolve(Preset(LayoutPreset::kOneCore), Host(1))), ElementsAre(-1, -1));
  EXPECT_THAT(Cores(Resolve(Preset(LayoutPreset::kOneCore), HostCores())), ElementsAre(-1, -1));
}

TEST(LayoutTest, AutoFitsTheAllowedCores) {
  const auto fits = [](int cores) {
    return Resolve(Preset(LayoutPreset::kAuto), Host(cores)).preset;
  };
  EXPECT_EQ(fits(0), LayoutPreset::kOneCore);
  EXPECT_EQ(fits(2), LayoutPreset::kOneCore);
  EXPECT_EQ(fits(3), LayoutPreset::kTwoCore);
  EXPECT_EQ(fits(4), LayoutPreset::kTwoCore);
  EXPECT_EQ(fits(5), LayoutPreset::kFourCore);
  EXPECT_EQ(fits(64), LayoutPreset::kFourCore);
}

TEST(LayoutTest, RanksThatShareCoresParkSoonAndAreNotPinned) {
  RankConfig config = Preset(LayoutPreset::kAuto);
  config.ranks_on_host = 4;
  config.local_rank = 1;
  HostCores host = Host(2);
  host.virtualised = true;
  const ResolvedLayout layout = Resolve(config, host);
  EXPECT_EQ(layout.preset, LayoutPreset::kOneCore);
  EXPECT_THAT(Cores(layout), ElementsAre(-1, -1));
  EXPECT_EQ(layout.reactors[0].idle, ReactorIdle::kAdaptive);
  EXPECT_LT(layout.reactors[0].spin_us, 50U);
}

TEST(LayoutTest, RanksOfOneHostGetCoresOfTheirOwn) {
  RankConfig config = Preset(LayoutPreset::kAuto);
  config.ranks_on_host = 4;
  std::set<int> taken;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    config.local_rank = rank;
    const ResolvedLayout layout = Resolve(config, Host(16));
    EXPECT_EQ(layout.preset, LayoutPreset::kTwoCore);
    for (const int core : Cores(layout)) {
      if (core < 0) continue;
      EXPECT_TRUE(taken.insert(core).second) << core;
    }
  }
  EXPECT_EQ(taken.size(), 8U);
}

TEST(LayoutTest, WithoutItsNumberARankOfSeveralIsNotPinned) {
  RankConfig config = Preset(LayoutPreset::kTwoCore);
  config.ranks_on_host = 4;
  EXPECT_THAT(Cores(Resolve(config, Host(64))), ElementsAre(-1, -1, -1));
}

TEST(LayoutTest, HyperThreadsOfOneCoreCountOnce) {
  HostCores host = Host(8);
  for (size_t i = 4; i < 8; ++i) host.allowed[i].physical = static_cast<int>(i) - 4;
  const ResolvedLayout layout = Resolve(Preset(LayoutPreset::kAuto), host);
  EXPECT_EQ(layout.preset, LayoutPreset::kTwoCore);
  EXPECT_THAT(Cores(layout), ElementsAre(1, 2, -1));
}

TEST(LayoutTest, PerNicRunsNearTheNic) {
  RankConfig config = Preset(LayoutPreset::kPerNic);
  config.nics[0].numa_node = 1;
  EXPECT_THAT(Cores(Resolve(config, Host(8))), ElementsAre(4, 1, 2, -1));
  config.nics[0].numa_node = 7;  // no such node here: any core will do
  EXPECT_THAT(Cores(Resolve(config, Host(8))), ElementsAre(1, 2, 3, -1));
}

TEST(LayoutTest, PerNicWithSeveralNicsPostsAndPollsOnCoresOfTheirOwn) {
  RankConfig config = Preset(LayoutPreset::kPerNic);
  config.nics.resize(2);
  const ResolvedLayout layout = Resolve(config, Host(8));
  EXPECT_THAT(Names(layout), ElementsAre("nic_post", "nic_poll", "submit", "copy", "control"));
  EXPECT_EQ(ReactorNameOf(layout, ActorKind::kCqPoll), "nic_poll");
}

TEST(LayoutTest, SpinDependsOnTheMachineUnlessTheConfigSays) {
  RankConfig config = Preset(LayoutPreset::kTwoCore);
  HostCores host = Host(8);
  EXPECT_EQ(Resolve(config, host).reactors[0].spin_us, 50U);
  host.virtualised = true;
  EXPECT_EQ(Resolve(config, host).reactors[0].spin_us, 2000U);
  config.spin_us = 7;
  EXPECT_EQ(Resolve(config, host).reactors[0].spin_us, 7U);

  RankConfig own = Explicit();
  own.spin_us = 7;
  own.reactors[0].spin_us = 0;
  EXPECT_EQ(Resolve(own, host).reactors[0].spin_us, 0U);
}

TEST(LayoutTest, ExplicitReactorsAreTakenAsTheyAre) {
  RankConfig config = Explicit();
  config.reactors[0].idle = ReactorIdle::kBusy;
  const ResolvedLayout layout = Resolve(config, Host(4));
  EXPECT_THAT(Names(layout), ElementsAre("data", "control"));
  EXPECT_EQ(layout.reactors[0].core, 2);
  EXPECT_EQ(layout.reactors[0].idle, ReactorIdle::kBusy);
  EXPECT_EQ(layout.preset, LayoutPreset::kAuto);
}

TEST(LayoutTest, ControlActorsMayBePlacedToo) {
  RankConfig config = Explicit();
  config.reactors.push_back({.name = "control", .core = 3});
  config.reactors.push_back({.name = "peers"});
  config.placement.push_back({.actor = ActorKind::kPeer, .reactor = "peers"});
  const ResolvedLayout layout = Resolve(config, Host(4));
  EXPECT_THAT(Names(layout), ElementsAre("data", "control", "peers"));
  EXPECT_EQ(ReactorNameOf(layout, ActorKind::kPeer), "peers");
  EXPECT_EQ(ReactorNameOf(layout, ActorKind::kEndpoint), "control");
  EXPECT_EQ(layout.ReactorOf(ActorKind::kEndpoint).core, 3) << "their own \"control\" is used";
}

TEST(LayoutTest, APlacementChangesAPreset) {
  RankConfig config = Preset(LayoutPreset::kTwoCore);
  config.placement = {{.actor = ActorKind::kRelayPost, .reactor = "sender"},
                      {.actor = ActorKind::kCqPoll, .reactor = "sender"},
                      {.actor = ActorKind::kPeer, .reactor = "control"}};
  EXPECT_THAT(Names(Resolve(config, Host(8))), ElementsAre("sender", "control"))
      << "a reactor without actors is not made";
}

// --- refused

class OutsideCoreTest : public testing::TestWithParam<int> {};
TEST_P(OutsideCoreTest, IsAnErrorNamingCoreReactorAndTheAllowedOnes) {
  RankConfig config = Explicit();
  config.reactors[0].core = GetParam();
  EXPECT_THAT(ResolveError(config, Host(4, 4)),
              AllOf(StartsWith("rank.textproto:4: reactor \"data\": core " +
                               std::to_string(GetParam()) + " "),
                    HasSubstr("(4-7)")));
}
TEST_P(OutsideCoreTest, IsLeftToTheReactorWhenOnlyPreferred) {
  RankConfig config = Explicit();
  config.reactors[0].core = GetParam();
  config.reactors[0].pin_required = false;
  EXPECT_EQ(Resolve(config, Host(4, 4)).reactors[0].core, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Cores, OutsideCoreTest, testing::Values(0, 63, 9999));

TEST(LayoutTest, MinusOneIsNotPinned) {
  RankConfig config = Explicit();
  config.reactors[0].core = -1;
  EXPECT_EQ(Resolve(config, Host(4, 4)).reactors[0].core, -1);
}

TEST(LayoutTest, APlacementOnAReactorThatDoesNotExist) {
  RankConfig config = Explicit();
  config.placement[1].reactor = "dta";
  EXPECT_THAT(ResolveError(config, Host(4)),
              AllOf(StartsWith("rank.textproto:5: "), HasSubstr("actor \"copy\""),
                    HasSubstr("\"dta\", which does not exist; there are: data")));
}

TEST(LayoutTest, ADataActorWithoutAPlace) {
  RankConfig config = Explicit();
  config.placement.pop_back();
  EXPECT_THAT(ResolveError(config, Host(4)), HasSubstr("actor \"cq_poll\" is on no reactor"));
}

TEST(LayoutTest, AReactorWithoutAnActor) {
  RankConfig config = Explicit();
  config.reactors.push_back({.name = "idle", .where = "rank.textproto:9: "});
  EXPECT_THAT(ResolveError(config, Host(4)),
              StartsWith("rank.textproto:9: reactor \"idle\" has no actor"));
}

TEST(LayoutTest, AControlActorBesideADataActor) {
  RankConfig config = Explicit();
  config.placement.push_back({.actor = ActorKind::kPeer, .reactor = "data"});
  EXPECT_THAT(ResolveError(config, Host(4)),
              AllOf(HasSubstr("\"submit\" and \"peer\""), HasSubstr("reactor \"data\""),
                    HasSubstr("block for milliseconds")));
}

TEST(LayoutTest, AControlActorBesideTheWatchdog) {
  RankConfig config = Preset(LayoutPreset::kOneCore);
  config.placement = {{.actor = ActorKind::kWatchdog, .reactor = "control"}};
  EXPECT_THAT(ResolveError(config, Host(4)),
              AllOf(HasSubstr("\"watchdog\" and \"peer\""), HasSubstr("reactor \"control\"")));
}

TEST(LayoutTest, TheMachineTellsItsCores) {
  const HostCores host = DetectHostCores();
  ASSERT_FALSE(host.allowed.empty());
  for (const HostCores::Core& core : host.allowed) EXPECT_GE(core.physical, 0);
  Resolve(Preset(LayoutPreset::kAuto), host);
}

}  // namespace
}  // namespace railhop
