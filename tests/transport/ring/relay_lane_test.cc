#include "transport/ring/relay_lane.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/ring/sent_window.h"

namespace railhop {
namespace {

constexpr uint64_t kRelayEpoch = 900;
constexpr uint64_t kSenderEpoch = 77;

// One lane in ordinary memory; the test is its sender and its control threads.
class RelayLaneTest : public ::testing::Test {
 protected:
  RelayLaneTest()
      : lane_(std::make_unique<LaneControl>()),
        side_(std::make_unique<SideLane>()),
        copy_(std::make_unique<DescriptorCopy>()),
        reader_(*lane_, *side_, kRelayEpoch),
        writer_(*lane_) {
    std::memset(static_cast<void*>(lane_.get()), 0, sizeof(LaneControl));
    std::memset(static_cast<void*>(side_.get()), 0, sizeof(SideLane));
  }

  LaneHeader& header() { return lane_->header; }
  // As a claimer leaves the lane.
  void Claim(uint64_t sender_epoch, bool counts = true) {
    StoreLaneState(header(), LaneState::kClaiming);
    std::memset(static_cast<void*>(lane_->descriptors), 0, sizeof(lane_->descriptors));
    std::memset(static_cast<void*>(lane_->completions), 0, sizeof(lane_->completions));
    header() = {};
    header().sender_epoch = sender_epoch;
    if (counts) ++side_->claim_count;
    descriptors_ = DescriptorWriter();
    StoreLaneState(header(), LaneState::kReady);
  }
  void ClaimAndAdmit(uint64_t sender_epoch) {
    Claim(sender_epoch);
    reader_.Admit(sender_epoch);
  }
  void Write(uint64_t sequence, uint64_t epoch = kRelayEpoch) {
    Descriptor& descriptor = lane_->descriptors[SlotIndex(sequence)];
    const PlanEntry plan{.final_destination = sequence * 0x1000, .length = sequence};
    ASSERT_EQ(descriptors_.Prepare(descriptor, SlotIndex(sequence), epoch, "target", {&plan, 1}),
              DescriptorError::kNone);
    DescriptorWriter::Commit(descriptor, sequence);
  }
  void Publish(uint64_t sequence, uint64_t epoch = kRelayEpoch) {
    Write(sequence, epoch);
    StoreRelease(header().doorbell, sequence);
    StoreRelease(header().head, sequence);
  }
  LanePoll Poll() { return reader_.Poll(*copy_, piece_); }
  int32_t Answer(uint64_t sequence) {
    int32_t status = 1;
    return TryLoadCompletion(lane_->completions[SlotIndex(sequence)], sequence, &status) ==
                   CompletionState::kReady
               ? status
               : 1;
  }

  std::unique_ptr<LaneControl> lane_;
  std::unique_ptr<SideLane> side_;
  std::unique_ptr<DescriptorCopy> copy_;
  DescriptorWriter descriptors_;
  RelayLaneReader reader_;
  RelayLaneWriter writer_;
  LanePiece piece_;
};

TEST_F(RelayLaneTest, LaneOfNobodyHasNoWork) {
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
  StoreLaneState(header(), LaneState::kClaiming);
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
}

TEST_F(RelayLaneTest, NewSenderIsSaidOnceAndServedOnceAdmitted) {
  Claim(kSenderEpoch);
  Publish(1);
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kUnknownSender);
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_FALSE(reader_.HasAnnounced());
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
  EXPECT_EQ(reader_.sender_epoch(), kSenderEpoch);
  reader_.Admit(kSenderEpoch + 1);
  EXPECT_EQ(Poll(), LanePoll::kNotReady) << "that was another one";
  reader_.Admit(kSenderEpoch);
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kIdle);
}

TEST_F(RelayLaneTest, PieceIsReadOnceTheDoorbellSaysSo) {
  ClaimAndAdmit(kSenderEpoch);
  EXPECT_EQ(Poll(), LanePoll::kIdle);
  Write(1);
  StoreRelease(header().head, 1);
  EXPECT_FALSE(reader_.HasWork()) << "head alone announces";
  EXPECT_TRUE(reader_.HasAnnounced());
  EXPECT_EQ(Poll(), LanePoll::kIdle);
  StoreRelease(header().doorbell, 1);
  EXPECT_TRUE(reader_.HasWork());
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 1u);
  EXPECT_EQ(piece_.slot(), 0u);
  EXPECT_EQ(piece_.sender_epoch, kSenderEpoch);
  EXPECT_EQ(copy_->session_name(), "target");
  EXPECT_FALSE(reader_.HasAnnounced());
}

