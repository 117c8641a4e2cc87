// Whole Transfer Engines on simulated NICs: the protocol "sim", relaying included.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/actors/rank_support.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;
constexpr char kPxn[] = "pxn { enable: true group_id: \"engines\" preattach: true }";

// A variable that is set for a while.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) {
    setenv(name, value.c_str(), 1);
  }
  ~Variable() { unsetenv(name_); }

 private:
  const char* const name_;
};

class SimEngineTest : public RankTest {
 protected:
  std::string Text(const std::vector<std::string>& nics, const std::string& more = "") const {
    std::string text =
        fmt::format("sim_directory: \"{0}\" registry_root: \"{0}\" {1}\n", folder_, more);
    for (const std::string& nic : nics)
      text += fmt::format("nics {{ name: \"{}\" sim {{}} }}\n", nic);
    return text;
  }
  static std::unique_ptr<TransferEngine> MakeEngine(const std::string& text,
                                                    const std::string& protocol = "sim") {
    std::string error;
    auto engine = MakeTransferEngine(
        {.host = "127.0.0.1", .protocol = protocol, .config_text = text}, &error);
    EXPECT_NE(engine, nullptr) << error;
    return engine;
  }
  static Rank& RankOf(TransferEngine& engine) { return dynamic_cast<Rank&>(engine.data_path()); }
  static void Lend(TransferEngine& engine, std::vector<std::byte>& memory) {
    ASSERT_EQ(engine.RegisterMemory(memory.data(), memory.size(), "cpu:0"), EngineError::kOk)
        << TransferEngine::last_error();
  }
  static TransferTask Task(Opcode opcode, std::vector<std::byte>& from, SegmentHandle target,
                           const std::vector<std::byte>& to) {
    return {.opcode = opcode,
            .source = from.data(),
            .target = target,
            .target_address = reinterpret_cast<uint64_t>(to.data()),
            .length = from.size()};
  }
  static TransferState Move(TransferEngine& engine, const TransferTask& task) {
    const BatchHandle batch = engine.AllocateBatch(1);
    EXPECT_EQ(engine.Submit(batch, {&task, 1}), EngineError::kOk) << TransferEngine::last_error();
    EXPECT_TRUE(engine.Wait(batch, kForever));
    TransferStatus status;
    EXPECT_EQ(engine.BatchStatus(batch, &status), EngineError::kOk);
    EXPECT_EQ(engine.FreeBatch(batch), EngineError::kOk);
    return status.state;
  }
};

TEST_F(SimEngineTest, TwoEnginesMoveBytesBothWays) {
  const auto target = MakeEngine(Text({"sim0"}));
  const auto engine = MakeEngine(Text({"sim0", "sim1"}));
  std::vector<std::byte> there(3 * kMiB);
  std::vector<std::byte> here = Pattern(3 * kMiB, 5);
  Lend(*target, there);
  Lend(*engine, here);
  const SegmentHandle peer = engine->OpenSegment(target->name());
  ASSERT_NE(peer, kNoSegment) << TransferEngine::last_error();
  EXPECT_EQ(engine->FirstBufferAddress(peer), reinterpret_cast<uint64_t>(there.data()));
  EXPECT_EQ(Move(*engine, Task(Opcode::kWrite, here, peer, there)), TransferState::kCompleted);
  EXPECT_EQ(there, here);
  std::fill(here.begin(), here.end(), std::byte{0});
  EXPECT_EQ(Move(*engine, Task(Opcode::kRead, here, peer, there)), TransferState::kCompleted);
  EXPECT_EQ(here, there);
  // Registered after the target was opened.
  std::vector<std::byte> later(kMiB);
  Lend(*target, later);
  here.resize(kMiB);
  EXPECT_EQ(Move(*engine, Task(Opcode::kWrite, here, peer, later)), TransferState::kCompleted);
  EXPECT_EQ(later, here);
  EXPECT_EQ(engine->Notify(target->name(), {"kv", "is there"}), EngineError::kOk);
  EXPECT_EQ(target->TakeNotifications().size(), 1u);
}

