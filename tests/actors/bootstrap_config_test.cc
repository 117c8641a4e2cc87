#include "actors/bootstrap_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

#include "actors/bootstrap_settings.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::StartsWith;
using testing::UnorderedElementsAre;

using Environment = std::map<std::string, std::string>;

GetEnvironment Lookup(const Environment& environment) {
  return [environment](const char* name) -> const char* {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  };
}

// A rank with one NIC, on one line so that line numbers of what is added are easy to tell.
constexpr char kRank[] = R"(name: "r" sim_directory: "/tmp/s" nics { name: "nic0" sim {} })";
constexpr char kPxn[] = R"( pxn { enable: true group_id: "g" })";

struct Loaded {
  bool ok = false;
  RankConfig config;
  std::string error;
};
Loaded Load(const std::string& text, const Environment& environment = {}) {
  Loaded loaded;
  loaded.ok =
      LoadRankConfig(text, "rank.textproto", Lookup(environment), &loaded.config, &loaded.error);
  EXPECT_EQ(loaded.ok, loaded.error.empty()) << loaded.error;
  return loaded;
}
RankConfig LoadGood(const std::string& text, const Environment& environment = {}) {
  Loaded loaded = Load(text, environment);
  EXPECT_TRUE(loaded.ok) << loaded.error;
  return std::move(loaded.config);
}
std::string LoadBad(const std::string& text, const Environment& environment = {}) {
  Loaded loaded = Load(text, environment);
  EXPECT_FALSE(loaded.ok);
  return loaded.error;
}

