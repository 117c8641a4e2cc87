#include "actors/bootstrap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <filesystem>

#include "actors/piece_trace.h"
#include "tests/actors/rank_support.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

size_t OpenDescriptors() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

TEST_F(RankTest, SaysWhereTheConfigIsWrong) {
  std::string error;
  EXPECT_EQ(Rank::Create("name: \"a\"\nnamme: 3\n", "rank0.textproto", &error), nullptr);
  EXPECT_THAT(error, HasSubstr("rank0.textproto:2"));
  EXPECT_THAT(error, HasSubstr("namme"));
}

TEST_F(RankTest, WritesAndReadsDirect) {
  const Target target = MakeTarget("decode", 1 << 20, "sim9");
  auto rank = Make(Config(0, kFast));
  std::vector<std::byte> memory = Pattern(1 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  const auto address = reinterpret_cast<uint64_t>(target.memory.data());
  const BatchStatus written =
      Run(*rank, {{Opcode::kWrite, memory.data(), id, address, 700'000},
                  {Opcode::kWrite, memory.data() + 700'000, id, address + 700'000, 1}});
  EXPECT_EQ(written.state, BatchState::kCompleted);
  EXPECT_EQ(written.bytes, 700'001U);
  EXPECT_EQ(written.relayed_bytes, 0U);
  EXPECT_EQ(memcmp(target.memory.data(), memory.data(), 700'001), 0);
  EXPECT_EQ(target.memory[700'001], std::byte{0});

  const std::vector<std::byte> sent = memory;
  std::fill(memory.begin(), memory.end(), std::byte{0});
  EXPECT_EQ(Run(*rank, {{Opcode::kRead, memory.data(), id, address, 700'001}}).state,
            BatchState::kCompleted);
  EXPECT_EQ(memcmp(memory.data(), sent.data(), 700'001), 0);
}

TEST_F(RankTest, FailsWhatCannotBeSentAndFinishesTheRest) {
  const Target target = MakeTarget("decode", 4096, "sim9");
  auto rank = Make(Config(0, kFast));
  std::vector<std::byte> memory = Pattern(4096, 1);
  std::vector<std::byte> unknown(4096);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  const auto address = reinterpret_cast<uint64_t>(target.memory.data());
  const auto fails_with = [&](TransferRequest request) {
    const BatchStatus status = Run(*rank, {{Opcode::kWrite, memory.data(), id, address, 64},
                                           request,
                                           {Opcode::kWrite, memory.data(), id, address + 64, 64}});
    EXPECT_EQ(status.state, BatchState::kFailed);
    EXPECT_EQ(status.bytes, 128U);
    return status.error;
  };
  EXPECT_EQ(fails_with({Opcode::kWrite, unknown.data(), id, address, 64}),
            TransferError::kNotRegistered);
  EXPECT_EQ(fails_with({Opcode::kWrite, memory.data(), id + 5, address, 64}),
            TransferError::kUnknownTarget);
  EXPECT_EQ(fails_with({Opcode::kWrite, memory.data(), 0, address, 64}),
            TransferError::kUnknownTarget);
  EXPECT_EQ(fails_with({Opcode::kWrite, memory.data(), id, address + 4090, 64}),
            TransferError::kRemoteAccess);
  EXPECT_EQ(fails_with({static_cast<Opcode>(7), memory.data(), id, address, 64}),
            TransferError::kInvalidRequest);
  EXPECT_EQ(fails_with({Opcode::kWrite, memory.data(), id, UINT64_MAX - 3, 64}),
            TransferError::kInvalidRequest);
  EXPECT_EQ(Run(*rank, {}).state, BatchState::kCompleted);
}

TEST_F(RankTest, NamesATargetThatIsNotThere) {
  auto rank = Make(Config(0, kFast));
  std::string error;
  EXPECT_EQ(rank->OpenSegment("nowhere", &error), 0U);
  EXPECT_THAT(error, HasSubstr("nowhere"));
  EXPECT_EQ(rank->OpenSegment("", &error), 0U);
  EXPECT_EQ(rank->OpenSegment(std::string(257, 'x'), &error), 0U);
}

TEST_F(RankTest, RefusesMemoryThatItCannotKeepApart) {
  auto rank = Make(Config(0, kFast));
  std::vector<std::byte> memory(8192);
  Register(*rank, memory);
  std::string error;
  EXPECT_FALSE(rank->RegisterMemory(memory.data() + 4096, 8, "cpu:0", &error));
  EXPECT_THAT(error, HasSubstr("overlaps"));
  EXPECT_FALSE(rank->RegisterMemory(nullptr, 8, "cpu:0", &error));
  EXPECT_FALSE(rank->RegisterMemory(memory.data(), 0, "cpu:0", &error));
  EXPECT_FALSE(rank->RegisterMemory(memory.data(), 64, "cuda:0", &error));
  EXPECT_THAT(error, HasSubstr("cuda:0"));
  EXPECT_FALSE(rank->UnregisterMemory(memory.data() + 1, &error));
  EXPECT_TRUE(rank->UnregisterMemory(memory.data(), &error)) << error;
  EXPECT_FALSE(rank->UnregisterMemory(memory.data(), &error));
  Register(*rank, memory);
}

TEST_F(RankTest, RefusesMemoryOfWhichNotAllIsMapped) {
  auto rank = Make(Config(0, kFast));
  constexpr size_t kPage = 4096, kPages = 5000;
  auto* const memory = static_cast<std::byte*>(
      mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(memory, MAP_FAILED);
  ASSERT_EQ(munmap(memory + (kPages - 1) * kPage, kPage), 0);
  std::string error;
  EXPECT_FALSE(rank->RegisterMemory(memory, kPages * kPage, "cpu:0", &error));
  EXPECT_THAT(error, HasSubstr("not all of it is mapped"));
  EXPECT_TRUE(rank->RegisterMemory(memory + 1, (kPages - 1) * kPage - 1, "cpu:0", &error)) << error;
  EXPECT_TRUE(rank->UnregisterMemory(memory + 1, &error)) << error;
  munmap(memory, (kPages - 1) * kPage);
}

TEST_F(RankTest, ALongTimeoutIsALongTime) {
  const Target target = MakeTarget("decode", 1 << 20, "sim9");
  auto rank = Make(Config(0, kFast));
  std::vector<std::byte> memory(1 << 20);
  Register(*rank, memory);
  const TransferRequest request{.opcode = Opcode::kWrite,
                                .source = memory.data(),
                                .target = Open(*rank, "decode"),
                                .target_address = reinterpret_cast<uint64_t>(target.memory.data()),
                                .length = memory.size()};
  BatchId batch;
  ASSERT_EQ(rank->Submit({&request, 1}, milliseconds::max(), &batch), SubmitResult::kOk);
  EXPECT_TRUE(rank->Wait(batch, kForever));
  EXPECT_EQ(rank->Status(batch).state, BatchState::kCompleted);
}

TEST_F(RankTest, KeepsMemoryThatIsInUse) {
  const Target target = MakeTarget("decode", 1 << 20, "sim9");
  auto rank = Make(Config(0, 1'000'000));  // a second for the whole
  std::vector<std::byte> memory = Pattern(1 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), id,
                                reinterpret_cast<uint64_t>(target.memory.data()), 1 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
  std::string error;
  EXPECT_FALSE(rank->UnregisterMemory(memory.data(), &error));
  EXPECT_THAT(error, HasSubstr("in use"));
  EXPECT_EQ(rank->Free(batch), FreeResult::kBusy);
  EXPECT_TRUE(rank->Wait(batch, kForever));
  EXPECT_EQ(rank->Status(batch).state, BatchState::kCompleted)
      << TransferErrorName(rank->Status(batch).error);
  EXPECT_TRUE(rank->UnregisterMemory(memory.data(), &error)) << error;
  EXPECT_EQ(rank->Free(batch), FreeResult::kOk);
  EXPECT_EQ(rank->Free(batch), FreeResult::kUnknown);
}

TEST_F(RankTest, AnswersTryAgainWhenAllBatchesAreTaken) {
  auto rank = Make(Config(0, kFast, "max_batches: 2"));
  BatchId first;
  BatchId second;
  BatchId third;
  ASSERT_EQ(rank->Submit({}, milliseconds(0), &first), SubmitResult::kOk);
  ASSERT_EQ(rank->Submit({}, milliseconds(0), &second), SubmitResult::kOk);
  EXPECT_EQ(rank->Submit({}, milliseconds(0), &third), SubmitResult::kTryAgain);
  EXPECT_EQ(rank->Submit({}, milliseconds(-1), &third), SubmitResult::kInvalid);
  EXPECT_TRUE(rank->Wait(first, kForever));
  EXPECT_EQ(rank->Free(first), FreeResult::kOk);
  EXPECT_EQ(rank->Submit({}, milliseconds(0), &third), SubmitResult::kOk);
}

TEST_F(RankTest, ABatchPastItsDeadlineIsNotFreeBeforeItIsQuiescent) {
  const Target target = MakeTarget("decode", 1 << 20, "sim9");
  auto rank = Make(Config(0, 2'000'000));  // half a second for the whole
  std::vector<std::byte> memory = Pattern(1 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), id,
                                reinterpret_cast<uint64_t>(target.memory.data()), 1 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, milliseconds(50), &batch), SubmitResult::kOk);
  ASSERT_TRUE(rank->Wait(batch, kForever));
  const BatchStatus status = rank->Status(batch);
  if (status.state == BatchState::kTimeout) {
    EXPECT_EQ(status.error, TransferError::kDeadline);
    while (rank->Free(batch) == FreeResult::kBusy) std::this_thread::yield();
  } else {
    // This thread was away for as long as the transfer took.
    EXPECT_NE(status.state, BatchState::kPending);
  }
}

TEST_F(RankTest, StopEndsWaitingAndRefusesNewWork) {
  const Target target = MakeTarget("decode", 64 << 20, "sim9");
  auto rank = Make(Config(0, 1'000'000));  // would take a minute
  std::vector<std::byte> memory = Pattern(64 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), id,
                                reinterpret_cast<uint64_t>(target.memory.data()), 64 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
  std::thread waiter([&] { EXPECT_TRUE(rank->Wait(batch, kForever)); });
  rank->Stop(milliseconds(20));
  waiter.join();
  EXPECT_NE(rank->Status(batch).state, BatchState::kPending);
  EXPECT_NE(rank->Status(batch).state, BatchState::kCompleted);
  BatchId late;
  EXPECT_EQ(rank->Submit({&request, 1}, kForever, &late), SubmitResult::kStopping);
  std::string error;
  EXPECT_FALSE(rank->RegisterMemory(memory.data(), 64, "cpu:0", &error));
  EXPECT_THAT(error, HasSubstr("stopping"));
  EXPECT_EQ(rank->OpenSegment("decode", &error), 0U);
  rank->Cancel(batch);
  rank->Stop(milliseconds(20));
}

TEST_F(RankTest, LeavesNothingOpenWhenItIsDestroyed) {
  Make(Relaying(0, kFast)).reset();  // what is made once per process
  const size_t before = OpenDescriptors();
  for (int i = 0; i < 10; ++i) Make(Relaying(0, kFast)).reset();
  EXPECT_EQ(OpenDescriptors(), before);
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_)) {
    if (entry.path().filename() != ".lock" && !entry.is_directory()) ++files;
  }
  EXPECT_EQ(files, 0U);
}

TEST_F(RankTest, PxnOffHasAReasonAndEverythingGoesDirect) {
  const Target target = MakeTarget("decode", 4096, "sim1");
  std::vector<std::byte> memory = Pattern(4096, 1);
  const auto reason_of = [&](const std::string& config) {
    auto rank = Make(config);
    Register(*rank, memory);
    const BatchStatus status =
        Run(*rank, {{Opcode::kWrite, memory.data(), Open(*rank, "decode"),
                     reinterpret_cast<uint64_t>(target.memory.data()), 4096}});
    EXPECT_EQ(status.state, BatchState::kCompleted);
    EXPECT_EQ(status.relayed_bytes, 0U);
    EXPECT_FALSE(rank->WaitForRelay("sim1", milliseconds(0)));
    return rank->pxn_off_reason();
  };
  EXPECT_THAT(reason_of(Config(0, kFast, "pxn { enable: true group_id: \"a/b\" }")),
              HasSubstr("a/b"));
  EXPECT_THAT(reason_of(Config(0, kFast, "pxn { enable: true group_id: \"g\" rail_map: \"[]\" }")),
              HasSubstr("rail_map"));
  EXPECT_THAT(reason_of(Config(0, kFast,
                               "nics { name: \"other\" rail: \"sim0\" sim {} } "
                               "pxn { enable: true group_id: \"g\" }")),
              HasSubstr("sim0"));
  std::string no_root = Relaying(0, kFast);
  const std::string root = "registry_root: \"" + folder_;
  no_root.replace(no_root.find(root), root.size(), "registry_root: \"/nowhere");
  EXPECT_THAT(reason_of(no_root), HasSubstr("/nowhere"));
}

TEST_F(RankTest, ADyingTargetFailsItsBatchesAndNobodyElses) {
  Child child([&](int end) { ServeTarget("dying", 8 << 20, "sim9", end); });
  const uint64_t address = AddressOf("dying");
  const Target healthy = MakeTarget("healthy", 1 << 20, "sim9");
  auto rank = Make(Config(0, 4'000'000));  // two seconds for the whole
  std::vector<std::byte> memory = Pattern(8 << 20, 1);
  Register(*rank, memory);
  const SegmentId dying = Open(*rank, "dying");
  const SegmentId id = Open(*rank, "healthy");
  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), dying, address, 8 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
  child.Kill();
  EXPECT_TRUE(rank->Wait(batch, kForever));
  EXPECT_EQ(rank->Status(batch).state, BatchState::kFailed);
  EXPECT_THAT(rank->Status(batch).error,
              testing::AnyOf(TransferError::kTargetDead, TransferError::kTransport));
  EXPECT_EQ(rank->Free(batch), FreeResult::kOk);
  EXPECT_EQ(Run(*rank, {{Opcode::kWrite, memory.data(), id,
                         reinterpret_cast<uint64_t>(healthy.memory.data()), 4096}})
                .state,
            BatchState::kCompleted);
}

TEST_F(RankTest, RelaysWhileThePeerLivesAndGoesDirectWhenItDies) {
  const auto relay = [&](int end) {
    std::string error;
    const auto peer = Rank::Create(Relaying(1, 200'000'000), "relay", &error);
    if (peer == nullptr) _exit(1);
    Child::AwaitEnd(end);
    peer->Stop(seconds(1));
  };
  Child first(relay);
  Child second([&](int end) { ServeTarget("decode", 64 << 20, "sim1", end); });
  const uint64_t address = AddressOf("decode");
  auto rank = Make(Relaying(0, 200'000'000));
  std::vector<std::byte> memory = Pattern(64 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  ASSERT_TRUE(rank->WaitForRelay("sim1", kForever));
  const BatchStatus relayed = Run(*rank, {{Opcode::kWrite, memory.data(), id, address, 20 << 20}});
  EXPECT_EQ(relayed.state, BatchState::kCompleted);
  EXPECT_EQ(relayed.relayed_bytes, 20U << 20);

  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), id, address, 64 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
  while (rank->Stats().pieces_relayed == 0) std::this_thread::yield();
  first.Kill();
  EXPECT_TRUE(rank->Wait(batch, kForever));
  const BatchStatus status = rank->Status(batch);
  EXPECT_EQ(status.state, BatchState::kCompleted) << TransferErrorName(status.error);
  EXPECT_EQ(status.bytes, 64U << 20);
  EXPECT_EQ(rank->Free(batch), FreeResult::kOk);

  std::vector<std::byte> arrived(64 << 20);
  Register(*rank, arrived);
  EXPECT_EQ(Run(*rank, {{Opcode::kRead, arrived.data(), id, address, 64 << 20}}).state,
            BatchState::kCompleted);
  EXPECT_TRUE(arrived == memory);
}

TEST_F(RankTest, TellsItsLanesAndTheStagesOfItsPieces) {
  Child relay([&](int end) {
    std::string error;
    const auto peer = Rank::Create(Relaying(1, 200'000'000), "relay", &error);
    if (peer == nullptr) _exit(1);
    Child::AwaitEnd(end);
  });
  Child target([&](int end) { ServeTarget("decode", 8 << 20, "sim1", end); });
  const uint64_t address = AddressOf("decode");
  const auto before = std::chrono::steady_clock::now();
  auto rank = Make(Relaying(0, 200'000'000, "tracing { sample_every: 1 }"));
  std::vector<std::byte> memory = Pattern(8 << 20, 1);
  Register(*rank, memory);
  const SegmentId id = Open(*rank, "decode");
  ASSERT_TRUE(rank->WaitForRelay("sim1", kForever));
  BatchId batch;
  const TransferRequest request{Opcode::kWrite, memory.data(), id, address, 8 << 20};
  ASSERT_EQ(rank->Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
  uint32_t most = 0;
  while (!rank->Wait(batch, milliseconds(1))) {
    const std::vector<LaneSlots> lanes = rank->Stats().lanes;
    ASSERT_EQ(lanes.size(), 1U);
    const LaneSlots& lane = lanes[0];
    EXPECT_THAT(lane.rails, testing::ElementsAre("sim1"));
    const uint32_t used = lane.copying + lane.rung + lane.posted + lane.completed;
    EXPECT_EQ(lane.free + used, 18U);
    most = std::max(most, used);
  }
  EXPECT_GT(most, 0U);
  EXPECT_EQ(rank->Status(batch).relayed_bytes, 8U << 20);
  rank->Free(batch);

  // All of the batch's pieces, from submitted to reaped; the relay's stages are the relay's to
  // tell.
  const auto ns = [](std::chrono::steady_clock::time_point time) {
    return static_cast<uint64_t>(std::chrono::nanoseconds(time.time_since_epoch()).count());
  };
  const std::vector<PieceTrace> traces{rank->TakePieceTrace()};
  EXPECT_EQ(traces[0].lost, 0U);
  uint64_t bytes = 0;
  for (const TracedPiece& piece : JoinPieces(traces)) {
    if (piece.sender == TracedPiece::kNobody) continue;  // the other rank's, with its probe
    bytes += piece.bytes;
    EXPECT_GE(piece.At(PieceStage::kSubmitted), ns(before));
    EXPECT_GE(piece.At(PieceStage::kSliced), piece.At(PieceStage::kSubmitted));
    EXPECT_GE(piece.At(PieceStage::kCopyIssued), piece.At(PieceStage::kSliced));
    EXPECT_GE(piece.At(PieceStage::kReaped), piece.At(PieceStage::kCopyIssued));
    EXPECT_LE(piece.At(PieceStage::kReaped), ns(std::chrono::steady_clock::now()));
    EXPECT_EQ(piece.At(PieceStage::kPosted), 0U);
    EXPECT_EQ(piece.status, 0);
  }
  EXPECT_EQ(bytes, 8U << 20) << "each piece is told once";
}

}  // namespace
}  // namespace railhop
