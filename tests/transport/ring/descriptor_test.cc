#include "transport/ring/descriptor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "transport/ring/completion.h"

namespace railhop {
namespace {

constexpr uint64_t kEpoch = 0xfeedface12345678;

class DescriptorTest : public ::testing::Test {
 protected:
  DescriptorTest()
      : descriptor_(std::make_unique<Descriptor>()), copy_(std::make_unique<DescriptorCopy>()) {
    std::memset(static_cast<void*>(descriptor_.get()), 0, sizeof(Descriptor));
    std::memset(static_cast<void*>(copy_.get()), 0xa5, sizeof(DescriptorCopy));
  }

  // A good piece of three entries, as sequence 5.
  void Fill() {
    const std::vector<PlanEntry> plans = {{0x1000, 100}, {0x2000, 200}, {0x9000, 4096}};
    ASSERT_EQ(writer_.Prepare(*descriptor_, 4, kEpoch, "decode-7", plans), DescriptorError::kNone);
    DescriptorWriter::Commit(*descriptor_, 5);
  }
  DescriptorError Judge(uint64_t sequence = 5, uint64_t epoch = kEpoch) {
    CopyDescriptor(*descriptor_, *copy_);
    return Validate(*copy_, sequence, epoch);
  }

  DescriptorWriter writer_;
  std::unique_ptr<Descriptor> descriptor_;
  std::unique_ptr<DescriptorCopy> copy_;
};

TEST_F(DescriptorTest, GoodPieceIsReadAsItWasWritten) {
  Fill();
  ASSERT_EQ(Judge(), DescriptorError::kNone);
  EXPECT_EQ(copy_->session_name(), "decode-7");
  EXPECT_EQ(copy_->piece_length, 4396u);
  ASSERT_EQ(copy_->plan().size(), 3u);
  EXPECT_EQ(copy_->plan()[2], (PlanEntry{0x9000, 4096}));
}

TEST_F(DescriptorTest, LimitsAreInclusive) {
  std::vector<PlanEntry> plans(kMaxPlanEntries, {1, kSlotBytes / kMaxPlanEntries});
  plans.back().final_destination = std::numeric_limits<uint64_t>::max() - plans.back().length;
  const std::string session(kMaxSessionBytes, 's');
  ASSERT_EQ(writer_.Prepare(*descriptor_, 0, kEpoch, session, plans), DescriptorError::kNone);
  DescriptorWriter::Commit(*descriptor_, 1);
  ASSERT_EQ(Judge(1), DescriptorError::kNone);
  EXPECT_EQ(copy_->session_name(), session);
  EXPECT_EQ(copy_->piece_length, kSlotBytes);
}

struct Mutation {
  const char* name;
  DescriptorError expected;
  std::function<void(Descriptor&)> apply;
};

class DescriptorMutationTest : public DescriptorTest,
                               public ::testing::WithParamInterface<Mutation> {};

TEST_P(DescriptorMutationTest, IsRefused) {
  Fill();
  ASSERT_EQ(Judge(), DescriptorError::kNone);
  GetParam().apply(*descriptor_);
  EXPECT_STREQ(DescriptorErrorName(Judge()), DescriptorErrorName(GetParam().expected));
}

INSTANTIATE_TEST_SUITE_P(
    EveryRule, DescriptorMutationTest,
    ::testing::Values(
        Mutation{"SequenceOfAnotherPiece", DescriptorError::kSequence,
                 [](Descriptor& d) { d.commit_sequence = 23; }},
        Mutation{"SequenceZero", DescriptorError::kSequence,
                 [](Descriptor& d) { d.commit_sequence = 0; }},
        Mutation{"EpochOfAnother", DescriptorError::kEpoch, [](Descriptor& d) { ++d.epoch; }},
        Mutation{"EpochZero", DescriptorError::kEpoch, [](Descriptor& d) { d.epoch = 0; }},
        Mutation{"PieceOfNothing", DescriptorError::kPieceLength,
                 [](Descriptor& d) { d.piece_length = 0; }},
        Mutation{"PieceBeyondSlot", DescriptorError::kPieceLength,
                 [](Descriptor& d) { d.piece_length = kSlotBytes + 1; }},
        Mutation{"NoPlans", DescriptorError::kPlanCount, [](Descriptor& d) { d.plan_count = 0; }},
        Mutation{"TooManyPlans", DescriptorError::kPlanCount,
                 [](Descriptor& d) { d.plan_count = kMaxPlanEntries + 1; }},
        Mutation{"HugePlanCount", DescriptorError::kPlanCount,
                 [](Descriptor& d) { d.plan_count = 0xffffffff; }},
        Mutation{"NoSession", DescriptorError::kSessionLength,
                 [](Descriptor& d) { d.session_length = 0; }},
        Mutation{"SessionTooLong", DescriptorError::kSessionLength,
                 [](Descriptor& d) { d.session_length = kMaxSessionBytes + 1; }},
        Mutation{"HugeSession", DescriptorError::kSessionLength,
                 [](Descriptor& d) { d.session_length = 0xffffffff; }},
        Mutation{"Reserved", DescriptorError::kReserved, [](Descriptor& d) { d.reserved = 1; }},
        Mutation{"NulInSession", DescriptorError::kSession,
                 [](Descriptor& d) { d.session[3] = '\0'; }},
        Mutation{"EntryOfNothing", DescriptorError::kEntryLength,
                 [](Descriptor& d) {
                   d.plans[1].length = 0;
                   d.piece_length -= 200;
                 }},
        Mutation{"EntryWraps", DescriptorError::kEntryWrap,
                 [](Descriptor& d) {
                   d.plans[2].final_destination = std::numeric_limits<uint64_t>::max() - 4095;
                 }},
        Mutation{"SumTooSmall", DescriptorError::kLengthSum,
                 [](Descriptor& d) { --d.plans[0].length; }},
        Mutation{"SumTooLarge", DescriptorError::kLengthSum,
                 [](Descriptor& d) { ++d.plans[0].length; }},
        Mutation{"PieceLengthSmaller", DescriptorError::kLengthSum,
                 [](Descriptor& d) { --d.piece_length; }},
        // Lengths whose sum is right only modulo 2^64.
        Mutation{"SumWraps", DescriptorError::kLengthSum,
                 [](Descriptor& d) {
                   d.plans[0] = {0, std::numeric_limits<uint64_t>::max()};
                   d.plans[1] = {0, 301};
                 }},
        Mutation{"FewerPlansThanTheSum", DescriptorError::kLengthSum,
                 [](Descriptor& d) { d.plan_count = 2; }},
        Mutation{"MorePlansThanWritten", DescriptorError::kEntryLength,
                 [](Descriptor& d) { d.plan_count = 4; }}),
    [](const ::testing::TestParamInfo<Mutation>& row) { return std::string(row.param.name); });

TEST_F(DescriptorTest, ExpectedValuesOfZeroMatchNothing) {
  Fill();
  EXPECT_EQ(Judge(0), DescriptorError::kSequence);
  descriptor_->commit_sequence = 0;
  EXPECT_EQ(Judge(0), DescriptorError::kSequence);
  Fill();
  descriptor_->epoch = 0;
  EXPECT_EQ(Judge(5, 0), DescriptorError::kEpoch);
}

TEST_F(DescriptorTest, WriterRefusesWhatAReaderWould) {
  const std::vector<PlanEntry> good = {{0x1000, 1}};
  const auto prepare = [&](uint64_t epoch, std::string_view session,
                           const std::vector<PlanEntry>& plans) {
    return writer_.Prepare(*descriptor_, 0, epoch, session, plans);
  };
  EXPECT_EQ(prepare(0, "s", good), DescriptorError::kEpoch);
  EXPECT_EQ(prepare(1, "", good), DescriptorError::kSessionLength);
  EXPECT_EQ(prepare(1, std::string(257, 's'), good), DescriptorError::kSessionLength);
  EXPECT_EQ(prepare(1, std::string_view("a\0b", 3), good), DescriptorError::kSession);
  EXPECT_EQ(prepare(1, "s", {}), DescriptorError::kPlanCount);
  EXPECT_EQ(prepare(1, "s", std::vector<PlanEntry>(4097, {0, 1})), DescriptorError::kPlanCount);
  EXPECT_EQ(prepare(1, "s", {{0, 0}}), DescriptorError::kEntryLength);
  EXPECT_EQ(prepare(1, "s", {{~uint64_t{0}, 1}}), DescriptorError::kEntryWrap);
  EXPECT_EQ(prepare(1, "s", {{0, kSlotBytes}, {0, 1}}), DescriptorError::kLengthSum);
  const Descriptor untouched{};
  EXPECT_EQ(std::memcmp(descriptor_.get(), &untouched, sizeof(untouched)), 0);
}

TEST_F(DescriptorTest, FirstUseOfASlotClearsAllOfIt) {
  std::memset(static_cast<void*>(descriptor_.get()), 0xee, sizeof(Descriptor));
  const PlanEntry plan{0x10, 1};
  ASSERT_EQ(writer_.Prepare(*descriptor_, 0, kEpoch, "x", {&plan, 1}), DescriptorError::kNone);
  EXPECT_EQ(descriptor_->commit_sequence, 0xeeeeeeeeeeeeeeeeu) << "not the writer's before Commit";
  Descriptor expected{};
  expected.commit_sequence = descriptor_->commit_sequence;
  expected.epoch = kEpoch;
  expected.piece_length = 1;
  expected.plan_count = 1;
  expected.session_length = 1;
  expected.session[0] = 'x';
  expected.plans[0] = plan;
  EXPECT_EQ(std::memcmp(descriptor_.get(), &expected, sizeof(expected)), 0);
}

TEST_F(DescriptorTest, LeftoversOfTheSlotsPreviousUseAreCleared) {
  // Many uses of random size: whatever the order, the rest of the arrays reads 0.
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    const uint32_t count = 1 + random() % (round % 3 == 0 ? kMaxPlanEntries : 8);
    const uint32_t session = 1 + random() % kMaxSessionBytes;
    const std::vector<PlanEntry> plans(count, {0x7000, 3});
    ASSERT_EQ(writer_.Prepare(*descriptor_, 2, kEpoch, std::string(session, 'n'), plans),
              DescriptorError::kNone);
    for (uint32_t i = count; i < kMaxPlanEntries; ++i) {
      ASSERT_EQ(descriptor_->plans[i], (PlanEntry{0, 0})) << "round " << round << " entry " << i;
    }
    for (uint32_t i = session; i < kMaxSessionBytes; ++i) ASSERT_EQ(descriptor_->session[i], 0);
  }
}

TEST_F(DescriptorTest, OnlyTheExcessIsCleared) {
  const std::vector<PlanEntry> plans(10, {0x7000, 3});
  ASSERT_EQ(writer_.Prepare(*descriptor_, 2, kEpoch, "name", plans), DescriptorError::kNone);
  // Beyond what the slot's last use left nobody wrote, so it must not be written again.
  descriptor_->plans[100].length = 77;
  ASSERT_EQ(writer_.Prepare(*descriptor_, 2, kEpoch, "name", {plans.data(), 1}),
            DescriptorError::kNone);
  EXPECT_EQ(descriptor_->plans[9].length, 0u);
  EXPECT_EQ(descriptor_->plans[100].length, 77u);
}

// Deterministic random damage: no copy of it may lead a reader beyond its arrays, and what is
// accepted obeys every rule.
TEST_F(DescriptorTest, RandomMutationsNeverPassAsGoodUnlessTheyAre) {
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Fill();
    const int damages = static_cast<int>(random() % 4);
    for (int i = 0; i < damages; ++i) {
      auto* bytes = reinterpret_cast<unsigned char*>(descriptor_.get());
      // Mostly in the header and the first entries, where it matters.
      const size_t at = random() % 4 != 0 ? random() % 352 : random() % sizeof(Descriptor);
      switch (random() % 3) {
        case 0:
          bytes[at] = static_cast<unsigned char>(random());
          break;
        case 1:
          bytes[at] ^= static_cast<unsigned char>(1u << random() % 8);
          break;
        default: {
          const uint64_t word = random() % 2 == 0 ? ~uint64_t{0} : random();
          const size_t aligned = at / 8 * 8;
          std::memcpy(bytes + aligned, &word, sizeof(word));
        }
      }
    }
    if (Judge() != DescriptorError::kNone) continue;
    ++accepted;
    uint64_t sum = 0;
    for (const PlanEntry& entry : copy_->plan()) {
      ASSERT_GT(entry.length, 0u);
      ASSERT_GT(entry.final_destination + entry.length, entry.final_destination);
      sum += entry.length;
    }
    ASSERT_EQ(sum, copy_->piece_length);
    ASSERT_LE(sum, kSlotBytes);
    ASSERT_FALSE(copy_->session_name().empty());
  }
  EXPECT_GT(accepted, 4000) << "the undamaged quarter must pass";
}