TEST(BootstrapConfigTest, DefaultsAreThoseOfTheDocumentation) {
  const RankConfig config = LoadGood(kRank);
  EXPECT_EQ(config.name, "r");
  ASSERT_EQ(config.nics.size(), 1U);
  EXPECT_EQ(config.nics[0].name, "nic0");
  EXPECT_EQ(config.nics[0].rail, "nic0");
  EXPECT_EQ(config.nics[0].line_rate_bytes_per_s, 25'000'000'000U);
  EXPECT_EQ(config.nics[0].base_delay_ns, 3000U);
  EXPECT_FALSE(config.nics[0].model_only);
  EXPECT_EQ(config.registry_root, "/dev/shm");
  EXPECT_EQ(config.staging, StagingKind::kHost);
  EXPECT_EQ(config.gpu, "");
  EXPECT_FALSE(config.copy.doorbell.has_value());
  EXPECT_FALSE(config.copy.way.has_value());
  EXPECT_EQ(config.copy.stream_priority, 0);
  EXPECT_EQ(config.copy.gather_max_blocks, 32U);
  EXPECT_EQ(config.batch_timeout_ms, 30'000U);
  EXPECT_EQ(config.piece_timeout_ms, 5'000U);
  EXPECT_EQ(config.slice_size, 65'536U);
  EXPECT_EQ(config.layout, LayoutPreset::kAuto);
  EXPECT_EQ(config.trace_sample_every, 64U);
  EXPECT_TRUE(config.histograms);
  EXPECT_TRUE(config.trace_pieces);
  EXPECT_EQ(config.slot_log_every_ms, 0U);
  EXPECT_EQ(LoadGood(std::string(kRank) + " slot_log {}").slot_log_every_ms, 1000U);
  EXPECT_EQ(config.pxn.inflight_depth, 4U);
  EXPECT_EQ(config.pxn.credit_timeout_ms, 1000U);
  EXPECT_EQ(config.pxn.heartbeat_timeout_ms, 3000U);
  EXPECT_EQ(config.pxn.max_piece_bytes, 8U << 20);
  EXPECT_FALSE(config.pxn.enable);
  EXPECT_THAT(config.pxn.off_reason, HasSubstr("not enabled"));
  EXPECT_THAT(config.warnings, IsEmpty()) << "off by choice is nothing to warn of";
}

TEST(BootstrapConfigTest, ReadsEveryField) {
  const RankConfig config = LoadGood(R"(
    name: "prefill-3"
    nics { name: "nic0" rail: "east" numa_node: 1
           sim { line_rate_bytes_per_s: 1000 base_delay_ns: 7 mode: MODEL queue_depth: 16 } }
    nics { name: "nic1" sim { mode: MOVE } }
    sim_directory: "/tmp/s"
    registry_root: "/tmp/r"
    staging: CUDA gpu: "0000:17:00.0"
    copy { doorbell: CPU way: GATHER stream_priority: -2 gather_max_blocks: 24 }
    pxn { enable: true group_id: "g" rail_map: '{"nic1": "west"}' inflight_depth: 8
          credit_timeout_ms: 11 heartbeat_timeout_ms: 24 preattach: true min_relay_bytes: 13
          max_piece_bytes: 65536 heartbeat_ms: 14 lane_grace_ms: 15 probe_timeout_ms: 16
          fabric_drain_ms: 17 doorbell_poll_us: 18 }
    batch_timeout_ms: 19 piece_timeout_ms: 20 slice_size: 4096
    ranks_on_host: 8 local_rank: 3 spin_us: 21
    reactors { name: "a" core: 2 pin: PREFERRED idle: BUSY spin_us: 22 }
    reactors { name: "b" idle: EVENT }
    placement { actor: SUBMIT reactor: "a" }
    placement { actor: ENDPOINT reactor: "b" }
    max_batches: 64
    tracing { sample_every: 1 histograms: false pieces: false }
    slot_log { every_ms: 23 }
  )");
  ASSERT_EQ(config.nics.size(), 2U);
  EXPECT_EQ(config.nics[0].rail, "east");
  EXPECT_EQ(config.nics[0].numa_node, 1);
  EXPECT_EQ(config.nics[0].line_rate_bytes_per_s, 1000U);
  EXPECT_EQ(config.nics[0].base_delay_ns, 7U);
  EXPECT_TRUE(config.nics[0].model_only);
  EXPECT_EQ(config.nics[0].queue_depth, 16U);
  EXPECT_EQ(config.nics[1].rail, "west");
  EXPECT_FALSE(config.nics[1].model_only);
  EXPECT_EQ(config.sim_directory, "/tmp/s");
  EXPECT_EQ(config.registry_root, "/tmp/r");
  EXPECT_EQ(config.staging, StagingKind::kCuda);
  EXPECT_EQ(config.gpu, "0000:17:00.0");
  EXPECT_EQ(config.copy.doorbell, CudaDoorbell::kCpu);
  EXPECT_EQ(config.copy.way, CopyWay::kGather);
  EXPECT_EQ(config.copy.stream_priority, -2);
  EXPECT_EQ(config.copy.gather_max_blocks, 24U);
  const PxnConfig& pxn = config.pxn;
  EXPECT_TRUE(pxn.enable);
  EXPECT_EQ(pxn.off_reason, "");
  EXPECT_EQ(pxn.group_id, "g");
  EXPECT_THAT(pxn.rail_map, UnorderedElementsAre(Pair("nic0", "east"), Pair("nic1", "west")));
  EXPECT_EQ(pxn.inflight_depth, 8U);
  EXPECT_EQ(pxn.credit_timeout_ms, 11U);
  EXPECT_EQ(pxn.heartbeat_timeout_ms, 24U);
  EXPECT_TRUE(pxn.preattach);
  EXPECT_EQ(pxn.min_relay_bytes, 13U);
  EXPECT_EQ(pxn.max_piece_bytes, 65536U);
  EXPECT_EQ(pxn.heartbeat_ms, 14U);
  EXPECT_EQ(pxn.lane_grace_ms, 15U);
  EXPECT_EQ(pxn.probe_timeout_ms, 16U);
  EXPECT_EQ(pxn.fabric_drain_ms, 17U);
  EXPECT_EQ(pxn.doorbell_poll_us, 18U);
  EXPECT_EQ(config.batch_timeout_ms, 19U);
  EXPECT_EQ(config.piece_timeout_ms, 20U);
  EXPECT_EQ(config.slice_size, 4096U);
  EXPECT_EQ(config.ranks_on_host, 8U);
  EXPECT_EQ(config.local_rank, 3U);
  EXPECT_EQ(config.spin_us, 21U);
  ASSERT_EQ(config.reactors.size(), 2U);
  EXPECT_EQ(config.reactors[0].name, "a");
  EXPECT_EQ(config.reactors[0].core, 2);
  EXPECT_FALSE(config.reactors[0].pin_required);
  EXPECT_EQ(config.reactors[0].idle, ReactorIdle::kBusy);
  EXPECT_EQ(config.reactors[0].spin_us, 22U);
  EXPECT_EQ(config.reactors[1].core, -1);
  EXPECT_TRUE(config.reactors[1].pin_required);
  EXPECT_EQ(config.reactors[1].idle, ReactorIdle::kEvent);
  ASSERT_EQ(config.placement.size(), 2U);
  EXPECT_EQ(config.placement[0].actor, ActorKind::kSubmit);
  EXPECT_EQ(config.placement[0].reactor, "a");
  EXPECT_EQ(config.placement[1].actor, ActorKind::kEndpoint);
  EXPECT_EQ(config.max_batches, 64U);
  EXPECT_EQ(config.trace_sample_every, 1U);
  EXPECT_FALSE(config.histograms);
  EXPECT_FALSE(config.trace_pieces);
  EXPECT_EQ(config.slot_log_every_ms, 23U);
}

TEST(BootstrapConfigTest, ReadsRdmaNics) {
  const RankConfig config = LoadGood(R"(
    name: "r"
    nics { name: "mlx5_0" rail: "rail0" rdma { port: 2 gid_index: 3 queue_depth: 64
                                                    max_endpoints: 5 eviction: FIFO queue_pairs: 1 } }
    nics { name: "mlx5_1" rdma {} }
  )");
  ASSERT_EQ(config.nics.size(), 2U);
  EXPECT_EQ(config.nics[0].kind, NicKind::kRdma);
  EXPECT_EQ(config.nics[0].rail, "rail0");
  EXPECT_EQ(config.nics[0].port, 2);
  EXPECT_EQ(config.nics[0].gid_index, 3);
  EXPECT_EQ(config.nics[0].max_endpoints, 5u);
  EXPECT_TRUE(config.nics[0].evict_oldest);
  EXPECT_EQ(config.nics[0].queue_pairs, 1u);
  EXPECT_EQ(config.nics[0].queue_depth, 64U);
  EXPECT_EQ(config.nics[1].port, 1);
  EXPECT_EQ(config.nics[1].gid_index, -1);
  EXPECT_EQ(config.nics[1].max_endpoints, 4000u);
  EXPECT_FALSE(config.nics[1].evict_oldest);
  EXPECT_EQ(config.nics[1].queue_pairs, 2u);
  EXPECT_EQ(config.nics[1].queue_depth, 256U);
}

// --- texts that are refused: each names file and line, what is wrong and what would be right

TEST(BootstrapConfigTest, AnUnknownFieldNamesFileLineAndTheKnownOnes) {
  EXPECT_THAT(LoadBad("name: \"r\"\nxyz: 1\n"),
              AllOf(StartsWith("rank.textproto:2:"), HasSubstr("no field named \"xyz\""),
                    HasSubstr("Known fields here: name, nics, ")));
}
TEST(BootstrapConfigTest, AnUnknownNestedFieldNamesTheFieldsThere) {
  EXPECT_THAT(LoadBad("name: \"r\"\npxn {\n  grup_id: \"g\"\n}\n"),
              AllOf(StartsWith("rank.textproto:3:"), HasSubstr("no field named \"grup_id\""),
                    HasSubstr("Known fields here: enable, group_id, "), Not(HasSubstr("nics"))));
}
TEST(BootstrapConfigTest, AnUnknownValueOfAListNamesTheKnownOnes) {
  EXPECT_THAT(LoadBad("name: \"r\"\nlayout: SIX_CORE\n"),
              AllOf(StartsWith("rank.textproto:2:9: "), HasSubstr("SIX_CORE"),
                    HasSubstr("Known values: AUTO, ONE_CORE, TWO_CORE, FOUR_CORE, PER_NIC")));
  EXPECT_THAT(LoadBad("reactors { idle: LAZY }"), HasSubstr("Known values: ADAPTIVE, BUSY, EVENT"));
}
TEST(BootstrapConfigTest, AValueOfAListByAnUnknownNumber) {
  EXPECT_THAT(LoadBad("layout: 77"), AllOf(StartsWith("rank.textproto:1:"), HasSubstr("77")));
}
TEST(BootstrapConfigTest, AValueOfTheWrongType) {
  EXPECT_THAT(LoadBad("name: \"r\"\nslice_size: \"big\"\n"),
              AllOf(StartsWith("rank.textproto:2:"), HasSubstr("integer")));
  EXPECT_THAT(LoadBad("slice_size: -1"), StartsWith("rank.textproto:1:"));
}
TEST(BootstrapConfigTest, AFieldGivenTwice) {
  EXPECT_THAT(LoadBad("name: \"a\"\nname: \"b\"\n"),
              AllOf(StartsWith("rank.textproto:2:"), HasSubstr("multiple")));
}
TEST(BootstrapConfigTest, TextThatIsNoTextFormat) {
  EXPECT_THAT(LoadBad("{\"name\": 1}"), StartsWith("rank.textproto:1:"));
  EXPECT_THAT(LoadBad("pxn {"), StartsWith("rank.textproto:"));
  EXPECT_THAT(LoadBad(std::string("name: \0\xff\xfe", 9)), StartsWith("rank.textproto:"));
  EXPECT_THAT(LoadBad(std::string(100'000, '{')), StartsWith("rank.textproto:"));
}

struct BadText {
  const char* what;
  std::string text;  // after kRank and a line break: on line 2
  std::string error;
};
void PrintTo(const BadText& bad, std::ostream* out) {
  *out << bad.what;
}

class BadTextTest : public testing::TestWithParam<BadText> {};
TEST_P(BadTextTest, IsRefusedWithLineAndReason) {
  EXPECT_THAT(LoadBad(std::string(kRank) + "\n" + GetParam().text),
              AllOf(StartsWith("rank.textproto:2: "), HasSubstr(GetParam().error)));
}
INSTANTIATE_TEST_SUITE_P(
    Fields, BadTextTest,
    testing::Values(
        BadText{"registry_root", "registry_root: 'shm'", "\"shm\" is not an absolute path"},
        BadText{"batch_timeout", "batch_timeout_ms: 0",
                "batch_timeout_ms = 0 is not in its range 1.."},
        BadText{"piece_timeout", "piece_timeout_ms: 0", "piece_timeout_ms = 0"},
        BadText{"slice_size", "slice_size: 100",
                "slice_size = 100 is not in its range 512..8388608"},
        BadText{"nic_without_name", "nics { sim {} }", "the name of a NIC has 0 bytes"},
        BadText{"nic_name_too_long", "nics { name: '" + std::string(257, 'n') + "' sim {} }",
                "257 bytes; allowed: 1..256"},
        BadText{"nic_twice", "nics { name: 'nic0' sim {} }", "two NICs named \"nic0\""},
        BadText{"nic_of_no_kind", "nics { name: 'nic1' }", "NIC \"nic1\" is of no kind"},
        BadText{"rail_empty", "nics { name: 'nic1' rail: '' sim {} }",
                "has 0 bytes; allowed: 1..256"},
        BadText{"rail_too_long",
                "nics { name: 'nic1' rail: '" + std::string(257, 'r') + "' sim {} }",
                "has 257 bytes; allowed: 1..256"},
        BadText{"line_rate", "nics { name: 'nic1' sim { line_rate_bytes_per_s: 0 } }",
                "line_rate_bytes_per_s = 0 is not in its range 1.."},
        BadText{"base_delay", "nics { name: 'nic1' sim { base_delay_ns: 1000000001 } }",
                "base_delay_ns = 1000000001"},
        BadText{"queue_depth", "nics { name: 'nic1' sim { queue_depth: 1 } }",
                "queue_depth = 1 is not in its range 2..65536"},
        BadText{"rdma_port", "nics { name: 'nic1' rdma { port: 0 } }",
                "port = 0 is not in its range 1..255"},
        BadText{"rdma_gid_index", "nics { name: 'nic1' rdma { gid_index: 256 } }",
                "gid_index = 256 is not in its range 0..255"},
        BadText{"rdma_max_endpoints", "nics { name: 'nic1' rdma { max_endpoints: 0 } }",
                "max_endpoints = 0 is not in its range 1..4000"},
        BadText{"rdma_queue_pairs", "nics { name: 'nic1' rdma { queue_pairs: 256 } }",
                "queue_pairs = 256 is not in its range 1..255"},
        BadText{"rdma_queue_depth", "nics { name: 'nic1' rdma { queue_depth: 16385 } }",
                "queue_depth = 16385 is not in its range 2..16384"},
        BadText{"numa_node", "nics { name: 'nic1' numa_node: 1024 sim {} }", "numa_node = 1024"},
        BadText{"ranks_on_host", "ranks_on_host: 0",
                "ranks_on_host = 0 is not in its range 1..1024"},
        BadText{"local_rank", "local_rank: 1", "local_rank = 1 is not in its range 0..0"},
        BadText{"spin", "spin_us: 1000001", "spin_us = 1000001 is not in its range 0..1000000"},
        BadText{"layout_and_reactors", "layout: AUTO reactors { name: 'a' }",
                "layout and reactors exclude each other"},
        BadText{"reactor_without_name", "reactors { core: 1 }", "a reactor has no name"},
        BadText{"reactor_twice", "reactors { name: 'a' } reactors { name: 'a' }",
                "two reactors named \"a\""},
        BadText{"negative_core", "reactors { name: 'a' core: -2 }", "core -2 is no core"},
        BadText{"reactor_spin", "reactors { name: 'a' spin_us: 1000001 }", "spin_us = 1000001"},
        BadText{"placement_without_actor", "placement { reactor: 'a' }",
                "a placement names an actor and a reactor"},
        BadText{"placement_without_reactor", "placement { actor: COPY }",
                "a placement names an actor and a reactor"},
        BadText{"placed_twice",
                "placement { actor: COPY reactor: 'a' } placement { actor: COPY reactor: 'b' }",
                "actor \"copy\" is placed twice"},
        BadText{"copy_cost_of_no_way", "staging: CUDA copy { costs { fixed_ns: 1 } }",
                "costs are those of a way: ASYNC, BATCH or GATHER"},
        BadText{"copy_costs_that_are_none",
                "staging: CUDA copy { costs { way: ASYNC fixed_ns: 1 } }",
                "the costs of ASYNC need fixed_ns and behind_ns"},
        BadText{"copy_costs_and_way",
                "staging: CUDA copy { way: ASYNC costs { way: ASYNC fixed_ns: 1 behind_ns: 1 } }",
                "way and costs exclude each other"},
        BadText{"copy_without_cuda", "copy {}", "add that, or leave copy out"},
        BadText{"copy_costs_twice",
                "staging: CUDA copy { costs { way: ASYNC fixed_ns: 1 behind_ns: 1 } costs { way: "
                "ASYNC } }",
                "the costs of ASYNC are given twice"},
        BadText{"copy_costs_without_async",
                "staging: CUDA copy { costs { way: BATCH fixed_ns: 1 behind_ns: 1 } }",
                "the costs of ASYNC are missing"},
        BadText{"max_batches", "max_batches: 0", "max_batches = 0 is not in its range"},
        BadText{"sample_every", "tracing { sample_every: 3 }",
                "sample_every = 3 is not a power of two"},
        BadText{"slot_log_too_often", "slot_log { every_ms: 9 }",
                "every_ms = 9 is not in its range 10..31536000000"},
        BadText{"slot_log_too_rarely", "slot_log { every_ms: 31536000001 }",
                "every_ms = 31536000001 is not in its range"},
        BadText{"sample_never", "tracing { sample_every: 0 }", "sample_every = 0"}),
    [](const auto& suite) { return std::string(suite.param.what); });

TEST(BootstrapConfigTest, ReadsWhatTheWaysToCopyCost) {
  const RankConfig config = LoadGood(R"(
    name: "r" staging: CUDA
    copy { costs { way: ASYNC fixed_ns: 5500 span_ns: 2400 behind_ns: 1500 behind_span_ns: 2300
                   mib_ns: 2097152 }
           costs { way: GATHER fixed_ns: 10700 behind_ns: 5300 } }
  )");
  ASSERT_TRUE(config.copy.costs.has_value());
  const CopyCosts& costs = *config.copy.costs;
  const CopyWayCost& async = costs.of(CopyWay::kAsync);
  EXPECT_EQ(async.Of(CopyWay::kAsync, false, 1, 0), 7900);
  EXPECT_EQ(async.Of(CopyWay::kAsync, true, 1, 0), 3800);
  EXPECT_EQ(async.Of(CopyWay::kAsync, false, 1, 100'000), 205'500);
  EXPECT_FALSE(costs.of(CopyWay::kBatch).available);
  EXPECT_EQ(costs.of(CopyWay::kGather).fixed, 10700);
  EXPECT_FALSE(costs.cpu_rings_behind);
}

TEST(BootstrapConfigTest, AVariableThatIsMisspeltIsNamed) {
  const char* const environment[] = {
      "MC_PXN_GROUPID=g", "MC_PXN_GROUP_ID=g", "MC_PXN_ENABLE=1", "MC_PXN_=",
      "MC_GID_INDEX=3",   "XMC_PXN_ENABLED=1", "MC_PXN_A",        nullptr};
  EXPECT_THAT(UnknownPxnVariables(environment),
              ElementsAre(StartsWith("MC_PXN_ is set and changes nothing"),
                          StartsWith("MC_PXN_A is set"), StartsWith("MC_PXN_GROUPID is set")));
}

TEST(BootstrapConfigTest, TheCallerNamesARankWhoseTextDoesNot) {
  const auto name_of = [](const char* text) {
    RankConfig config;
    std::string error;
    EXPECT_TRUE(LoadRankConfig(text, "rank.textproto", Lookup({}), &config, &error, "engine"))
        << error;
    return config.name;
  };
  EXPECT_EQ(name_of(""), "engine");
  EXPECT_EQ(name_of("name: 'mine'"), "mine");
}

TEST(BootstrapConfigTest, ARankNeedsAName) {
  EXPECT_THAT(LoadBad(""), AllOf(StartsWith("rank.textproto: "), HasSubstr("has no name")));
  EXPECT_THAT(LoadBad("\nname: '" + std::string(257, 'n') + "'"),
              AllOf(StartsWith("rank.textproto:2: "), HasSubstr("257 bytes")));
}
TEST(BootstrapConfigTest, ASimulatedNicNeedsADirectory) {
  EXPECT_THAT(LoadBad("name: 'r' nics { name: 'n' sim {} }"), HasSubstr("needs sim_directory"));
}

// --- what only switches PXN off: one warning that says why, and the rank goes on

void ExpectPxnOff(const RankConfig& config, const testing::Matcher<std::string>& reason) {
  EXPECT_FALSE(config.pxn.enable);
  EXPECT_THAT(config.pxn.off_reason, reason);
  EXPECT_THAT(config.warnings,
              ElementsAre(AllOf(StartsWith("PXN is off, everything goes direct: "), reason)));
}

TEST(PxnOffTest, AGroupIdWithASlash) {
  ExpectPxnOff(LoadGood(std::string(kRank) + "\npxn {\n enable: true\n group_id: 'a/b' }"),
               AllOf(HasSubstr("rank.textproto:4: pxn.group_id = \"a/b\""),
                     HasSubstr("allowed: 1..64 of A-Z a-z 0-9 _ - .")));
}
TEST(PxnOffTest, GroupIdsThatAreNoNames) {
  for (const std::string& id :
       {std::string(""), std::string("."), std::string(".."), std::string(65, 'g'),
        std::string("gr oup"), std::string("gr\xc3\xbc"), std::string("a\\0b")}) {
    const RankConfig config =
        LoadGood(std::string(kRank) + " pxn { enable: true group_id: '" + id + "' }");
    EXPECT_THAT(config.pxn.off_reason, HasSubstr("pxn.group_id = ")) << id;
  }
}
TEST(PxnOffTest, NoGroupId) {
  ExpectPxnOff(LoadGood(std::string(kRank) + " pxn { enable: true }"),
               HasSubstr("no group id is set"));
}
TEST(PxnOffTest, AHeartbeatTimeoutThatIsNoLongerThanTheHeartbeat) {
  const std::string pxn = std::string(kRank) + " pxn { enable: true group_id: 'g' ";
  ExpectPxnOff(LoadGood(pxn + "heartbeat_timeout_ms: 500 }"),
               AllOf(HasSubstr("MC_PXN_HEARTBEAT_TIMEOUT_MS) = 500"), HasSubstr("= 500, so")));
  EXPECT_TRUE(LoadGood(pxn + "heartbeat_timeout_ms: 501 }").pxn.enable);
}
TEST(PxnOffTest, HostStagingLeaves59CharactersToTheGroupId) {
  const std::string rank = kRank;
  const auto pxn = [](size_t length) {
    return " pxn { enable: true group_id: '" + std::string(length, 'g') + "' }";
  };
  const RankConfig longest = LoadGood(rank + pxn(59));
  EXPECT_TRUE(longest.pxn.enable) << longest.pxn.off_reason;
  EXPECT_EQ(RegistryGroup(longest), std::string(59, 'g') + ".host");
  EXPECT_EQ(RegistryGroup(longest).size(), 64U);
  ExpectPxnOff(LoadGood(rank + pxn(60)),
               AllOf(HasSubstr("has 60 characters"), HasSubstr("may use 59")));
  const RankConfig gpu = LoadGood(rank + pxn(64) + " staging: CUDA");
  EXPECT_TRUE(gpu.pxn.enable) << gpu.pxn.off_reason;
  EXPECT_EQ(RegistryGroup(gpu), std::string(64, 'g'));
}
TEST(PxnOffTest, ARailMapThatIsNoObjectOfStrings) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[1, 2]", "it is of type array"},
      {"\"nic0\"", "it is of type string"},
      {"null", "it is of type null"},
      {R"({"nic0": 3})", "the rail of \"nic0\" is of type number"},
      {R"({"nic0": {"a": "b"}})", "the rail of \"nic0\" is of type object"},
      {R"({"nic0": ""})", "the rail name of \"nic0\" has 0 bytes"},
      {R"({"nic0": ")" + std::string(257, 'r') + "\"}", "the rail name of \"nic0\" has 257 bytes"},
      {"{\"nic0\": \"r\"", "parse error"},
      {"", "parse error"},
      {"nic0=r", "parse error"},
      {std::string(100'000, '['), "parse error"},
  };
  for (const auto& [map, why] : cases) {
    SCOPED_TRACE(map.substr(0, 80));
    ExpectPxnOff(
        LoadGood(std::string(kRank) + " pxn { enable: true group_id: 'g' rail_map: '" + map +
                 "' }"),
        AllOf(HasSubstr("pxn.rail_map = "), HasSubstr("a JSON object of strings"), HasSubstr(why)));
  }
}
TEST(PxnOffTest, NumbersOutsideTheirRange) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"inflight_depth: 0", "1..64"},
      {"inflight_depth: 65", "1..64"},
      {"credit_timeout_ms: 0", "1.."},
      {"heartbeat_timeout_ms: 0", "2.."},
      {"max_piece_bytes: 8388609", "8388608"},
      {"max_piece_bytes: 1", "4096.."},
      {"heartbeat_ms: 0", "1.."},
      {"probe_timeout_ms: 0", "1.."},
      {"lane_grace_ms: 31536000001", "0.."},
      {"fabric_drain_ms: 31536000001", "0.."},
      {"doorbell_poll_us: 0", "1..1000000"},
  };
  for (const auto& [field, range] : cases) {
    SCOPED_TRACE(field);
    ExpectPxnOff(
        LoadGood(std::string(kRank) + " pxn { enable: true group_id: 'g' " + field + " }"),
        AllOf(HasSubstr("pxn." + field.substr(0, field.find(':')) + " = "), HasSubstr(range)));
  }
}
TEST(PxnOffTest, NoNicMeansNoRail) {
  ExpectPxnOff(LoadGood(std::string("name: 'r'") + kPxn), HasSubstr("no NIC"));
}
TEST(PxnOffTest, OneRailOnTwoNics) {
  ExpectPxnOff(LoadGood(std::string(kRank) + " nics { name: 'nic1' rail: 'nic0' sim {} }" + kPxn),
               AllOf(HasSubstr("\"nic0\" and \"nic1\""), HasSubstr("both on rail \"nic0\"")));
}
TEST(PxnOffTest, SeveralMistakesAreOneWarning) {
  const RankConfig config =
      LoadGood(std::string(kRank) + " pxn { enable: true group_id: 'a/b' inflight_depth: 99 }");
  ExpectPxnOff(config, AllOf(HasSubstr("group_id"), HasSubstr("inflight_depth")));
}

TEST(RailTest, ALongestRailNameIsFine) {
  const std::string rail(256, 'r');
  const RankConfig config = LoadGood("name: 'r' sim_directory: '/t' nics { name: 'n' rail: '" +
                                     rail + "' sim {} }" + kPxn);
  EXPECT_TRUE(config.pxn.enable);
  EXPECT_EQ(config.nics[0].rail, rail);
}
TEST(RailTest, TheRailMapWinsOverTheNicsOwnRail) {
  const RankConfig config = LoadGood(
      R"(name: 'r' sim_directory: '/t' nics { name: 'a' rail: 'x' sim {} } nics { name: 'b' sim {} }
         pxn { enable: true group_id: 'g' rail_map: '{"a": "y", "far": "z"}' })");
  EXPECT_EQ(config.nics[0].rail, "y");
  EXPECT_EQ(config.nics[1].rail, "b");
  EXPECT_THAT(config.pxn.rail_map, UnorderedElementsAre(Pair("a", "y"), Pair("far", "z")));
}

// --- the environment

TEST(EnvironmentTest, EnableWinsBothWays) {
  EXPECT_TRUE(
      LoadGood(std::string(kRank) + " pxn { group_id: 'g' }", {{"MC_PXN_ENABLE", "1"}}).pxn.enable);
  const RankConfig off = LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_ENABLE", "0"}});
  EXPECT_FALSE(off.pxn.enable);
  EXPECT_THAT(off.warnings, IsEmpty());
}
TEST(EnvironmentTest, EnableTakesTheUsualWords) {
  for (const char* word : {"1", "true", "TRUE", "yes", "on"}) {
    EXPECT_TRUE(LoadGood(std::string(kRank) + " pxn { group_id: 'g' }", {{"MC_PXN_ENABLE", word}})
                    .pxn.enable)
        << word;
  }
  for (const char* word : {"0", "false", "False", "", "no", "off"}) {
    const RankConfig config = LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_ENABLE", word}});
    EXPECT_FALSE(config.pxn.enable) << word;
    EXPECT_THAT(config.pxn.off_reason, HasSubstr("not enabled")) << word;
  }
}
TEST(EnvironmentTest, EnableThatIsNeither) {
  ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_ENABLE", "maybe"}}),
               AllOf(HasSubstr("MC_PXN_ENABLE = \"maybe\""), HasSubstr("true or false")));
}
TEST(EnvironmentTest, GroupId) {
  EXPECT_EQ(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_GROUP_ID", "decode_1-a.b"}}).pxn.group_id,
            "decode_1-a.b");
  ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_GROUP_ID", "a/b"}}),
               AllOf(HasSubstr("MC_PXN_GROUP_ID = \"a/b\""), HasSubstr("1..64 of A-Z")));
  ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_GROUP_ID", ""}}),
               HasSubstr("MC_PXN_GROUP_ID = \"\""));
}
TEST(EnvironmentTest, RailMap) {
  const RankConfig config =
      LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_RAIL_MAP", R"({"nic0": "north"})"}});
  EXPECT_EQ(config.nics[0].rail, "north");
  EXPECT_TRUE(config.pxn.enable);
  ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_RAIL_MAP", "[]"}}),
               AllOf(HasSubstr("MC_PXN_RAIL_MAP = \"[]\""), HasSubstr("JSON object of strings")));
}

struct NumberVariable {
  const char* name;
  uint64_t PxnConfig::*member;
  std::string range;
  std::vector<std::string> good;
};
void PrintTo(const NumberVariable& variable, std::ostream* out) {
  *out << variable.name;
}

class NumberVariableTest : public testing::TestWithParam<NumberVariable> {};
TEST_P(NumberVariableTest, TakesItsRange) {
  for (const std::string& value : GetParam().good) {
    const RankConfig config =
        LoadGood(std::string(kRank) + " pxn { enable: true group_id: 'g' heartbeat_ms: 1 }",
                 {{GetParam().name, value}});
    EXPECT_TRUE(config.pxn.enable) << config.pxn.off_reason;
    EXPECT_EQ(config.pxn.*GetParam().member, std::stoull(value));
  }
}
TEST_P(NumberVariableTest, AnythingElseSwitchesPxnOff) {
  for (const std::string value :
       {"0", "-1", "", "4x", " 4", "4.0", "0x10", "99999999999999999999999", "1e3"}) {
    ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{GetParam().name, value}}),
                 AllOf(HasSubstr(GetParam().name), HasSubstr("\"" + value + "\""),
                       HasSubstr("allowed: " + GetParam().range)));
  }
}
INSTANTIATE_TEST_SUITE_P(
    Pxn, NumberVariableTest,
    testing::Values(
        NumberVariable{"MC_PXN_INFLIGHT_DEPTH", &PxnConfig::inflight_depth, "1..64", {"1", "64"}},
        NumberVariable{
            "MC_PXN_CREDIT_TIMEOUT_MS", &PxnConfig::credit_timeout_ms, "1..", {"1", "60000"}},
        NumberVariable{"MC_PXN_HEARTBEAT_TIMEOUT_MS",
                       &PxnConfig::heartbeat_timeout_ms,
                       "2..",
                       {"2", "60000"}}),
    [](const auto& suite) { return std::string(suite.param.name); });

