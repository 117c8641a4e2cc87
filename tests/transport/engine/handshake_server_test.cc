#include "transport/engine/handshake_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/flag.h"
#include "tests/support/no_more_descriptors.h"
#include "tests/transport/engine/handshake_support.h"
#include "transport/engine/handshake_frame.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

std::string Framed(FrameType type, const std::string& json) {
  return EncodeFrame({.type = type, .typed = true, .json = json});
}

std::string Header(uint64_t length) {
  return EncodeFrame({.type = FrameType::kConnection, .typed = false, .json = ""})
      .replace(0, 8, std::string(reinterpret_cast<const char*>(&length), 8));
}

// Server and clients take turns on one thread.
class HandshakeServerTest : public testing::Test {
 protected:
  void SetUp() override {
    auto loop = EventLoop::Create();
    ASSERT_TRUE(loop.ok());
    loop_ = *std::move(loop);
  }

  void Start(HandshakeHandlers handlers = {},
             const HandshakeServerOptions& options = LoopbackOptions()) {
    auto server = HandshakeServer::Start(loop_.get(), options, std::move(handlers));
    ASSERT_TRUE(server.ok()) << server.status().message();
    server_ = *std::move(server);
  }

  // Runs the loop until `condition` holds; false when patience ended first.
  [[nodiscard]] bool RunUntil(const std::function<bool()>& condition) {
    const auto until = std::chrono::steady_clock::now() + kTestPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      loop_->RunOnce(milliseconds(1));
    }
    return true;
  }
  [[nodiscard]] bool SendAll(RawClient* client, std::string_view bytes) {
    return RunUntil([&] {
      bytes = client->Send(bytes);
      return bytes.empty();
    });
  }
  // What the server sends until it closes.
  std::string ReplyTo(RawClient* client, std::string_view request) {
    EXPECT_TRUE(SendAll(client, request));
    EXPECT_TRUE(RunUntil([&] {
      client->Receive();
      return client->closed();
    }));
    return client->received();
  }
  std::string ReplyTo(const std::string& request) {
    RawClient client(server_->port());
    return ReplyTo(&client, request);
  }

  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<HandshakeServer> server_;
};

TEST_F(HandshakeServerTest, AnswersAMetadataMessageAndWaitsForTheClientToClose) {
  std::string seen;
  Start({.on_metadata = [&](std::string_view json) {
    seen = json;
    return "{\"name\":\"me\"}\n";
  }});
  RawClient client(server_->port());
  EXPECT_EQ(ReplyTo(&client, Framed(FrameType::kMetadata, "{\"name\":\"you\"}\n")),
            Framed(FrameType::kMetadata, "{\"name\":\"me\"}\n"));
  EXPECT_EQ(seen, "{\"name\":\"you\"}\n");
  EXPECT_EQ(server_->connections(), 1u) << "half closed";
  client.Close();
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  EXPECT_EQ(server_->stats().answered, 1u);
  EXPECT_EQ(server_->stats().refused, 0u);
  EXPECT_EQ(server_->buffered_bytes(), 0u);
}

TEST_F(HandshakeServerTest, AnswersAsMooncakeDoesWithoutHandlers) {
  Start();
  EXPECT_EQ(ReplyTo(Framed(FrameType::kMetadata, "{}\n")), Framed(FrameType::kMetadata, "null\n"));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}\n")),
            Framed(FrameType::kProbe, "{\"status\":\"success\"}\n"));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kNotify, R"({"name":"n","notify_msg":"m"})")),
            Framed(FrameType::kNotify, "{\"name\":\"\",\"notify_msg\":\"\"}\n"));
  const std::string empty =
      R"({"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"",)"
      R"("qp_num":[],"reply_msg":""})"
      "\n";
  EXPECT_EQ(empty.size() + 1, 111u) << "as captured";
  EXPECT_EQ(ReplyTo(Framed(FrameType::kConnection, "{}\n")), Framed(FrameType::kConnection, empty));
}

TEST_F(HandshakeServerTest, AnUntypedMessageGetsAnUntypedAnswer) {
  std::string seen;
  Start({.on_connection = [&](std::string_view json) {
    seen = json;
    return "{\"reply_msg\":\"\"}\n";
  }});
  const auto untyped = [](const std::string& json) {
    return EncodeFrame({.type = FrameType::kConnection, .typed = false, .json = json});
  };
  EXPECT_EQ(ReplyTo(untyped("{\"qp_num\":[1]}")), untyped("{\"reply_msg\":\"\"}\n"));
  EXPECT_EQ(seen, "{\"qp_num\":[1]}");
}

