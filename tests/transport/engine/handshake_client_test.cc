#include "transport/engine/handshake_client.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <iterator>
#include <list>
#include <string>
#include <thread>
#include <utility>

#include "tests/transport/engine/handshake_support.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr char kDescriptor[] = R"({"name":"127.0.0.1:1","protocol":"tcp","tcp_data_port":7})";

HandshakeClient Client(HandshakeClientOptions options = {}) {
  return HandshakeClient(options);
}

HostPort Local(uint16_t port) {
  return {.host = "127.0.0.1", .port = port};
}

std::string Framed(FrameType type, const std::string& json) {
  return EncodeFrame({.type = type, .typed = true, .json = json});
}

// Bound, and not listening: connections are refused.
class Listener {
 public:
  explicit Listener(int backlog = -1) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = Loopback(0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    socklen_t length = sizeof address;
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    if (backlog >= 0) {
      EXPECT_EQ(listen(fd_, backlog), 0);
    }
  }
  ~Listener() { close(fd_); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  int fd() const { return fd_; }
  uint16_t port() const { return port_; }

 private:
  const int fd_;
  uint16_t port_ = 0;
};

// A peer that reads one whole request and then does what the test says with the connection.
class ScriptedPeer {
 public:
  explicit ScriptedPeer(std::function<void(int fd)> answer)
      : listener_(1), thread_([this, answer = std::move(answer)] {
          const int fd = accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC);
          ASSERT_GE(fd, 0);
          FrameReader reader(128 << 20);
          std::string buffer(1 << 20, 0);
          while (reader.wanted() != 0) {
            const ssize_t n = recv(fd, buffer.data(), std::min(reader.wanted(), buffer.size()), 0);
            if (n <= 0) break;
            if (!reader.Take({buffer.data(), static_cast<size_t>(n)}).ok()) break;
          }
          answer(fd);
          close(fd);
        }) {}
  ~ScriptedPeer() { thread_.join(); }
  ScriptedPeer(const ScriptedPeer&) = delete;
  ScriptedPeer& operator=(const ScriptedPeer&) = delete;

  HostPort where() const { return Local(listener_.port()); }

 private:
  const Listener listener_;
  std::thread thread_;
};

