#include "transport/fabric/tcp/tcp_target.h"

#include <gtest/gtest.h>

namespace railhop {
namespace {

TEST(TcpTargetTest, TextAndTargetAreTheSame) {
  const struct {
    TcpTarget target;
    const char* text;
  } cases[] = {
      {{.host = "10.0.0.7", .port = 15674, .version = 2, .drain = false, .local = ""},
       "10.0.0.7:15674:2"},
      {{.host = "node7", .port = 1, .version = 1, .drain = false, .local = ""}, "node7:1:1"},
      {{.host = "fd00::7", .port = 65535, .version = 1, .drain = false, .local = ""},
       "[fd00::7]:65535:1"},
      {{.host = "::1", .port = 80, .version = 2, .drain = true, .local = ""}, "[::1]:80:2+drain"},
      {{.host = "::1", .port = 80, .version = 2, .drain = true, .local = "railhop-3f"},
       "[::1]:80:2+drain@railhop-3f"},
  };
  for (const auto& [target, text] : cases) {
    EXPECT_EQ(FormatTcpTarget(target), text);
    const auto parsed = ParseTcpTarget(text);
    ASSERT_TRUE(parsed.ok()) << parsed.status();
    EXPECT_EQ(parsed->host, target.host);
    EXPECT_EQ(parsed->port, target.port);
    EXPECT_EQ(parsed->version, target.version);
    EXPECT_EQ(parsed->drain, target.drain);
    EXPECT_EQ(parsed->local, target.local);
  }
}

TEST(TcpTargetTest, OtherTextsAreRefusedAndShown) {
  for (const char* text : {"",
                           ":",
                           "::",
                           "host",
                           "host:80",
                           "host:80:3",
                           "host:80:0",
                           "host:0:1",
                           "host:65536:1",
                           "host:80:1+drain",
                           "host:80:2+drain+drain",
                           ":80:2",
                           "[]:80:2",
                           "fd00::7:80:2",
                           "host:8x:2",
                           "host:80:2 ",
                           "host::2",
                           "host:80:",
                           "+drain",
                           "host:80:2@a",
                           "host:80:2+drain@",
                           "host:80:2+drain@A",
                           "host:80:2+drain@a@b",
                           "host:80:2@a+drain"}) {
    const auto parsed = ParseTcpTarget(text);
    EXPECT_EQ(parsed.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_NE(std::string(parsed.status().message()).find(text), std::string::npos);
  }
}

TEST(TcpTargetTest, AddressesAreResolvedWithoutANameServer) {
  const auto four = ResolveTcpHost("127.0.0.1", 80);
  ASSERT_TRUE(four.ok()) << four.status();
  ASSERT_EQ(four->size(), 1u);
  EXPECT_EQ(four->front().storage.ss_family, AF_INET);
  const auto six = ResolveTcpHost("::1", 80);
  ASSERT_TRUE(six.ok()) << six.status();
  EXPECT_EQ(six->front().storage.ss_family, AF_INET6);
  EXPECT_EQ(ResolveTcpHost("no host", 80).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace railhop
