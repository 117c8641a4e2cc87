// CopyActor against lanes of real registry entries, read by the relay's own RelayLaneReader.
#include "actors/copy_actor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/slicer.h"
#include "runtime/reactor.h"
#include "tests/actors/test_relays.h"
#include "tests/support/manual_clock.h"
#include "transport/copy/host_copy_engine.h"
#include "transport/ring/relay_lane.h"

namespace railhop {
namespace {

constexpr uint64_t kDestination = 0x2000'0000'0000;

// The host engine, with a look at each step and, if told so, failing copies.
class SpyEngine : public HostCopyEngine {
 public:
  SpyEngine() : HostCopyEngine(kLaneCount, kSlotsPerLane) {}

  uint64_t Progress(uint64_t budget) override {
    const uint64_t copied = HostCopyEngine::Progress(std::min(budget, budget_limit));
    if (on_progress) on_progress();
    return copied;
  }
  size_t Reap(std::span<CopyDone> done) override {
    const size_t count = HostCopyEngine::Reap(done);
    for (CopyDone& job : done.first(count)) job.status = status;
    return count;
  }

  bool DeviceRings(uint32_t) const override { return device_rings; }

  bool device_rings = false;
  std::function<void(const CopyJob&)> on_issue;
  std::function<void()> on_progress;
  uint64_t budget_limit = UINT64_MAX;
  CopyStatus status = CopyStatus::kOk;

 protected:
  void Start(CopyJob& job) override {
    if (on_issue) on_issue(job);
    if (status == CopyStatus::kFailed) job.doorbell = nullptr;  // such a one is not rung
    HostCopyEngine::Start(job);
  }
};

class CopyActorTest : public ::testing::Test {
 protected:
  CopyActorTest() : copy_("copy", &engine_) {
    reactor_.AddActor(&copy_);
    copy_.copied_out.Connect(&copied_ring_, &wakes_, 0);
    copy_.rung_out.Connect(&rung_ring_, &wakes_, 0);
    copy_.lane_closed_out.Connect(&closed_ring_, &wakes_, 0);
    reactor_.StartActors();
    target_.name = "decode-7";
  }

  void OpenLane(uint32_t lane, uint32_t relay = 0, bool version1 = false) {
    mappings_.push_back(TestRelays::Get().Map(relay, lane, version1));
    lanes_[lane] = mappings_.back().get();
    readers_[lane] = std::make_unique<RelayLaneReader>(
        lanes_[lane]->control(), TestRelays::Get().Words(relay, lane), lanes_[lane]->relay_epoch());
    readers_[lane]->Admit(TestRelays::kSenderEpoch);
    ++generations_[lane];
    EXPECT_TRUE(copy_.OnLaneReady({.mapping = lanes_[lane], .next_sequence = 1, .lane = lane}));
  }
  // A piece of these texts; they lie one after another at the target, with gaps.
  CopyPiece MakePiece(uint32_t lane, uint64_t sequence, const std::vector<std::string>& texts) {
    contents_.push_back(std::make_unique<PieceContent>());
    PieceContent& content = *contents_.back();
    uint64_t destination = kDestination;
    for (const std::string& text : texts) {
      texts_.push_back(std::make_unique<std::string>(text));
      content.Append({.source = reinterpret_cast<std::byte*>(texts_.back()->data()),
                      .destination = destination,
                      .length = text.size()});
      destination += text.size() + 10;
    }
    return {&content, &target_, sequence, lane, generations_[lane]};
  }
  void Send(const CopyPiece& piece) { EXPECT_TRUE(copy_.OnCopyPiece(piece)); }
  // A pass; what the actor said is then in copied and rung.
  void Pass() {
    reactor_.RunPass();
    copied_ring_.Drain(SIZE_MAX, [this](const PieceCopied& message) {
      copied_.push_back(message);
      return true;
    });
    rung_ring_.Drain(SIZE_MAX, [this](const PieceRung& message) {
      rung_.push_back(message);
      return true;
    });
    closed_ring_.Drain(SIZE_MAX, [this](const LaneClosed& message) {
      closed_.push_back(message.lane);
      return true;
    });
    copied_ring_.PublishCredit();
    rung_ring_.PublishCredit();
  }
  LanePoll Read(uint32_t lane) { return readers_[lane]->Poll(*descriptor_, read_); }
  const LaneHeader& Header(uint32_t lane) const { return lanes_[lane]->control().header; }
  std::string SlotText(uint32_t lane, uint64_t sequence, size_t bytes) const {
    return {reinterpret_cast<const char*>(lanes_[lane]->slot(sequence)), bytes};
  }
  uint64_t Claim(uint32_t lane, uint64_t sequence) const {
    return TestRelays::Words(*lanes_[lane]).claims[SlotIndex(sequence)];
  }