bool SendBytes(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

// Returns when the other end has closed.
void AwaitClose(int fd) {
  char byte = 0;
  while (recv(fd, &byte, 1, 0) > 0) {
  }
}

absl::Status ProbeOf(const std::string& reply, HandshakeClientOptions options = {}) {
  const ScriptedPeer peer([&reply](int fd) { SendBytes(fd, reply); });
  return Client(options).SendProbe(peer.where());
}

absl::StatusOr<SegmentDescriptor> FetchOf(const std::string& json) {
  const ScriptedPeer peer([&json](int fd) { SendBytes(fd, Framed(FrameType::kMetadata, json)); });
  return Client().FetchDescriptor(peer.where(), "{}");
}

TEST(HandshakeClientTest, FetchesADescriptorForItsOwn) {
  std::string seen;
  absl::StatusOr<SegmentDescriptor> segment;
  {
    const ServerThread server({.on_metadata = [&](std::string_view json) {
      seen = json;
      return kDescriptor;
    }});
    segment = Client().FetchDescriptor(Local(server.port()), "{\"name\":\"me\"}\n");
  }
  ASSERT_TRUE(segment.ok()) << segment.status().message();
  EXPECT_EQ(segment->name, "127.0.0.1:1");
  EXPECT_EQ(segment->tcp_data_port, 7);
  EXPECT_EQ(seen, "{\"name\":\"me\"}\n");
}

TEST(HandshakeClientTest, ClosesOnceTheReplyIsThere) {
  Flag closed;
  const ScriptedPeer peer([&closed](int fd) {
    SendBytes(fd, Framed(FrameType::kProbe, "{}"));
    AwaitClose(fd);  // as a Mooncake listener does, which serves nobody meanwhile
    closed.Set();
  });
  EXPECT_TRUE(Client().SendProbe(peer.where()).ok());
  EXPECT_TRUE(closed.Wait());
}

TEST(HandshakeClientTest, MegabytesGoBothWays) {
  const std::string big = "\"" + std::string((1 << 20) - 100, 'x') + "\"";
  const ServerThread server(
      {.on_connection = [](std::string_view json) { return std::string(json); }});
  const absl::StatusOr<std::string> reply = Client().Exchange(Local(server.port()), big);
  ASSERT_TRUE(reply.ok()) << reply.status().message();
  EXPECT_EQ(*reply, big);
}

TEST(HandshakeClientTest, SendsNotifications) {
  std::string seen;
  bool take = true;
  const ServerThread server({.on_notify = [&](const std::string& name, const std::string& message) {
    seen = name + "|" + message;
    return take;
  }});
  EXPECT_TRUE(Client().SendNotify(Local(server.port()), "n\"\n", "m\xc3\xa4").ok());
  EXPECT_EQ(seen, "n\"\n|m\xc3\xa4");
  take = false;
  const absl::Status status = Client().SendNotify(Local(server.port()), "", "");
  EXPECT_EQ(HandshakeErrorCode(status), -200);
}

// Of an engine with very many buffers.
TEST(HandshakeClientTest, AnOwnDescriptorThatIsTooLongIsNotSentAndNamesTheLimit) {
  int calls = 0;
  const ServerThread server({.on_metadata = [&](std::string_view) {
    ++calls;
    return "{}\n";
  }});
  const auto fetched =
      Client().FetchDescriptor(Local(server.port()), std::string(kDefaultMaxFrameLength, ' '), {});
  EXPECT_THAT(std::string(fetched.status().message()),
              testing::AllOf(testing::HasSubstr("a metadata message of 1048576 bytes"),
                             testing::HasSubstr("MC_HANDSHAKE_MAX_LENGTH")));
  EXPECT_EQ(calls, 0);
}

TEST(HandshakeClientTest, ANotificationThatIsTooLongIsNotSentAndNamesTheLimit) {
  int calls = 0;
  const ServerThread server({.on_notify = [&](const std::string&, const std::string&) {
    ++calls;
    return true;
  }});
  const std::string frame = R"({"name":"n","notify_msg":""})" + std::string("\n\x02");
  const std::string fits(kDefaultMaxFrameLength - frame.size(), 'x');
  EXPECT_TRUE(Client().SendNotify(Local(server.port()), "n", fits).ok());
  const absl::Status status = Client().SendNotify(Local(server.port()), "n", fits + "x");
  EXPECT_EQ(HandshakeErrorCode(status), -200);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("MC_HANDSHAKE_MAX_LENGTH"));
  EXPECT_EQ(calls, 1);
}

TEST(HandshakeClientTest, ANotificationNeedsAnAnswerThatSaysSo) {
  for (const auto& [reply, code] : {std::pair("{}", -200), std::pair("null", -200),
                                    std::pair("[]", -200), std::pair(R"({"notify_msg":7})", -200),
                                    std::pair(R"({"notify_msg":"x"})", 0), std::pair("{", -103)}) {
    const std::string json = reply;
    const ScriptedPeer peer([&json](int fd) { SendBytes(fd, Framed(FrameType::kNotify, json)); });
    EXPECT_EQ(HandshakeErrorCode(Client().SendNotify(peer.where(), "n", "m")), code) << reply;
  }
}

TEST(HandshakeClientTest, TheReplysJsonIsNotCheckedOfAProbe) {
  EXPECT_TRUE(ProbeOf(Framed(FrameType::kProbe, "")).ok());
}

TEST(HandshakeClientTest, SaysWhatIsWrongWithADescriptor) {
  absl::Status status = FetchOf("{").status();
  EXPECT_EQ(HandshakeErrorCode(status), -103);
  EXPECT_THAT(std::string(status.message()), HasSubstr("127.0.0.1:"));
  status = FetchOf(R"({"name":"a:1","protocol":"tcp","tcp_data_port":"7"})").status();
  EXPECT_EQ(HandshakeErrorCode(status), -103);
  EXPECT_THAT(std::string(status.message()), HasSubstr("tcp_data_port"));
  EXPECT_EQ(HandshakeErrorCode(FetchOf("null\n").status()), -200);
  EXPECT_EQ(HandshakeErrorCode(FetchOf(R"({"name":"a:1","protocol":"efa"})").status()), -200);
}

