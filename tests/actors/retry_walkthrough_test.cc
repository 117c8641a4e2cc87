// One request from submission to its end over two simulated NICs, one of which fails a slice: the
// actors of a rank, with NICs that move only when the test says so.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/bootstrap_graph.h"
#include "actors/bootstrap_layout.h"
#include "actors/rank_memory.h"
#include "tests/actors/rank_support.h"
#include "tests/support/wait_until.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/fabric/sim/sim_nic.h"
#include "transport/staging/host_staging.h"

namespace railhop {
namespace {

constexpr size_t kKiB = 1024;

class RetryWalkthroughTest : public RankTest {
 protected:
  // Two NICs; the second request of the first one fails.
  void Build() {
    RankConfig config;
    std::string error;
    ASSERT_TRUE(LoadRankConfig(
        fmt::format("name: \"sender\" sim_directory: \"{}\" "
                    "nics {{ name: \"nic0\" sim {{}} }} "
                    "nics {{ name: \"nic1\" sim {{}} }}",
                    folder_),
        "test", [](const char*) { return nullptr; }, &config, &error))
        << error;
    ResolvedLayout layout;
    ASSERT_TRUE(ResolveLayout(config, DetectHostCores(), &layout, &error)) << error;
    std::vector<std::unique_ptr<Nic>> nics;
    for (const char* name : {"nic0", "nic1"}) {
      SimNicOptions options;
      options.name = name;
      options.mode = SimMode::kManual;
      if (nics.empty()) options.faults = {{.kind = SimFault::Kind::kError, .first = 2}};
      auto nic = SimNic::Create(std::move(options));
      ASSERT_TRUE(nic.ok()) << nic.status();
      nics_.push_back(nic->get());
      nics.push_back(*std::move(nic));
    }
    auto graph = ActorGraph::Build(
        std::move(config), layout,
        {.staging = std::make_shared<HostStaging>(),
         .copy_engine = std::make_unique<HostCopyEngine>(kLaneCount, kSlotsPerLane)},
        [this](const std::string& name, const std::stop_token&) {
          return LoadSimTarget(folder_, name);
        },
        std::move(nics));
    ASSERT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
    ASSERT_TRUE(graph_->system().Start().ok());
  }
  void TearDown() override {
    if (graph_ != nullptr) graph_->system().Stop(kForever);
  }

  BatchId Submit(const TransferRequest& request) {
    const BatchId id = graph_->requests().Allocate();
    Batch& batch = *graph_->requests().Find(id);
    batch.SetRequests({&request, 1});
    batch.submitted = ReadCycles();
    batch.deadline = batch.submitted + ToCycles(kForever);
    EXPECT_TRUE(graph_->submissions().Prepare({BatchCommand::kSubmit, id}));
    graph_->submissions().Submit();
    return id;
  }
  // The NIC carries out so many requests, which it may not have got yet.
  void Step(size_t nic, size_t count) {
    size_t done = 0;
    EXPECT_TRUE(WaitUntil([&] { return (done += nics_[nic]->Step(count - done)) == count; }))
        << done << " of " << count << " requests of nic" << nic;
  }
  bool Moved(BatchId id, uint64_t bytes) {
    return WaitUntil([&] { return graph_->requests().Progress(id, 0).moved == bytes; });
  }

  std::vector<SimNic*> nics_;
  std::unique_ptr<ActorGraph> graph_;
};

TEST_F(RetryWalkthroughTest, FourSlicesOverTwoNicsOneFailsOnceAndGoesAnotherWay) {
  const Target target = MakeTarget("decode", 256 * kKiB, "elsewhere");
  Build();
  RankMemory memory(graph_->nics(), &graph_->submissions(), graph_->staging(), nullptr);
  std::vector<std::byte> source = Pattern(256 * kKiB, 3);
  ASSERT_TRUE(memory.Register(source.data(), source.size(), "cpu:0").ok());
  const auto opened = graph_->endpoint().Open("decode");
  ASSERT_TRUE(opened.ok()) << opened.status();
  const BatchId batch = Submit({.opcode = Opcode::kWrite,
                                .source = source.data(),
                                .target = *opened + 1,
                                .target_address = reinterpret_cast<uint64_t>(target.memory.data()),
                                .length = 256 * kKiB});
  // Slices 0 and 2 by the first NIC, 1 and 3 by the second. Slice 2 fails.
  Step(0, 1);
  EXPECT_TRUE(Moved(batch, 64 * kKiB));
  Step(1, 2);
  EXPECT_TRUE(Moved(batch, 192 * kKiB));
  Step(0, 1);
  // It is posted to the second NIC, and three of four slices are there until that one moves.
  EXPECT_TRUE(WaitUntil([&] { return graph_->submit().stats().slices_again.load() == 1; }));
  EXPECT_EQ(graph_->requests().Read(batch).state, BatchState::kPending);
  EXPECT_EQ(graph_->requests().Progress(batch, 0).moved, 192 * kKiB);
  EXPECT_EQ(graph_->requests().Progress(batch, 0).left, 64 * kKiB);
  EXPECT_NE(memcmp(target.memory.data(), source.data(), source.size()), 0);
  Step(1, 1);
  ASSERT_TRUE(graph_->requests().Wait(batch, kForever));
  const BatchStatus status = graph_->requests().Read(batch);
  EXPECT_EQ(status.state, BatchState::kCompleted);
  EXPECT_EQ(status.bytes, 256 * kKiB);
  EXPECT_EQ(memcmp(target.memory.data(), source.data(), source.size()), 0);
  EXPECT_EQ(graph_->submit().stats().slices_direct.load(), 4u);
  EXPECT_EQ(graph_->requests().Free(batch), FreeResult::kOk);
  memory.Close();
}

}  // namespace
}  // namespace railhop