TEST(EnvironmentTest, TheDepthEndsAt64) {
  ExpectPxnOff(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_INFLIGHT_DEPTH", "65"}}),
               HasSubstr("allowed: 1..64"));
}
TEST(EnvironmentTest, AGoodVariableHealsABadText) {
  const RankConfig config = LoadGood(std::string(kRank) + " pxn { enable: true group_id: 'a/b' }",
                                     {{"MC_PXN_GROUP_ID", "good"}});
  EXPECT_TRUE(config.pxn.enable) << config.pxn.off_reason;
  EXPECT_EQ(config.pxn.group_id, "good");
  EXPECT_THAT(config.warnings, IsEmpty());
}
TEST(EnvironmentTest, ABadVariableIsNotHealedByAGoodText) {
  EXPECT_FALSE(LoadGood(std::string(kRank) + kPxn, {{"MC_PXN_GROUP_ID", "a/b"}}).pxn.enable);
}
TEST(EnvironmentTest, AWarningStaysOneShortLine) {
  const RankConfig config = LoadGood(
      std::string(kRank) + kPxn, {{"MC_PXN_GROUP_ID", "a\nb\x1b[31m" + std::string(5000, 'x')}});
  ASSERT_EQ(config.warnings.size(), 1U);
  EXPECT_LT(config.warnings[0].size(), 500U);
  EXPECT_THAT(config.warnings[0], Not(HasSubstr("\n")));
  EXPECT_THAT(config.warnings[0], Not(HasSubstr("\x1b")));
}
TEST(EnvironmentTest, TransferTimeoutIsInSeconds) {
  const Environment one_minute = {{"MC_TRANSFER_TIMEOUT", "60"}};
  EXPECT_EQ(LoadGood(std::string(kRank) + " batch_timeout_ms: 7", one_minute).batch_timeout_ms,
            60'000U);
  EXPECT_EQ(LoadGood(kRank, {{"MC_TRANSFER_TIMEOUT", "1"}}).batch_timeout_ms, 5'000U)
      << "not below 5 s";
}
TEST(EnvironmentTest, ABadTransferTimeoutIsIgnoredWithAWarning) {
  for (const std::string value : {"0", "-1", "", "soon", "1.5", "99999999999999999999"}) {
    const RankConfig config = LoadGood(std::string(kRank) + kPxn, {{"MC_TRANSFER_TIMEOUT", value}});
    EXPECT_EQ(config.batch_timeout_ms, 30'000U) << value;
    EXPECT_TRUE(config.pxn.enable) << "has nothing to do with relaying";
    EXPECT_THAT(config.warnings, IsEmpty());
    EXPECT_THAT(config.environment_warnings,
                ElementsAre(AllOf(HasSubstr("MC_TRANSFER_TIMEOUT = \"" + value + "\""),
                                  HasSubstr("allowed: 1..31536000"))));
  }
}

TEST(EnvironmentTest, TheEngineVariablesOfSlicesCountForARank) {
  const RankConfig standard = LoadGood(std::string(kRank) + " slice_size: 4096");
  EXPECT_EQ(standard.slice_size, 4096U);
  EXPECT_EQ(standard.fragment_ratio, 4U);
  EXPECT_EQ(standard.slice_attempts, 9U);
  const RankConfig config =
      LoadGood(std::string(kRank) + " slice_size: 4096",
               {{"MC_SLICE_SIZE", "131072"}, {"MC_FRAGMENT_RATIO", "8"}, {"MC_RETRY_CNT", "2"}});
  EXPECT_EQ(config.slice_size, 131'072U);
  EXPECT_EQ(config.fragment_ratio, 8U);
  EXPECT_EQ(config.slice_attempts, 2U);
}
TEST(EnvironmentTest, FiltersLeaveTheNicsThatTheyName) {
  const std::string three =
      "name: \"a\" sim_directory: \"/tmp\" nics { name: \"n0\" sim {} } "
      "nics { name: \"n1\" sim {} } nics { name: \"n2\" sim {} }";
  const RankConfig config = LoadGood(three, {{"MC_TE_FILTERS", " n2,other, n0 ,"}});
  ASSERT_EQ(config.nics.size(), 2U);
  EXPECT_EQ(config.nics[0].name, "n0");
  EXPECT_EQ(config.nics[1].name, "n2");
  EXPECT_EQ(LoadGood(three, {{"MC_TE_FILTERS", ""}}).nics.size(), 3U);
}
TEST(EnvironmentTest, FiltersThatLeaveNoNicAreAnError) {
  EXPECT_THAT(LoadBad(kRank, {{"MC_TE_FILTERS", "mlx5_0"}}),
              AllOf(HasSubstr("MC_TE_FILTERS = \"mlx5_0\""), HasSubstr("nic0")));
}

TEST(LayoutPresetTest, NamesGoBothWays) {
  for (const char* name : {"auto", "one_core", "two_core", "four_core", "per_nic"}) {
    LayoutPreset preset = LayoutPreset::kAuto;
    ASSERT_TRUE(ParseLayoutPreset(name, &preset)) << name;
    EXPECT_STREQ(LayoutPresetName(preset), name);
  }
  LayoutPreset preset = LayoutPreset::kAuto;
  EXPECT_FALSE(ParseLayoutPreset("six_core", &preset));
  EXPECT_FALSE(ParseLayoutPreset("", &preset));
}

// --- what is written about it

std::string ReadFile(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

TEST(PxnSettingsTest, DefaultsOfTheTableAreThoseOfTheStruct) {
  const PxnConfig defaults;
  for (const PxnSetting& setting : PxnSettings()) {
    if (setting.number != nullptr) {
      EXPECT_EQ(std::to_string(defaults.*setting.number), setting.default_value) << setting.field;
    }
    if (setting.flag != nullptr) {
      EXPECT_STREQ(defaults.*setting.flag ? "true" : "false", setting.default_value);
    }
  }
}

TEST(DocumentationTest, NamesEverySettingWithItsDefault) {
  const std::string text = ReadFile("docs/configuration.md");
  for (const PxnSetting& setting : PxnSettings()) {
    const size_t at = text.find("| `" + std::string(setting.field) + "` |");
    ASSERT_NE(at, std::string::npos) << setting.field;
    const std::string row = text.substr(at, text.find('\n', at) - at);
    EXPECT_THAT(row, HasSubstr(setting.default_value));
    EXPECT_THAT(row, HasSubstr(setting.help));
    EXPECT_THAT(row, HasSubstr(setting.environment == nullptr ? "" : setting.environment));
  }
}

TEST(DocumentationTest, NamesEveryFieldOfTheText) {
  const std::string documentation = ReadFile("docs/configuration.md");
  std::ifstream proto("proto/runtime_config.proto");
  ASSERT_TRUE(proto.good());
  int fields = 0;
  for (std::string line; std::getline(proto, line);) {
    const bool in_oneof = line.starts_with("    SimNic ") || line.starts_with("    RdmaNic ");
    if (line.find(" = ") == std::string::npos) continue;
    if (line.find("optional ") == std::string::npos &&
        line.find("repeated ") == std::string::npos && !in_oneof) {
      continue;
    }
    const std::string before = line.substr(0, line.find(" = "));
    const std::string field = before.substr(before.rfind(' ') + 1);
    EXPECT_THAT(documentation, HasSubstr("| `" + field + "` |"));
    ++fields;
  }
  EXPECT_GT(fields, 45);
}

TEST(ExampleTest, EveryExampleLoadsAndRelays) {
  for (const char* path : {"config/example_rank.textproto", "config/demo_rank.textproto"}) {
    RankConfig config;
    std::string error;
    ASSERT_TRUE(LoadRankConfig(ReadFile(path), path, Lookup({}), &config, &error)) << error;
    EXPECT_TRUE(config.pxn.enable) << config.pxn.off_reason;
    EXPECT_THAT(config.warnings, IsEmpty());
  }
}

}  // namespace
}  // namespace railhop
