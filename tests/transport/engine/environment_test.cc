#include "transport/engine/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <string>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

EngineEnvironment Read(const std::map<std::string, std::string>& values) {
  return ReadEngineEnvironment([&values](const char* name) -> const char* {
    const auto found = values.find(name);
    return found == values.end() ? nullptr : found->second.c_str();
  });
}

std::string WarningOf(const std::string& name, const std::string& value) {
  const EngineEnvironment environment = Read({{name, value}});
  EXPECT_EQ(environment.warnings.size(), 1u) << name << "=" << value;
  return environment.warnings.empty() ? "" : environment.warnings[0];
}

TEST(EngineEnvironmentTest, HasMooncakesDefaults) {
  const EngineEnvironment environment = Read({});
  EXPECT_THAT(environment.warnings, IsEmpty());
  EXPECT_EQ(environment.transfer_timeout_s, 30u);
  EXPECT_EQ(environment.slice_size, 65536u);
  EXPECT_EQ(environment.fragment_ratio, 4u);
  EXPECT_EQ(environment.retry_count, 9u);
  EXPECT_EQ(environment.slice_timeout_s, 0u);
  EXPECT_EQ(environment.handshake_port, 12001u);
  EXPECT_EQ(environment.handshake_listen_backlog, 128u);
  EXPECT_EQ(environment.handshake_connect_timeout_s, 5u);
  EXPECT_EQ(environment.handshake_max_length, 1u << 20);
  EXPECT_EQ(environment.min_rpc_port, 15000u);
  EXPECT_EQ(environment.max_rpc_port, 17000u);
  EXPECT_FALSE(environment.use_ipv6);
  EXPECT_FALSE(environment.force_tcp);
  EXPECT_EQ(environment.ib_port, 1u);
  EXPECT_EQ(environment.gid_index, "");
  EXPECT_EQ(environment.mtu, "4096");
  EXPECT_EQ(environment.relaxed_ordering, 1u);
  EXPECT_EQ(environment.endpoint_store, "SIEVE");
  EXPECT_EQ(environment.queue_pairs, 2u);
  EXPECT_EQ(environment.send_queue_depth, 256u);
  EXPECT_EQ(environment.tcp_protocol_version, 2u);
  EXPECT_EQ(environment.tcp_status_timeout_s, 30u);
  EXPECT_EQ(environment.tcp_lanes_per_peer, 4u);
  EXPECT_EQ(environment.tcp_bind_address, "");
}

TEST(EngineEnvironmentTest, EachDefaultIsValidAndEachSettingHasItsOwnMember) {
  std::set<std::string> names;
  for (const EngineSetting& setting : EngineSettings()) {
    EXPECT_TRUE(names.insert(setting.name).second) << setting.name;
    EXPECT_THAT(Read({{setting.name, setting.default_value}}).warnings, IsEmpty()) << setting.name;
    EXPECT_EQ(ValueOf(setting, Read({})), setting.default_value) << setting.name;
    EXPECT_EQ((setting.number != nullptr) + (setting.flag != nullptr) + (setting.text != nullptr),
              1)
        << setting.name;
    EXPECT_FALSE(AllowedValues(setting).empty());
    EXPECT_STRNE(SettingTypeName(setting.type), "?");
    // Only the member of this setting changes with it.
    std::string other = "x";
    if (setting.number != nullptr) other = std::to_string(setting.max);
    if (setting.flag != nullptr) other = "true";
    if (setting.type == EngineSetting::Type::kAddress) other = "127.0.0.2";
    if (setting.type == EngineSetting::Type::kLogLevel) other = "ERROR";
    if (setting.type == EngineSetting::Type::kOptional) other = std::to_string(setting.max);
    if (setting.type == EngineSetting::Type::kChoice) {
      other = setting.choices;
      const size_t comma = other.find(", ");
      other = other.starts_with(setting.default_value) ? other.substr(comma + 2)
                                                       : other.substr(0, comma);
    }
    std::map<std::string, std::string> values{{setting.name, other}};
    // The bounds of one range: only both together are valid.
    if (setting.number == &EngineEnvironment::max_rpc_port) values["MC_MIN_RPC_PORT"] = "61000";
    if (setting.number == &EngineEnvironment::min_rpc_port) values["MC_MAX_RPC_PORT"] = "65535";
    const EngineEnvironment changed = Read(values);
    for (const EngineSetting& any : EngineSettings()) {
      const auto given = values.find(any.name);
      EXPECT_EQ(ValueOf(any, changed), given == values.end() ? any.default_value : given->second)
          << any.name << " with " << setting.name;
    }
  }
}

