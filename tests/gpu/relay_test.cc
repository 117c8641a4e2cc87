// Whole ranks on GPUs: what a sender on one GPU writes through a relay on another arrives.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/gpu/relay_support.h"
#include "tools/demo/batches.h"

namespace railhop {
namespace {

constexpr std::chrono::milliseconds kForever{60'000};

// A source on the first GPU, with bytes of its own.
class Source {
 public:
  explicit Source(size_t bytes) : content_(RandomBytes(bytes, 1)), memory_(TestDevice(0), bytes) {
    memory_.Write(content_);
  }
  std::byte* data() const { return memory_.data(); }
  size_t size() const { return memory_.size(); }
  const std::vector<std::byte>& content() const { return content_; }

 private:
  const std::vector<std::byte> content_;
  GpuBuffer memory_;
};

class RelayTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string why;
    if (TestDriver(&why) == nullptr) GTEST_SKIP() << why;
  }

  // GPUs of less memory take the smaller batches.
  static std::vector<KvBatch> Batches() {
    std::vector<KvBatch> batches = *ReadBatches("");
    const auto device = TestDevice(0);
    CudaScope scope(*device);
    size_t available = 0, total = 0;
    device->driver().mem_get_info(&available, &total);
    std::erase_if(batches, [&](const KvBatch& batch) { return batch.total > total / 32; });
    EXPECT_FALSE(batches.empty());
    return batches;
  }
  static uint64_t Largest(const std::vector<KvBatch>& batches) {
    uint64_t bytes = 0;
    for (const KvBatch& batch : batches) bytes = std::max(bytes, batch.total);
    return bytes;
  }

  void Make(const RelaySiteOptions& options, bool relayed = true) {
    site_ = std::make_unique<RelaySite>(options);
    source_ = std::make_unique<Source>(options.target_bytes);
    MakeSender(relayed);
  }
  void MakeSender(bool relayed) {
    sender_ = site_->MakeSender(relayed);
    ASSERT_NE(sender_, nullptr);
    std::string error;
    ASSERT_TRUE(sender_->RegisterMemory(source_->data(), source_->size(), "cuda:0", &error))
        << error;
    target_ = sender_->OpenSegment(RelaySite::kTarget, &error);
    ASSERT_NE(target_, 0U) << error;
  }

  // Spans of the source, which lie back to back at the target; then what is there is compared.
  struct Span {
    uint64_t offset, length;
  };
  void Submit(const std::vector<Span>& spans, const SourceFence& fence = {}) {
    std::vector<TransferRequest> requests;
    expected_.clear();
    for (const Span& span : spans) {
      requests.push_back({Opcode::kWrite, source_->data() + span.offset, target_,
                          site_->target_address() + expected_.size(), span.length});
      const auto begin = source_->content().begin() + static_cast<long>(span.offset);
      expected_.insert(expected_.end(), begin, begin + static_cast<long>(span.length));
    }
    ASSERT_EQ(sender_->SubmitWith(requests, {.timeout = kForever, .fence = fence}, &batch_),
              SubmitResult::kOk);
  }
  BatchStatus Finish() {
    EXPECT_TRUE(sender_->Wait(batch_, 2 * kForever));
    const BatchStatus status = sender_->Status(batch_);
    EXPECT_EQ(status.state, BatchState::kCompleted) << TransferErrorName(status.error);
    EXPECT_EQ(sender_->Free(batch_), FreeResult::kOk);
    EXPECT_EQ(status.bytes, expected_.size());
    EXPECT_EQ(site_->TargetChecksum(expected_.size()), HostChecksum(expected_));
    return status;
  }
  static std::vector<Span> BackToBack(const KvBatch& batch) {
    std::vector<Span> spans;
    uint64_t offset = 0;
    for (const uint64_t length : batch.lengths) {
      spans.push_back({offset, length});
      offset += length;
    }
    return spans;
  }
  std::vector<Span> Scattered(size_t count, uint64_t length, uint32_t seed) const {
    std::mt19937 random(seed);
    std::vector<Span> spans;
    for (size_t i = 0; i < count; ++i) {
      spans.push_back({random() % (source_->size() - length) / 8 * 8, length});
    }
    return spans;
  }