// A doorbell written by a GPU is seen before head.
TEST_F(RelayLaneTest, OnlyTheDoorbellIsTrusted) {
  ClaimAndAdmit(kSenderEpoch);
  Write(1);
  Write(2);
  StoreRelease(header().doorbell, 2);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(Poll(), LanePoll::kIdle);
}

TEST_F(RelayLaneTest, BadDescriptorIsAnsweredAndTheLaneGoesOn) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Write(2);
  lane_->descriptors[1].reserved = 1;
  Publish(3);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  ASSERT_EQ(Poll(), LanePoll::kBadPiece);
  EXPECT_EQ(piece_.sequence, 2u);
  EXPECT_EQ(piece_.error, DescriptorError::kReserved);
  EXPECT_TRUE(writer_.Complete(piece_, RelayStatus::kBadDescriptor));
  EXPECT_EQ(Answer(2), -1);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 3u);
}

TEST_F(RelayLaneTest, ProbeIsABadDescriptor) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1, kRelayEpoch - 1);
  ASSERT_EQ(Poll(), LanePoll::kBadPiece);
  EXPECT_EQ(piece_.error, DescriptorError::kEpoch);
  EXPECT_TRUE(writer_.Complete(piece_, RelayStatus::kBadDescriptor));
  EXPECT_LT(Answer(1), 0);
  EXPECT_EQ(header().completed, 1u);
  Publish(2);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
}

// --- Rule 3

TEST_F(RelayLaneTest, DoorbellMayBeAFullRingAhead) {
  ClaimAndAdmit(kSenderEpoch);
  for (uint64_t sequence = 1; sequence <= 18; ++sequence) Write(sequence);
  StoreRelease(header().doorbell, 18);
  for (uint64_t sequence = 1; sequence <= 18; ++sequence) {
    ASSERT_EQ(Poll(), LanePoll::kPiece) << sequence;
  }
  EXPECT_EQ(Poll(), LanePoll::kIdle);
}

TEST_F(RelayLaneTest, Rule3DoorbellSanityBeyondTheRing) {
  ClaimAndAdmit(kSenderEpoch);
  Write(1);
  StoreRelease(header().doorbell, 19);
  EXPECT_EQ(Poll(), LanePoll::kQuarantined);
  StoreRelease(header().doorbell, 1);
  EXPECT_EQ(Poll(), LanePoll::kQuarantined) << "for good";
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_FALSE(reader_.HasAnnounced());
}

TEST_F(RelayLaneTest, Rule3DoorbellSanityGoingBack) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Publish(2);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(Poll(), LanePoll::kPiece);
  StoreRelease(header().doorbell, 1);
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kQuarantined);
}

TEST_F(RelayLaneTest, NewClaimEndsTheQuarantine) {
  ClaimAndAdmit(kSenderEpoch);
  StoreRelease(header().doorbell, 1000);
  EXPECT_EQ(Poll(), LanePoll::kQuarantined);
  ClaimAndAdmit(kSenderEpoch + 1);
  Publish(1);
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kPiece);
}

// --- Claims that follow each other

TEST_F(RelayLaneTest, NewSenderRestartsAtOneWithANewGeneration) {
  ClaimAndAdmit(kSenderEpoch);
  for (uint64_t sequence = 1; sequence <= 5; ++sequence) {
    Publish(sequence);
    ASSERT_EQ(Poll(), LanePoll::kPiece);
  }
  const uint32_t before = piece_.generation;
  Claim(kSenderEpoch + 1);
  Publish(1);
  EXPECT_EQ(Poll(), LanePoll::kUnknownSender) << "the old admission does not count";
  reader_.Admit(kSenderEpoch + 1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 1u);
  EXPECT_EQ(piece_.generation, before + 1);
  EXPECT_EQ(piece_.sender_epoch, kSenderEpoch + 1);
}

