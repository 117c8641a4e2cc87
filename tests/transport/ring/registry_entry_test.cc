#include "transport/ring/registry_entry.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace railhop {
namespace {

using Kind = ParsedName::Kind;

TEST(EntryNameTest, NamesAreThoseOfTheAbi) {
  const EntryKey key{.pid = 4242, .start_ticks = 987654321, .epoch = 18446744073709551615u};
  EXPECT_EQ(PublishedName(key), "peer.4242.987654321.18446744073709551615.reg");
  EXPECT_EQ(TemporaryName(key), "tmp.4242.987654321.18446744073709551615");
  EXPECT_EQ(SideName(key), "4242.987654321.18446744073709551615");
  EXPECT_EQ(WakeName(key, WakeRole::kRelay), "4242.987654321.18446744073709551615.wake0");
  EXPECT_EQ(WakeName(key, WakeRole::kCompletion), "4242.987654321.18446744073709551615.wake1");
}

TEST(EntryNameTest, NamesAreParsedBack) {
  const EntryKey key{.pid = 1, .start_ticks = 2, .epoch = 3};
  const std::vector<std::pair<std::string, Kind>> names = {
      {PublishedName(key), Kind::kPublished},
      {TemporaryName(key), Kind::kTemporary},
      {SideName(key), Kind::kSide},
      {WakeName(key, WakeRole::kRelay), Kind::kWake},
      {WakeName(key, WakeRole::kCompletion), Kind::kWake},
  };
  for (const auto& [name, kind] : names) {
    const std::optional<ParsedName> parsed = ParseName(name);
    ASSERT_TRUE(parsed.has_value()) << name;
    EXPECT_EQ(parsed->kind, kind) << name;
    EXPECT_EQ(parsed->key, key) << name;
  }
}

TEST(EntryNameTest, OtherNamesAreNone) {
  for (const char* name : {"",
                           ".",
                           ".lock",
                           "peer",
                           "peer.",
                           "peer.1.2.3",
                           "peer.1.2.3.reg.bak",
                           "peer.1.2.reg",
                           "peer.0.2.3.reg",
                           "peer.01.2.3.reg",
                           "peer.-1.2.3.reg",
                           "peer.+1.2.3.reg",
                           "peer. 1.2.3.reg",
                           "peer.1.2.0x3.reg",
                           "peer.2147483648.2.3.reg",
                           "peer.1.2.18446744073709551616.reg",
                           "peer..2.3.reg",
                           "tmp.1.2.3.reg",
                           "tmp.1.2",
                           "tmp.peer.1.2.3",
                           "1.2.3.wake2",
                           "1.2.3.wake",
                           "1.2.3.wake0x",
                           "1.2.3.4",
                           "Peer.1.2.3.reg"}) {
    EXPECT_FALSE(ParseName(name).has_value()) << name;
  }
}

TEST(GroupIdTest, AllowedOnes) {
  for (const std::string& id :
       {std::string("a"), std::string("prefill-0_A.host"), std::string("..."), std::string(64, 'x'),
        std::string("-"), std::string(".a")}) {
    EXPECT_TRUE(ValidateGroupId(id).ok()) << id;
  }
}

TEST(GroupIdTest, OthersAreRefusedWithTheReason) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "empty"},
      {"a/b", "'/' at position 2"},
      {"/", "'/' at position 1"},
      {"../x", "'/' at position 3"},
      {".", "must not be \".\""},
      {"..", "must not be \"..\""},
      {std::string(65, 'x'), "65 characters"},
      {"a b", "' ' at position 2"},
      {"gr\xc3\xbc", "0xc3 at position 3"},
      {std::string("a\0b", 3), "0x00 at position 2"},
      {"line\n", "0x0a at position 5"},
      {"{}", "'{' at position 1"},
  };
  for (const auto& [id, reason] : cases) {
    const absl::Status status = ValidateGroupId(id);
    ASSERT_TRUE(absl::IsInvalidArgument(status)) << id;
    const std::string text(status.message());
    EXPECT_NE(text.find(reason), std::string::npos) << text;
    EXPECT_NE(text.find("A-Z a-z 0-9 _ - ."), std::string::npos) << text;
  }
}

TEST(RailsTest, NamesAreChecked) {
  const auto message = [](const std::vector<std::string>& rails) {
    return std::string(ValidateRails(rails).message());
  };
  EXPECT_EQ(message({"mlx5_0"}), "");
  EXPECT_EQ(message({"a", "b", std::string(256, 'c')}), "");
  EXPECT_NE(message({}).find("needs a rail"), std::string::npos);
  EXPECT_NE(message({"a", ""}).find("rail name 2 has 0 bytes"), std::string::npos);
  EXPECT_NE(message({std::string(257, 'c')}).find("257 bytes"), std::string::npos);
  EXPECT_NE(message({std::string("a\0", 2)}).find("NUL"), std::string::npos);
  EXPECT_NE(message({"a", "b", "a"}).find("rail \"a\""), std::string::npos);
  std::vector<std::string> many;
  for (int i = 0; i < 17; ++i) many.push_back("rail" + std::to_string(i));
  EXPECT_NE(message(many).find("17 rails"), std::string::npos);
  many.pop_back();
  EXPECT_EQ(message(many), "");
}