TEST_F(SimEngineTest, AWriteToAnotherRailIsRelayedAndTheRestGoesDirect) {
  const Child relay([this](int end) {
    const auto engine = MakeEngine(Text({"sim1"}, kPxn));
    Child::AwaitEnd(end);
  });
  const auto far = MakeEngine(Text({"sim1"}));
  const auto near = MakeEngine(Text({"sim0"}));
  const auto sender = MakeEngine(Text({"sim0"}, kPxn));
  ASSERT_EQ(RankOf(*sender).pxn_off_reason(), "");
  ASSERT_TRUE(RankOf(*sender).WaitForRelay("sim1", kForever));
  std::vector<std::byte> on_far(2 * kMiB);
  std::vector<std::byte> on_near(2 * kMiB);
  std::vector<std::byte> here = Pattern(2 * kMiB, 7);
  Lend(*far, on_far);
  Lend(*near, on_near);
  Lend(*sender, here);
  const SegmentHandle far_peer = sender->OpenSegment(far->name());
  const SegmentHandle near_peer = sender->OpenSegment(near->name());

  EXPECT_EQ(Move(*sender, Task(Opcode::kWrite, here, far_peer, on_far)), TransferState::kCompleted);
  EXPECT_EQ(on_far, here);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_relayed, 2 * kMiB);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_direct, 0u);

  EXPECT_EQ(Move(*sender, Task(Opcode::kWrite, here, near_peer, on_near)),
            TransferState::kCompleted);
  EXPECT_EQ(on_near, here);
  std::fill(here.begin(), here.end(), std::byte{0});
  EXPECT_EQ(Move(*sender, Task(Opcode::kRead, here, far_peer, on_far)), TransferState::kCompleted);
  EXPECT_EQ(here, on_far);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_relayed, 2 * kMiB);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_direct, 4 * kMiB);
}

// Two NICs for each GPU (field fault T5): the target's memory prefers two, and one rank has both.
TEST_F(SimEngineTest, ABufferNearTwoNicsIsRelayedByARankThatHasBoth) {
  const Child relay([this](int end) {
    const auto engine = MakeEngine(Text({"sim2", "sim1"}, kPxn));
    Child::AwaitEnd(end);
  });
  const auto far = MakeEngine(Text({"sim1", "sim2"}));
  const auto sender = MakeEngine(Text({"sim0"}, kPxn));
  for (const char* rail : {"sim1", "sim2"}) {
    ASSERT_TRUE(RankOf(*sender).WaitForRelay(rail, kForever));
  }
  std::vector<std::byte> there(8 * kMiB);
  std::vector<std::byte> here = Pattern(8 * kMiB, 9);
  Lend(*far, there);
  Lend(*sender, here);
  const SegmentHandle peer = sender->OpenSegment(far->name());
  EXPECT_EQ(Move(*sender, Task(Opcode::kWrite, here, peer, there)), TransferState::kCompleted);
  EXPECT_EQ(there, here);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_relayed, 8 * kMiB);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_direct, 0u) << "none of it goes twice";
}

// Registered after the relay got to know the target: it asks anew instead of refusing for ever.
TEST_F(SimEngineTest, WhatATargetRegistersLaterIsRelayedAsWell) {
  const Child relay([this](int end) {
    const auto engine = MakeEngine(Text({"sim1"}, kPxn));
    Child::AwaitEnd(end);
  });
  const auto far = MakeEngine(Text({"sim1"}));
  const auto sender = MakeEngine(Text({"sim0"}, kPxn));
  ASSERT_TRUE(RankOf(*sender).WaitForRelay("sim1", kForever));
  std::vector<std::byte> here = Pattern(kMiB, 11);
  Lend(*sender, here);
  std::vector<std::vector<std::byte>> there(3, std::vector<std::byte>(kMiB));
  Lend(*far, there[0]);
  const SegmentHandle peer = sender->OpenSegment(far->name());
  for (size_t i = 0; i < there.size(); ++i) {
    if (i != 0) Lend(*far, there[i]);
    EXPECT_EQ(Move(*sender, Task(Opcode::kWrite, here, peer, there[i])), TransferState::kCompleted);
    EXPECT_EQ(there[i], here);
  }
  EXPECT_EQ(RankOf(*sender).Stats().bytes_relayed, 3 * kMiB);
}