// Between two looks the same sender released the lane and claimed it again.
TEST_F(RelayLaneTest, SameEpochClaimedAgainIsNoticedByTheClaimCount) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  const uint32_t before = piece_.generation;
  ClaimAndAdmit(kSenderEpoch);
  EXPECT_TRUE(reader_.HasWork());
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 1u);
  EXPECT_EQ(piece_.generation, before + 1);
}

// The same by a version-1 sender, which counts no claims: fewer pieces, as many, or more than
// before.
TEST_F(RelayLaneTest, SameEpochClaimedAgainByVersionOneIsNoticedByTheClearedLane) {
  ClaimAndAdmit(kSenderEpoch);
  for (const uint64_t count : {3, 2, 2, 7, 0, 1}) {
    for (uint64_t sequence = 1; sequence <= count; ++sequence) Publish(sequence);
    EXPECT_EQ(reader_.HasWork(), count != 0);
    for (uint64_t sequence = 1; sequence <= count; ++sequence) {
      ASSERT_EQ(Poll(), LanePoll::kPiece) << count;
      ASSERT_EQ(piece_.sequence, sequence) << count;
      ASSERT_TRUE(writer_.Complete(piece_, RelayStatus::kOk));
    }
    EXPECT_EQ(header().completed, count);
    EXPECT_EQ(Poll(), LanePoll::kIdle);
    EXPECT_FALSE(reader_.HasWork());
    Claim(kSenderEpoch, /*counts=*/false);
    EXPECT_EQ(reader_.HasWork(), count != 0) << "cleared, if there was anything to clear";
    EXPECT_EQ(Poll(), LanePoll::kIdle);
  }
}

// As above, with the look at the cleared lane left out.
TEST_F(RelayLaneTest, VersionOneClaimAgainWithPiecesAlreadyInItStartsAtOne) {
  ClaimAndAdmit(kSenderEpoch);
  for (const uint64_t count : {3, 2, 2, 7}) {
    for (uint64_t sequence = 1; sequence <= count; ++sequence) Publish(sequence);
    EXPECT_TRUE(reader_.HasWork());
    for (uint64_t sequence = 1; sequence <= count; ++sequence) {
      ASSERT_EQ(Poll(), LanePoll::kPiece) << count;
      ASSERT_EQ(piece_.sequence, sequence) << count;
      ASSERT_TRUE(writer_.Complete(piece_, RelayStatus::kOk));
    }
    EXPECT_FALSE(reader_.HasWork());
    Claim(kSenderEpoch, /*counts=*/false);
  }
}

// Answers that come out of order leave `completed` at 0 for a while: nothing was cleared.
TEST_F(RelayLaneTest, LaneWithoutAFirstAnswerWasNotCleared) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Publish(2);
  LanePiece first, second;
  ASSERT_EQ(reader_.Poll(*copy_, first), LanePoll::kPiece);
  ASSERT_EQ(reader_.Poll(*copy_, second), LanePoll::kPiece);
  ASSERT_TRUE(writer_.Complete(second, RelayStatus::kOk));
  EXPECT_FALSE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kIdle);
  ASSERT_TRUE(writer_.Complete(first, RelayStatus::kOk));
  EXPECT_EQ(Poll(), LanePoll::kIdle);
  Publish(3);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 3u);
}

TEST_F(RelayLaneTest, LaneSeenFreeInBetweenRestartsToo) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  StoreLaneState(header(), LaneState::kFree);
  EXPECT_TRUE(reader_.HasWork()) << "to notice that it is free";
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
  EXPECT_FALSE(reader_.HasWork());
  Claim(kSenderEpoch, /*counts=*/false);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece) << "same epoch, still admitted";
  EXPECT_EQ(piece_.sequence, 1u);
}

TEST_F(RelayLaneTest, LaneTheRelayTookOverIsNotRead) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  Publish(2);
  StoreRelease(header().sender_epoch, kRelayEpoch);
  EXPECT_TRUE(reader_.HasWork());
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
  EXPECT_FALSE(reader_.HasWork());
  StoreRelease(header().doorbell, 7);
  EXPECT_FALSE(reader_.HasWork()) << "a dead sender's GPU still writes";
}

TEST_F(RelayLaneTest, DismissedSenderIsNotRead) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  reader_.Dismiss();
  Publish(2);
  EXPECT_EQ(Poll(), LanePoll::kUnknownSender);
  EXPECT_EQ(Poll(), LanePoll::kNotReady);
}

