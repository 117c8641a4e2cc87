// CudaCopyEngine on whatever device there is: every way to copy with every doorbell.

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>
#include <tuple>

#include "tests/gpu/gpu_support.h"
#include "transport/copy/copy_calibration.h"
#include "transport/copy/cuda_copy_engine.h"
#include "transport/ring/control_block.h"
#include "transport/staging/cuda_arena.h"

namespace railhop {
namespace {

// Costs that nobody measured, for tests that force a way or do not care.
CudaCopyOptions Forced(CopyWay way, CudaDoorbell doorbell) {
  return {.streams = 2, .queue_depth = kSlotsPerLane, .doorbell = doorbell, .way = way};
}

uint64_t Load(const uint64_t* word) {
  return std::atomic_ref<const uint64_t>(*word).load(std::memory_order_acquire);
}

// Until `count` jobs have ended; all of them must be kOk.
void ReapAll(CopyEngine& engine, size_t count) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (count != 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    engine.Progress(0);
    CopyDone done[8];
    const size_t reaped = engine.Reap(done);
    for (size_t i = 0; i < reaped; ++i) ASSERT_EQ(done[i].status, CopyStatus::kOk);
    ASSERT_LE(reaped, count);
    count -= reaped;
  }
}

class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (TestDriver(&why) == nullptr) GTEST_SKIP() << why;
    device_ = TestDevice(0);
  }

  std::unique_ptr<CudaCopyEngine> MakeEngine(const CudaCopyOptions& options) {
    auto engine = CudaCopyEngine::Create(device_, options);
    EXPECT_TRUE(engine.ok()) << engine.status();
    return *std::move(engine);
  }

  std::shared_ptr<const CudaDevice> device_;
};

// A piece made at random: spans of any alignment and length, empty ones among them.
struct Piece {
  std::vector<CopySpan> spans;
  std::vector<std::byte> expected;
};
Piece RandomPiece(std::mt19937& random, const GpuBuffer& source,
                  const std::vector<std::byte>& content, size_t count, uint32_t longest) {
  Piece piece;
  const uint32_t align = 1u << random() % 6;
  for (size_t i = 0; i < count; ++i) {
    uint64_t length = random() % 5 == 0 ? random() % 40 : random() % (longest + 1);
    if (random() % 16 == 0) length = 0;
    const uint64_t offset = random() % (content.size() - length) / align * align;
    piece.spans.push_back({source.data() + offset, length});
    piece.expected.insert(piece.expected.end(), content.begin() + static_cast<long>(offset),
                          content.begin() + static_cast<long>(offset + length));
  }
  return piece;
}

class WaysTest : public GpuTest,
                 public testing::WithParamInterface<std::tuple<CopyWay, CudaDoorbell>> {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    const auto [way, doorbell] = GetParam();
    const bool wants_kernel = way == CopyWay::kGather || doorbell == CudaDoorbell::kKernel;
    if (wants_kernel && GatherImage() == nullptr) GTEST_SKIP() << "built without nvcc";
  }
};

