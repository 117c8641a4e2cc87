// Relaying between processes over RDMA: the rank of this process has rail 0, a relay has others,
// and what the target's memory prefers is on those alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/rdma/rdma_engine_support.h"

namespace railhop {
namespace {

using testing::AnyOf;

std::string Devices(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += "nics { name: '" + name + "' rdma {} }\n";
  return text;
}

// A process that relays for this one; tells how much each of its NICs has sent.
class Relay {
 public:
  struct Sent {
    uint64_t for_others = 0;
    std::array<uint64_t, 2> by_nic{};
  };
  explicit Relay(const std::string& config)
      : child_([config](Channel& channel) { return Serve(config, channel); }) {}

  void Begin() {
    char ready;
    EXPECT_TRUE(child_.channel().Send('b') && child_.channel().Receive(&ready));
  }
  Sent Ask() {
    Sent sent;
    EXPECT_TRUE(child_.channel().Send('s') && child_.channel().Receive(&sent));
    return sent;
  }
  void Kill() { child_.Kill(); }
  void Signal(int signal) { EXPECT_EQ(kill(child_.pid(), signal), 0); }

 private:
  static int Serve(const std::string& config, Channel& channel) {
    char asked;
    if (!channel.Receive(&asked)) return 0;
    const auto engine = MakeEngine(config);
    if (engine == nullptr || !channel.Send('r')) return 1;
    while (channel.Receive(&asked)) {
      Sent sent;
      sent.for_others = dynamic_cast<Rank&>(engine->data_path()).Stats().bytes_relayed_for_others;
      const std::vector<NicLoad> loads = engine->NicLoads();
      for (size_t i = 0; i < loads.size(); ++i) sent.by_nic[i] = loads[i].bytes;
      if (!channel.Send(sent)) return 2;
    }
    return 0;
  }

  ChildProcess child_;
};

class RdmaRelayTest : public EngineOnRails {
 protected:
  RdmaRelayTest() : folder_(testing::TempDir() + "/railhop-rdma-relay-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~RdmaRelayTest() override {
    engine_.reset();
    std::filesystem::remove_all(folder_);
  }

  // With patience: on a busy machine nothing goes direct for having waited.
  std::string Relaying(const std::vector<std::string>& devices,
                       const std::string& rail_map = "{}") const {
    return Devices(devices) + "registry_root: '" + folder_ +
           "' piece_timeout_ms: 60000 batch_timeout_ms: 120000 pxn { enable: true group_id: 'rdma' "
           "preattach: true credit_timeout_ms: 60000 heartbeat_timeout_ms: 60000 rail_map: '" +
           rail_map + "' }\n";
  }
  // The relay first, so that the sender attaches to it at its start.
  void StartBoth(Relay& relay, const std::string& rail, size_t bytes = kBytes) {
    relay.Begin();
    Start(Relaying({"rxe0"}), bytes);
    Rank& rank = dynamic_cast<Rank&>(engine_->data_path());
    ASSERT_EQ(rank.pxn_off_reason(), "");
    ASSERT_TRUE(rank.WaitForRelay(
        rail, std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience)));
  }
  // Many small pieces of memory, as of a KV cache: in the target they lie one behind the other in
  // runs of four.
  std::vector<TransferTask> Scattered(SegmentHandle peer, const Target& target) {
    constexpr size_t kPart = 16384;
    const size_t parts = here_.size() / kPart;
    std::vector<TransferTask> tasks;
    for (size_t i = 0; i < parts; ++i) {
      const size_t there = (i / 4 * 7 % (parts / 4)) * 4 + i % 4;
      tasks.push_back({.opcode = Opcode::kWrite,
                       .source = here_.data() + i * kPart,
                       .target = peer,
                       .target_address = target.address() + there * kPart,
                       .length = kPart});
    }
    return tasks;
  }
  // What the target has after that.
  uint64_t SumOfScattered() const {
    constexpr size_t kPart = 16384;
    const size_t parts = here_.size() / kPart;
    std::vector<std::byte> there(here_.size());
    for (size_t i = 0; i < parts; ++i) {
      const size_t to = (i / 4 * 7 % (parts / 4)) * 4 + i % 4;
      std::copy_n(here_.begin() + static_cast<ptrdiff_t>(i * kPart), kPart,
                  there.begin() + static_cast<ptrdiff_t>(to * kPart));
    }
    return SumOf(there);
  }

