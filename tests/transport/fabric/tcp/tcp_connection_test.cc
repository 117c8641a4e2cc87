// The TCP NIC against targets that misbehave: played byte by byte, with a clock that the test sets.
#include "transport/fabric/tcp/tcp_connection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "tests/support/wait_until.h"
#include "tests/transport/fabric/tcp/raw_socket.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;
using testing::ElementsAre;

constexpr uint64_t kConnectTimeout = 8'000'000;
constexpr uint64_t kStatusTimeout = 1'000'000;
constexpr uint64_t kFinishTimeout = 3'000'000;

class TcpConnectionTest : public TcpFixture {
 protected:
  void SetUp() override {
    TcpNicOptions options = NicOptions();
    options.connections = 1;
    options.connect_timeout = nanoseconds(kConnectTimeout);
    options.status_timeout = nanoseconds(kStatusTimeout);
    options.finish_timeout = nanoseconds(kFinishTimeout);
    options.clock = CycleClock(&now_);
    options.cycles_per_nanosecond = 1;
    MakeNic(options);
    listener_ = RawSocket::ListenAnywhere();
  }

  // Connects with a first request; the target has it up to its payload.
  void Begin(const std::string& version, const WorkRequest& request) {
    endpoint_ = Connect(version, listener_.port());
    WorkRequest first = request;
    first.endpoint = endpoint_;
    Post(first);
    Poll();
    target_ = listener_.Accept();
  }
  void Poll() { EXPECT_EQ(Shown(), 0u); }
  size_t Shown() {
    NicCompletion completions[16];
    return nic_->Peek(completions);
  }
  // Polls until the target could receive so much.
  void PollUntilTargetHas(size_t bytes) {
    ASSERT_TRUE(WaitUntil([&] {
      Poll();
      return target_.Available() >= bytes;
    }));
  }
  // Polls until the target has received our end of the connection, throwing away what comes first.
  void PollUntilTargetSeesTheEnd() {
    ASSERT_TRUE(WaitUntil([&] {
      Poll();
      char bytes[4096];
      return recv(target_.fd(), bytes, sizeof(bytes), MSG_DONTWAIT) == 0;
    }));
  }
  // Sends and receives until nothing moves any more.
  void PollUntilStuck() {
    size_t before;
    do {
      before = target_.Available();
      for (int i = 0; i < 1000; ++i) Poll();
    } while (target_.Available() != before);
  }

  uint64_t now_ = 1'000'000'000;
  RawSocket listener_;
  RawSocket target_;
  EndpointId endpoint_ = 0;
};

TEST_F(TcpConnectionTest, AnAnswerCountsWhenItsLastByteHasCome) {
  Begin("2", Write(0, 1, 100));
  Post(Write(endpoint_, 2, 50));
  PollUntilTargetHas(2 * kTcpHeaderBytes + 150);
  EXPECT_EQ(target_.ReceiveHeader().size, 100u);
  EXPECT_EQ(target_.Receive(100), std::vector(local_.begin(), local_.begin() + 100));
  EXPECT_EQ(target_.ReceiveHeader().size, 50u);
  std::array<std::byte, kTcpStatusBytes> status;
  EncodeTcpStatus(TcpCode::kDone, status);
  for (size_t i = 0; i < kTcpStatusBytes - 1; ++i) {
    target_.Send(std::span(status).subspan(i, 1));
    for (int k = 0; k < 20; ++k) Poll();
  }
  // The last byte, and all of the answer behind it.
  target_.Send(std::span(status).last(1));
  target_.Send(status);
  EXPECT_THAT(Consume(*nic_, 2), ElementsAre(Done(1, 100), Done(2, 50)));
}