TEST_F(HandshakeServerTest, AConnectionThatTakesLongHoldsUpNoOther) {
  Flag asked, release;
  Start({.on_metadata = [](std::string_view) { return "{}\n"; },
         .on_connection =
             [&](std::string_view json) {
               if (json == "{\"slow\":1}") {
                 asked.Set();
                 EXPECT_TRUE(release.Wait());
               }
               return std::string(json);
             }});
  RawClient slow(server_->port());
  ASSERT_TRUE(SendAll(&slow, Framed(FrameType::kConnection, "{\"slow\":1}")));
  ASSERT_TRUE(RunUntil([&] { return asked.IsSet(); }));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kMetadata, "{}")), Framed(FrameType::kMetadata, "{}\n"));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kConnection, "{}")), Framed(FrameType::kConnection, "{}"));
  slow.Receive();
  EXPECT_EQ(slow.received(), "");
  release.Set();
  EXPECT_TRUE(RunUntil([&] {
    slow.Receive();
    return slow.closed();
  }));
  EXPECT_EQ(slow.received(), Framed(FrameType::kConnection, "{\"slow\":1}"));
}

// Who has gone while others were connected is not connected any more.
TEST_F(HandshakeServerTest, AClientThatLeavesWhileItWaitsIsForgotten) {
  Flag release;
  std::atomic<size_t> calls{0};
  Start({.on_connection = [&](std::string_view json) {
    ++calls;
    EXPECT_TRUE(release.Wait());
    return std::string(json);
  }});
  std::list<RawClient> clients;
  for (size_t i = 0; i < HandshakeServer::kConnecting; ++i) {
    ASSERT_TRUE(
        SendAll(&clients.emplace_back(server_->port()), Framed(FrameType::kConnection, "{}")));
  }
  ASSERT_TRUE(RunUntil([&] { return calls == HandshakeServer::kConnecting; }));
  {
    RawClient late(server_->port());
    ASSERT_TRUE(SendAll(&late, Framed(FrameType::kConnection, "{\"late\":1}")));
    ASSERT_TRUE(RunUntil([&] {
      return server_->connections() == HandshakeServer::kConnecting + 1 &&
             server_->buffered_bytes() >= HandshakeServer::kConnecting * 2 + 10;
    }));
  }
  ASSERT_TRUE(RunUntil([&] { return server_->connections() == HandshakeServer::kConnecting; }));
  release.Set();
  for (RawClient& client : clients) {
    EXPECT_TRUE(RunUntil([&] {
      client.Receive();
      return client.closed();
    }));
    EXPECT_EQ(client.received(), Framed(FrameType::kConnection, "{}"));
  }
  EXPECT_EQ(calls, HandshakeServer::kConnecting);
}

// Its threads are waited for.
TEST_F(HandshakeServerTest, MayEndWhileItConnects) {
  Flag asked, release;
  Start({.on_connection = [&](std::string_view json) {
    asked.Set();
    EXPECT_TRUE(release.Wait());
    return std::string(json);
  }});
  RawClient client(server_->port());
  ASSERT_TRUE(SendAll(&client, Framed(FrameType::kConnection, "{}")));
  ASSERT_TRUE(RunUntil([&] { return asked.IsSet(); }));
  std::thread ender([&] { server_ = nullptr; });
  release.Set();
  ender.join();
}

TEST_F(HandshakeServerTest, HandsNotificationsOn) {
  std::vector<std::pair<std::string, std::string>> notes;
  bool take = true;
  Start({.on_notify = [&](std::string name, std::string message) {
    notes.emplace_back(std::move(name), std::move(message));
    return take;
  }});
  EXPECT_EQ(ReplyTo(Framed(FrameType::kNotify, R"({"name":"a","notify_msg":"b \u00e4"})")),
            Framed(FrameType::kNotify, "{\"name\":\"\",\"notify_msg\":\"success\"}\n"));
  take = false;
  EXPECT_EQ(ReplyTo(Framed(FrameType::kNotify, R"({"name":"","notify_msg":""})")),
            Framed(FrameType::kNotify, "{\"name\":\"\",\"notify_msg\":\"\"}\n"));
  EXPECT_THAT(notes, ElementsAre(Pair("a", "b \xc3\xa4"), Pair("", "")));
}