TEST_F(SimEngineTest, WithoutARelayTheSameWriteGoesDirect) {
  const auto far = MakeEngine(Text({"sim1"}));
  const auto sender = MakeEngine(Text({"sim0"}, kPxn));
  std::vector<std::byte> there(kMiB);
  std::vector<std::byte> here = Pattern(kMiB, 3);
  Lend(*far, there);
  Lend(*sender, here);
  const SegmentHandle peer = sender->OpenSegment(far->name());
  EXPECT_EQ(Move(*sender, Task(Opcode::kWrite, here, peer, there)), TransferState::kCompleted);
  EXPECT_EQ(there, here);
  EXPECT_EQ(RankOf(*sender).Stats().bytes_direct, kMiB);
}

TEST_F(SimEngineTest, ATopologyFileSaysWhichNicsAreNearWhichMemory) {
  const std::string file = folder_ + "/topology.json";
  std::ofstream(file) << R"({"cpu:0": [["sim1", "mlx5_9"], ["sim0"]]})";
  const Variable variable("MC_CUSTOM_TOPO_JSON", file);
  const auto engine = MakeEngine(Text({"sim0", "sim1"}));
  std::vector<std::byte> memory(kMiB);
  Lend(*engine, memory);
  const auto info = LoadSimTarget(folder_, engine->name());
  ASSERT_TRUE(info.ok() && info->buffers.size() == 1);
  EXPECT_THAT(info->buffers[0].preferred_nics, ElementsAre("sim1")) << "mlx5_9 is not ours";
  EXPECT_THAT(engine->Topology(), HasSubstr("cpu:0"));
}

TEST_F(SimEngineTest, FiltersChooseAmongTheNics) {
  const Variable variable("MC_TE_FILTERS", "sim1");
  const auto engine = MakeEngine(Text({"sim0", "sim1"}));
  EXPECT_EQ(engine->Topology(), R"({"*":[["sim1"],[]]})");
}

TEST_F(SimEngineTest, TheConfigMayLieInAFile) {
  const std::string file = folder_ + "/engine.textproto";
  std::ofstream(file) << Text({"sim3"});
  const Variable variable("RAILHOP_CONFIG", file);
  const auto engine = MakeEngine("");
  ASSERT_NE(engine, nullptr);
  EXPECT_THAT(engine->Topology(), HasSubstr("sim3"));
}

TEST_F(SimEngineTest, ForceTcpWins) {
  const Variable variable("MC_FORCE_TCP", "1");
  const auto target = MakeEngine(Text({"sim0"}, kPxn));
  EXPECT_EQ(target->Topology(), "{}");
  EXPECT_NE(RankOf(*target).pxn_off_reason(), "");
  const auto engine = MakeEngine("", "tcp");
  EXPECT_NE(engine->OpenSegment(target->name()), kNoSegment);
}

TEST_F(SimEngineTest, EnginesOfDifferentProtocolsDoNotReachEachOther) {
  const auto sim = MakeEngine(Text({"sim0"}));
  const auto tcp = MakeEngine("", "tcp");
  std::vector<std::byte> there(4096);
  std::vector<std::byte> here(4096);
  Lend(*sim, there);
  Lend(*tcp, here);
  const SegmentHandle peer = tcp->OpenSegment(sim->name());
  ASSERT_NE(peer, kNoSegment);
  EXPECT_EQ(Move(*tcp, Task(Opcode::kWrite, here, peer, there)), TransferState::kFailed);
}

TEST_F(SimEngineTest, WhatCannotBeMadeSaysWhy) {
  std::string error;
  EXPECT_EQ(MakeTransferEngine({.host = "127.0.0.1", .protocol = "sim"}, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("RAILHOP_CONFIG"));
  const Variable topology("MC_CUSTOM_TOPO_JSON", folder_ + "/none.json");
  EXPECT_EQ(MakeTransferEngine(
                {.host = "127.0.0.1", .protocol = "sim", .config_text = Text({"sim0"})}, &error),
            nullptr);
  EXPECT_THAT(error, HasSubstr("MC_CUSTOM_TOPO_JSON"));
  const Variable file("RAILHOP_CONFIG", folder_ + "/none.textproto");
  EXPECT_EQ(MakeTransferEngine({.host = "127.0.0.1", .protocol = "sim"}, &error), nullptr);
  EXPECT_THAT(error, HasSubstr("RAILHOP_CONFIG"));
}

}  // namespace
}  // namespace railhop
