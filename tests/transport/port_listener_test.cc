#include "transport/port_listener.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <vector>

namespace railhop {
namespace {

using testing::HasSubstr;

bool Connects(uint16_t port) {
  const GuardedFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

ListenOptions OneOf(uint16_t lowest, uint16_t highest) {
  return {.address = "127.0.0.1", .lowest_port = lowest, .highest_port = highest};
}

TEST(PortListenerTest, ListensOnAPortOfTheRange) {
  const auto listener = ListenOnSomePort(OneOf(22'000, 22'100), "test");
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_GE(listener->port, 22'000);
  EXPECT_LE(listener->port, 22'100);
  EXPECT_TRUE(Connects(listener->port));
}

TEST(PortListenerTest, EachPortHasOneListenerUntilTheRangeIsFull) {
  std::vector<PortListener> listeners;
  auto next = ListenOnSomePort(OneOf(22'200, 22'203), "test");
  while (next.ok()) {
    for (const PortListener& other : listeners) EXPECT_NE(other.port, next->port);
    listeners.push_back(*std::move(next));
    ASSERT_LE(listeners.size(), 4u);
    next = ListenOnSomePort(OneOf(22'200, 22'203), "test");
  }
  EXPECT_EQ(next.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(next.status().message()), HasSubstr("test: cannot listen on 127.0.0.1"));
  EXPECT_THAT(std::string(next.status().message()), HasSubstr("22200..22203"));
  ASSERT_FALSE(listeners.empty());
  const uint16_t freed = listeners.back().port;
  listeners.pop_back();
  const auto again = ListenOnSomePort(OneOf(freed, freed), "test");
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(PortListenerTest, AllAddressesAreThoseOfIpv6TooIfAskedFor) {
  const auto listener =
      ListenOnSomePort({.use_ipv6 = true, .lowest_port = 22'300, .highest_port = 22'400}, "test");
  if (!listener.ok()) GTEST_SKIP() << "no IPv6 here: " << listener.status();
  EXPECT_TRUE(Connects(listener->port)) << "and IPv4 stays";
}

TEST(PortListenerTest, SaysWhatIsWrong) {
  ListenOptions options = OneOf(22'000, 22'100);
  options.address = "localhost";
  EXPECT_EQ(ListenOnSomePort(options, "test").status().code(), absl::StatusCode::kInvalidArgument);
  options.address = "192.0.2.1";  // nobody's
  EXPECT_EQ(ListenOnSomePort(options, "test").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(ListenOnSomePort(OneOf(22'100, 22'000), "test").status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ListenOnSomePort(OneOf(0, 22'000), "test").status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace railhop
