// The TCP NIC against the server of this process: what fabric.h promises, in each version.
#include "transport/fabric/tcp/tcp_nic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "runtime/event_loop.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

using testing::ElementsAre;

class TcpNicTest : public TcpFixture, public testing::WithParamInterface<const char*> {
 protected:
  // One thread: requests of these tests share bytes, which is up to them, but TSan's business.
  static TcpServerOptions OneThread() {
    TcpServerOptions options = ServerOptions();
    options.threads = 1;
    return options;
  }
  void SetUp() override {
    StartServer(OneThread());
    MakeNic();
    endpoint_ = Connect(GetParam());
  }
  bool acknowledged() const { return std::string(GetParam()) != "1"; }

  EndpointId endpoint_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Version, TcpNicTest, testing::ValuesIn(kTcpVersions), TcpVersionName);

TEST_P(TcpNicTest, WritesAndReadsOfAllSizesArrive) {
  for (const uint32_t length : {1u, 23u, 24u, 4095u, 4096u, 4097u, 65'536u, 1u << 20, 3'500'001u}) {
    const std::vector<std::byte> sent = Pattern(length, length);
    std::copy(sent.begin(), sent.end(), local_.begin() + 5);
    Post(Write(endpoint_, 1, length, 5));
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, length)));
    // Without an answer it may take a while to be seen.
    int reads = 0;
    ASSERT_TRUE(WaitUntil([&] {
      ++reads;
      local_.assign(kBytes, std::byte{0xA5});
      Post(Read(endpoint_, 2, length, 5));
      EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, length)));
      return std::equal(sent.begin(), sent.end(), local_.begin() + 5);
    }));
    if (acknowledged()) {
      EXPECT_EQ(reads, 1);
    }
    EXPECT_EQ(local_[4], std::byte{0xA5});
    EXPECT_EQ(local_[length + 5], std::byte{0xA5});
  }
}

TEST_P(TcpNicTest, CompletionsComeInPostOrder) {
  for (int round = 0; round < 20; ++round) {
    const uint32_t lengths[] = {3 << 20, 1, 70'000, 0, 2 << 20, 64};
    for (uint64_t i = 0; i < 6; ++i) {
      const FabricOpcode opcode = i % 4 == 1 ? FabricOpcode::kRead : FabricOpcode::kWrite;
      ASSERT_TRUE(nic_->Prepare(Request(endpoint_, opcode, i, lengths[i], i * 4096)));
    }
    nic_->Submit();
    EXPECT_THAT(Consume(*nic_, 6), ElementsAre(Done(0, 3 << 20), Done(1, 1), Done(2, 70'000),
                                               Done(3, 0), Done(4, 2 << 20), Done(5, 64)));
  }
}

TEST_P(TcpNicTest, AFullQueueSaysSoAndRoomReturnsWithAdvance) {
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(nic_->SendRoom(endpoint_), 16 - i);
    ASSERT_TRUE(nic_->Prepare(Write(endpoint_, i, 100)));
  }
  EXPECT_FALSE(nic_->Prepare(Write(endpoint_, 16, 100)));
  NicCompletion completions[16];
  EXPECT_EQ(nic_->Peek(completions), 0u);  // nothing moves before Submit
  nic_->Submit();
  ASSERT_TRUE(WaitUntil([&] { return nic_->Peek(completions) == 16; }));
  EXPECT_EQ(nic_->SendRoom(endpoint_), 0u);
  nic_->Advance(3);
  EXPECT_EQ(nic_->SendRoom(endpoint_), 3u);
  EXPECT_TRUE(nic_->Prepare(Write(endpoint_, 17, 100)));
  EXPECT_EQ(nic_->Peek(completions), 13u);
  EXPECT_EQ(completions[0], Done(3, 100));
}

TEST_P(TcpNicTest, UnsignaledRequestsAreSilentAndTheirRoomReturnsWithTheNext) {
  for (uint64_t i = 0; i < 8; ++i) {
    WorkRequest request = Write(endpoint_, i, 1000);
    request.signaled = i == 5;
    ASSERT_TRUE(nic_->Prepare(request));
  }
  nic_->Submit();
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(5, 1000)));
  EXPECT_EQ(nic_->SendRoom(endpoint_), 14u);
  // The two behind it have no completion to return with: the end of the endpoint returns them.
  nic_->Disconnect(endpoint_);
  NicCompletion completion;
  ASSERT_TRUE(WaitUntil([&] {
    nic_->Advance(nic_->Peek({&completion, 1}));
    return nic_->SendRoom(endpoint_) == 16;
  }));
}