  ManualClock clock_;
  SpyEngine engine_;
  Reactor reactor_{{.name = "copy", .clock = clock_.clock()}};
  CopyActor copy_;
  TargetRoute target_;
  std::array<const LaneMapping*, kLaneCount> lanes_{};
  std::array<uint32_t, kLaneCount> generations_{};
  std::array<std::unique_ptr<RelayLaneReader>, kLaneCount> readers_;
  std::vector<std::unique_ptr<LaneMapping>> mappings_;
  std::vector<std::unique_ptr<PieceContent>> contents_;
  std::vector<std::unique_ptr<std::string>> texts_;
  std::unique_ptr<DescriptorCopy> descriptor_ = std::make_unique<DescriptorCopy>();
  LanePiece read_;
  std::vector<PieceCopied> copied_;
  std::vector<PieceRung> rung_;
  std::vector<uint32_t> closed_;

 private:
  WakeList wakes_;
  SpscRing<PieceCopied> copied_ring_{128};
  SpscRing<PieceRung> rung_ring_{128};
  SpscRing<LaneClosed> closed_ring_{16};
};

TEST_F(CopyActorTest, TheRelayReadsWhatWasSent) {
  OpenLane(2);
  EXPECT_EQ(Read(2), LanePoll::kIdle);
  Send(MakePiece(2, 1, {"hello ", "relay"}));
  EXPECT_FALSE(copy_.Drained());
  Pass();
  EXPECT_FALSE(copy_.Drained()) << "whether the relay was about to park is still to be seen";
  Pass();
  EXPECT_TRUE(copy_.Drained());
  ASSERT_EQ(Read(2), LanePoll::kPiece);
  EXPECT_EQ(read_.sequence, 1u);
  EXPECT_EQ(descriptor_->session_name(), "decode-7");
  ASSERT_EQ(descriptor_->plan_count, 2u);
  EXPECT_EQ(descriptor_->plans[0], (PlanEntry{kDestination, 6}));
  EXPECT_EQ(descriptor_->plans[1], (PlanEntry{kDestination + 16, 5}));
  EXPECT_EQ(SlotText(2, 1, 11), "hello relay");
  EXPECT_EQ(Claim(2, 1), ClaimWord(1, ClaimState::kOffered));
  EXPECT_EQ(Read(2), LanePoll::kIdle);
  ASSERT_EQ(copied_.size(), 1u);
  EXPECT_EQ(copied_[0].sequence, 1u);
  EXPECT_EQ(copied_[0].lane, 2u);
  EXPECT_EQ(copied_[0].outcome, CopyOutcome::kRung);
  ASSERT_EQ(rung_.size(), 1u);
  EXPECT_EQ(rung_[0].sequence, 1u);
  EXPECT_EQ(rung_[0].lane, 2u);
}

// Offered -> committed -> bytes -> doorbell -> head -> reported: at each step what comes later must
// not have happened.
TEST_F(CopyActorTest, EachStepComesAfterTheOneBefore) {
  OpenLane(0);
  int issues = 0, progresses = 0;
  engine_.on_issue = [&](const CopyJob& job) {
    ++issues;
    EXPECT_EQ(Claim(0, 1), ClaimWord(1, ClaimState::kOffered));
    EXPECT_EQ(lanes_[0]->descriptor(1).commit_sequence, 1u);
    EXPECT_EQ(job.destination, lanes_[0]->slot(1));
    EXPECT_EQ(job.stream, 0u);
    EXPECT_EQ(SlotText(0, 1, 4), std::string(4, '\0'));
    EXPECT_EQ(Header(0).doorbell, 0u);
    EXPECT_EQ(Header(0).head, 0u);
    EXPECT_EQ(Read(0), LanePoll::kIdle);
  };
  engine_.on_progress = [&] {
    if (++progresses != 1) return;
    EXPECT_EQ(SlotText(0, 1, 4), "data");
    EXPECT_EQ(Header(0).doorbell, 1u);
    EXPECT_EQ(Header(0).head, 0u) << "published before its bytes were known to be there";
  };
  std::memset(lanes_[0]->slot(1), 0, 4);
  Send(MakePiece(0, 1, {"data"}));
  EXPECT_EQ(issues, 1);
  EXPECT_TRUE(copied_.empty() && rung_.empty());
  Pass();
  EXPECT_EQ(progresses, 1);
  EXPECT_EQ(Header(0).head, 1u);
  EXPECT_EQ(copied_.size(), 1u);
  EXPECT_EQ(Read(0), LanePoll::kPiece);
}

TEST_F(CopyActorTest, APieceWhoseBytesAreNotAllThereIsNotSeen) {
  OpenLane(0);
  engine_.budget_limit = 3;
  Send(MakePiece(0, 1, {"0123456789"}));
  for (int i = 0; i < 3; ++i) {
    Pass();
    EXPECT_EQ(Header(0).doorbell, 0u);
    EXPECT_EQ(Header(0).head, 0u);
    EXPECT_EQ(Read(0), LanePoll::kIdle);
    EXPECT_TRUE(copied_.empty());
  }
  Pass();
  EXPECT_EQ(copied_.size(), 1u);
  EXPECT_EQ(Read(0), LanePoll::kPiece);
}

TEST_F(CopyActorTest, Rule4OneStreamPerLaneKeepsPiecesInOrder) {
  OpenLane(0, 0);
  OpenLane(5, 1);
  for (uint64_t sequence = 1; sequence <= kSlotsPerLane; ++sequence) {
    Send(MakePiece(0, sequence, {"a" + std::to_string(sequence)}));
    if (sequence <= 3) Send(MakePiece(5, sequence, {"b" + std::to_string(sequence)}));
  }
  for (int i = 0; i < 4; ++i) Pass();
  for (uint64_t sequence = 1; sequence <= kSlotsPerLane; ++sequence) {
    ASSERT_EQ(Read(0), LanePoll::kPiece);
    EXPECT_EQ(SlotText(0, sequence, 2), "a" + std::to_string(sequence).substr(0, 1));
  }
  for (uint64_t sequence = 1; sequence <= 3; ++sequence) {
    ASSERT_EQ(Read(5), LanePoll::kPiece);
    EXPECT_EQ(SlotText(5, sequence, 2), "b" + std::to_string(sequence));
  }
  EXPECT_EQ(Header(0).head, kSlotsPerLane);
  EXPECT_EQ(Header(5).head, 3u);
  EXPECT_EQ(copied_.size(), kSlotsPerLane + 3);
  uint64_t last = 0;
  for (const PieceCopied& message : copied_) {
    if (message.lane != 0) continue;
    EXPECT_EQ(message.sequence, ++last);
  }
}

TEST_F(CopyActorTest, WhatTheLastUseOfASlotLeftIsCleared) {
  OpenLane(0);
  // Debris from before the claim, at both ends of the descriptor.
  Descriptor& descriptor = lanes_[0]->descriptor(1);
  std::memset(&descriptor, 0xff, sizeof(descriptor));
  target_.name = std::string(200, 'n');
  Send(MakePiece(0, 1, {"a", "b", "c", "d"}));
  Pass();
  ASSERT_EQ(Read(0), LanePoll::kPiece);
  const auto expect_clean = [&](uint32_t plans, size_t name) {
    for (uint32_t i = plans; i < kMaxPlanEntries; ++i) {
      ASSERT_EQ(descriptor.plans[i], (PlanEntry{0, 0})) << i;
    }
    for (size_t i = name; i < kMaxSessionBytes; ++i) ASSERT_EQ(descriptor.session[i], 0) << i;
    for (const uint8_t byte : descriptor.padding) ASSERT_EQ(byte, 0);
    ASSERT_EQ(descriptor.reserved, 0u);
  };
  expect_clean(4, 200);
  target_.name = "short";
  for (uint64_t sequence = 2; sequence <= kSlotsPerLane; ++sequence) {
    Send(MakePiece(0, sequence, {"x"}));
    Pass();
    ASSERT_EQ(Read(0), LanePoll::kPiece);
  }
  Send(MakePiece(0, kSlotsPerLane + 1, {"e", "f"}));
  Pass();
  ASSERT_EQ(Read(0), LanePoll::kPiece);
  EXPECT_EQ(descriptor.commit_sequence, kSlotsPerLane + 1);
  expect_clean(2, 5);
}

// --- Wakes

TEST_F(CopyActorTest, AParkedRelayIsWokenOnceAPassAndAnAwakeOneNever) {
  OpenLane(0, 0);
  OpenLane(1, 1);
  TestRelays& relays = TestRelays::Get();
  relays.SetParked(0, true);
  relays.SetParked(1, false);
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    Send(MakePiece(0, sequence, {"x"}));
    Send(MakePiece(1, sequence, {"y"}));
  }
  Pass();
  EXPECT_EQ(copied_.size(), 10u);
  EXPECT_EQ(relays.TakeWakes(0), 1u);
  EXPECT_EQ(relays.TakeWakes(1), 0u);
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 0u) << "nothing was published";
  relays.SetParked(0, false);
  Send(MakePiece(0, 6, {"x"}));
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 0u);
}