TEST_P(WaysTest, EveryByteArrivesWhereItShouldAndNowhereElse) {
  const auto [way, doorbell] = GetParam();
  auto engine = MakeEngine(Forced(way, doorbell));
  ASSERT_EQ(engine->doorbell(), doorbell);
  SharedWords words(device_, true);
  const std::vector<std::byte> content = RandomBytes(8 << 20, 1);
  GpuBuffer source(device_, content.size());
  source.Write(content);
  constexpr size_t kSlot = 4 << 20;
  GpuBuffer slots(device_, kSlotsPerLane * kSlot);
  const std::vector<std::byte> blank(slots.size(), std::byte{0xee});
  std::mt19937 random(7);
  uint64_t sequence = 0;
  for (int round = 0; round < 6; ++round) {
    slots.Write(blank);
    std::vector<Piece> pieces;
    for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
      const size_t counts[] = {1, 2, 8, 127, 128, 129, 700, 1};
      const size_t count = counts[random() % std::size(counts)];
      const auto longest = static_cast<uint32_t>(
          count == 1 ? 2 << 20 : std::min<size_t>(64 << 10, (3 << 20) / count));
      pieces.push_back(RandomPiece(random, source, content, count, longest));
    }
    for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
      ASSERT_TRUE(engine->Issue({.stream = 1,
                                 .spans = pieces[i].spans,
                                 .destination = slots.data() + i * kSlot,
                                 .doorbell = words.word(0),
                                 .sequence = ++sequence,
                                 .user_data = sequence}));
    }
    EXPECT_FALSE(engine->Issue({.stream = 1, .spans = {}}));
    ReapAll(*engine, kSlotsPerLane);
    EXPECT_EQ(Load(words.word(0)), sequence);
    EXPECT_EQ(engine->PendingBytes(), 0u);
    EXPECT_EQ(engine->PendingJobs(1), 0u);
    for (uint32_t i = 0; i < kSlotsPerLane; ++i) {
      std::vector<std::byte> expected = pieces[i].expected;
      ASSERT_LE(expected.size(), kSlot);
      expected.resize(kSlot, std::byte{0xee});
      ASSERT_TRUE(ReadGpu(*device_, slots.data() + i * kSlot, kSlot) == expected)
          << "round " << round << ", piece " << i << " of " << pieces[i].spans.size() << " spans";
    }
  }
}

TEST_P(WaysTest, TheDoorbellNeverRunsAheadOfTheBytes) {
  const auto [way, doorbell] = GetParam();
  auto engine = MakeEngine(Forced(way, doorbell));
  SharedWords words(device_, true);
  constexpr uint64_t kBytes = 1 << 20;
  constexpr size_t kSpans = 64;
  GpuBuffer source(device_, kBytes), slot(device_, kBytes);
  for (uint64_t sequence = 1; sequence <= 20; ++sequence) {
    const std::vector<std::byte> content(kBytes, static_cast<std::byte>(sequence));
    source.Write(content);
    std::vector<CopySpan> spans;
    for (size_t i = 0; i < kSpans; ++i) {
      spans.push_back({source.data() + i * kBytes / kSpans, kBytes / kSpans});
    }
    ASSERT_TRUE(engine->Issue({.stream = 0,
                               .spans = spans,
                               .destination = slot.data(),
                               .doorbell = words.word(3),
                               .sequence = sequence}));
    // Only the doorbell says when to look, as for a relay.
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (Load(words.word(3)) < sequence) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline);
      if (doorbell == CudaDoorbell::kCpu) engine->Progress(0);
    }
    ASSERT_TRUE(ReadGpu(*device_, slot.data(), kBytes) == content) << sequence;
    ReapAll(*engine, 1);
  }
}

TEST_P(WaysTest, IntoTheArenaOfAnotherProcess) {
  const auto [way, doorbell] = GetParam();
  ArenaOwner owner(1);
  auto arena = ImportedCudaArena::Open(device_, owner.handle(), 1);
  ASSERT_TRUE(arena.ok()) << arena.status();
  auto engine = MakeEngine(Forced(way, doorbell));
  SharedWords words(device_, true);
  const std::vector<std::byte> content = RandomBytes(8 << 20, 3);
  GpuBuffer source(device_, content.size());
  source.Write(content);
  std::mt19937 random(5);
  for (uint64_t sequence = 1; sequence <= 60; ++sequence) {
    const uint64_t offset = SlotOffset(6, SlotIndex(sequence));
    const Piece piece = RandomPiece(random, source, content, sequence % 3 == 0 ? 1000 : 5,
                                    sequence % 3 == 0 ? 4000 : 1'500'000);
    ASSERT_TRUE(engine->Issue({.stream = 0,
                               .spans = piece.spans,
                               .destination = (*arena)->base() + offset,
                               .doorbell = words.word(0),
                               .sequence = sequence}));
    ReapAll(*engine, 1);
    ASSERT_EQ(owner.ChecksumOf(offset, piece.expected.size()), Checksum(piece.expected));
  }
}

