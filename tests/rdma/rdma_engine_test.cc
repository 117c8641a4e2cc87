// Whole Transfer Engines over RDMA, in two processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/rdma/rdma_support.h"
#include "tests/transport/staging/child_process.h"
#include "transport/engine/handshake_client.h"

namespace railhop {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

constexpr size_t kBytes = 1 << 20;

struct Offer {
  std::array<char, 64> name{};
  uint64_t address = 0;
};

std::unique_ptr<TransferEngine> MakeEngine(const std::string& config_text) {
  std::string error;
  auto engine = MakeTransferEngine(
      {.host = "127.0.0.1", .protocol = "rdma", .config_text = config_text}, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

uint64_t SumOf(const std::vector<std::byte>& bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum = sum * 31 + static_cast<uint8_t>(byte);
  return sum;
}

// The target process: answers each byte from its parent with the sum of its memory. Two with one
// port have one name.
class Target {
 public:
  // Forks: before this process has an engine.
  explicit Target(const char* port = nullptr)
      : child_([port](Channel& channel) { return Serve(port, channel); }) {}

  void Begin() { EXPECT_TRUE(child_.channel().Send('b') && child_.channel().Receive(&offer_)); }
  std::string name() const { return offer_.name.data(); }
  uint64_t address() const { return offer_.address; }
  void Kill() { child_.Kill(); }
  uint64_t Sum() {
    uint64_t sum = 0;
    EXPECT_TRUE(child_.channel().Send('s') && child_.channel().Receive(&sum));
    return sum;
  }

 private:
  static int Serve(const char* port, Channel& channel) {
    char asked;
    if (!channel.Receive(&asked)) return 0;
    if (port != nullptr) {
      setenv("MC_MIN_RPC_PORT", port, 1);
      setenv("MC_MAX_RPC_PORT", port, 1);
    }
    const auto engine = MakeEngine("nics { name: 'rxe1' rdma {} }");
    if (engine == nullptr) return 1;
    std::vector<std::byte> memory(kBytes, std::byte{3});
    if (engine->RegisterMemory(memory.data(), kBytes, "cpu:0") != EngineError::kOk) return 2;
    Offer offer{.name = {}, .address = reinterpret_cast<uint64_t>(memory.data())};
    engine->name().copy(offer.name.data(), offer.name.size() - 1);
    if (!channel.Send(offer)) return 3;
    while (channel.Receive(&asked)) {
      if (!channel.Send(SumOf(memory))) return 4;
    }
    return 0;
  }

  ChildProcess child_;
  Offer offer_;
};

class RdmaEngineTest : public testing::Test {
 protected:
  void Start(const std::string& config_text = "nics { name: 'rxe0' rdma {} }") {
    engine_ = MakeEngine(config_text);
    ASSERT_NE(engine_, nullptr);
    for (size_t i = 0; i < kBytes; ++i) here_[i] = static_cast<std::byte>(i * 31 >> 3);
    ASSERT_EQ(engine_->RegisterMemory(here_.data(), kBytes, "cpu:0"), EngineError::kOk)
        << TransferEngine::last_error();
  }
  SegmentHandle Open(Target& target) {
    target.Begin();
    const SegmentHandle peer = engine_->OpenSegment(target.name());
    EXPECT_NE(peer, kNoSegment) << TransferEngine::last_error();
    return peer;
  }
  // From the start of `here_`.
  TransferState Move(Opcode opcode, SegmentHandle peer, uint64_t address,
                     uint64_t length = kBytes) {
    const TransferTask task{.opcode = opcode,
                            .source = here_.data(),
                            .target = peer,
                            .target_address = address,
                            .length = length};
    const BatchHandle batch = engine_->AllocateBatch(1);
    EXPECT_EQ(engine_->Submit(batch, {&task, 1}), EngineError::kOk) << TransferEngine::last_error();
    EXPECT_TRUE(
        engine_->Wait(batch, std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience)));
    TransferStatus status;
    EXPECT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
    EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
    return status.state;
  }
  TransferState Move(Opcode opcode, SegmentHandle peer, const Target& target) {
    return Move(opcode, peer, target.address());
  }

  std::vector<std::byte> here_{kBytes};
  std::unique_ptr<TransferEngine> engine_;
};

TEST_F(RdmaEngineTest, TwoProcessesMoveBytesBothWays) {
  Target target;
  Start();
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kRead, peer, target), TransferState::kCompleted);
  EXPECT_EQ(here_, std::vector<std::byte>(kBytes, std::byte{3}));
  for (size_t i = 0; i < kBytes; ++i) here_[i] = static_cast<std::byte>(i * 13 >> 4);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

TEST_F(RdmaEngineTest, ItsDescriptorNamesDevicesAndKeys) {
  Start("nics { name: 'rxe2' rdma {} } nics { name: 'rxe0' rdma {} }");
  const auto fetched =
      HandshakeClient({}).FetchDescriptor(ParseHostPort(engine_->name()).value(), "{}");
  ASSERT_TRUE(fetched.ok()) << fetched.status();
  EXPECT_EQ(fetched->protocol, SegmentProtocol::kRdma);
  ASSERT_EQ(fetched->devices.size(), 2u);
  EXPECT_EQ(fetched->devices[0].name, "rxe2");
  EXPECT_EQ(fetched->devices[1].gid, "00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01");
  EXPECT_EQ(fetched->priority_matrix.nics(), (std::vector<std::string>{"rxe2", "rxe0"}));
  ASSERT_EQ(fetched->buffers.size(), 1u);
  EXPECT_EQ(fetched->buffers[0].name, "cpu:0");
  EXPECT_EQ(fetched->buffers[0].rkeys.size(), 2u);
}

TEST_F(RdmaEngineTest, WithoutAConfigAllDevicesAreUsed) {
  Target target;
  Start("");
  for (const char* name : {"rxe0", "rxe1", "rxe2", "rxe3"}) {
    EXPECT_THAT(engine_->Topology(), HasSubstr(name));
  }
  EXPECT_EQ(Move(Opcode::kWrite, Open(target), target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

// Field fault T8.
TEST_F(RdmaEngineTest, ADeviceThatIsDownAtStartIsDoneWithout) {
  Target target;
  const PulledCable pulled(2);
  Start("nics { name: 'rxe2' rdma {} } nics { name: 'rxe0' rdma {} }");
  EXPECT_THAT(engine_->Topology(), testing::Not(HasSubstr("rxe2")));
  EXPECT_EQ(Move(Opcode::kWrite, Open(target), target), TransferState::kCompleted);
}

TEST_F(RdmaEngineTest, AWriteOutsideRegisteredMemoryFails) {
  Target target;
  Start();
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target.address() + kBytes - 100, 4096),
            TransferState::kFailed);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
}

// Field fault L1.
TEST_F(RdmaEngineTest, ATargetThatWasKilledAndStartedAnewIsReachedAgain) {
  Target target("21010");
  Target next("21010");
  Start();
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  target.Kill();
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kFailed);
  next.Begin();
  ASSERT_EQ(next.name(), target.name());
  const TransferState first = Move(Opcode::kWrite, peer, next);
  EXPECT_THAT(first, AnyOf(TransferState::kCompleted, TransferState::kFailed));
  if (first == TransferState::kFailed) {
    EXPECT_EQ(Move(Opcode::kWrite, peer, next), TransferState::kCompleted);
  }
  EXPECT_EQ(next.Sum(), SumOf(here_));
}

// Field fault S5. While a target is looked for, what is sent to it fails at once.
TEST_F(RdmaEngineTest, TrafficReturnsWhenTheCableIsInAgain) {
  Target target;
  Start();
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  {
    const PulledCable pulled(1);
    EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kFailed);
  }
  for (size_t i = 0; i < kBytes; ++i) here_[i] = static_cast<std::byte>(i * 17 >> 5);
  EXPECT_TRUE(
      WaitUntil([&] { return Move(Opcode::kWrite, peer, target) == TransferState::kCompleted; }));
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

}  // namespace
}  // namespace railhop