TEST_F(TcpConnectionTest, ReadsThatComeInPiecesAreJoined) {
  Begin("2", Read(0, 1, 10'000));
  Post(Read(endpoint_, 2, 3, 20'000));
  PollUntilTargetHas(2 * kTcpHeaderBytes);
  const std::vector<std::byte> data = Pattern(10'000, 9);
  target_.SendStatus(TcpCode::kDone);
  for (size_t offset = 0; offset < data.size(); offset += 2500) {
    target_.Send(std::span(data).subspan(offset, 2500));
    if (offset != 7500) Poll();
  }
  target_.SendStatus(TcpCode::kDone);
  target_.Send(std::span(data).first(3));
  EXPECT_THAT(Consume(*nic_, 2), ElementsAre(Done(1, 10'000), Done(2, 3)));
  EXPECT_TRUE(std::equal(data.begin(), data.end(), local_.begin()));
  EXPECT_TRUE(std::equal(data.begin(), data.begin() + 3, local_.begin() + 20'000));
}

TEST_F(TcpConnectionTest, WhatIsNoStatusEndsTheEndpointOnceTheTargetHasHungUp) {
  Begin("2", Write(0, 1, 100));
  Post(Write(endpoint_, 2, 100));
  PollUntilTargetHas(2 * kTcpHeaderBytes + 200);
  target_.Send(Pattern(8, 1));
  PollUntilTargetSeesTheEnd();
  target_.Close();
  EXPECT_THAT(Consume(*nic_, 2),
              ElementsAre(Failed(1, FabricStatus::kTransport), Failed(2, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

TEST_F(TcpConnectionTest, AnyCodeButZeroIsARefusal) {
  Begin("2", Write(0, 1, 100));
  PollUntilTargetHas(kTcpHeaderBytes + 100);
  target_.SendStatus(static_cast<TcpCode>(77));
  PollUntilTargetSeesTheEnd();  // whether it reads on after this one nobody knows
  target_.Close();
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kRemoteAccess)));
}

TEST_F(TcpConnectionTest, ARefusalInTheMiddleOfAPayloadIsHeardEvenIfTheTargetResets) {
  Begin("2", Write(0, 1, kBytes));
  Post(Write(endpoint_, 2, kBytes));
  Post(Write(endpoint_, 3, kBytes));
  PollUntilTargetHas(kTcpHeaderBytes + 1000);
  target_.SendStatus(TcpCode::kRefused);
  target_.Close();  // with bytes unread: a reset follows the status
  EXPECT_THAT(Consume(*nic_, 3),
              ElementsAre(Failed(1, FabricStatus::kRemoteAccess), Failed(2, FabricStatus::kFlushed),
                          Failed(3, FabricStatus::kFlushed)));
}

TEST_F(TcpConnectionTest, AnAnswerBeforeTheRequestIsSentIsAnError) {
  Begin("2", Write(0, 1, kBytes));
  Post(Write(endpoint_, 2, kBytes));
  PollUntilStuck();
  target_.SendStatus(TcpCode::kDone);
  target_.SendStatus(TcpCode::kDone);
  ASSERT_TRUE(WaitUntil([&] {
    Shown();
    char drained[65536];
    return recv(target_.fd(), drained, sizeof(drained), MSG_DONTWAIT) == 0;
  }));
  target_.Close();
  const std::vector<NicCompletion> completions = Consume(*nic_, 2);
  EXPECT_NE(completions[1].status, FabricStatus::kOk);
}

TEST_F(TcpConnectionTest, ATargetThatHangsUpBetweenRequestsIsConnectedToAnew) {
  Begin("2", Write(0, 1, 100));
  PollUntilTargetHas(kTcpHeaderBytes + 100);
  target_.SendStatus(TcpCode::kDone);
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
  target_.Close();
  Post(Write(endpoint_, 2, 100));
  Poll();
  target_ = listener_.Accept();
  PollUntilTargetHas(kTcpHeaderBytes + 100);
  target_.SendStatus(TcpCode::kDone);
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, 100)));
}

// --- Version 1

TEST_F(TcpConnectionTest, Version1WritesAreDoneWhenTheSocketHasThem) {
  Begin("1", Write(0, 1, 100));
  Post(Write(endpoint_, 2, 200));
  EXPECT_THAT(Consume(*nic_, 2), ElementsAre(Done(1, 100), Done(2, 200)));
  EXPECT_EQ(target_.ReceiveHeader().acknowledged, false);
  EXPECT_EQ(target_.Receive(100).size(), 100u);
  EXPECT_EQ(target_.ReceiveHeader().size, 200u);
}

TEST_F(TcpConnectionTest, Version1WritesBehindAReadAreDoneAfterIt) {
  Begin("1", Read(0, 1, 10));
  for (uint64_t i = 2; i < 10; ++i) Post(Write(endpoint_, i, 1));
  PollUntilTargetHas(9 * kTcpHeaderBytes + 8);
  target_.Send(Pattern(10, 1));
  const std::vector<NicCompletion> completions = Consume(*nic_, 9);
  for (uint64_t i = 0; i < 9; ++i) EXPECT_EQ(completions[i].user_data, i + 1);
}

// --- Back-pressure

TEST_F(TcpConnectionTest, ATargetThatDoesNotReadHoldsUpItsRequestsOnly) {
  Begin("2", Write(0, 0, kBytes));
  for (uint64_t i = 1; i < 8; ++i) Post(Write(endpoint_, i, kBytes));
  PollUntilStuck();
  EXPECT_LT(target_.Available(), 8 * kBytes);
  for (uint64_t i = 0; i < 8; ++i) {
    std::vector<std::byte> got;
    ASSERT_TRUE(WaitUntil([&] {
      Shown();
      const size_t left = kTcpHeaderBytes + kBytes - got.size();
      const std::vector<std::byte> some = target_.Receive(std::min(target_.Available(), left));
      got.insert(got.end(), some.begin(), some.end());
      if (!some.empty()) now_ += kStatusTimeout / 8;  // slow, but something moves
      return some.size() == left;
    }));
    ASSERT_TRUE(std::equal(local_.begin(), local_.end(), got.begin() + kTcpHeaderBytes));
    target_.SendStatus(TcpCode::kDone);
  }
  for (const NicCompletion& completion : Consume(*nic_, 8)) {
    EXPECT_EQ(completion.status, FabricStatus::kOk);
  }
}

// --- Ends

TEST_F(TcpConnectionTest, ASilentTargetFailsAtItsDeadlineAndThenHasTimeToHangUp) {
  Begin("2", Write(0, 1, 100));
  Post(Read(endpoint_, 2, 100));
  PollUntilTargetHas(2 * kTcpHeaderBytes + 100);
  EXPECT_EQ(nic_->PrepareToPark(), now_ + kStatusTimeout);
  nic_->FinishPark();
  now_ += kStatusTimeout - 1;
  Poll();
  now_ += 1;
  Poll();
  PollUntilTargetSeesTheEnd();
  EXPECT_EQ(nic_->PrepareToPark(), now_ + kFinishTimeout);
  nic_->FinishPark();
  target_.Close();
  EXPECT_THAT(Consume(*nic_, 2),
              ElementsAre(Failed(1, FabricStatus::kTransport), Failed(2, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

TEST_F(TcpConnectionTest, WritesThatMayStillLandAreNotCalledFlushed) {
  Begin("2", Write(0, 1, 100));
  Post(Write(endpoint_, 2, kBytes));
  for (uint64_t i = 3; i < 9; ++i) Post(Write(endpoint_, i, kBytes));
  Post(Read(endpoint_, 9, 100));
  PollUntilStuck();
  now_ += kStatusTimeout;
  Poll();
  now_ += kFinishTimeout - 1;
  Poll();
  now_ += 1;
  const std::vector<NicCompletion> completions = Consume(*nic_, 9);
  EXPECT_EQ(completions[0], Failed(1, FabricStatus::kExposed));
  EXPECT_EQ(completions[1], Failed(2, FabricStatus::kExposed));
  EXPECT_EQ(completions[7], Failed(8, FabricStatus::kFlushed));  // no byte of it was sent
  EXPECT_EQ(completions[8], Failed(9, FabricStatus::kFlushed));
  EXPECT_GE(nic_->exposed_writes(), 2u);
}

TEST_F(TcpConnectionTest, ARailhopTargetIsAskedToDrain) {
  Begin("2+drain", Write(0, 1, 100));
  Post(Write(endpoint_, 2, 100));
  PollUntilTargetHas(kTcpHeaderBytes);
  const TcpHeader join = target_.ReceiveHeader();
  EXPECT_EQ(join.operation, TcpOperation::kJoin);
  for (int i = 0; i < 100; ++i) Poll();
  EXPECT_EQ(target_.Available(), 0u);  // nothing before the target knows whose it is
  target_.SendStatus(TcpCode::kDone);
  PollUntilTargetHas(2 * kTcpHeaderBytes + 200);
  now_ += kStatusTimeout;
  Poll();
  Poll();
  RawSocket drain = listener_.Accept();
  std::swap(drain, target_);
  PollUntilTargetHas(kTcpHeaderBytes);
  const TcpHeader header = target_.ReceiveHeader();
  EXPECT_EQ(header.operation, TcpOperation::kDrain);
  EXPECT_EQ(header.address, join.address);
  for (int i = 0; i < 100; ++i) Poll();
  target_.SendStatus(TcpCode::kDone);
  EXPECT_THAT(Consume(*nic_, 2),
              ElementsAre(Failed(1, FabricStatus::kTransport), Failed(2, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

TEST_F(TcpConnectionTest, ADrainIsAskedForAgainUntilNobodyListens) {
  Begin("2+drain", Write(0, 1, 100));
  PollUntilTargetHas(kTcpHeaderBytes);
  target_.SendStatus(TcpCode::kDone);
  PollUntilTargetHas(2 * kTcpHeaderBytes + 100);
  nic_->Disconnect(endpoint_);
  Poll();
  Poll();
  listener_.Accept().Close();  // no answer
  for (int i = 0; i < 100; ++i) Poll();
  listener_.Close();
  now_ += kConnectTimeout / 8;
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kFlushed)));
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

TEST_F(TcpConnectionTest, WhatNobodyConfirmsIsCounted) {
  Begin("2+drain", Write(0, 1, 100));
  PollUntilTargetHas(kTcpHeaderBytes);
  target_.SendStatus(TcpCode::kDone);
  PollUntilTargetHas(2 * kTcpHeaderBytes + 100);
  nic_->Disconnect(endpoint_);
  Poll();
  now_ += kFinishTimeout;
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kExposed)));
  EXPECT_EQ(nic_->exposed_writes(), 1u);
}

TEST_F(TcpConnectionTest, AHostThatDoesNotAnswerConnectionsIsGivenUp) {
  // A full queue of connections that nobody accepts: the next one gets no answer.
  ASSERT_EQ(listen(listener_.fd(), 0), 0);
  const RawSocket first = RawSocket::ConnectTo(listener_.port());
  endpoint_ = Connect("2", listener_.port());
  Post(Write(endpoint_, 1, 100));
  for (int i = 0; i < 100; ++i) Poll();
  now_ += kConnectTimeout;
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kTransport)));
}

// --- Local memory

class Mapping {
 public:
  explicit Mapping(size_t bytes)
      : bytes_(bytes),
        start_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {}
  void Unmap() { EXPECT_EQ(munmap(start_, bytes_), 0); }
  void* start() const { return start_; }

 private:
  size_t bytes_;
  void* start_;
};

TEST_F(TcpConnectionTest, ALocalRangeIsDoneWithWhenItsCompletionIsShown) {
  Mapping mapping(8 << 20);
  key_ = *nic_->Register(mapping.start(), 8 << 20);
  for (const FabricOpcode opcode : {FabricOpcode::kWrite, FabricOpcode::kRead}) {
    WorkRequest request = Request(0, opcode, 1, 8 << 20);
    request.local = mapping.start();
    Begin("2", request);
    if (opcode == FabricOpcode::kWrite) {
      PollUntilStuck();
      target_.SendStatus(TcpCode::kRefused);
      Consume(*nic_, 1);
    } else {
      PollUntilTargetHas(kTcpHeaderBytes);
      target_.SendStatus(TcpCode::kDone);
      target_.Send(std::vector<std::byte>(100'000));
      for (int i = 0; i < 100; ++i) Poll();
      nic_->Disconnect(endpoint_);
      Consume(*nic_, 1);
      ASSERT_TRUE(nic_->Deregister(key_).ok());
      mapping.Unmap();
    }
    // What is still in the sockets goes nowhere.
    char bytes[65536];
    while (recv(target_.fd(), bytes, sizeof(bytes), MSG_DONTWAIT) > 0) Shown();
    for (int i = 0; i < 100; ++i) Poll();
  }
}

TEST_F(TcpConnectionTest, DeregisterWaitsForWhatIsUnderWayAndNoLongerForWhatIsGivenUp) {
  Begin("2", Write(0, 1, 100));
  PollUntilTargetHas(kTcpHeaderBytes + 100);
  EXPECT_EQ(nic_->Deregister(key_).code(), absl::StatusCode::kDeadlineExceeded);
  key_ = *nic_->Register(local_.data(), local_.size());
  Post(Write(endpoint_, 2, 100));
  PollUntilTargetHas(2 * kTcpHeaderBytes + 200);
  nic_->Disconnect(endpoint_);
  Poll();  // it waits for the target to hang up, but touches nothing any more
  EXPECT_TRUE(nic_->Deregister(key_).ok());
  Poll();
}

}  // namespace
}  // namespace railhop
