// The sender's data path allocates nothing once it is warm.
#include <gtest/gtest.h>

#include <vector>

#include "actors/copy_actor.h"
#include "actors/submit_actor.h"
#include "tests/actors/sender_harness.h"
#include "tests/support/allocation_count.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/ring/completion.h"

namespace railhop {
namespace {

// A harness without containers: what the actor sends goes straight into fixed arrays.
class QuietWorld {
 public:
  static constexpr uint64_t kPieceTimeout = 1'000'000;

  QuietWorld()
      : reactor_({.name = "submit", .clock = clock_.clock()}),
        submit_("submit", &table_,
                {.routes = {.pxn = true, .own_rails = {"rail0"}, .min_relay_bytes = 0},
                 .nic_count = 1,
                 .max_piece_bytes = 256 * kKiB,
                 .credit_timeout = 1000,
                 .piece_timeout = kPieceTimeout}) {
    reactor_.AddActor(&submit_);
    submit_.copy_out.Connect(&copies_, &wakes_, 0);
    submit_.post_out.Connect(&posts_, &wakes_, 0);
    submit_.deadline_out.Connect(&deadlines_, &wakes_, 0);
    submit_.want_out.Connect(&wants_, &wakes_, 0);
    submit_.lane_closed_out.Connect(&closed_, &wakes_, 0);
    reactor_.StartActors();
    region_.base = SourceAt(0);
    region_.length = uint64_t{1} << 36;
    region_.staging = true;
    region_.lkeys = {1};
    RegionReply reply;
    EXPECT_TRUE(submit_.OnBatchCommand(
        {.kind = BatchCommand::kAddRegion, .region = &region_, .reply = &reply}));
    EXPECT_EQ(reply.answer.load(), 1u);
    route_.version = 1;
    route_.name = "target";
    route_.buffers.push_back({.address = kTarget,
                              .length = uint64_t{1} << 36,
                              .rkeys = {1},
                              .paths = {MakePath(0)},
                              .rails = {"rail1"}});
    route_.endpoints.resize(PathCount(1));
    route_.endpoints[0] = 1;
    submit_.OnTargetReady({.route = &route_, .token = kNoToken});
    lane_ = TestRelays::Get().Map(0, 0);
    submit_.OnLaneReady({.mapping = lane_.get(), .next_sequence = 2, .lane = 0});
    submit_.trace.Enable(1, TestRelays::kSenderEpoch);
  }

  // One round of everything that happens to pieces on a working system.
  void Round(uint64_t round) {
    const BatchId good = Submit(300, round);
    const BatchId mixed = Submit(40, round);
    const BatchId given_up = Submit(40, round);
    const BatchId late = Submit(2000, round);
    Turn(round % 5 == 0 ? static_cast<int32_t>(RelayStatus::kTransport) : 0);
    submit_.OnBatchCommand({BatchCommand::kCancel, given_up});
    table_.Find(late)->deadline = 0;
    submit_.OnDeadlineExpired({.slot = kBatchDeadline});
    for (int i = 0; i < 200; ++i) Turn(round % 7 == 0 ? -3 : 0);
    // No credit for a while, then a relay that is stuck, then all is well again.
    const BatchId stuck = Submit(3000, round);
    for (int i = 0; i < 20; ++i) reactor_.RunPass();
    clock_.Advance(2000);
    reactor_.RunPass();
    clock_.Advance(kPieceTimeout);
    reactor_.RunPass();
    submit_.OnDeadlineExpired({.slot = 0});
    for (int i = 0; i < 200; ++i) Turn(0);
    for (const BatchId id : {good, mixed, given_up, late, stuck}) {
      ended += IsQuiescent(table_.Read(id).state) ? 1 : 0;
      table_.Free(id);
    }
  }
  uint64_t ended = 0;
  SubmitActor& submit() { return submit_; }