TEST(EngineEnvironmentTest, NumbersOutsideTheirRangeCountAsNotGiven) {
  for (const EngineSetting& setting : EngineSettings()) {
    if (setting.number == nullptr) continue;
    for (const std::string& value :
         {std::to_string(setting.min - 1), std::to_string(setting.max + 1), std::string("-1"),
          std::string(""), std::string("1k"), std::string(" 5"), std::string("0x10"),
          std::string("99999999999999999999999")}) {
      const EngineEnvironment environment = Read({{setting.name, value}});
      ASSERT_EQ(environment.warnings.size(), 1u) << setting.name << "=" << value;
      EXPECT_THAT(environment.warnings[0], HasSubstr(setting.name));
      EXPECT_THAT(environment.warnings[0], HasSubstr("\"" + value + "\""));
      EXPECT_THAT(environment.warnings[0], HasSubstr(AllowedValues(setting)));
      EXPECT_EQ(ValueOf(setting, environment), setting.default_value);
    }
  }
}

TEST(EngineEnvironmentTest, ANumberThatMayBeMissingHasARangeAllTheSame) {
  EXPECT_EQ(Read({}).gid_index, "");
  EXPECT_EQ(Read({{"MC_GID_INDEX", "0"}}).gid_index, "0");
  EXPECT_EQ(Read({{"NCCL_IB_GID_INDEX", "3"}}).gid_index, "3");
  for (const char* value : {"256", "-1", "x"}) {
    EXPECT_THAT(WarningOf("MC_GID_INDEX", value), HasSubstr("allowed: 0..255"));
    EXPECT_EQ(Read({{"MC_GID_INDEX", value}}).gid_index, "");
  }
}

TEST(EngineEnvironmentTest, AChoiceIsOneOfTheListed) {
  EXPECT_EQ(Read({{"MC_ENDPOINT_STORE_TYPE", "fifo"}}).endpoint_store, "FIFO");
  EXPECT_EQ(Read({{"MC_MTU", "1024"}}).mtu, "1024");
  for (const char* value : {"", "LRU", "SIEVE, FIFO", "SIEV"}) {
    EXPECT_THAT(WarningOf("MC_ENDPOINT_STORE_TYPE", value), HasSubstr("allowed: SIEVE, FIFO."));
    EXPECT_EQ(Read({{"MC_ENDPOINT_STORE_TYPE", value}}).endpoint_store, "SIEVE");
  }
  EXPECT_THAT(WarningOf("MC_MTU", "1000"), HasSubstr("512, 1024, 2048, 4096"));
}

TEST(EngineEnvironmentTest, BothEndsOfARangeAreInIt) {
  for (const char* value : {"1048576", "134217728"}) {
    EXPECT_EQ(std::to_string(Read({{"MC_HANDSHAKE_MAX_LENGTH", value}}).handshake_max_length),
              value);
  }
  EXPECT_THAT(WarningOf("MC_HANDSHAKE_MAX_LENGTH", "1048575"), HasSubstr("1048576..134217728"));
  EXPECT_EQ(Read({{"MC_TCP_LANES_PER_PEER", "16"}}).tcp_lanes_per_peer, 16u);
}

TEST(EngineEnvironmentTest, FalseMeansOff) {
  for (const char* off : {"0", "false", "FALSE", "", "no", "off", "Off"}) {
    const EngineEnvironment environment = Read({{"MC_FORCE_TCP", off}, {"MC_USE_IPV6", off}});
    EXPECT_FALSE(environment.force_tcp) << off;
    EXPECT_FALSE(environment.use_ipv6) << off;
    EXPECT_THAT(environment.warnings, IsEmpty());
  }
  for (const char* on : {"1", "true", "True", "yes", "ON"}) {
    EXPECT_TRUE(Read({{"MC_FORCE_TCP", on}}).force_tcp) << on;
  }
  EXPECT_THAT(
      WarningOf("MC_FORCE_TCP", "maybe"),
      "MC_FORCE_TCP = \"maybe\" is not valid; allowed: true or false (1 or 0, yes or no, on "
      "or off). It counts as not given");
}

TEST(EngineEnvironmentTest, TransferTimeoutHasAFloor) {
  EXPECT_EQ(Read({{"MC_TRANSFER_TIMEOUT", "1"}}).transfer_timeout_s, 5u);
  EXPECT_EQ(Read({{"MC_TRANSFER_TIMEOUT", "6"}}).transfer_timeout_s, 6u);
}