TEST(HandshakeClientTest, ARejectedConnectionMessageIsStillAReply) {
  const ScriptedPeer peer([](int fd) {
    SendBytes(fd, Framed(FrameType::kConnection, R"({"reply_msg":"QP count mismatch"})"));
  });
  const absl::StatusOr<std::string> reply = Client().Exchange(peer.where(), "{}");
  ASSERT_TRUE(reply.ok());
  EXPECT_EQ(*reply, R"({"reply_msg":"QP count mismatch"})");
  const ScriptedPeer malformed(
      [](int fd) { SendBytes(fd, Framed(FrameType::kConnection, "{\"reply")); });
  EXPECT_EQ(HandshakeErrorCode(Client().Exchange(malformed.where(), "{}").status()), -103);
}

TEST(HandshakeClientTest, AHostWithoutAddress) {
  const absl::Status status = Client().SendProbe({.host = "::1", .port = 1});
  EXPECT_EQ(HandshakeErrorCode(status), -101);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("[::1]:1: no IPv4 (MC_USE_IPV6 is off) address"));
  EXPECT_EQ(HandshakeErrorCode(Client().SendProbe({.host = "no such host", .port = 1})), -101);
}

TEST(HandshakeClientTest, APortThatNobodyListensOn) {
  const Listener deaf;
  const absl::Status status = Client().SendProbe(Local(deaf.port()));
  EXPECT_EQ(HandshakeErrorCode(status), -102);
  EXPECT_THAT(std::string(status.message()), HasSubstr("Connection refused"));
}

TEST(HandshakeClientTest, TriesOneAddressAfterTheOther) {
  // Where localhost is ::1 first, nobody listens there.
  const ServerThread server({});
  HandshakeClientOptions options;
  options.use_ipv6 = true;
  EXPECT_TRUE(Client(options).SendProbe({.host = "localhost", .port = server.port()}).ok());
}

TEST(HandshakeClientTest, APeerThatDoesNotTakeTheConnection) {
  // Fills the queue of connections that nobody accepts: then the kernel drops the next.
  const Listener full(0);
  std::list<RawClient> waiting;
  for (bool queued = true; queued;) {
    RawClient& client = waiting.emplace_back();
    ASSERT_EQ(fcntl(client.fd(), F_SETFL, O_NONBLOCK), 0);
    const sockaddr_in address = Loopback(full.port());
    queued = connect(client.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    if (!queued) {
      pollfd entry{.fd = client.fd(), .events = POLLOUT, .revents = 0};
      queued = poll(&entry, 1, 50) == 1;
    }
    ASSERT_LT(waiting.size(), 100u);
  }
  HandshakeClientOptions options;
  options.connect_timeout = milliseconds(20);
  const absl::Status status = Client(options).SendProbe(Local(full.port()));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(HandshakeErrorCode(status), -102);
  EXPECT_THAT(std::string(status.message()), HasSubstr("connect: timed out"));
}

TEST(HandshakeClientTest, APeerThatGivesNoWholeReply) {
  const std::string reply = Framed(FrameType::kProbe, "{}");
  for (size_t sent = 0; sent < reply.size(); ++sent) {
    const absl::Status status = ProbeOf(reply.substr(0, sent));
    EXPECT_EQ(HandshakeErrorCode(status), -102);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("closed the connection after " + std::to_string(sent) + " bytes"));
  }
}

TEST(HandshakeClientTest, RepliesThatAreNone) {
  HandshakeClientOptions options;
  options.max_frame_length = 10;
  for (const std::string& reply :
       {std::string(8, '\0'), Framed(FrameType::kProbe, "0123456789"), std::string(8, '\xff'),
        Framed(FrameType::kMetadata, "{}"), Framed(FrameType::kConnection, "{}"),
        EncodeFrame({.type = FrameType::kConnection, .typed = false, .json = "{}"}),
        std::string("\x02\0\0\0\0\0\0\0\x80{", 10)}) {
    EXPECT_EQ(HandshakeErrorCode(ProbeOf(reply, options)), -102);
  }
  EXPECT_TRUE(ProbeOf(Framed(FrameType::kProbe, "012345678"), options).ok());
}