TEST_F(HandshakeServerTest, AHandlerWithoutAnswer) {
  Start({.on_metadata = [](std::string_view) { return std::nullopt; },
         .on_connection = [](std::string_view) { return std::nullopt; },
         .on_probe = [] { return false; }});
  EXPECT_EQ(ReplyTo(Framed(FrameType::kMetadata, "{}")), Framed(FrameType::kMetadata, "null\n"));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kConnection, "{}")), "");
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")), "");
  EXPECT_EQ(server_->stats().refused, 2u);
}

TEST_F(HandshakeServerTest, ClosesWithoutAnswerWhatBreaksTheProtocol) {
  int calls = 0;
  const auto count = [&calls](std::string_view) {
    ++calls;
    return std::string("{}");
  };
  Start({.on_metadata = count, .on_connection = count});
  const std::vector<std::string> bad = {
      Header(0),
      Header(kDefaultMaxFrameLength + 1),
      Header(UINT64_MAX),
      Header(100) + "\x80",
      Header(3) + "\x04{}",
      Header(1) + "\x01",
      Framed(FrameType::kMetadata, "{"),
      Framed(FrameType::kConnection, "nonsense"),
      Framed(FrameType::kProbe, std::string(10'000, '[')),
      Framed(FrameType::kNotify, "[]"),
      Framed(FrameType::kNotify, "{}"),
      Framed(FrameType::kNotify, R"({"name":"n"})"),
      Framed(FrameType::kNotify, R"({"name":1,"notify_msg":"m"})"),
      Framed(FrameType::kNotify, R"({"name":"n","notify_msg":null})"),
  };
  for (const std::string& request : bad) EXPECT_EQ(ReplyTo(request), "") << request.substr(0, 60);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(server_->stats().refused, bad.size());
  EXPECT_EQ(server_->connections(), 0u);
}

TEST_F(HandshakeServerTest, AClientThatGoesInTheMiddleIsForgotten) {
  Start();
  const std::string request = Framed(FrameType::kProbe, "{}");
  for (size_t sent = 0; sent < request.size(); ++sent) {
    RawClient client(server_->port());
    EXPECT_TRUE(SendAll(&client, request.substr(0, sent)));
    client.Close();
    EXPECT_TRUE(RunUntil([&] { return server_->stats().refused == sent + 1; }));
  }
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(server_->buffered_bytes(), 0u);
}

TEST_F(HandshakeServerTest, SlowClientsAreInNobodysWay) {
  Start();
  const std::string request = Framed(FrameType::kProbe, "{}");
  const std::string answer = Framed(FrameType::kProbe, "{\"status\":\"success\"}\n");
  std::list<RawClient> slow;
  for (int i = 0; i < 100; ++i) {
    slow.emplace_back(server_->port());
    EXPECT_TRUE(SendAll(&slow.back(), request.substr(0, static_cast<size_t>(i) % request.size())));
  }
  // Byte by byte among them, and one at once.
  RawClient drip(server_->port());
  for (const char byte : request) {
    EXPECT_TRUE(SendAll(&drip, {&byte, 1}));
    EXPECT_EQ(ReplyTo(request), answer);
  }
  EXPECT_EQ(ReplyTo(&drip, ""), answer);
  for (RawClient& client : slow) {
    client.Receive();
    EXPECT_FALSE(client.closed());
  }
}

TEST_F(HandshakeServerTest, AClientThatDoesNotReadItsReplyHoldsUpNobody) {
  const std::string huge = "\"" + std::string(32 << 20, 'x') + "\"";
  HandshakeServerOptions options = LoopbackOptions();
  options.max_frame_length = 64 << 20;
  Start({.on_metadata = [&](std::string_view) { return huge; }}, options);
  RawClient client(server_->port());
  EXPECT_TRUE(SendAll(&client, Framed(FrameType::kMetadata, "{}")));
  EXPECT_TRUE(RunUntil([&] { return server_->buffered_bytes() > huge.size(); }));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")).size(), 30u);
  EXPECT_EQ(ReplyTo(&client, ""), Framed(FrameType::kMetadata, huge));
  EXPECT_EQ(server_->buffered_bytes(), 0u);
  client.Close();
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
}

TEST_F(HandshakeServerTest, WhatComesBehindARequestIsIgnored) {
  Start();
  RawClient client(server_->port());
  const std::string request = Framed(FrameType::kProbe, "{}");
  EXPECT_EQ(ReplyTo(&client, request + request + "garbage").size(), 30u);
  EXPECT_TRUE(SendAll(&client, std::string(100'000, 'x')));
  client.Close();
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 0; }));
  EXPECT_EQ(server_->stats().answered, 1u);
}

TEST_F(HandshakeServerTest, TenThousandIdleConnectionsHurtNobody) {
  constexpr size_t kIdle = 10'000;
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit before = limit;
  limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kIdle + 1000);
  if (limit.rlim_cur < kIdle + 1000) GTEST_SKIP() << "only " << limit.rlim_cur << " descriptors";
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  Start();
  std::list<RawClient> idle;
  for (size_t i = 1; i <= kIdle; ++i) {
    idle.emplace_back(server_->port());
    while (i % 64 == 0 && loop_->RunReady() > 0) {
    }
    if (i % 1000 == 0) {
      EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")).size(), 30u);
      EXPECT_LE(server_->connections(), HandshakeServer::kMaxConnections);
    }
  }
  EXPECT_EQ(server_->stats().answered, kIdle / 1000);
  EXPECT_GE(server_->stats().evicted + server_->stats().expired,
            kIdle - HandshakeServer::kMaxConnections);
  idle.clear();
  server_.reset();
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST_F(HandshakeServerTest, AnAnsweredConnectionMakesRoomFirst) {
  Start();
  RawClient oldest(server_->port());
  RawClient answered(server_->port());
  EXPECT_NE(ReplyTo(&answered, Framed(FrameType::kProbe, "{}")), "");
  std::list<RawClient> more;
  while (more.size() + 2 < HandshakeServer::kMaxConnections) {
    more.emplace_back(server_->port());
    loop_->RunReady();
  }
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == HandshakeServer::kMaxConnections; }));
  EXPECT_EQ(server_->stats().evicted, 0u);
  more.emplace_back(server_->port());
  EXPECT_TRUE(RunUntil([&] { return server_->stats().evicted == 1; }));
  EXPECT_NE(ReplyTo(&oldest, Framed(FrameType::kProbe, "{}")), "") << "still there";
}