TEST_P(TcpNicTest, ALocalErrorIsFoundBeforeAnythingIsReadAndFlushesTheRest) {
  ASSERT_TRUE(nic_->Prepare(Write(endpoint_, 1, 2 << 20)));
  WorkRequest bad = Write(endpoint_, 2, 101, kBytes - 100);
  ASSERT_TRUE(nic_->Prepare(bad));
  WorkRequest unsignaled = Write(endpoint_, 3, 8);
  unsignaled.signaled = false;
  ASSERT_TRUE(nic_->Prepare(unsignaled));
  nic_->Submit();
  EXPECT_THAT(Consume(*nic_, 3),
              ElementsAre(Done(1, 2 << 20), Failed(2, FabricStatus::kLocalProtection),
                          Failed(3, FabricStatus::kFlushed)));
  Post(Write(endpoint_, 4, 8));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(4, FabricStatus::kFlushed)));
  nic_->Disconnect(endpoint_);
  endpoint_ = Connect(GetParam());
  Post(Write(endpoint_, 5, 8));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(5, 8)));
}

TEST_P(TcpNicTest, ARefusedRequestFailsAndThoseBeforeItSucceed) {
  const FabricOpcode opcode = acknowledged() ? FabricOpcode::kWrite : FabricOpcode::kRead;
  ASSERT_TRUE(nic_->Prepare(Request(endpoint_, opcode, 1, 3 << 20)));
  ASSERT_TRUE(nic_->Prepare(Request(endpoint_, opcode, 2, 100)));
  WorkRequest bad = Request(endpoint_, opcode, 3, 1 << 20);
  bad.remote_address = Address(memory_.data()) + kBytes - (1 << 20) + 1;
  ASSERT_TRUE(nic_->Prepare(bad));
  ASSERT_TRUE(nic_->Prepare(Request(endpoint_, opcode, 4, 100)));
  nic_->Submit();
  // Version 1 has no words for it: the target hangs up.
  const FabricStatus status = acknowledged() ? FabricStatus::kRemoteAccess : FabricStatus::kHungUp;
  EXPECT_THAT(Consume(*nic_, 4), ElementsAre(Done(1, 3 << 20), Done(2, 100), Failed(3, status),
                                             Failed(4, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

TEST_P(TcpNicTest, DisconnectFlushesAndTheIdDiesWithItsEndpoint) {
  Post(Write(endpoint_, 1, 100));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
  nic_->Disconnect(endpoint_);
  Post(Write(endpoint_, 2, 100));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(2, FabricStatus::kFlushed)));
  const EndpointId next = Connect(GetParam());
  EXPECT_NE(next, endpoint_);
  nic_->Disconnect(endpoint_);  // of the one before: nothing
  ASSERT_TRUE(nic_->Prepare(Write(endpoint_, 3, 100)));
  ASSERT_TRUE(nic_->Prepare(Write(next, 4, 100)));
  ASSERT_TRUE(nic_->Prepare(Write(0, 5, 100)));
  ASSERT_TRUE(nic_->Prepare(Write(0xFFFFFFFF, 6, 100)));
  nic_->Submit();
  EXPECT_THAT(Consume(*nic_, 4),
              testing::UnorderedElementsAre(Failed(3, FabricStatus::kFlushed), Done(4, 100),
                                            Failed(5, FabricStatus::kFlushed),
                                            Failed(6, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->SendRoom(next), 16u);
}

TEST_P(TcpNicTest, PlacesAreUsedAnewAndRunOut) {
  EXPECT_NE(Connect(GetParam()), 0u);
  EXPECT_NE(Connect(GetParam()), 0u);
  const auto target = Target(GetParam());
  EXPECT_EQ(nic_->Connect(target, 0).status().code(), absl::StatusCode::kResourceExhausted);
  for (int i = 0; i < 5; ++i) {
    Post(Write(endpoint_, 1, 100));
    Consume(*nic_, 1);
    nic_->Disconnect(endpoint_);
    // One of version 1 holds its place until the target has read all that was sent, and hung up.
    EXPECT_TRUE(WaitUntil([&] {
      NicCompletion none;
      EXPECT_EQ(nic_->Peek({&none, 1}), 0u);
      const auto connected = nic_->Connect(target, 0);
      if (connected.ok()) endpoint_ = *connected;
      return connected.ok();
    }));
  }
}

TEST_P(TcpNicTest, DeregisteredMemoryIsNotTouched) {
  ASSERT_TRUE(nic_->Deregister(key_).ok());
  EXPECT_EQ(nic_->Deregister(key_).code(), absl::StatusCode::kNotFound);
  Post(Write(endpoint_, 1, 100));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kLocalProtection)));
}

TEST_P(TcpNicTest, ATargetThatCameBackIsConnectedToAnew) {
  Post(Write(endpoint_, 1, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 1000)));
  TcpServerOptions options = OneThread();
  options.lowest_port = options.highest_port = server_->port();
  server_.reset();
  StartServer(options);
  Post(Write(endpoint_, 2, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, 1000)));
  Post(Read(endpoint_, 3, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(3, 1000)));
}