TEST_F(CopyActorTest, ARelayThatParksJustAfterTheDoorbellIsWokenByTheNextPass) {
  OpenLane(0);
  TestRelays& relays = TestRelays::Get();
  relays.SetParked(0, false);
  Send(MakePiece(0, 1, {"x"}));
  Pass();
  relays.SetParked(0, true);  // it has looked before the doorbell, and parks
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 1u);
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 0u);
  relays.SetParked(0, false);
  Send(MakePiece(0, 2, {"x"}));
  Pass();
  relays.SetParked(0, true);
  Send(MakePiece(0, 3, {"x"}));
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 2u) << "for the piece before, and for this one";
  relays.SetParked(0, false);
}

TEST_F(CopyActorTest, ARelayIsNotWokenBeforeThereIsSomethingToSee) {
  OpenLane(0);
  TestRelays& relays = TestRelays::Get();
  relays.SetParked(0, true);
  engine_.budget_limit = 3;
  Send(MakePiece(0, 1, {"012345"}));
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 0u);
  Pass();
  EXPECT_EQ(relays.TakeWakes(0), 1u);
  relays.SetParked(0, false);
}

TEST_F(CopyActorTest, ARelayOfVersion1HasNoClaimWordsAndNobodyToWake) {
  TestRelays::Get().SetParked(0, true);
  OpenLane(0, 0, true);
  Send(MakePiece(0, 1, {"old"}));
  Pass();
  EXPECT_EQ(copied_.size(), 1u);
  EXPECT_EQ(TestRelays::Get().Words(0, 0).claims[0], 0u);
  EXPECT_EQ(TestRelays::Get().TakeWakes(0), 0u);
  EXPECT_EQ(Read(0), LanePoll::kPiece);
  EXPECT_EQ(SlotText(0, 1, 3), "old");
  TestRelays::Get().SetParked(0, false);
}