TEST_F(HandshakeServerTest, HalfSentRequestsHoldBoundedMemory) {
  Start();
  // Each holds just under 1 MiB: more of them than the memory takes.
  const std::string most =
      Header(kDefaultMaxFrameLength) + "\x01" + std::string(kDefaultMaxFrameLength - 2, ' ');
  const size_t enough = 2 * server_->MaxBufferedBytes() / kDefaultMaxFrameLength;
  ASSERT_LT(enough, HandshakeServer::kMaxConnections);
  std::list<RawClient> clients;
  for (size_t i = 0; i < enough; ++i) {
    clients.emplace_back(server_->port());
    EXPECT_TRUE(SendAll(&clients.back(), most));
    while (loop_->RunReady() > 0) {
    }
    EXPECT_LE(server_->buffered_bytes(), server_->MaxBufferedBytes());
  }
  EXPECT_GT(server_->stats().evicted, 0u);
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")).size(), 30u);
  // The last one was spared, and its request is complete with one byte more.
  EXPECT_EQ(ReplyTo(&clients.back(), " "), "") << "blanks are no JSON";
  EXPECT_EQ(server_->stats().refused, 1u);
}

TEST_F(HandshakeServerTest, TheDeadlineEndsEveryKindOfWait) {
  const std::string huge = "\"" + std::string(32 << 20, 'x') + "\"";
  HandshakeServerOptions options = LoopbackOptions();
  options.max_frame_length = 64 << 20;
  options.deadline = milliseconds(50);
  Start({.on_metadata = [&](std::string_view) { return huge; }}, options);
  RawClient idle(server_->port());
  RawClient half(server_->port());
  RawClient does_not_read(server_->port());
  RawClient does_not_close(server_->port());
  EXPECT_TRUE(SendAll(&half, "\x10"));
  EXPECT_TRUE(SendAll(&does_not_read, Framed(FrameType::kMetadata, "{}")));
  EXPECT_TRUE(SendAll(&does_not_close, Framed(FrameType::kProbe, "{}")));
  EXPECT_TRUE(RunUntil([&] { return server_->stats().expired == 4; }));
  EXPECT_EQ(server_->connections(), 0u);
  EXPECT_EQ(server_->buffered_bytes(), 0u);
}

