// The target side, asked byte by byte by plain sockets.
#include "transport/fabric/tcp/tcp_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "runtime/log.h"
#include "tests/support/no_more_descriptors.h"
#include "tests/support/wait_until.h"
#include "tests/transport/fabric/tcp/raw_socket.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

class TcpServerTest : public TcpFixture {
 protected:
  void SetUp() override { StartServer(); }

  RawSocket Client() const { return RawSocket::ConnectTo(server_->port()); }
  TcpHeader Header(TcpOperation operation, uint64_t size, uint64_t offset = 0,
                   bool acknowledged = true) const {
    return {.size = size,
            .address = Address(memory_.data()) + offset,
            .operation = operation,
            .acknowledged = acknowledged};
  }
  bool Holds(const std::vector<std::byte>& bytes, uint64_t offset) const {
    return std::equal(bytes.begin(), bytes.end(), memory_.begin() + static_cast<long>(offset));
  }
};

TEST_F(TcpServerTest, Version2WritesAndReadsAreAnswered) {
  const RawSocket client = Client();
  const std::vector<std::byte> bytes = Pattern(100'000, 1);
  client.SendHeader(Header(TcpOperation::kWrite, bytes.size(), 3));
  client.Send(bytes);
  EXPECT_EQ(client.ReceiveStatus(), 0);
  EXPECT_TRUE(Holds(bytes, 3));
  client.SendHeader(Header(TcpOperation::kRead, bytes.size(), 3));
  EXPECT_EQ(client.ReceiveStatus(), 0);
  EXPECT_EQ(client.Receive(bytes.size()), bytes);
}

TEST_F(TcpServerTest, Version1ReadsAreDataAlone) {
  const RawSocket client = Client();
  const std::vector<std::byte> bytes = Pattern(1000, 2);
  client.SendHeader(Header(TcpOperation::kWrite, bytes.size(), 3, false));
  client.Send(bytes);
  client.SendHeader(Header(TcpOperation::kRead, bytes.size(), 3, false));
  EXPECT_EQ(client.Receive(bytes.size()), bytes);
}

TEST_F(TcpServerTest, RequestsMayBeSplitAtAnyByteAndFollowEachOther) {
  const RawSocket client = Client();
  std::vector<std::byte> stream;
  const auto append = [&stream](const TcpHeader& header, const std::vector<std::byte>& payload) {
    std::array<std::byte, kTcpHeaderBytes> bytes;
    EncodeTcpHeader(header, bytes);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    stream.insert(stream.end(), payload.begin(), payload.end());
  };
  const std::vector<std::byte> payload = Pattern(50, 3);
  append(Header(TcpOperation::kWrite, 50, 100), payload);
  append(Header(TcpOperation::kRead, 50, 100), {});
  append(Header(TcpOperation::kWrite, 50, 200, false), payload);
  append(Header(TcpOperation::kRead, 50, 200, false), {});
  for (size_t cut = 1; cut < stream.size(); ++cut) {
    std::fill(memory_.begin(), memory_.begin() + 300, std::byte{0});
    client.Send(std::span(stream).first(cut));
    client.Send(std::span(stream).subspan(cut));
    ASSERT_EQ(client.ReceiveStatus(), 0) << cut;
    ASSERT_EQ(client.ReceiveStatus(), 0) << cut;
    ASSERT_EQ(client.Receive(50), payload) << cut;
    ASSERT_EQ(client.Receive(50), payload) << cut;
  }
}

TEST_F(TcpServerTest, ManySmallRequestsAreAnsweredInTurnThoughNobodyReadsAtFirst) {
  const RawSocket client = Client();
  constexpr uint64_t kRequests = 2000;  // more than the answers that are kept
  std::thread sender([&] {
    for (uint64_t i = 0; i < kRequests; ++i) {
      std::array<std::byte, 8> bytes;
      memcpy(bytes.data(), &i, sizeof(i));
      client.SendHeader(Header(TcpOperation::kWrite, 8, 64));
      client.Send(bytes);
      client.SendHeader(Header(TcpOperation::kRead, 8, 64));
    }
  });
  for (uint64_t i = 0; i < kRequests; ++i) {
    ASSERT_EQ(client.ReceiveStatus(), 0);
    ASSERT_EQ(client.ReceiveStatus(), 0);
    const std::vector<std::byte> bytes = client.Receive(8);
    ASSERT_EQ(bytes.size(), 8u);
    EXPECT_EQ(memcmp(bytes.data(), &i, 8), 0);
  }
  sender.join();
}

// As many answers are due at once as one read of the socket has requests.
TEST_F(TcpServerTest, ABurstOfTheSmallestRequestsIsAnsweredWithoutMoreToFollow) {
  const RawSocket client = Client();
  constexpr size_t kRequests = 150;
  std::vector<std::byte> stream;
  for (size_t i = 0; i < kRequests; ++i) {
    std::array<std::byte, kTcpHeaderBytes> bytes;
    EncodeTcpHeader(Header(TcpOperation::kWrite, 1, i), bytes);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
    stream.push_back(std::byte{7});
  }
  client.Send(stream);
  for (size_t i = 0; i < kRequests; ++i) ASSERT_EQ(client.ReceiveStatus(), 0) << i;
  EXPECT_TRUE(Holds(std::vector<std::byte>(kRequests, std::byte{7}), 0));
}

TEST_F(TcpServerTest, ASlowReaderHoldsUpItselfAlone) {
  const RawSocket slow = Client();
  std::thread sender([&] {
    for (int i = 0; i < 30; ++i) slow.SendHeader(Header(TcpOperation::kRead, kBytes));
  });
  const RawSocket quick = Client();
  for (int i = 0; i < 100; ++i) {
    quick.SendHeader(Header(TcpOperation::kRead, 1000));
    ASSERT_EQ(quick.ReceiveStatus(), 0);
    ASSERT_EQ(quick.Receive(1000).size(), 1000u);
  }
  for (int i = 0; i < 30; ++i) {
    ASSERT_EQ(slow.ReceiveStatus(), 0);
    ASSERT_EQ(slow.Receive(kBytes).size(), kBytes);
  }
  sender.join();
}

// --- Refusals

TEST_F(TcpServerTest, WhatIsNotInsideOneRegionIsRefused) {
  std::vector<std::byte> other(4096);
  ASSERT_TRUE(server_->AddRegion(Address(other.data()), other.size()).ok());
  const uint64_t start = Address(memory_.data());
  const struct {
    uint64_t size;
    uint64_t address;
  } cases[] = {{0, start},
               {1, start - 1},
               {1, start + kBytes},
               {kBytes + 1, start},
               {2, start + kBytes - 1},
               {UINT64_MAX, start},
               {UINT64_MAX, 1},
               {1, 0}};
  for (const auto& [size, address] : cases) {
    for (const TcpOperation operation : {TcpOperation::kWrite, TcpOperation::kRead}) {
      const RawSocket client = Client();
      client.SendHeader({.size = size, .address = address, .operation = operation});
      EXPECT_EQ(client.ReceiveStatus(), 1) << size;
      EXPECT_TRUE(client.Ended());
      const RawSocket old = Client();
      old.SendHeader(
          {.size = size, .address = address, .operation = operation, .acknowledged = false});
      EXPECT_TRUE(old.Ended());
    }
  }
  ASSERT_TRUE(server_->RemoveRegion(Address(other.data())).ok());
}

TEST_F(TcpServerTest, ARefusalComesAfterTheAnswersBeforeItAndReachesAClientThatStillSends) {
  const RawSocket client = Client();
  client.SendHeader(Header(TcpOperation::kRead, 500'000));
  client.SendHeader(Header(TcpOperation::kWrite, 1'000'000, kBytes - 1));
  std::thread sender([&] { client.Send(std::vector<std::byte>(1'000'000)); });
  EXPECT_EQ(client.ReceiveStatus(), 0);
  EXPECT_EQ(client.Receive(500'000).size(), 500'000u);
  EXPECT_EQ(client.ReceiveStatus(), 1);
  EXPECT_TRUE(client.Ended());
  sender.join();
}

TEST_F(TcpServerTest, AForkedChildThatDestroysItTakesNothingFromItsParent) {
  const pid_t child = fork();
  if (child == 0) {
    server_.reset();
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  MakeNic();
  Post(Write(Connect("2"), 1, 1000));
  EXPECT_EQ(Consume(*nic_, 1).front().status, FabricStatus::kOk);
}

TEST_F(TcpServerTest, RegionsDoNotOverlapAndKnowTheirNames) {
  const uint64_t start = Address(memory_.data());
  EXPECT_EQ(server_->AddRegion(start, 1).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(server_->AddRegion(start - 1, 2).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(server_->AddRegion(start + kBytes - 1, 9).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(server_->AddRegion(start - 1, UINT64_MAX - start).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(server_->AddRegion(start, UINT64_MAX).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(server_->AddRegion(start, 0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(server_->AddRegion(start + kBytes, 1).ok());
  EXPECT_EQ(server_->RemoveRegion(start + 1).code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(server_->RemoveRegion(start + kBytes).ok());
  EXPECT_TRUE(server_->RemoveRegion(start).ok());
}

TEST_F(TcpServerTest, ARegionThatIsRemovedInTheMiddleOfAPayloadIsNotTouchedAnyMore) {
  const RawSocket writer = Client();
  const RawSocket reader = Client();
  // The answer to a whole write leaves after what came with it was stored, too: the beginning of
  // another.
  std::vector<std::byte> stream(2 * kTcpHeaderBytes + 1001, std::byte{1});
  const auto header = [&](size_t at) {
    return std::span<std::byte, kTcpHeaderBytes>(stream.data() + at, kTcpHeaderBytes);
  };
  EncodeTcpHeader(Header(TcpOperation::kWrite, 1), header(0));
  EncodeTcpHeader(Header(TcpOperation::kWrite, kBytes), header(kTcpHeaderBytes + 1));
  writer.Send(stream);
  EXPECT_EQ(writer.ReceiveStatus(), 0);
  // More than fits into the sockets.
  reader.SendHeader(Header(TcpOperation::kRead, kBytes));
  EXPECT_EQ(reader.ReceiveStatus(), 0);
  ASSERT_TRUE(server_->RemoveRegion(Address(memory_.data())).ok());
  memory_.assign(kBytes, std::byte{7});
  std::thread sender([&] { writer.Send(std::vector<std::byte>(1 << 20, std::byte{1})); });
  EXPECT_EQ(writer.ReceiveStatus(), 1);
  EXPECT_TRUE(writer.Ended());
  sender.join();
  EXPECT_EQ(std::count(memory_.begin(), memory_.end(), std::byte{7}), static_cast<long>(kBytes));
}

// Under TSan a touch of the range after RemoveRegion would be a race with the fill.
TEST_F(TcpServerTest, RegionsComeAndGoUnderLoad) {
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> done{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 2; ++i) {
    clients.emplace_back([&, i] {
      const std::vector<std::byte> bytes(200'000, std::byte{1});
      while (!stop) {
        const RawSocket client = Client();
        while (!stop) {
          client.SendHeader(i == 0 ? Header(TcpOperation::kWrite, 200'000)
                                   : Header(TcpOperation::kRead, 200'000, 1 << 20));
          if (i == 0 && send(client.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL) < 0) break;
          if (client.ReceiveStatus() != 0) break;
          if (i == 1 && client.Receive(200'000).size() != 200'000) break;
          ++done;
        }
      }
    });
  }
  for (int round = 0; round < 20; ++round) {
    const uint64_t before = done;
    ASSERT_TRUE(WaitUntil([&] { return done > before + 4; }));
    ASSERT_TRUE(server_->RemoveRegion(Address(memory_.data())).ok());
    std::fill(memory_.begin(), memory_.end(), std::byte{7});
    ASSERT_EQ(std::count(memory_.begin(), memory_.end(), std::byte{7}), static_cast<long>(kBytes));
    ASSERT_TRUE(server_->AddRegion(Address(memory_.data()), kBytes).ok());
  }
  stop = true;
  for (std::thread& client : clients) client.join();
}

// --- Drains

TEST_F(TcpServerTest, ADrainEndsWhatItsGroupHasUnderWay) {
  const RawSocket member = Client();
  member.SendHeader({.size = 0, .address = 42, .operation = TcpOperation::kJoin});
  EXPECT_EQ(member.ReceiveStatus(), 0);
  const RawSocket stranger = Client();
  for (const RawSocket* socket : {&member, &stranger}) {
    socket->SendHeader(Header(TcpOperation::kWrite, 1000, socket == &member ? 0 : 1000));
    socket->Send(std::vector<std::byte>(500, std::byte{1}));
  }
  const RawSocket drain = Client();
  drain.SendHeader({.size = 0, .address = 42, .operation = TcpOperation::kDrain});
  EXPECT_EQ(drain.ReceiveStatus(), 0);
  std::fill(memory_.begin(), memory_.begin() + 1000, std::byte{7});
  member.Send(std::vector<std::byte>(500, std::byte{1}));
  EXPECT_TRUE(member.ReceiveStatus() != 0);
  stranger.Send(std::vector<std::byte>(500, std::byte{1}));
  EXPECT_EQ(stranger.ReceiveStatus(), 0);
  EXPECT_TRUE(Holds(std::vector<std::byte>(1000, std::byte{7}), 0));
  EXPECT_TRUE(Holds(std::vector<std::byte>(1000, std::byte{1}), 1000));
  // A group that nobody is in is drained already, and a connection belongs to one group.
  drain.SendHeader({.size = 0, .address = 43, .operation = TcpOperation::kDrain});
  EXPECT_EQ(drain.ReceiveStatus(), 0);
  drain.SendHeader({.size = 0, .address = 43, .operation = TcpOperation::kJoin});
  EXPECT_EQ(drain.ReceiveStatus(), 0);
  drain.SendHeader({.size = 0, .address = 44, .operation = TcpOperation::kJoin});
  EXPECT_EQ(drain.ReceiveStatus(), 1);
}

// --- Bounds

TEST_F(TcpServerTest, OnlyWhatIsIncompleteHasADeadline) {
  TcpServerOptions options = ServerOptions();
  options.request_timeout = std::chrono::milliseconds(40);
  server_.reset();
  StartServer(options);
  const RawSocket idle = Client();
  const RawSocket header = Client();
  const RawSocket payload = Client();
  const RawSocket reader = Client();
  header.Send(std::vector<std::byte>(23));
  payload.SendHeader(Header(TcpOperation::kWrite, 1000));
  payload.Send(std::vector<std::byte>(999));
  for (int i = 0; i < 8; ++i) reader.SendHeader(Header(TcpOperation::kRead, kBytes));
  EXPECT_TRUE(header.Ended());
  EXPECT_TRUE(payload.Ended());
  // 0.4 s a request at 10 MB/s: it is ended with what did not fit into the sockets.
  ASSERT_TRUE(WaitUntil([&] { return server_->connections() == 1; }));
  idle.SendHeader(Header(TcpOperation::kRead, 10));
  EXPECT_EQ(idle.ReceiveStatus(), 0);
}

TEST_F(TcpServerTest, WithoutDescriptorsAcceptingPausesAndTheRestGoesOn) {
  std::atomic<int> warnings{0};
  const LogSink before = SetLogSink([&](LogLevel, std::string_view text) {
    if (text.find("ulimit -n") != std::string_view::npos) ++warnings;
  });
  const RawSocket old = Client();
  old.SendHeader(Header(TcpOperation::kRead, 10));
  EXPECT_EQ(old.ReceiveStatus(), 0);
  EXPECT_EQ(old.Receive(10).size(), 10u);
  // UBSan looks at a type that it sees for the first time through a descriptor of its own.
  Log(LogLevel::kWarning, "before");
  // The client's own descriptor is made first; the server finds none to accept it with.
  RawSocket waiting(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  {
    const NoMoreDescriptors no_more;
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(server_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(connect(waiting.fd(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
              0);
    waiting.SendHeader(Header(TcpOperation::kRead, 10));
    ASSERT_TRUE(WaitUntil([&] { return warnings == 1; }));
    old.SendHeader(Header(TcpOperation::kRead, 10));
    EXPECT_EQ(old.ReceiveStatus(), 0);
  }
  EXPECT_EQ(waiting.ReceiveStatus(), 0);
  EXPECT_EQ(warnings, 1);
  SetLogSink(before);
}

TEST_F(TcpServerTest, MoreThanTheMostConnectionsWait) {
  TcpServerOptions options = ServerOptions();
  options.max_connections = 2;
  server_.reset();
  StartServer(options);
  RawSocket first = Client();
  RawSocket second = Client();
  RawSocket third = Client();
  third.SendHeader(Header(TcpOperation::kRead, 10));
  second.SendHeader(Header(TcpOperation::kRead, 10));
  EXPECT_EQ(second.ReceiveStatus(), 0);
  EXPECT_LE(server_->connections(), 2u);
  first.Close();
  EXPECT_EQ(third.ReceiveStatus(), 0);
}

// Two descriptors of this process for each connection: as many as there may be, up to 10,000.
TEST_F(TcpServerTest, ManyIdleConnectionsCostNothingButTheirDescriptors) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const size_t count = std::min<size_t>(10'000, (limit.rlim_cur - 200) / 2);
  std::vector<RawSocket> clients;
  for (size_t i = 0; i < count; ++i) clients.push_back(Client());
  ASSERT_TRUE(WaitUntil([&] { return server_->connections() == count; }));
  for (size_t i = 0; i < count; i += count / 10) {
    clients[i].SendHeader(Header(TcpOperation::kRead, 10));
    EXPECT_EQ(clients[i].ReceiveStatus(), 0);
  }
  clients.clear();
  EXPECT_TRUE(WaitUntil([&] { return server_->connections() == 0; }));
}

TEST(TcpServerStartTest, OptionsAreCheckedAndTakenPortsSaidSo) {
  TcpServerOptions options;
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.address = "127.0.0.1";
  options.threads = 0;
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.threads = 1;
  options.lowest_port = 17001;
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
  options.lowest_port = 15000;
  const auto server = TcpServer::Start(options);
  ASSERT_TRUE(server.ok()) << server.status();
  EXPECT_GE((*server)->port(), 15000);
  EXPECT_LE((*server)->port(), 17000);
  options.lowest_port = options.highest_port = (*server)->port();
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kUnavailable);
  options.address = "192.0.2.1";  // nobody's
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kUnavailable);
  options.address = "no host";
  EXPECT_EQ(TcpServer::Start(options).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace railhop