std::string ParamName(const testing::TestParamInfo<std::tuple<CopyWay, CudaDoorbell>>& info) {
  return std::string(CopyWayName(std::get<0>(info.param))) + "_" +
         CudaDoorbellName(std::get<1>(info.param));
}
INSTANTIATE_TEST_SUITE_P(
    All, WaysTest,
    testing::Combine(testing::Values(CopyWay::kAsync, CopyWay::kBatch, CopyWay::kGather),
                     testing::Values(CudaDoorbell::kStreamWrite, CudaDoorbell::kKernel,
                                     CudaDoorbell::kCpu)),
    ParamName);

TEST_F(GpuTest, TheWaysAreMeasuredInThePeersArena) {
  if (GatherImage() == nullptr) GTEST_SKIP() << "built without nvcc";
  ArenaOwner owner(1);
  const auto arena = ImportedCudaArena::Open(device_, owner.handle(), 1);
  ASSERT_TRUE(arena.ok()) << arena.status();
  const auto calibrator = CopyCalibrator::Create(device_, {});
  ASSERT_TRUE(calibrator.ok()) << calibrator.status();
  for (int i = 0; i < 2; ++i) {
    const auto costs = (*calibrator)->Measure((*arena)->base() + SlotOffset(3, 0));
    ASSERT_TRUE(costs.ok()) << costs.status();
    std::printf("%s\n", ToString(*costs).c_str());
    for (const CopyWayCost& cost : costs->ways) {
      EXPECT_TRUE(cost.available && cost.fixed > 0 && cost.behind + cost.behind_per_span > 0);
    }
  }
}

TEST_F(GpuTest, ADoorbellThatTheDeviceCannotSeeIsRungByTheCpu) {
  auto engine = MakeEngine(Forced(CopyWay::kAsync, CudaDoorbell::kStreamWrite));
  SharedWords words(device_, false);
  GpuBuffer buffer(device_, 4096);
  const CopySpan span{buffer.data(), 100};
  ASSERT_TRUE(engine->Issue({.stream = 0,
                             .spans = {&span, 1},
                             .destination = buffer.data() + 2048,
                             .doorbell = words.word(0),
                             .sequence = 5}));
  ReapAll(*engine, 1);
  EXPECT_EQ(Load(words.word(0)), 5u);
}

// Field fault G2: threads that never had a current device.
TEST_F(GpuTest, G2WorksFromAThreadWithoutADevice) {
  auto engine = MakeEngine(Forced(CopyWay::kAsync, CudaDoorbell::kStreamWrite));
  SharedWords words(device_, true);
  GpuBuffer buffer(device_, 4096);
  const CopySpan span{buffer.data(), 100};
  std::thread([&] {
    ASSERT_TRUE(engine->Issue({.stream = 0,
                               .spans = {&span, 1},
                               .destination = buffer.data() + 2048,
                               .doorbell = words.word(0),
                               .sequence = 1}));
    ReapAll(*engine, 1);
  }).join();
  // Nor does the application's own thread keep one.
  cuda::Context current = nullptr;
  EXPECT_NE(device_->driver().ctx_pop_current(&current), cuda::kSuccess);
}

