// Recorded GID tables, and which entry is used (field faults T4).
#include "transport/fabric/rdma/gid.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace railhop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr const char* kLinkLocal = "fe:80:00:00:00:00:00:00:3e:fd:fe:ff:fe:11:22:33";
constexpr const char* kPrivateIpv4 = "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01";
constexpr const char* kOtherIpv4 = "00:00:00:00:00:00:00:00:00:00:ff:ff:c0:a8:01:02";
constexpr const char* kLinkLocalIpv4 = "00:00:00:00:00:00:00:00:00:00:ff:ff:a9:fe:03:04";
constexpr const char* kIpv6 = "20:01:0d:b8:00:00:00:00:00:00:00:00:00:00:00:01";
constexpr const char* kZero = "00:00:00:00:00:00:00:00:00:00:00:00:00:00:00:00";

GidEntry Entry(uint32_t index, const char* gid, GidType type = GidType::kRoceV2) {
  return {.index = index, .gid = ParseGid(gid).value(), .type = type};
}

// The index chosen; -1: none.
int Chosen(const std::vector<GidEntry>& table, int index = kAnyGidIndex) {
  const auto chosen = ChooseGid(table, index, "mlx5_0 port 1");
  return chosen.ok() ? static_cast<int>(chosen->index) : -1;
}

TEST(GidTest, TextComesBack) {
  EXPECT_EQ(FormatGid(ParseGid(kIpv6).value()), kIpv6);
}

TEST(GidTest, OtherTextsAreNoGids) {
  std::string long_text = std::string(kIpv6) + ":00";
  for (const std::string& text :
       {std::string(), std::string("fe80::1"), long_text, std::string(kIpv6).substr(1),
        std::string("2 :01:0d:b8:00:00:00:00:00:00:00:00:00:00:00:01"),
        std::string("2001-0d:b8:00:00:00:00:00:00:00:00:00:00:00:001"),
        std::string("-1:01:0d:b8:00:00:00:00:00:00:00:00:00:00:00:01")}) {
    EXPECT_EQ(ParseGid(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(GidTest, TheRoutableAddressOfRoceV2IsPreferred) {
  // As an mlx5 port with one address has it: each address in both versions.
  EXPECT_EQ(Chosen({Entry(0, kLinkLocal, GidType::kRoceV1), Entry(1, kLinkLocal),
                    Entry(2, kPrivateIpv4, GidType::kRoceV1), Entry(3, kPrivateIpv4)}),
            3);
  // As rxe has it.
  EXPECT_EQ(Chosen({Entry(0, kLinkLocal), Entry(1, kPrivateIpv4)}), 1);
  EXPECT_EQ(Chosen({Entry(0, kIpv6), Entry(1, kPrivateIpv4), Entry(2, kOtherIpv4)}), 1);
  EXPECT_EQ(Chosen({Entry(2, kOtherIpv4), Entry(1, kPrivateIpv4)}), 1);
  EXPECT_EQ(Chosen({Entry(0, kLinkLocalIpv4), Entry(1, kIpv6)}), 1);
}

TEST(GidTest, LinkLocalIsTheLastThatIsUsed) {
  EXPECT_EQ(Chosen({Entry(0, kLinkLocal, GidType::kRoceV1), Entry(1, kLinkLocal)}), 1);
  EXPECT_EQ(Chosen({Entry(4, kLinkLocalIpv4), Entry(5, kIpv6)}), 5);
}

TEST(GidTest, InfiniBandHasNoOtherThanItsPrefix) {
  EXPECT_EQ(Chosen({Entry(0, kLinkLocal, GidType::kInfiniBand)}), 0);
}

TEST(GidTest, NothingToUseIsAnErrorThatShowsTheTable) {
  const auto empty = ChooseGid({}, kAnyGidIndex, "mlx5_0 port 1");
  EXPECT_EQ(empty.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(empty.status().message()),
              AllOf(HasSubstr("mlx5_0 port 1"), HasSubstr("IPv4 address")));
  const std::vector<GidEntry> old = {Entry(0, kZero), Entry(1, kPrivateIpv4, GidType::kRoceV1)};
  EXPECT_THAT(std::string(ChooseGid(old, kAnyGidIndex, "p").status().message()),
              AllOf(HasSubstr(kPrivateIpv4), HasSubstr("RoCE v1")));
}

TEST(GidTest, AnIndexThatIsAskedForIsTakenOrNamed) {
  const std::vector<GidEntry> table = {Entry(0, kLinkLocal),
                                       Entry(2, kPrivateIpv4, GidType::kRoceV1)};
  EXPECT_EQ(Chosen(table, 2), 2);
  EXPECT_EQ(Chosen(table, 0), 0);
  EXPECT_EQ(Chosen(table, 1), -1);
  EXPECT_THAT(std::string(ChooseGid(table, 9, "rxe0 port 1").status().message()),
              AllOf(HasSubstr("rxe0 port 1 has no GID index 9"), HasSubstr("0 = fe:80")));
}

}  // namespace
}  // namespace railhop