TEST_F(HandshakeServerTest, ConnectionsWaitWhileNoDescriptorIsFree) {
  Start();
  RawClient client;
  {
    const NoMoreDescriptors none;
    client.Connect(server_->port());
    EXPECT_GT(loop_->RunOnce(kTestPatience), 0) << "finds that it cannot accept";
    EXPECT_EQ(server_->connections(), 0u);
    EXPECT_EQ(loop_->RunReady(), 0) << "and does not spin";
  }
  EXPECT_EQ(ReplyTo(&client, Framed(FrameType::kProbe, "{}")).size(), 30u);
}

TEST_F(HandshakeServerTest, TheEndOfTheServerClosesAll) {
  Start();
  std::list<RawClient> clients;
  for (int i = 0; i < 3; ++i) clients.emplace_back(server_->port());
  EXPECT_TRUE(RunUntil([&] { return server_->connections() == 3; }));
  server_.reset();
  for (RawClient& client : clients) {
    client.Receive();
    EXPECT_TRUE(client.closed());
  }
  EXPECT_EQ(loop_->RunReady(), 0);
}

TEST_F(HandshakeServerTest, AHandlerMayAnswerDifferentlyEachTime) {
  int version = 0;
  Start({.on_metadata = [&](std::string_view) { return std::to_string(++version); }});
  EXPECT_EQ(ReplyTo(Framed(FrameType::kMetadata, "{}")), Framed(FrameType::kMetadata, "1"));
  EXPECT_EQ(ReplyTo(Framed(FrameType::kMetadata, "{}")), Framed(FrameType::kMetadata, "2"));
}

// --- The port.

TEST_F(HandshakeServerTest, ListensInTheRange) {
  Start();
  EXPECT_GE(server_->port(), 15000);
  EXPECT_LE(server_->port(), 17000);
}

TEST_F(HandshakeServerTest, ATakenPortIsNotShared) {
  Start();
  HandshakeServerOptions options = LoopbackOptions();
  options.min_port = options.max_port = server_->port();
  const auto second = HandshakeServer::Start(loop_.get(), options, {});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.status().message()),
              HasSubstr("127.0.0.1 with a port of " + std::to_string(server_->port())));
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("MC_MIN_RPC_PORT"));
  // One free port beside it: found by trying.
  options.max_port = static_cast<uint16_t>(options.min_port + 1);
  const auto third = HandshakeServer::Start(loop_.get(), options, {});
  if (third.ok()) {
    EXPECT_EQ((*third)->port(), options.max_port);
  }
}

TEST_F(HandshakeServerTest, RefusesAddressesAndRangesThatAreNone) {
  HandshakeServerOptions options = LoopbackOptions();
  options.address = "localhost";
  auto server = HandshakeServer::Start(loop_.get(), options, {});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(server.status().message()), HasSubstr("\"localhost\" is no address"));
  options.address = "192.0.2.1";  // of documentation: no machine has it
  server = HandshakeServer::Start(loop_.get(), options, {});
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable);
  options = LoopbackOptions();
  options.min_port = 17001;
  EXPECT_FALSE(HandshakeServer::Start(loop_.get(), options, {}).ok());
  options.min_port = 0;
  EXPECT_FALSE(HandshakeServer::Start(loop_.get(), options, {}).ok());
}

TEST_F(HandshakeServerTest, ListensOnAllAddresses) {
  Start({}, {});
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")).size(), 30u);
  server_.reset();
  auto dual = HandshakeServer::Start(loop_.get(), {.use_ipv6 = true}, {});
  if (!dual.ok()) GTEST_SKIP() << "no IPv6 here: " << dual.status().message();
  server_ = *std::move(dual);
  EXPECT_EQ(ReplyTo(Framed(FrameType::kProbe, "{}")).size(), 30u) << "by IPv4 too";
}

}  // namespace
}  // namespace railhop