TEST_P(TcpNicTest, NobodyListens) {
  const uint16_t port = server_->port();
  server_.reset();
  const EndpointId endpoint = Connect(GetParam(), port);
  ASSERT_TRUE(nic_->Prepare(Write(endpoint, 1, 3 << 20)));
  ASSERT_TRUE(nic_->Prepare(Write(endpoint, 2, 8)));
  nic_->Submit();
  EXPECT_THAT(Consume(*nic_, 2),
              ElementsAre(Failed(1, FabricStatus::kTargetDead), Failed(2, FabricStatus::kFlushed)));
}

using TcpNicLocalTest = TcpFixture;

TEST_F(TcpNicLocalTest, ALocalSocketIsTakenWhereThereIsOne) {
  StartServer();
  const uint16_t port = std::exchange(server_, nullptr)->port();  // nobody is at this one
  StartServer();
  MakeNic();
  const EndpointId endpoint = Connect("2+drain@", port);
  Post(Write(endpoint, 1, 100'000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100'000)));
  EXPECT_TRUE(std::equal(local_.begin(), local_.begin() + 100'000, memory_.begin()));
}

TEST_F(TcpNicLocalTest, ATargetWithoutOneIsReachedByTcp) {
  TcpServerOptions options = ServerOptions();
  options.local = false;
  StartServer(options);
  EXPECT_EQ(server_->local_name(), "");
  MakeNic();
  local_name_ = "railhop-of-another-host";
  Post(Write(Connect("2+drain@"), 1, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 1000)));
}

// At the local socket's name there is somebody else, or a target that does not trust us.
enum class Impostor { kHangsUp, kAnswersNonsense, kIsMute };