  std::string folder_;
};

TEST_F(RdmaRelayTest, AWriteLeavesByTheNicOfItsTargetsRail) {
  Relay relay(Relaying({"rxe1"}));
  Target target(nullptr, Devices({"rxe1"}), 2 * kBytes);
  StartBoth(relay, "rxe1", 2 * kBytes);
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  EXPECT_EQ(Stats().bytes_relayed, 2 * kBytes);
  EXPECT_EQ(Stats().bytes_direct, 0u);
  EXPECT_EQ(relay.Ask().for_others, 2 * kBytes);

  Fill(29);
  EXPECT_EQ(Finish(Begin(Scattered(peer, target))), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOfScattered());
  EXPECT_EQ(Stats().bytes_relayed, 4 * kBytes);

  // Reads go direct.
  std::fill(here_.begin(), here_.end(), std::byte{0});
  EXPECT_EQ(Move(Opcode::kRead, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  EXPECT_EQ(Stats().bytes_direct, 2 * kBytes);
}

// Two NICs for each GPU, rails by the map's names: pieces take both, and none goes twice.
TEST_F(RdmaRelayTest, ARankWithTwoRailsRelaysOverBoth) {
  const std::string map = R"({"rxe2": "left", "rxe3": "right"})";
  Relay relay(Relaying({"rxe2", "rxe3"}, map));
  Target target(nullptr, Devices({"rxe3", "rxe2"}), 4 * kBytes);
  relay.Begin();
  Start(Relaying({"rxe0"}, map), 4 * kBytes);
  Rank& rank = dynamic_cast<Rank&>(engine_->data_path());
  for (const char* rail : {"left", "right"}) {
    ASSERT_TRUE(rank.WaitForRelay(
        rail, std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience)));
  }
  const SegmentHandle peer = Open(target);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
  EXPECT_EQ(Stats().bytes_relayed, 4 * kBytes);
  EXPECT_EQ(Stats().bytes_direct, 0u);
  const Relay::Sent sent = relay.Ask();
  EXPECT_EQ(sent.for_others, 4 * kBytes);
  EXPECT_GT(sent.by_nic[0], 0u);
  EXPECT_GT(sent.by_nic[1], 0u);
  EXPECT_EQ(sent.by_nic[0] + sent.by_nic[1], 4 * kBytes) << "without redispatch";
}

// Field fault S1.
TEST_F(RdmaRelayTest, WhenItsRelayIsKilledTheRestGoesDirect) {
  Relay relay(Relaying({"rxe1"}));
  Target target(nullptr, Devices({"rxe1"}), 4 * kBytes);
  StartBoth(relay, "rxe1", 4 * kBytes);
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  const uint64_t before = Stats().bytes_relayed;
  ASSERT_EQ(before, 4 * kBytes);
  Fill(41);
  const BatchHandle batch = Begin(Scattered(peer, target));
  // Under way: some of it has arrived by the relay.
  EXPECT_TRUE(WaitUntil([&] { return Stats().bytes_relayed > before; }));
  relay.Kill();
  EXPECT_EQ(Finish(batch), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOfScattered());
  EXPECT_EQ(Stats().bytes_relayed + Stats().bytes_direct, 8 * kBytes);
  Fill(43);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

// Field fault L1, through a relay, which has the keys of the one that was killed.
TEST_F(RdmaRelayTest, ATargetThatStartsAnewIsRelayedToAgain) {
  Relay relay(Relaying({"rxe1"}));
  Target target("21020", Devices({"rxe1"}));
  Target next("21020", Devices({"rxe1"}));
  StartBoth(relay, "rxe1");
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  ASSERT_EQ(Stats().bytes_relayed, kBytes);
  target.Kill();
  next.Begin();
  ASSERT_EQ(next.name(), target.name());
  Fill(47);
  const TransferState first = Move(Opcode::kWrite, peer, next);
  EXPECT_THAT(first, AnyOf(TransferState::kCompleted, TransferState::kFailed));
  if (first == TransferState::kFailed) {
    EXPECT_EQ(Move(Opcode::kWrite, peer, next), TransferState::kCompleted);
  }
  EXPECT_EQ(next.Sum(), SumOf(here_));
  // What went direct for the former one's sake is relayed again.
  EXPECT_TRUE(WaitUntil([&] {
    const uint64_t before = Stats().bytes_relayed;
    EXPECT_EQ(Move(Opcode::kWrite, peer, next), TransferState::kCompleted);
    return Stats().bytes_relayed > before;
  }));
  EXPECT_EQ(next.Sum(), SumOf(here_));
}

// Field fault S2: what the relay has taken is a TIMEOUT for as long as it stands still, though its
// device has sent it.
TEST_F(RdmaRelayTest, S2WhatAStoppedRelayHasTakenIsATimeoutUntilItGoesOn) {
  Relay relay(Relaying({"rxe1"}) + "slice_size: " + std::to_string(SlowRail::kSliceSize));
  Target target(nullptr, Devices({"rxe1"}), 4 * kBytes);
  StartBoth(relay, "rxe1", 4 * kBytes);
  const SegmentHandle peer = Open(target);
  ASSERT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  ASSERT_EQ(Stats().bytes_relayed, 4 * kBytes);
  Fill(31);
  BatchHandle batch = kNoBatch;
  {
    const SlowRail slow(1);
    batch = WriteUntilItsDeadline(peer, target, [&, before = PacketsSent(1)] {
      EXPECT_TRUE(WaitUntil([&] { return PacketsSent(1) > before; }));
      relay.Signal(SIGSTOP);
    });
  }
  ASSERT_NE(batch, kNoBatch);
  target.Sum();  // its device goes on meanwhile
  EXPECT_EQ(StateOf(batch), TransferState::kTimeout);
  EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kBatchBusy);
  relay.Signal(SIGCONT);
  EXPECT_TRUE(WaitUntil([&] { return HasEnded(StateOf(batch)); }));
  EXPECT_EQ(engine_->FreeBatch(batch), EngineError::kOk);
  Fill(37);
  EXPECT_EQ(Move(Opcode::kWrite, peer, target), TransferState::kCompleted);
  EXPECT_EQ(target.Sum(), SumOf(here_));
}

}  // namespace
}  // namespace railhop
