#include "transport/engine/host_port.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace railhop {
namespace {

using testing::HasSubstr;

HostPort Parsed(const char* text) {
  const absl::StatusOr<HostPort> result = ParseHostPort(text, 12001);
  EXPECT_TRUE(result.ok()) << result.status().message();
  return result.ok() ? *result : HostPort();
}

TEST(HostPortTest, SplitsAtTheLastColon) {
  EXPECT_EQ(Parsed("127.0.0.1:15369"), (HostPort{"127.0.0.1", 15369}));
  EXPECT_EQ(Parsed("node-7.rack.example:1"), (HostPort{"node-7.rack.example", 1}));
  EXPECT_EQ(Parsed("a:b:65535"), (HostPort{"a:b", 65535}))
      << "no IPv6 address: a name, however odd";
}

TEST(HostPortTest, TheDefaultPortIsForTextsWithoutOne) {
  EXPECT_EQ(Parsed("10.0.0.1"), (HostPort{"10.0.0.1", 12001}));
  EXPECT_EQ(Parsed("[fe80::1]"), (HostPort{"fe80::1", 12001}));
  EXPECT_EQ(ParseHostPort("host", 77)->port, 77);
  EXPECT_EQ(ParseHostPort("host")->port, 12001);
}

TEST(HostPortTest, KnowsIpv6Addresses) {
  EXPECT_EQ(Parsed("[2001:db8::1]:15000"), (HostPort{"2001:db8::1", 15000}));
  EXPECT_EQ(Parsed("2001:db8::1"), (HostPort{"2001:db8::1", 12001}));
  EXPECT_EQ(Parsed("::1"), (HostPort{"::1", 12001}));
  EXPECT_EQ(Parsed("::ffff:10.0.0.1"), (HostPort{"::ffff:10.0.0.1", 12001}));
  EXPECT_EQ(Parsed("fe80::1%eth0"), (HostPort{"fe80::1%eth0", 12001}));
  EXPECT_EQ(Parsed("fe80::1%eth0:15000"), (HostPort{"fe80::1%eth0", 15000}));
  EXPECT_EQ(Parsed("[fe80::1%eth0]:15000"), (HostPort{"fe80::1%eth0", 15000}));
}

TEST(HostPortTest, RefusesWhatHasNoHostOrNoPort) {
  for (const char* text :
       {"", ":15000", "[]:1", "host:", "host:0", "host:65536", "host:-1", "host:1x", "host: 1",
        "[::1", "[::1]x", "[::1]:", "[::1]:0", "fe80::1%eth0:", "host:99999999999999999999"}) {
    const absl::StatusOr<HostPort> result = ParseHostPort(text);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("host:port")) << text;
  }
  EXPECT_FALSE(ParseHostPort(std::string_view("host\0x:1", 8)).ok())
      << "the resolver would see less";
  EXPECT_LT(ParseHostPort("x:" + std::string(100'000, '1')).status().message().size(), 500u);
}

TEST(HostPortTest, JoinsWithBracketsWhereTheyAreNeeded) {
  for (const char* text : {"127.0.0.1:15369", "[2001:db8::1]:15000", "[fe80::1%eth0]:1"}) {
    const HostPort parsed = Parsed(text);
    EXPECT_EQ(JoinHostPort(parsed.host, parsed.port), text);
  }
}

}  // namespace
}  // namespace railhop