  std::unique_ptr<RelaySite> site_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Rank> sender_;
  SegmentId target_ = 0;
  BatchId batch_;
  std::vector<std::byte> expected_;
};

class RelayWaysTest : public RelayTest, public testing::WithParamInterface<const char*> {};

TEST_P(RelayWaysTest, KvBatchesArriveThroughTheRelay) {
  const std::vector<KvBatch> batches = Batches();
  Make({.target_bytes = Largest(batches), .copy = GetParam()});
  for (const KvBatch& batch : batches) {
    SCOPED_TRACE(batch.name);
    site_->ClearTarget();
    Submit(BackToBack(batch));
    EXPECT_EQ(Finish().relayed_bytes, batch.total);
  }
}

TEST_P(RelayWaysTest, ManySmallSpansArriveThroughTheRelay) {
  Make({.target_bytes = 32 << 20, .copy = GetParam()});
  for (uint32_t round = 0; round < 5; ++round) {
    site_->ClearTarget();
    Submit(Scattered(4096, 2048, round));
    EXPECT_EQ(Finish().relayed_bytes, expected_.size());
    Submit(Scattered(300, 24, round));
    EXPECT_EQ(Finish().relayed_bytes, expected_.size());
  }
}

INSTANTIATE_TEST_SUITE_P(Ways, RelayWaysTest,
                         testing::Values("", "way: ASYNC doorbell: STREAM_WRITE",
                                         "way: ASYNC doorbell: KERNEL", "way: BATCH doorbell: CPU",
                                         "way: GATHER doorbell: KERNEL",
                                         "way: GATHER doorbell: CPU"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::erase_if(name, [](char c) { return !std::isalnum(c); });
                           return name.empty() ? std::string("auto") : name;
                         });

TEST_F(RelayTest, WithoutARelayTheGpusBytesGoDirect) {
  Make({.target_bytes = 16 << 20}, false);
  site_->ClearTarget();
  Submit(Scattered(64, 200'000, 3));
  EXPECT_EQ(Finish().relayed_bytes, 0U);
}

TEST_F(RelayTest, G4TheRelayIsKilledAndComesBack) {
  Make({.target_bytes = 32 << 20, .gb_per_s = 0.5});
  Submit({{0, 32 << 20}});
  site_->relay().Kill();
  Finish();
  site_->StartRelay();
  ASSERT_TRUE(sender_->WaitForRelay("sim1", std::chrono::seconds(30)));
  site_->ClearTarget();
  Submit({{0, 8 << 20}});
  EXPECT_EQ(Finish().relayed_bytes, 8U << 20);
  EXPECT_TRUE(site_->relay().Leave());
}

// The source is written by the last of many copies on the application's own stream, which take
// some 300 us on a fast GPU, longer than to issue them; whoever reads it before finds other
// bytes.
class RelayFenceTest : public RelayTest, public testing::WithParamInterface<bool> {};

TEST_P(RelayFenceTest, C3TheBytesOfTheFinishedProducerArrive) {
  constexpr size_t kBytes = 16 << 20;
  constexpr int kCopies = 40;
  Make({.target_bytes = kBytes}, GetParam());
  const auto device = TestDevice(0);
  const CudaDriver& driver = device->driver();
  GpuBuffer other(device, kBytes), produced(device, kBytes);
  const std::vector<std::byte> old = RandomBytes(kBytes, 7);
  other.Write(old);
  produced.Write(source_->content());
  const auto address = [](const std::byte* data) {
    return reinterpret_cast<cuda::DevicePointer>(data);
  };
  cuda::Stream stream = nullptr;
  cuda::Event event = nullptr;
  {
    const CudaScope scope(*device);
    ASSERT_EQ(driver.stream_create_with_priority(&stream, cuda::kStreamNonBlocking, 0),
              cuda::kSuccess);
    ASSERT_EQ(driver.event_create(&event, cuda::kEventDisableTiming), cuda::kSuccess);
  }
  for (const auto kind : {SourceFence::Kind::kStream, SourceFence::Kind::kEvent}) {
    site_->ClearTarget();
    {
      const CudaScope scope(*device);
      for (int i = 0; i < kCopies; ++i) {
        ASSERT_EQ(driver.memcpy_async(address(source_->data()),
                                      address(i == kCopies - 1 ? produced.data() : other.data()),
                                      kBytes, stream),
                  cuda::kSuccess);
      }
      ASSERT_EQ(driver.event_record(event, stream), cuda::kSuccess);
    }
    void* const handle = kind == SourceFence::Kind::kStream ? static_cast<void*>(stream) : event;
    Submit({{0, kBytes}}, {kind, handle});
    EXPECT_EQ(Finish().relayed_bytes, GetParam() ? kBytes : 0);
  }
  sender_.reset();
  const CudaScope scope(*device);
  driver.event_destroy(event);
  driver.stream_destroy(stream);
}

INSTANTIATE_TEST_SUITE_P(Ways, RelayFenceTest, testing::Bool(), [](const auto& tested) {
  return std::string(tested.param ? "relayed" : "direct");
});

// A sender that goes leaves a lane behind that the next one can have.
TEST_F(RelayTest, ASenderIsRestarted) {
  Make({.target_bytes = 8 << 20});
  for (int i = 0; i < 5; ++i) {
    site_->ClearTarget();
    Submit({{0, 8 << 20}});
    EXPECT_EQ(Finish().relayed_bytes, 8U << 20);
    sender_.reset();
    MakeSender(true);
  }
}

// The memory of a relay's arena comes back only when its senders have let go of it as well. What
// ranks of one process leave behind, gpu_relay_bench measures: there the time that others take to
// let go decides.
TEST_F(RelayTest, G4RelaysThatComeAndGoLeaveNoMemoryOfTheGpuBehind) {
  Make({.target_bytes = 8 << 20});
  const auto device = TestDevice(1);
  const auto available = [&] {
    const CudaScope scope(*device);
    size_t bytes = 0, total = 0;
    EXPECT_EQ(device->driver().mem_get_info(&bytes, &total), cuda::kSuccess);
    return bytes;
  };
  Submit({{0, 8 << 20}});
  Finish();
  const size_t before = available();
  for (int i = 0; i < 5; ++i) {
    site_->relay().Kill();
    site_->StartRelay();
    ASSERT_TRUE(sender_->WaitForRelay("sim1", std::chrono::seconds(30)));
    Submit({{0, 8 << 20}});
    Finish();
  }
  const auto deadline = std::chrono::steady_clock::now() + kForever;
  while (available() < before) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline)
        << before << " bytes were free, " << available() << " are";
  }
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  const int status = railhop::RelayRoleMain(argc, argv);
  if (status >= 0) return status;
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