// The new sender's bytes lie in a slot that a post for the old one still reads: it must not be read
// for the new one before that post has ended.
TEST_F(RelayLaneTest, SlotIsNotReadWhileAPostOfAnOlderClaimReadsIt) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Publish(2);
  LanePiece old_first, old_second;
  ASSERT_EQ(reader_.Poll(*copy_, old_first), LanePoll::kPiece);
  reader_.BeginPost(old_first);
  ASSERT_EQ(reader_.Poll(*copy_, old_second), LanePoll::kPiece);
  reader_.BeginPost(old_second);
  ClaimAndAdmit(kSenderEpoch + 1);
  Publish(1);
  EXPECT_EQ(Poll(), LanePoll::kSlotBusy);
  reader_.EndPost(old_second);
  EXPECT_EQ(Poll(), LanePoll::kSlotBusy) << "that was another slot";
  EXPECT_EQ(reader_.in_flight(), 1u);
  reader_.EndPost(old_first);
  EXPECT_EQ(reader_.in_flight(), 0u);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_EQ(piece_.sequence, 1u);
}

// Within one claim a slot comes again only after its completion: the poll side wrote it, and the
// credit that says EndPost may still be on its way.
TEST_F(RelayLaneTest, SlotOfTheSameClaimIsReadBeforeItsCreditIsBack) {
  ClaimAndAdmit(kSenderEpoch);
  for (uint64_t sequence = 1; sequence <= 19; ++sequence) {
    Publish(sequence);
    ASSERT_EQ(Poll(), LanePoll::kPiece) << sequence;
    reader_.BeginPost(piece_);
  }
  EXPECT_EQ(reader_.in_flight(), 19u);
}

TEST_F(RelayLaneTest, CompletionOfAnOlderClaimIsNotWritten) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Publish(2);
  LanePiece first, second;
  ASSERT_EQ(reader_.Poll(*copy_, first), LanePoll::kPiece);
  ASSERT_EQ(reader_.Poll(*copy_, second), LanePoll::kPiece);
  ClaimAndAdmit(kSenderEpoch + 1);
  // Even before the writer has heard of the new claim: the lane itself says so.
  EXPECT_FALSE(writer_.Complete(first, RelayStatus::kOk));
  EXPECT_EQ(lane_->completions[0].commit_sequence, 0u);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_TRUE(writer_.Complete(piece_, RelayStatus::kOk));
  EXPECT_FALSE(writer_.Complete(second, RelayStatus::kOk));
  EXPECT_EQ(lane_->completions[1].commit_sequence, 0u);
  EXPECT_EQ(header().completed, 1u);
}

// The same sender under the same epoch: only the generation tells the claims apart.
TEST_F(RelayLaneTest, CompletionOfAnOlderClaimOfTheSameEpochIsNotWritten) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  Publish(2);
  LanePiece first, second;
  ASSERT_EQ(reader_.Poll(*copy_, first), LanePoll::kPiece);
  ASSERT_EQ(reader_.Poll(*copy_, second), LanePoll::kPiece);
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  EXPECT_TRUE(writer_.Complete(piece_, RelayStatus::kOk));
  EXPECT_FALSE(writer_.Complete(second, RelayStatus::kTransport));
  EXPECT_EQ(lane_->completions[1].commit_sequence, 0u);
  EXPECT_EQ(header().completed, 1u);
}

TEST_F(RelayLaneTest, NothingIsWrittenIntoALaneThatIsNotReady) {
  ClaimAndAdmit(kSenderEpoch);
  Publish(1);
  ASSERT_EQ(Poll(), LanePoll::kPiece);
  StoreLaneState(header(), LaneState::kClaiming);
  EXPECT_FALSE(writer_.Complete(piece_, RelayStatus::kOk));
  StoreLaneState(header(), LaneState::kFree);
  EXPECT_FALSE(writer_.Complete(piece_, RelayStatus::kOk));
  EXPECT_EQ(lane_->completions[0].commit_sequence, 0u);
  EXPECT_EQ(header().completed, 0u);
}