 private:
  BatchId Submit(size_t count, uint64_t round) {
    const BatchId id = table_.Allocate();
    Batch& batch = *table_.Find(id);
    requests_.clear();
    for (size_t i = 0; i < count; ++i) {
      requests_.push_back(Write(i * 5000, i * 5000, 1 + (i + round) % 4096));
    }
    batch.SetRequests(requests_);
    batch.deadline = SenderHarness::kFar;
    submit_.OnBatchCommand({BatchCommand::kSubmit, id});
    return id;
  }
  void Turn(int32_t status) {
    reactor_.RunPass();
    copies_.Drain(SIZE_MAX, [&](const CopyPiece& piece) {
      lane_->Offer(piece.sequence);
      submit_.OnPieceCopied({piece.sequence, 0, CopyOutcome::kRung});
      submit_.OnSliceDone({.token = 0, .sequence = piece.sequence, .lane = 0, .status = status});
      return true;
    });
    posts_.Drain(SIZE_MAX, [&](const PostSlice& slice) {
      submit_.OnSliceDone({.token = slice.token, .sequence = 0, .lane = kDirectLane, .status = 0});
      return true;
    });
    const auto forget = [](const auto&) { return true; };
    deadlines_.Drain(SIZE_MAX, forget);
    wants_.Drain(SIZE_MAX, forget);
    copies_.PublishCredit();
    posts_.PublishCredit();
    deadlines_.PublishCredit();
    wants_.PublishCredit();
  }

  ManualClock clock_;
  RequestTable table_{16};
  std::vector<TransferRequest> requests_;
  Reactor reactor_;
  SubmitActor submit_;
  Region region_;
  TargetRoute route_;
  std::unique_ptr<LaneMapping> lane_;
  WakeList wakes_;
  SpscRing<CopyPiece> copies_{256};
  SpscRing<PostSlice> posts_{512};
  SpscRing<ArmDeadline> deadlines_{256};
  SpscRing<WantRail> wants_{64};
  SpscRing<LaneClosed> closed_{16};
};

TEST(AllocationTest, TheCounterCounts) {
  const uint64_t before = AllocationCount();
  delete new int(5);
  std::vector<int>(100).clear();
  EXPECT_GE(AllocationCount() - before, 1u);
}

TEST(AllocationTest, SubmitActorAllocatesNothingOnceItIsWarm) {
  QuietWorld world;
  for (uint64_t round = 0; round < 40; ++round) world.Round(round);
  const uint64_t before = AllocationCount();
  for (uint64_t round = 0; round < 40; ++round) world.Round(round);
  EXPECT_EQ(AllocationCount() - before, 0u);
  EXPECT_EQ(world.ended, 80 * 5u);
  // That the rounds went through what they are meant to go through.
  const SubmitStats& stats = world.submit().stats();
  EXPECT_GT(stats.pieces_relayed, 0u);
  for (const DirectReason reason : {DirectReason::kRelayError, DirectReason::kTargetSuspect,
                                    DirectReason::kCreditTimeout, DirectReason::kPieceDeadline}) {
    EXPECT_GT(stats.direct[static_cast<size_t>(reason)], 0u) << DirectReasonName(reason);
  }
}

TEST(AllocationTest, CopyActorAllocatesNothing) {
  ManualClock clock;
  HostCopyEngine engine(kLaneCount, kSlotsPerLane);
  CopyActor copy("copy", &engine);
  Reactor reactor({.name = "copy", .clock = clock.clock()});
  reactor.AddActor(&copy);
  WakeList wakes;
  SpscRing<PieceCopied> copied(128);
  SpscRing<PieceRung> rung(128);
  SpscRing<LaneClosed> closed(16);
  copy.copied_out.Connect(&copied, &wakes, 0);
  copy.rung_out.Connect(&rung, &wakes, 0);
  copy.lane_closed_out.Connect(&closed, &wakes, 0);
  reactor.StartActors();
  const auto lane = TestRelays::Get().Map(0, 0);
  copy.OnLaneReady({.mapping = lane.get(), .next_sequence = 1, .lane = 0});
  copy.trace.Enable(1, TestRelays::kSenderEpoch);
  TargetRoute target;
  target.name = "target";
  std::vector<std::byte> source(10'000);
  PieceContent content;
  content.Append({.source = source.data(), .destination = 1, .length = 3000});
  content.Append({.source = source.data() + 5000, .destination = 9000, .length = 3000});

  uint64_t sequence = 1;
  const auto run = [&](int pieces) {
    for (int i = 0; i < pieces; ++i) {
      EXPECT_TRUE(copy.OnCopyPiece({&content, &target, sequence++, 0, 1}));
      reactor.RunPass();
      const auto forget = [](const auto&) { return true; };
      copied.Drain(SIZE_MAX, forget);
      rung.Drain(SIZE_MAX, forget);
    }
  };
  run(100);
  const uint64_t before = AllocationCount();
  run(1000);
  EXPECT_EQ(AllocationCount() - before, 0u);
  EXPECT_EQ(lane->control().header.head, 1100u);
}

}  // namespace
}  // namespace railhop