// --- What goes wrong

TEST_F(CopyActorTest, ADescriptorThatCannotBeIsRefusedAndNothingIsOffered) {
  OpenLane(0);
  target_.name = std::string(300, 'n');
  Send(MakePiece(0, 1, {"x"}));
  EXPECT_TRUE(copy_.Drained());
  Pass();
  ASSERT_EQ(copied_.size(), 1u);
  EXPECT_EQ(copied_[0].sequence, 1u);
  EXPECT_EQ(copied_[0].outcome, CopyOutcome::kRefused);
  EXPECT_TRUE(rung_.empty());
  EXPECT_EQ(Claim(0, 1), 0u);
  EXPECT_EQ(lanes_[0]->descriptor(1).commit_sequence, 0u);
  EXPECT_EQ(Header(0).doorbell, 0u);
  EXPECT_EQ(Header(0).head, 0u);
}

TEST_F(CopyActorTest, APieceWhoseCopyFailedIsTakenBackAndTheLaneGetsNothingMore) {
  OpenLane(0, 0);
  OpenLane(1, 1);
  engine_.status = CopyStatus::kFailed;
  Send(MakePiece(0, 1, {"x"}));
  Pass();
  ASSERT_EQ(copied_.size(), 1u);
  EXPECT_EQ(copied_[0].outcome, CopyOutcome::kRefused);
  EXPECT_TRUE(rung_.empty());
  EXPECT_EQ(Header(0).head, 0u);
  EXPECT_EQ(Claim(0, 1), ClaimWord(1, ClaimState::kRevoked));
  EXPECT_TRUE(copy_.Drained());

  engine_.status = CopyStatus::kOk;
  Send(MakePiece(0, 2, {"y"}));
  Send(MakePiece(1, 1, {"z"}));
  Pass();
  ASSERT_EQ(copied_.size(), 3u);
  for (const PieceCopied& message : copied_) {
    EXPECT_EQ(message.outcome, message.lane == 0 ? CopyOutcome::kRefused : CopyOutcome::kRung);
  }
  EXPECT_EQ(lanes_[0]->descriptor(2).commit_sequence, 0u);
  // A new claim of the lane starts afresh.
  EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
  OpenLane(0);
  Send(MakePiece(0, 1, {"again"}));
  Pass();
  EXPECT_EQ(copied_.back().outcome, CopyOutcome::kRung);
  EXPECT_EQ(Read(0), LanePoll::kPiece);
}