TEST_F(RelayLaneTest, CompletedMovesOverTheContiguousPrefixOnly) {
  ClaimAndAdmit(kSenderEpoch);
  std::vector<LanePiece> pieces(4);
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    Publish(sequence);
    ASSERT_EQ(reader_.Poll(*copy_, pieces[sequence - 1]), LanePoll::kPiece);
  }
  EXPECT_TRUE(writer_.Complete(pieces[2], RelayStatus::kTransport));
  EXPECT_EQ(header().completed, 0u);
  EXPECT_EQ(Answer(3), -4);
  EXPECT_FALSE(writer_.Complete(pieces[2], RelayStatus::kOk)) << "twice";
  EXPECT_EQ(Answer(3), -4);
  EXPECT_TRUE(writer_.Complete(pieces[0], RelayStatus::kOk));
  EXPECT_EQ(header().completed, 1u);
  EXPECT_TRUE(writer_.Complete(pieces[1], RelayStatus::kOk));
  EXPECT_EQ(header().completed, 3u);
  EXPECT_FALSE(writer_.Complete(pieces[1], RelayStatus::kTransport)) << "twice";
  EXPECT_FALSE(writer_.Complete(pieces[2], RelayStatus::kOk)) << "twice";
  EXPECT_EQ(Answer(2), 0);
  EXPECT_TRUE(writer_.Complete(pieces[3], RelayStatus::kOk));
  EXPECT_EQ(header().completed, 4u);
}

// Random traffic: pieces published while there is credit, some of them bad, read and completed out
// of order, reaped, and now and then the lane changes hands in the middle of it. Whatever happens,
// each claim's pieces are seen once, in order, and answered with their own status; `completed`
// never passes an unanswered piece; and no answer reaches a later claim.
TEST_F(RelayLaneTest, RandomTrafficKeepsEveryPromise) {
  std::mt19937 random(42);
  const auto chance = [&random](uint32_t percent) { return random() % 100 < percent; };
  uint64_t epoch = kSenderEpoch;
  uint64_t claims = 0, reaped_total = 0, stale_dropped = 0, busy_seen = 0;
  std::vector<LanePiece> posted;  // of any claim
  for (int round = 0; round < 150; ++round) {
    ClaimAndAdmit(++epoch);
    ++claims;
    RingCredit credit(1);
    CompletionReader completions(1);
    uint64_t published = 0, expected = 1;
    std::vector<int32_t> answers(1, 0);  // by sequence; 1: not answered yet
    std::vector<bool> bad(1, false);
    const int steps = 1 + static_cast<int>(random() % 600);
    for (int step = 0; step < steps; ++step) {
      switch (random() % 4) {
        case 0:
          if (credit.Available()) {
            published = credit.Take();
            ASSERT_EQ(published, answers.size());
            bad.push_back(chance(10));
            answers.push_back(1);
            Publish(published, bad[published] ? kRelayEpoch + 1 : kRelayEpoch);
          }
          break;
        case 1: {
          const LanePoll polled = Poll();
          if (polled == LanePoll::kSlotBusy) {
            ++busy_seen;
          } else if (polled == LanePoll::kPiece || polled == LanePoll::kBadPiece) {
            ASSERT_EQ(piece_.sequence, expected);
            ASSERT_LE(expected, published);
            ASSERT_EQ(polled == LanePoll::kBadPiece, bad[expected]);
            ASSERT_EQ(piece_.sender_epoch, epoch);
            ++expected;
            reader_.BeginPost(piece_);
            posted.push_back(piece_);
          } else {
            ASSERT_EQ(polled, LanePoll::kIdle);
            ASSERT_EQ(expected, published + 1);
          }
          break;
        }
        case 2: {
          if (posted.empty()) break;
          std::swap(posted[random() % posted.size()], posted.back());
          const LanePiece done = posted.back();
          posted.pop_back();
          const auto status = static_cast<RelayStatus>(-static_cast<int>(random() % 8));
          const bool written = writer_.Complete(done, status);
          reader_.EndPost(done);
          ASSERT_EQ(written, done.sender_epoch == epoch);
          if (written) {
            ASSERT_EQ(answers[done.sequence], 1);
            answers[done.sequence] = static_cast<int32_t>(status);
          } else {
            ++stale_dropped;
          }
          break;
        }
        default: {
          const SentCompletion found = completions.Poll(*lane_);
          if (found.state == CompletionState::kPending) break;
          ASSERT_EQ(found.state, CompletionState::kReady);
          ASSERT_EQ(found.status, answers[found.sequence]) << found.sequence;
          credit.Return(found.sequence);
          ++reaped_total;
        }
      }
      uint64_t prefix = 0;
      while (prefix + 1 < answers.size() && answers[prefix + 1] != 1) ++prefix;
      ASSERT_EQ(header().completed, prefix);
      ASSERT_LE(credit.Outstanding(), kSlotsPerLane);
    }
  }
  EXPECT_EQ(reader_.generation(), claims);
  EXPECT_GT(reaped_total, 1000u);
  EXPECT_GT(stale_dropped, 50u);
  EXPECT_GT(busy_seen, 50u);
}