TEST_F(GpuTest, G3TheSameArenaIsOpenedOnce) {
  ArenaOwner owner(1);
  auto first = ImportedCudaArena::Open(device_, owner.handle(), 1);
  ASSERT_TRUE(first.ok()) << first.status();
  auto second = ImportedCudaArena::Open(device_, owner.handle(), 1);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ((*first)->base(), (*second)->base());
  first->reset();
  // Still mapped: a copy goes there.
  GpuBuffer source(device_, 4096);
  source.Write(RandomBytes(4096, 9));
  auto engine = MakeEngine(Forced(CopyWay::kAsync, CudaDoorbell::kCpu));
  const CopySpan span{source.data(), 4096};
  ASSERT_TRUE(engine->Issue({.stream = 0, .spans = {&span, 1}, .destination = (*second)->base()}));
  ReapAll(*engine, 1);
  EXPECT_EQ(owner.ChecksumOf(0, 4096), Checksum(RandomBytes(4096, 9)));
}

TEST_F(GpuTest, G4TheOwnerGoesFirst) {
  for (const bool killed : {true, false}) {
    ArenaOwner owner(1);
    auto arena = ImportedCudaArena::Open(device_, owner.handle(), 1);
    ASSERT_TRUE(arena.ok()) << arena.status();
    auto engine = MakeEngine(Forced(CopyWay::kAsync, CudaDoorbell::kCpu));
    GpuBuffer source(device_, 4096);
    const CopySpan span{source.data(), 4096};
    if (killed) {
      owner.Kill();
    } else {
      EXPECT_TRUE(owner.Leave());
    }
    ASSERT_TRUE(engine->Issue({.stream = 0, .spans = {&span, 1}, .destination = (*arena)->base()}));
    ReapAll(*engine, 1);
  }
}

TEST_F(GpuTest, G4FreeMemoryIsFlatOverRestarts) {
  const auto free_memory = [this](int index) {
    const auto device = TestDevice(index);
    CudaScope scope(*device);
    size_t available = 0, total = 0;
    device->driver().mem_get_info(&available, &total);
    return available;
  };
  const auto restart = [this](bool killed) {
    ArenaOwner owner(1);
    auto arena = ImportedCudaArena::Open(device_, owner.handle(), 1);
    ASSERT_TRUE(arena.ok()) << arena.status();
    if (killed) owner.Kill();
  };
  restart(false);  // what the driver keeps for later comes with the first
  const size_t before0 = free_memory(0), before1 = free_memory(1);
  for (int i = 0; i < 10; ++i) restart(i % 2 == 0);
  // The driver may still be taking a killed process apart; and before, that of another test.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (free_memory(0) < before0 || free_memory(1) < before1) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline)
        << before0 << " and " << before1 << " bytes were free, " << free_memory(0) << " and "
        << free_memory(1) << " are";
  }
}

// Field fault G6: one device per process, each of them "cuda:0". A driver may refuse to map what
// lies on a device that this process does not see; then it says so, and the peer goes direct.
TEST_F(GpuTest, G6EachProcessSeesOneDevice) {
  const int last = TestDevice(1)->ordinal();
  ArenaOwner owner(0, std::to_string(last));
  const auto arena = ImportedCudaArena::Open(device_, owner.handle(), 1);
  std::printf("arena of a process that sees device %d alone: %s\n", last,
              arena.ok() ? "mapped" : std::string(arena.status().message()).c_str());
  if (!arena.ok()) {
    EXPECT_NE(last, device_->ordinal());
    EXPECT_TRUE(absl::IsFailedPrecondition(arena.status()));
    return;
  }
  EXPECT_EQ(owner.ChecksumOf(0, 16), Checksum(ReadGpu(*device_, (*arena)->base(), 16)));
}

TEST_F(GpuTest, ArenaHandlesThatAreNone) {
  ArenaHandle handle{};
  EXPECT_TRUE(absl::IsInvalidArgument(ImportedCudaArena::Open(device_, handle, 1).status()));
  std::copy_n("RHHOST1", 8, handle.begin());
  EXPECT_TRUE(absl::IsInvalidArgument(ImportedCudaArena::Open(device_, handle, 1).status()));
  handle.fill(7);
  const auto opened = ImportedCudaArena::Open(device_, handle, 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(opened.status())) << opened.status();
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  return railhop::RunGpuTests(argc, argv);
}
