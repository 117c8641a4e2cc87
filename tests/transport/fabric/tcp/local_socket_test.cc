#include "transport/fabric/tcp/local_socket.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <string>

#include "tests/transport/staging/child_process.h"

namespace railhop {
namespace {

constexpr uid_t kNobody = 65534;

GuardedFd Connected(const std::string& name, int* error) {
  const TcpAddress address = LocalSocketAddress(name);
  GuardedFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  *error = connect(fd.get(), address.get(), address.length) == 0 ? 0 : errno;
  return fd;
}

TEST(LocalSocketTest, IsFoundByItsNameForAsLongAsItsOwnerHasIt) {
  auto listener = ListenOnLocalSocket(8);
  ASSERT_TRUE(listener.ok()) << listener.status();
  const auto other = ListenOnLocalSocket(8);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_NE(listener->name, other->name);
  EXPECT_TRUE(IsLocalSocketName(listener->name)) << listener->name;
  int error = -1;
  const GuardedFd client = Connected(listener->name, &error);
  EXPECT_EQ(error, 0);
  EXPECT_TRUE(PeerIsSameUser(client.get()));
  Connected(listener->name + "0", &error);
  EXPECT_EQ(error, ECONNREFUSED) << "a longer name is another";
  listener->fd.Reset();
  Connected(listener->name, &error);
  EXPECT_EQ(error, ECONNREFUSED);
}

TEST(LocalSocketTest, NamesOfPeersAreChecked) {
  EXPECT_TRUE(IsLocalSocketName("a"));
  EXPECT_TRUE(IsLocalSocketName(std::string(64, '-')));
  EXPECT_FALSE(IsLocalSocketName(std::string(65, '-')));
  using std::string_literals::operator""s;
  for (const std::string& name : {""s, "A"s, "a/b"s, "a\0b"s, "a b"s, "\xff"s, "a@b"s}) {
    EXPECT_FALSE(IsLocalSocketName(name)) << name;
  }
}

TEST(LocalSocketTest, AnotherUserIsToldApart) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to have a listener of another user";
  struct Name {
    char text[64];
  };
  ChildProcess child([](Channel& channel) {
    if (setuid(kNobody) != 0) return 1;
    const auto listener = ListenOnLocalSocket(8);
    Name name{};
    if (!listener.ok()) return 2;
    listener->name.copy(name.text, sizeof(name.text) - 1);
    char command;
    return channel.Send(name) && channel.Receive(&command) ? 0 : 3;
  });
  Name name{};
  ASSERT_TRUE(child.channel().Receive(&name));
  int error = -1;
  const GuardedFd client = Connected(name.text, &error);
  ASSERT_EQ(error, 0);
  EXPECT_FALSE(PeerIsSameUser(client.get()));
  EXPECT_TRUE(child.channel().Send('q'));
}

}  // namespace
}  // namespace railhop