// --- The sender's bookkeeping

TEST(RingCreditTest, EighteenPiecesAndNoMore) {
  RingCredit credit(1);
  for (uint64_t sequence = 1; sequence <= 18; ++sequence) {
    ASSERT_TRUE(credit.Available());
    ASSERT_EQ(credit.Take(), sequence);
  }
  EXPECT_FALSE(credit.Available());
  credit.Return(2);
  EXPECT_FALSE(credit.Available()) << "the next slot is that of sequence 1";
  EXPECT_EQ(credit.Outstanding(), 18u);
  credit.Return(1);
  EXPECT_EQ(credit.Outstanding(), 16u);
  EXPECT_EQ(credit.Take(), 19u);
  EXPECT_EQ(credit.Take(), 20u);
  EXPECT_FALSE(credit.Available());
  credit.Return(2);    // twice
  credit.Return(500);  // never handed out
  EXPECT_FALSE(credit.Available());
}

TEST(RingCreditTest, GoesOnAfterAReusedLane) {
  RingCredit credit(42);
  EXPECT_TRUE(credit.Available());
  EXPECT_EQ(credit.Outstanding(), 0u);
  EXPECT_EQ(credit.Take(), 42u);
  credit.Return(42);
  EXPECT_EQ(credit.Outstanding(), 0u);
}

class CompletionReaderTest : public ::testing::Test {
 protected:
  CompletionReaderTest() : lane_(std::make_unique<LaneControl>()), reader_(1) {
    std::memset(static_cast<void*>(lane_.get()), 0, sizeof(LaneControl));
  }
  void Answer(uint64_t sequence, int32_t status) {
    CommitCompletion(lane_->completions[SlotIndex(sequence)], sequence, status);
  }
  std::unique_ptr<LaneControl> lane_;
  CompletionReader reader_;
};

TEST_F(CompletionReaderTest, FindsAnswersInAnyOrderAndEachOnce) {
  StoreRelease(lane_->header.head, 4);
  EXPECT_EQ(reader_.Poll(*lane_).state, CompletionState::kPending);
  Answer(3, -2);
  SentCompletion found = reader_.Poll(*lane_);
  EXPECT_EQ(found.state, CompletionState::kReady);
  EXPECT_EQ(found.sequence, 3u);
  EXPECT_EQ(found.status, -2);
  EXPECT_EQ(reader_.Poll(*lane_).state, CompletionState::kPending);
  Answer(1, 0);
  Answer(2, 0);
  EXPECT_EQ(reader_.Poll(*lane_).sequence, 1u);
  EXPECT_EQ(reader_.Poll(*lane_).sequence, 2u);
  EXPECT_EQ(reader_.Poll(*lane_).state, CompletionState::kPending);
}

TEST_F(CompletionReaderTest, LooksNoFurtherThanHead) {
  Answer(1, 0);
  EXPECT_EQ(reader_.Poll(*lane_).state, CompletionState::kPending);
  StoreRelease(lane_->header.head, 1);
  EXPECT_EQ(reader_.Poll(*lane_).sequence, 1u);
  StoreRelease(lane_->header.head, ~uint64_t{0});
  EXPECT_EQ(reader_.Poll(*lane_).state, CompletionState::kPending) << "a head gone mad";
}

TEST_F(CompletionReaderTest, MalformedAnswerIsSaid) {
  StoreRelease(lane_->header.head, 1);
  Answer(1, 0);
  lane_->completions[0].reserved = 9;
  const SentCompletion found = reader_.Poll(*lane_);
  EXPECT_EQ(found.state, CompletionState::kMalformed);
  EXPECT_EQ(found.sequence, 1u);
}

}  // namespace
}  // namespace railhop