// Else the relay would wake for it all the time, and the lane never be drained.
TEST_F(CopyActorTest, WhatWasAnnouncedAndFailsIsAnnouncedNoMore) {
  OpenLane(0);
  engine_.device_rings = true;
  Send(MakePiece(0, 1, {"x"}));
  Pass();
  ASSERT_EQ(Read(0), LanePoll::kPiece);
  engine_.status = CopyStatus::kFailed;
  Send(MakePiece(0, 2, {"y"}));
  Send(MakePiece(0, 3, {"z"}));
  EXPECT_TRUE(readers_[0]->HasAnnounced());
  Pass();
  EXPECT_FALSE(readers_[0]->HasAnnounced());
  EXPECT_EQ(Header(0).head, 1u);
  EXPECT_EQ(Header(0).doorbell, 1u);
  Send(MakePiece(0, 4, {"refused"}));
  Pass();
  EXPECT_FALSE(readers_[0]->HasAnnounced());
}

// --- Lanes come and go

TEST_F(CopyActorTest, APieceThatOvertakesItsLaneWaits) {
  CopyPiece piece = MakePiece(0, 1, {"early"});
  piece.lane_generation = 1;
  EXPECT_FALSE(copy_.OnCopyPiece(piece));
  OpenLane(0);
  const LaneMapping* const first = lanes_[0];
  Send(piece);
  Pass();
  EXPECT_EQ(copied_.size(), 1u);

  // The same after the lane was closed: the mapping of before is not to be touched.
  EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
  CopyPiece next = MakePiece(0, 1, {"next"});
  next.lane_generation = 2;
  EXPECT_FALSE(copy_.OnCopyPiece(next));
  EXPECT_EQ(first->control().header.head, 1u);
  OpenLane(0);
  Send(next);
  Pass();
  EXPECT_EQ(Read(0), LanePoll::kPiece);
  EXPECT_EQ(SlotText(0, 1, 4), "next");
}

TEST_F(CopyActorTest, APieceThatComesAfterCloseLaneIsCopiedAndReported) {
  OpenLane(0);
  Send(MakePiece(0, 1, {"one"}));
  EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
  Send(MakePiece(0, 2, {"two"}));
  Pass();
  EXPECT_EQ(closed_, (std::vector<uint32_t>{0}));
  ASSERT_EQ(copied_.size(), 2u);
  EXPECT_EQ(copied_[1].sequence, 2u);
  EXPECT_TRUE(copy_.Drained()) << "a closed lane must not be looked at any more";
}

TEST_F(CopyActorTest, ALaneIsAnsweredForOnceEachTimeItWasOpen) {
  EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
  Pass();
  EXPECT_TRUE(closed_.empty());
  for (size_t round = 1; round <= 2; ++round) {
    OpenLane(0);
    EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kStale}));
    EXPECT_TRUE(copy_.OnCloseLane({.lane = 0, .end = LaneEnd::kPeerDead}));
    Pass();
    EXPECT_EQ(closed_.size(), round);
  }
}

