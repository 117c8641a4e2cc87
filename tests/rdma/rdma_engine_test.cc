// Whole Transfer Engines over RDMA, in two processes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "tests/rdma/rdma_engine_support.h"
#include "transport/engine/handshake_client.h"

namespace railhop {
namespace {

using testing::AnyOf;
using testing::HasSubstr;

using RdmaEngineTest = EngineOnRails;

TEST_F(RdmaEngineTest, TwoProcessesMoveBytesBothWays) {
  Target target;
  Start();
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kRead, peer, target), TransferState::kCompleted);
  EXPECT_EQ(here_, std::vector<std::byte>(kBytes, std::byte{3}));
  Fill(13);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

// Field fault T1: above the limit at both ends, in parts that are not in step.
TEST_F(RdmaEngineTest, T1MemoryInPartsMovesOverTheirBorders) {
  setenv("MC_MAX_MR_SIZE", "300000", 1);
  Target target;
  setenv("MC_MAX_MR_SIZE", "100000", 1);
  Start();
  unsetenv("MC_MAX_MR_SIZE");
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  const std::vector<std::byte> sent = here_;
  std::fill(here_.begin(), here_.end(), std::byte{0});
  EXPECT_EQ(Move(Opcode::kRead, peer, target), TransferState::kCompleted);
  EXPECT_EQ(here_, sent);
  EXPECT_EQ(engine_->UnregisterMemory(here_.data()), EngineError::kOk);
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

std::string Devices(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += "nics { name: '" + name + "' rdma {} }\n";
  return text;
}

TEST_F(RdmaEngineTest, SeveralDevicesShareTheBytes) {
  Target target(nullptr, Devices({"rxe1", "rxe2"}), 4 * kBytes);
  Start(Devices({"rxe2", "rxe1"}), 4 * kBytes);
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  const std::vector<NicLoad> loads = engine_->NicLoads();
  ASSERT_EQ(loads.size(), 2u);
  for (const NicLoad& load : loads) EXPECT_EQ(load.bytes, 2 * kBytes) << load.name;
}

// Off its rail a NIC takes those that the target's memory prefers in turn.
TEST_F(RdmaEngineTest, OneDeviceReachesAllThatTheTargetPrefers) {
  Target target(nullptr, Devices({"rxe1", "rxe2", "rxe3"}));
  Start();
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  std::fill(here_.begin(), here_.end(), std::byte{0});
  EXPECT_EQ(Move(Opcode::kRead, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

TEST_F(RdmaEngineTest, ADeviceOfTheTargetThatIsUnpluggedIsDoneWithout) {
  Target target(nullptr, Devices({"rxe1", "rxe2"}));
  Start();
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  const PulledCable pulled(1);
  for (const size_t seed : {17, 19}) {
    Fill(seed);
    EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
    EXPECT_EQ(target.Sum(), SumOf(here_));
  }
}

TEST_F(RdmaEngineTest, OfAllDevicesOnlyTheNamedAreUsed) {
  std::string error;
  const auto engine = MakeTransferEngine(
      {.host = "127.0.0.1", .protocol = "rdma", .device_names = "rxe3, rxe1,mlx5_0"}, &error);
  ASSERT_NE(engine, nullptr) << error;
  EXPECT_THAT(engine->Topology(), HasSubstr("rxe1"));
  EXPECT_THAT(engine->Topology(), HasSubstr("rxe3"));
  EXPECT_THAT(engine->Topology(), testing::Not(AnyOf(HasSubstr("rxe0"), HasSubstr("rxe2"))));
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
  Fill(17);
  EXPECT_TRUE(WritesAgain(peer, target));
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

// Counts connections that were made anew, for as long as it lives.
class Reconnections {
 public:
  Reconnections() {
    SetDefaultLogLevel(LogLevel::kInfo);
    previous_ = SetLogSink([this](LogLevel, std::string_view text) {
      if (text.find("is connected anew") != std::string_view::npos) ++count_;
    });
  }
  ~Reconnections() {
    SetLogSink(previous_);
    SetDefaultLogLevel(LogLevel::kWarning);
  }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
  LogSink previous_;
};

TEST_F(RdmaEngineTest, ThreePeersInTurnWithRoomForTwo) {
  Target a, b, c;
  Target* const targets[] = {&a, &b, &c};
  Start("nics { name: 'rxe0' rdma { max_endpoints: 2 } }");
  SegmentHandle peers[3];
  for (int i = 0; i < 3; ++i) peers[i] = Open(*targets[i]);
  const auto move = [&](int turn) {
    Fill(static_cast<size_t>(turn) + 1);
    ASSERT_EQ(Move(Opcode::kWrite, peers[turn % 3], *targets[turn % 3]), TransferState::kCompleted);
    ASSERT_EQ(targets[turn % 3]->Sum(), SumOf(here_));
  };
  const Reconnections anew;
  for (int turn = 0; turn < 9; ++turn) move(turn);
  EXPECT_GE(anew.count(), 2);
  // Two of them have room: nobody is connected anew for the sake of the third, which is idle.
  int before = -1;
  for (int round = 0; round < 5 && before != anew.count(); ++round) {
    before = anew.count();
    move(9);
    move(10);
  }
  EXPECT_EQ(before, anew.count());
}

// Field fault S5, with a way round.
TEST_F(RdmaEngineTest, OneRailDownAndTrafficGoesOnByTheOther) {
  Target target;
  Start("nics { name: 'rxe0' rdma {} } nics { name: 'rxe2' rdma {} }");
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  const PulledCable pulled(0);
  Fill(5);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

TEST_F(RdmaEngineTest, AllRailsDownAndTrafficReturnsWithThem) {
  Target target;
  Start("nics { name: 'rxe0' rdma {} } nics { name: 'rxe2' rdma {} }");
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  {
    const PulledCable first(0), second(2);
    EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kFailed);
  }
  Fill(7);
  EXPECT_TRUE(WritesAgain(peer, target));
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

// Field fault S4, but for how fast they arrive.
TEST_F(RdmaEngineTest, S4WritesArriveBesideTwentyToADeadTarget) {
  Target dead, other;
  Start();
  const SegmentHandle peer = Open(dead);
  const SegmentHandle other_peer = Open(other);
  ASSERT_EQ(Move(Opcode::kWrite, peer, dead), TransferState::kCompleted);
  dead.Kill();
  std::vector<BatchHandle> doomed;
  for (size_t i = 0; i < 20; ++i) {
    doomed.push_back(Begin({{.opcode = Opcode::kWrite,
                             .source = here_.data() + i * (kBytes / 20),
                             .target = peer,
                             .target_address = dead.address() + i * (kBytes / 20),
                             .length = kBytes / 20}}));
  }
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Move(Opcode::kWrite, other_peer, other), TransferState::kCompleted);
    EXPECT_EQ(other.Sum(), SumOf(here_));
  }
  for (const BatchHandle batch : doomed) EXPECT_EQ(Finish(batch), TransferState::kFailed);
}

// Field fault S2. Its device serves on while its process does not.
TEST_F(RdmaEngineTest, AStoppedTargetHoldsNobodyUpAndGoesOn) {
  Target stopped, other;
  Start();
  const SegmentHandle peer = Open(stopped);
  const SegmentHandle other_peer = Open(other);
  ASSERT_EQ(Move(Opcode::kWrite, peer, stopped), TransferState::kCompleted);
  stopped.Signal(SIGSTOP);
  for (int i = 0; i < 3; ++i) {
    Fill(static_cast<size_t>(i) + 3);
    // Move waits until each slice has ended.
    EXPECT_THAT(Move(Opcode::kWrite, peer, stopped),
                AnyOf(TransferState::kCompleted, TransferState::kFailed));
    EXPECT_EQ(Move(Opcode::kWrite, other_peer, other), TransferState::kCompleted);
    EXPECT_EQ(other.Sum(), SumOf(here_));
  }
  stopped.Signal(SIGCONT);
  Fill(9);
  EXPECT_TRUE(WritesAgain(peer, stopped));
  EXPECT_EQ(stopped.Sum(), SumOf(here_));
}

// Field fault S2: what is on the wire at the deadline is a TIMEOUT until it has ended.
TEST_F(RdmaEngineTest, S2ABatchToAStoppedTargetIsATimeoutUntilItHasEnded) {
  constexpr size_t kMuch = 4 * kBytes;
  Target stopped(nullptr, Devices({"rxe1"}), kMuch);
  Start(Devices({"rxe0"}) + "slice_size: " + std::to_string(SlowRail::kSliceSize), kMuch);
  const SegmentHandle peer = Open(stopped);
  ASSERT_EQ(Move(Opcode::kWrite, peer, stopped), TransferState::kCompleted);
  BatchHandle batch = kNoBatch;
  {
    Fill(5);
    const SlowRail slow(0);
    batch = WriteUntilItsDeadline(peer, stopped, [&] { stopped.Signal(SIGSTOP); });
  }
  ASSERT_NE(batch, kNoBatch);
  EXPECT_TRUE(WaitUntil([&] { return HasEnded(StateOf(batch)); }));
  const TransferState end = StateOf(batch);
  EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
  stopped.Signal(SIGCONT);
  if (end == TransferState::kCompleted) {
    EXPECT_EQ(stopped.Sum(), SumOf(here_));
  }
  Fill(7);
  EXPECT_TRUE(WritesAgain(peer, stopped));
  EXPECT_EQ(stopped.Sum(), SumOf(here_));
}

}  // namespace
}  // namespace railhop