TEST_F(DescriptorTest, EveryErrorHasAName) {
  std::vector<std::string> names;
  for (int i = 0; i <= static_cast<int>(DescriptorError::kLengthSum); ++i) {
    names.emplace_back(DescriptorErrorName(static_cast<DescriptorError>(i)));
  }
  std::sort(names.begin(), names.end());
  EXPECT_EQ(std::unique(names.begin(), names.end()), names.end());
  EXPECT_EQ(std::count(names.begin(), names.end(), "unknown"), 0);
}

TEST(CompletionTest, AnswersOnlyUnderTheRightSequence) {
  Completion completion{};
  int32_t status = 99;
  EXPECT_EQ(TryLoadCompletion(completion, 3, &status), CompletionState::kPending);
  CommitCompletion(completion, 3, -7);
  EXPECT_EQ(TryLoadCompletion(completion, 21, &status), CompletionState::kPending);
  EXPECT_EQ(status, 99);
  ASSERT_EQ(TryLoadCompletion(completion, 3, &status), CompletionState::kReady);
  EXPECT_EQ(status, -7);
  CommitCompletion(completion, 21, 0);
  EXPECT_EQ(TryLoadCompletion(completion, 3, &status), CompletionState::kPending);
  ASSERT_EQ(TryLoadCompletion(completion, 21, &status), CompletionState::kReady);
  EXPECT_EQ(status, 0);
}

TEST(CompletionTest, AnythingElseUnderTheRightSequenceIsMalformed) {
  Completion completion{};
  int32_t status = 99;
  CommitCompletion(completion, 3, 0);
  completion.reserved = 1;
  EXPECT_EQ(TryLoadCompletion(completion, 3, &status), CompletionState::kMalformed);
  CommitCompletion(completion, 3, 5);
  EXPECT_EQ(TryLoadCompletion(completion, 3, &status), CompletionState::kMalformed);
  EXPECT_EQ(status, 99);
}

}  // namespace
}  // namespace railhop