TEST(HandshakeClientTest, APeerThatDoesNotReply) {
  HandshakeClientOptions options;
  options.reply_timeout = milliseconds(20);
  const ScriptedPeer peer(AwaitClose);
  const absl::Status status = Client(options).SendProbe(peer.where());
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(HandshakeErrorCode(status), -102);
}

TEST(HandshakeClientTest, ACallersPatienceMayEndBeforeTheTimeOut) {
  HandshakeClientOptions options;
  options.reply_timeout = std::chrono::hours(1);
  const ScriptedPeer peer(AwaitClose);
  const auto segment = Client(options).FetchDescriptor(
      peer.where(), "{}", {.until = std::chrono::steady_clock::now() + milliseconds(20)});
  EXPECT_EQ(segment.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(HandshakeClientTest, ACallThatIsAskedToStopEndsAtOnce) {
  HandshakeClientOptions options;
  options.reply_timeout = std::chrono::hours(1);
  std::stop_source stop;
  const ScriptedPeer peer([&stop](int fd) {
    stop.request_stop();
    AwaitClose(fd);
  });
  const auto segment =
      Client(options).FetchDescriptor(peer.where(), "{}", {.stop = stop.get_token()});
  EXPECT_EQ(segment.status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(HandshakeErrorCode(segment.status()), -102);
  EXPECT_THAT(std::string(segment.status().message()), HasSubstr("being stopped"));
  // Nor does one that begins after that wait.
  const Listener deaf(1);
  EXPECT_EQ(Client(options)
                .FetchDescriptor(Local(deaf.port()), "{}", {.stop = stop.get_token()})
                .status()
                .code(),
            absl::StatusCode::kCancelled);
}

TEST(HandshakeClientTest, APeerThatDripsItsReplyMeetsTheSameDeadline) {
  HandshakeClientOptions options;
  options.reply_timeout = milliseconds(50);
  const ScriptedPeer peer([](int fd) {
    SendBytes(fd, std::string("\xff\xff\x0f\0\0\0\0\0\x03", 9));
    while (SendBytes(fd, " ")) std::this_thread::yield();
  });
  const absl::Status status = Client(options).SendProbe(peer.where());
  EXPECT_EQ(HandshakeErrorCode(status), -102);
}

TEST(HandshakeClientTest, APeerThatDoesNotRead) {
  // Longer than the socket buffers; the peer reads nothing of it.
  const Listener deaf(1);
  HandshakeClientOptions options;
  options.reply_timeout = milliseconds(50);
  options.max_frame_length = 128 << 20;
  const absl::Status status =
      Client(options).Exchange(Local(deaf.port()), std::string(64 << 20, ' ')).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("send: timed out"));
}

TEST(HandshakeClientTest, AThousandFailuresLeaveNothingBehind) {
  const auto open = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  };
  const Listener deaf;
  EXPECT_FALSE(Client().SendProbe(Local(deaf.port())).ok());
  const auto before = open();
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(Client().SendProbe(Local(deaf.port())).ok());
  EXPECT_EQ(open(), before);
}

TEST(HandshakeClientTest, EachErrorHasItsCode) {
  EXPECT_EQ(HandshakeErrorCode(absl::OkStatus()), 0);
  EXPECT_EQ(HandshakeErrorCode(absl::NotFoundError("")), -101);
  EXPECT_EQ(HandshakeErrorCode(absl::UnavailableError("")), -102);
  EXPECT_EQ(HandshakeErrorCode(absl::DeadlineExceededError("")), -102);
  EXPECT_EQ(HandshakeErrorCode(absl::InvalidArgumentError("")), -103);
  EXPECT_EQ(HandshakeErrorCode(absl::FailedPreconditionError("")), -200);
  EXPECT_EQ(HandshakeErrorCode(absl::UnimplementedError("")), -200);
}

}  // namespace
}  // namespace railhop