class TcpNicImpostorTest : public TcpFixture, public testing::WithParamInterface<Impostor> {
 protected:
  void SetUp() override {
    StartServer();
    TcpNicOptions options = NicOptions();
    options.connections = 1;
    options.connect_timeout = std::chrono::milliseconds(50);
    MakeNic(options);
    auto listener = ListenOnLocalSocket(8);
    ASSERT_TRUE(listener.ok()) << listener.status();
    listener_ = *std::move(listener);
    local_name_ = listener_.name;
  }
  bool Accept() {
    const int fd = accept4(listener_.fd.get(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) return false;
    GuardedFd client(fd);
    constexpr char kNonsense[64] = "no status is like this";
    if (GetParam() == Impostor::kAnswersNonsense) {
      EXPECT_EQ(write(fd, kNonsense, sizeof(kNonsense)), ssize_t{sizeof(kNonsense)});
    }
    if (GetParam() != Impostor::kHangsUp) clients_.push_back(std::move(client));
    return true;
  }

  LocalListener listener_;
  std::vector<GuardedFd> clients_;
};

INSTANTIATE_TEST_SUITE_P(Kind, TcpNicImpostorTest,
                         testing::Values(Impostor::kHangsUp, Impostor::kAnswersNonsense,
                                         Impostor::kIsMute));

TEST_P(TcpNicImpostorTest, WhoeverDoesNotGreetThereIsLeftForTcp) {
  const EndpointId endpoint = Connect("2+drain@");
  Post(Write(endpoint, 1, 100'000));
  NicCompletion completion;
  size_t accepted = 0;
  ASSERT_TRUE(WaitUntil([&] {
    if (Accept()) ++accepted;
    return nic_->Peek({&completion, 1}) == 1;
  }));
  EXPECT_EQ(completion, Done(1, 100'000));
  EXPECT_TRUE(std::equal(local_.begin(), local_.begin() + 100'000, memory_.begin()));
  EXPECT_EQ(accepted, 1u);
  nic_->Advance(1);
  Post(Write(endpoint, 2, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, 1000)));
  EXPECT_FALSE(Accept()) << "it is asked once";
}

// --- Parking

TEST_P(TcpNicTest, ParkingIsWokenByPostsAndAnswers) {
  pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
  NicCompletion completion;
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  Post(Write(endpoint_, 1, 100));
  EXPECT_EQ(poll(&entry, 1, 0), 1);
  nic_->FinishPark();
  size_t shown = 0;
  while (shown == 0) {
    const uint64_t time = nic_->PrepareToPark();
    shown = nic_->Peek({&completion, 1});
    if (shown == 0 && time != 0) {
      EXPECT_NE(time, Nic::kNoDeadline);  // it waits for an answer or a connection: not for ever
      ASSERT_EQ(poll(&entry, 1, 60'000), 1);
    }
    nic_->FinishPark();
  }
  EXPECT_EQ(completion, Done(1, 100));
  EXPECT_EQ(nic_->PrepareToPark(), 0u);  // it is still there
  nic_->FinishPark();
  nic_->Advance(1);
}

TEST_P(TcpNicTest, AReactorsLoopIsWokenEachTime) {
  auto loop = EventLoop::Create();
  ASSERT_TRUE(loop.ok()) << loop.status();
  int wakes = 0;
  ASSERT_TRUE((*loop)->WatchFd(nic_->fd(), Trigger::kEdge, [&] { ++wakes; }).ok());
  NicCompletion completion;
  for (uint64_t i = 0; i < 50; ++i) {
    // Nothing is left to do, or at most for one more look: what was read last may have been all.
    if (nic_->PrepareToPark() == 0) {
      EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
    }
    EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
    const int before = wakes;
    Post(Read(endpoint_, i, 1 << 20));
    (*loop)->RunOnce(std::chrono::seconds(60));
    EXPECT_GT(wakes, before);
    nic_->FinishPark();
    size_t shown = 0;
    while (shown == 0) {
      const uint64_t time = nic_->PrepareToPark();
      shown = nic_->Peek({&completion, 1});
      if (shown == 0 && time != 0) {
        ASSERT_GT((*loop)->RunOnce(std::chrono::seconds(60)), 0);
      }
      nic_->FinishPark();
    }
    nic_->Advance(1);
    (*loop)->RunReady();  // what came while it was awake
  }
}

TEST_P(TcpNicTest, AWakeBeforeTheSecondLookIsNotLost) {
  pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
  NicCompletion completion;
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  Post(Write(endpoint_, 1, 0));
  EXPECT_EQ(nic_->Peek({&completion, 1}), 1u);
  nic_->Advance(1);
  // That look has seen the wake; whoever comes now finds it awake, and does not wake it.
  Post(Write(endpoint_, 2, 0));
  EXPECT_EQ(poll(&entry, 1, 0), 1);
  nic_->FinishPark();
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, 0)));
}

TEST_P(TcpNicTest, NobodyIsWokenWhileAwake) {
  pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
  Post(Write(endpoint_, 1, 100));
  nic_->Disconnect(endpoint_);
  EXPECT_EQ(poll(&entry, 1, 0), 0);
  EXPECT_EQ(nic_->PrepareToPark(), 0u);
  nic_->FinishPark();
}

}  // namespace
}  // namespace railhop