// --- Passes

TEST_F(CopyActorTest, APassCopiesNoMoreThanItsBudgetAndAnIdleOneIsNoWork) {
  OpenLane(0);
  EXPECT_EQ(reactor_.RunPass(), 0u);
  Send(MakePiece(0, 1, {std::string(3 * CopyActor::kCopyBudget, 'x')}));
  EXPECT_EQ(engine_.PendingBytes(), 3 * CopyActor::kCopyBudget);
  for (uint64_t left = 2; left-- > 0;) {
    EXPECT_NE(reactor_.RunPass(), 0u);
    EXPECT_EQ(engine_.PendingBytes(), (left + 1) * CopyActor::kCopyBudget);
  }
  Pass();
  EXPECT_EQ(engine_.PendingBytes(), 0u);
  EXPECT_EQ(copied_.size(), 1u);
  EXPECT_EQ(reactor_.RunPass(), 0u);
}

// More pieces than one Reap takes: all are reported, and none twice.
TEST_F(CopyActorTest, AllLanesFullAtOnceAreReportedOnce) {
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) OpenLane(lane, lane % 2);
  for (uint64_t sequence = 1; sequence <= kSlotsPerLane; ++sequence) {
    for (uint32_t lane = 0; lane < kLaneCount; ++lane) Send(MakePiece(lane, sequence, {"x"}));
  }
  for (int i = 0; i < 20 && !copy_.Drained(); ++i) Pass();
  EXPECT_TRUE(copy_.Drained());
  EXPECT_EQ(copied_.size(), kLaneCount * kSlotsPerLane);
  EXPECT_EQ(rung_.size(), kLaneCount * kSlotsPerLane);
  for (uint32_t lane = 0; lane < kLaneCount; ++lane) {
    EXPECT_EQ(Header(lane).head, kSlotsPerLane);
    EXPECT_EQ(Header(lane).doorbell, kSlotsPerLane);
  }
}

// --- Tracing

TEST_F(CopyActorTest, RecordsTheIssueOfSampledPieces) {
  OpenLane(2);
  copy_.trace.Enable(2, TestRelays::kSenderEpoch);
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    clock_.Advance(10);
    Send(MakePiece(2, sequence, {"x"}));
  }
  const uint64_t now = clock_.now();
  std::vector<PieceRecord> records;
  copy_.trace.Take([&](const PieceRecord& record) { records.push_back(record); });
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(records[0].sequence, 2u);
  EXPECT_EQ(records[0].at, now - 20);
  EXPECT_EQ(records[1].sequence, 4u);
  EXPECT_EQ(records[1].at, now) << "the time of the issue, not that of a pass";
  EXPECT_EQ(records[1].stage, PieceStage::kCopyIssued);
  EXPECT_EQ(records[1].lane, 2u);
  EXPECT_EQ(records[1].relay_epoch, lanes_[2]->relay_epoch());
  EXPECT_EQ(records[1].sender_epoch, TestRelays::kSenderEpoch);
}

// Rule of DESIGN.md: head announces a doorbell that the relay cannot be woken by.
TEST_F(CopyActorTest, ADoorbellThatADeviceRingsIsAnnouncedAtTheIssue) {
  engine_.budget_limit = 0;
  OpenLane(1);
  Send(MakePiece(1, 1, {"one"}));
  EXPECT_EQ(Header(1).head, 0u);
  OpenLane(2);
  engine_.device_rings = true;
  EXPECT_EQ(Read(2), LanePoll::kIdle);
  Send(MakePiece(2, 1, {"one"}));
  EXPECT_EQ(Header(2).head, 1u);
  EXPECT_EQ(Header(2).doorbell, 0u);
  EXPECT_TRUE(readers_[2]->HasAnnounced());
  Pass();
  EXPECT_TRUE(copied_.empty());
  engine_.budget_limit = UINT64_MAX;
  Send(MakePiece(2, 2, {"two"}));
  Pass();
  ASSERT_EQ(copied_.size(), 3u);
  EXPECT_EQ(Header(1).head, 1u);
  EXPECT_EQ(Header(2).head, 2u);
  EXPECT_EQ(Header(2).doorbell, 2u);
}

}  // namespace
}  // namespace railhop