RegistryHeader GoodHeader() {
  RegistryHeader header{};
  header.magic = kRegistryMagic;
  header.abi_version = 1;
  header.header_bytes = 448;
  header.mapping_bytes = 8'306'816;
  header.state = 1;
  header.rail_bytes = 6;
  header.owner = {1000, 77, 88};
  header.epoch = 99;
  header.lane_count = 7;
  header.slots_per_lane = 18;
  header.slot_size = 8'388'608;
  header.arena_size = 1'056'964'608;
  header.ipc_handle_bytes = 64;
  std::memcpy(header.rail, "mlx5_0", 6);
  return header;
}

TEST(HeaderTest, GoodOneIsAcceptedWithAnyHeartbeatAndHandle) {
  RegistryHeader header = GoodHeader();
  EXPECT_TRUE(ValidateHeader(header, 1000).ok()) << ValidateHeader(header, 1000);
  header.heartbeat = std::numeric_limits<uint64_t>::max();
  std::memset(header.arena_handle, 0xff, sizeof(header.arena_handle));
  EXPECT_TRUE(ValidateHeader(header, 1000).ok());
  header.rail_bytes = 256;
  std::memset(header.rail, 'r', 256);
  EXPECT_TRUE(ValidateHeader(header, 1000).ok());
}

TEST(HeaderTest, EveryFieldIsChecked) {
  const std::vector<std::pair<const char*, std::function<void(RegistryHeader&)>>> cases = {
      {"magic", [](RegistryHeader& h) { ++h.magic; }},
      {"abi_version", [](RegistryHeader& h) { h.abi_version = 2; }},
      {"header_bytes", [](RegistryHeader& h) { h.header_bytes = 512; }},
      {"mapping_bytes", [](RegistryHeader& h) { --h.mapping_bytes; }},
      {"rail name", [](RegistryHeader& h) { h.rail_bytes = 0; }},
      {"rail name", [](RegistryHeader& h) { h.rail_bytes = 257; }},
      {"rail name", [](RegistryHeader& h) { h.rail_bytes = 0xffffffff; }},
      {"beyond the rail name", [](RegistryHeader& h) { h.rail[255] = 'x'; }},
      {"owner.uid", [](RegistryHeader& h) { ++h.owner.uid; }},
      {"owner.pid", [](RegistryHeader& h) { h.owner.pid = 0; }},
      {"owner.pid", [](RegistryHeader& h) { h.owner.pid = -5; }},
      {"owner.start_ticks", [](RegistryHeader& h) { h.owner.start_ticks = 0; }},
      {"epoch", [](RegistryHeader& h) { h.epoch = 0; }},
      {"lane_count", [](RegistryHeader& h) { h.lane_count = 8; }},
      {"slots_per_lane", [](RegistryHeader& h) { h.slots_per_lane = 17; }},
      {"slot_size", [](RegistryHeader& h) { h.slot_size = 0; }},
      {"arena_size", [](RegistryHeader& h) { ++h.arena_size; }},
      {"ipc_handle_bytes", [](RegistryHeader& h) { h.ipc_handle_bytes = 128; }},
      {"reserved", [](RegistryHeader& h) { h.reserved = 1; }},
      {"padding", [](RegistryHeader& h) { h.padding[31] = 1; }},
  };
  for (const auto& [field, damage] : cases) {
    RegistryHeader header = GoodHeader();
    damage(header);
    const absl::Status status = ValidateHeader(header, 1000);
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << field;
    EXPECT_NE(std::string(status.message()).find(field), std::string::npos) << status;
  }
}

TEST(SideHeaderTest, EveryFieldIsChecked) {
  const EntryKey key{.pid = 77, .start_ticks = 88, .epoch = 99};
  SideHeader good{};
  good.magic = kSideMagic;
  good.version = 1;
  good.header_bytes = 4288;
  good.file_bytes = 6208;
  good.owner = {1000, 77, 88};
  good.epoch = 99;
  good.rail_count = 2;
  good.rails[0].bytes = 1;
  good.rails[0].name[0] = 'a';
  good.rails[1].bytes = 1;
  good.rails[1].name[0] = 'b';
  ASSERT_TRUE(ValidateSideHeader(good, 1000, key).ok()) << ValidateSideHeader(good, 1000, key);
  EXPECT_EQ(std::memcmp(&good.magic, "RHSIDE1", 8), 0);
  SideHeader capable = good;
  capable.capabilities = ~uint64_t{0};
  EXPECT_TRUE(ValidateSideHeader(capable, 1000, key).ok());

  const std::vector<std::function<void(SideHeader&)>> damages = {
      [](SideHeader& h) { h.magic = 0; },
      [](SideHeader& h) { h.version = 2; },
      [](SideHeader& h) { h.header_bytes = 0; },
      [](SideHeader& h) { h.file_bytes = 8192; },
      [](SideHeader& h) { h.owner.uid = 0; },
      [](SideHeader& h) { h.owner.pid = 78; },
      [](SideHeader& h) { h.owner.start_ticks = 89; },
      [](SideHeader& h) { h.epoch = 100; },
      [](SideHeader& h) { h.rail_count = 0; },
      [](SideHeader& h) { h.rail_count = 17; },
      [](SideHeader& h) { h.rail_count = 0xffffffff; },
      [](SideHeader& h) { h.rails[1].bytes = 0; },
      [](SideHeader& h) { h.rails[1].bytes = 257; },
      [](SideHeader& h) { h.rails[1].name[200] = 'x'; },
      [](SideHeader& h) { h.rail_count = 3; },
  };
  for (size_t i = 0; i < damages.size(); ++i) {
    SideHeader header = good;
    damages[i](header);
    EXPECT_TRUE(absl::IsFailedPrecondition(ValidateSideHeader(header, 1000, key))) << i;
  }
}

}  // namespace
}  // namespace railhop