TEST(EngineEnvironmentTest, TellsWhatIsGivenFromWhatIsDefault) {
  const EngineEnvironment environment =
      Read({{"MC_TRANSFER_TIMEOUT", "30"}, {"MC_SLICE_SIZE", "7"}, {"MC_MIN_PRC_PORT", "16000"}});
  EXPECT_TRUE(environment.Gives("MC_TRANSFER_TIMEOUT")) << "although it is the default value";
  EXPECT_FALSE(environment.Gives("MC_SLICE_SIZE")) << "not valid";
  EXPECT_FALSE(environment.Gives("MC_RETRY_CNT"));
  EXPECT_TRUE(environment.Gives("MC_MIN_RPC_PORT")) << "by its older name";
}

TEST(EngineEnvironmentTest, OldNamesAreReadWhereTheNewAreNotSet) {
  const EngineEnvironment old = Read({{"MC_MIN_PRC_PORT", "20000"}, {"MC_MAX_PRC_PORT", "20100"}});
  EXPECT_EQ(old.min_rpc_port, 20000u);
  EXPECT_EQ(old.max_rpc_port, 20100u);
  EXPECT_EQ(Read({{"MC_MIN_PRC_PORT", "2000"}, {"MC_MIN_RPC_PORT", "3000"}}).min_rpc_port, 3000u);
  EXPECT_EQ(Read({{"MC_TCP_MAX_CONNECTIONS_PER_PEER", "7"}}).tcp_lanes_per_peer, 7u);
  EXPECT_THAT(WarningOf("MC_MIN_PRC_PORT", "80"), HasSubstr("MC_MIN_PRC_PORT = \"80\""));
}

TEST(EngineEnvironmentTest, ThePortRangeKeepsClearOfOutgoingConnections) {
  const auto range = [](const char* min, const char* max) {
    return Read({{"MC_MIN_RPC_PORT", min}, {"MC_MAX_RPC_PORT", max}});
  };
  for (const auto& [min, max] :
       {std::pair("1024", "32767"), std::pair("61000", "65535"), std::pair("15000", "15000")}) {
    EXPECT_THAT(range(min, max).warnings, IsEmpty()) << min << ".." << max;
    EXPECT_EQ(std::to_string(range(min, max).max_rpc_port), max);
  }
  for (const auto& [min, max] :
       {std::pair("15000", "32768"), std::pair("60999", "65535"), std::pair("20000", "65000"),
        std::pair("40000", "50000"), std::pair("17000", "15000")}) {
    const EngineEnvironment environment = range(min, max);
    EXPECT_THAT(environment.warnings,
                ElementsAre(HasSubstr(std::string("= ") + min + ".." + max + " is not valid")));
    EXPECT_EQ(environment.min_rpc_port, 15000u);
    EXPECT_EQ(environment.max_rpc_port, 17000u);
  }
}

TEST(EngineEnvironmentTest, AddressesAndLevelsAreChecked) {
  EXPECT_EQ(Read({{"MC_TCP_BIND_ADDRESS", "::1"}}).tcp_bind_address, "::1");
  EXPECT_THAT(WarningOf("MC_TCP_BIND_ADDRESS", "localhost"), HasSubstr("an IPv4 or IPv6 address"));
  EXPECT_EQ(Read({{"MC_TCP_BIND_ADDRESS", "localhost"}}).tcp_bind_address, "");
  EXPECT_EQ(Read({{"MC_LOG_LEVEL", "warning"}}).log_level, "WARNING");
  EXPECT_THAT(WarningOf("MC_LOG_LEVEL", "loud"), HasSubstr("TRACE, INFO, WARNING or ERROR"));
  EXPECT_EQ(Read({{"MC_LOG_LEVEL", "loud"}}).log_level, "");
}

TEST(EngineEnvironmentTest, AWarningShowsNoControlCharactersAndIsShort) {
  const std::string warning = WarningOf("MC_SLICE_SIZE", "\x1b[31m" + std::string(5000, '9'));
  EXPECT_THAT(warning, HasSubstr("\"?[31m999"));
  EXPECT_LT(warning.size(), 300u);
}

TEST(EngineEnvironmentTest, TheDocumentationHasTheTable) {
  std::ifstream file("docs/configuration.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  for (const EngineSetting& setting : EngineSettings()) {
    const std::string allowed =
        setting.type == EngineSetting::Type::kBool ? "boolean" : AllowedValues(setting);
    EXPECT_THAT(text, HasSubstr(std::string("| `") + setting.name + "` | " + allowed + " | " +
                                setting.default_value + " | " + setting.help));
    EXPECT_THAT(text, HasSubstr(setting.alias == nullptr ? "" : setting.alias));
  }
}

}  // namespace
}  // namespace railhop
