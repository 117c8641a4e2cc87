// The engine over a data path, a metadata service and a segment that the test plays.
#include "transport/engine/transfer_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/transport/engine/fake_data_path.h"
#include "tests/transport/engine/fake_metadata.h"
#include "transport/engine/local_segment.h"
#include "transport/engine/segment_directory.h"

namespace railhop {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kTarget = 0x10000;

void* At(uint64_t address) {
  return reinterpret_cast<void*>(address);
}

class FakeSegment final : public LocalSegment {
 public:
  const std::string& name() const override { return name_; }
  HostPort listener() const override { return {.host = "here", .port = 1}; }
  absl::Status Add(void* address, size_t, std::string_view) override {
    if (address == refused) return absl::ResourceExhaustedError("no room");
    lent.insert(address);
    return absl::OkStatus();
  }
  absl::Status Remove(void* address) override {
    if (address == stuck) return absl::DeadlineExceededError("a client is at it");
    if (lent.erase(address) == 1) return absl::OkStatus();
    return absl::NotFoundError("not lent");
  }
  std::string Encoded() const override { return {}; }
  std::string Topology() const override { return "{}"; }
  std::vector<Notification> TakeNotifications() override { return {}; }

  std::set<void*> lent;
  void* refused = nullptr;
  void* stuck = nullptr;

 private:
  std::string name_ = "here:1";
};

class TransferEngineTest : public testing::Test {
 protected:
  TransferEngineTest() { Make({}); }

  void Make(SegmentAccess access) {
    auto path = std::make_unique<FakeDataPath>();
    auto metadata = std::make_unique<FakeMetadata>();
    auto segment = std::make_unique<FakeSegment>();
    path_ = path.get();
    metadata_ = metadata.get();
    segment_ = segment.get();
    Publish("peer:1", {{kTarget, 1000}});
    directory_ =
        std::make_shared<SegmentDirectory>("here:1", std::move(metadata), std::move(access));
    engine_ = std::make_unique<TransferEngine>(std::move(path), directory_, std::move(segment));
  }

  void Publish(const std::string& name, std::vector<std::pair<uint64_t, uint64_t>> buffers) {
    SegmentDescriptor descriptor;
    descriptor.name = name;
    descriptor.tcp_data_port = 4711;
    for (const auto& [address, length] : buffers) {
      SegmentBuffer& buffer = descriptor.buffers.emplace_back();
      buffer.name = name;
      buffer.address = address;
      buffer.length = length;
    }
    metadata_->segments[name] = descriptor;
  }
  EngineError SubmitOne(SegmentHandle target, uint64_t address, uint64_t length) {
    const BatchHandle batch = engine_->AllocateBatch(1);
    const TransferTask task{
        .source = At(0x5000), .target = target, .target_address = address, .length = length};
    return engine_->Submit(batch, {&task, 1});
  }

  FakeDataPath* path_;
  FakeMetadata* metadata_;
  FakeSegment* segment_;
  std::shared_ptr<SegmentDirectory> directory_;
  std::unique_ptr<TransferEngine> engine_;
};

TEST_F(TransferEngineTest, WithoutACacheEachSubmissionReadsItsTargetsAnew) {
  const SegmentHandle cached = engine_->OpenSegment("peer:1");
  ASSERT_EQ(SubmitOne(cached, kTarget, 10), EngineError::kOk);
  const int opens = path_->opens;
  ASSERT_EQ(SubmitOne(cached, kTarget, 10), EngineError::kOk);
  EXPECT_EQ(path_->opens, opens);

  Make({.cached = false});
  Publish("peer:2", {{kTarget, 1000}});
  const SegmentHandle first = engine_->OpenSegment("peer:1");
  const SegmentHandle second = engine_->OpenSegment("peer:2");
  for (int round = 1; round <= 3; ++round) {
    const TransferTask to_first{
        .source = At(0x5000), .target = first, .target_address = kTarget, .length = 10};
    TransferTask to_second = to_first;
    to_second.target = second;
    const std::vector<TransferTask> tasks{to_first, to_first, to_second};
    ASSERT_EQ(engine_->Submit(engine_->AllocateBatch(3), tasks), EngineError::kOk);
    EXPECT_EQ(path_->opens, 2 * round);
  }
  // The data path, asked so, looks at what the peer says now.
  const int fetches = metadata_->fetches;
  ASSERT_TRUE(directory_->Resolve("peer:1").ok());
  ASSERT_TRUE(directory_->Resolve("peer:1").ok());
  EXPECT_EQ(metadata_->fetches, fetches + 2);
}

TEST_F(TransferEngineTest, ASubmissionWaitsForMuteTargetsNoLongerThanItsDeadline) {
  Publish("peer:1", {{kTarget, 1000}});
  Publish("peer:2", {{kTarget, 1000}});
  const SegmentHandle known = engine_->OpenSegment("peer:1");
  const SegmentHandle other = engine_->OpenSegment("peer:2");
  ASSERT_EQ(SubmitOne(known, kTarget, 10), EngineError::kOk);
  metadata_->mute = true;
  metadata_->segments.clear();
  const int fetches = metadata_->fetches;
  const int opens = path_->opens;
  TransferTask task{.source = At(0x5000), .target = known, .target_address = kTarget, .length = 10};
  std::vector<TransferTask> tasks{task};
  tasks.push_back(task);  // of an address that is not known
  tasks.back().target_address = kTarget + 5000;
  tasks.push_back(task);  // of a target that the data path does not know
  tasks.back().target = other;
  const auto before = std::chrono::steady_clock::now();
  const std::chrono::milliseconds deadline(5);
  ASSERT_EQ(engine_->Submit(engine_->AllocateBatch(3), tasks, deadline), EngineError::kOk);
  EXPECT_EQ(metadata_->fetches, fetches + 1);
  EXPECT_GE(metadata_->last_patience.until, before + deadline);
  EXPECT_LE(metadata_->last_patience.until, std::chrono::steady_clock::now());
  EXPECT_EQ(path_->opens, opens) << "nobody else is waited for then";
  const auto& requests = path_->batches[path_->last].requests;
  EXPECT_EQ(requests[0].target, requests[1].target) << "what is not there fails by itself";
  EXPECT_EQ(requests[2].target, 0u) << "fails as a task";
}

TEST_F(TransferEngineTest, ADeadlineCountsFromTheCall) {
  Publish("peer:1", {{kTarget, 1000}});
  const SegmentHandle segment = engine_->OpenSegment("peer:1");
  std::chrono::steady_clock::time_point opened;
  path_->on_open = [&] { opened = std::chrono::steady_clock::now(); };
  const auto before = std::chrono::steady_clock::now();
  ASSERT_EQ(SubmitOne(segment, kTarget, 10), EngineError::kOk);
  EXPECT_GE(path_->since, before);
  EXPECT_LE(path_->since, opened) << "its target was opened after that";
}

TEST_F(TransferEngineTest, RegistersWithTheDataPathAndLendsToPeers) {
  EXPECT_EQ(engine_->RegisterMemory(At(4096), 100, "cpu:0"), EngineError::kOk);
  EXPECT_EQ(engine_->RegisterMemory(At(4100), 1, "cpu:0"), EngineError::kAddressOverlapped);
  EXPECT_THAT(TransferEngine::last_error(),
              HasSubstr("range 0x1004 of 1 bytes overlaps 0x1000 of 100 bytes"));
  EXPECT_EQ(engine_->RegisterMemory(At(8192), 0, "cpu:0"), EngineError::kInvalidArgument);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("range 0x2000 of 0 bytes is empty"));
  EXPECT_EQ(path_->memory.size(), 1u);
  EXPECT_EQ(segment_->lent.size(), 1u);
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kOk);
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kAddressNotRegistered);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("no registered range begins at 0x1000"));
  EXPECT_THAT(path_->memory, IsEmpty());
  EXPECT_THAT(segment_->lent, IsEmpty());
}

TEST_F(TransferEngineTest, ABatchOfRegistrationsThatFailsInTheMiddleLeavesNothing) {
  segment_->refused = At(8192);
  const std::vector<BufferEntry> entries{{At(4096), 10}, {At(8192), 10}, {At(12288), 10}};
  EXPECT_EQ(engine_->RegisterMemoryBatch(entries, "*"), EngineError::kMemory);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("no room"));
  EXPECT_THAT(path_->memory, IsEmpty());
  EXPECT_THAT(segment_->lent, IsEmpty());
  segment_->refused = nullptr;
  EXPECT_EQ(engine_->RegisterMemoryBatch(entries, "*"), EngineError::kOk);
}

TEST_F(TransferEngineTest, ChangesOfMemoryArePublishedOncePerCall) {
  const std::vector<BufferEntry> entries{{At(4096), 10}, {At(8192), 10}, {At(12288), 10}};
  ASSERT_EQ(engine_->RegisterMemoryBatch(entries, "*"), EngineError::kOk);
  EXPECT_EQ(metadata_->publications, 1);
  const std::vector<void*> two{At(4096), At(8192)};
  ASSERT_EQ(engine_->UnregisterMemoryBatch(two), EngineError::kOk);
  EXPECT_EQ(metadata_->publications, 2);
  ASSERT_EQ(engine_->UnregisterMemory(At(12288)), EngineError::kOk);
  EXPECT_EQ(metadata_->publications, 3);
  EXPECT_EQ(engine_->UnregisterMemory(At(12288)), EngineError::kAddressNotRegistered);
  EXPECT_EQ(metadata_->publications, 3) << "nothing has changed";
}

TEST_F(TransferEngineTest, WithoutItsMetadataServiceNothingIsRegisteredButAllIsReleased) {
  const std::vector<BufferEntry> entries{{At(4096), 10}, {At(8192), 10}};
  ASSERT_EQ(engine_->RegisterMemoryBatch(entries, "*"), EngineError::kOk);
  metadata_->service = absl::FailedPreconditionError("the service is down");
  EXPECT_EQ(engine_->RegisterMemory(At(12288), 10, "*"), EngineError::kMetadata);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("the service is down"));
  EXPECT_EQ(path_->memory.size(), 2u);
  EXPECT_EQ(segment_->lent.size(), 2u);
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kMetadata);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("may still find it: the service is down"));
  EXPECT_EQ(path_->memory.size(), 1u);
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kAddressNotRegistered);
}

TEST_F(TransferEngineTest, IsWithdrawnAtItsEnd) {
  bool withdrawn = false;
  metadata_->withdrawn = &withdrawn;
  engine_.reset();
  EXPECT_TRUE(withdrawn);
}

TEST_F(TransferEngineTest, MemoryThatIsInUseStaysRegistered) {
  ASSERT_EQ(engine_->RegisterMemory(At(4096), 100, "*"), EngineError::kOk);
  path_->busy_memory.insert(At(4096));
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kContext);
  EXPECT_EQ(engine_->RegisterMemory(At(4096), 1, "*"), EngineError::kAddressOverlapped);
  EXPECT_EQ(segment_->lent.size(), 1u) << "nothing has changed";
  path_->busy_memory.clear();
  segment_->stuck = At(4096);
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kMemory);
  segment_->stuck = nullptr;
  EXPECT_EQ(engine_->UnregisterMemory(At(4096)), EngineError::kOk) << "the rest of it";
  EXPECT_THAT(segment_->lent, IsEmpty());
}

TEST_F(TransferEngineTest, OpensASegmentOnceAndItsOwnIsTheLocalOne) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  ASSERT_NE(peer, kNoSegment);
  EXPECT_NE(peer, kLocalSegment);
  EXPECT_EQ(engine_->OpenSegment("/peer:1"), peer);
  EXPECT_EQ(metadata_->fetches, 1);
  EXPECT_EQ(engine_->OpenSegment("here:1"), kLocalSegment);
  EXPECT_EQ(engine_->OpenSegment("nobody:1"), kNoSegment);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("nobody:1"));
  EXPECT_EQ(engine_->FirstBufferAddress(peer), kTarget);
  EXPECT_EQ(engine_->FirstBufferAddress(12345), 0u);
}

TEST_F(TransferEngineTest, ATargetIsOpenedInTheDataPathAtItsFirstUse) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  EXPECT_EQ(path_->opens, 0);
  EXPECT_EQ(SubmitOne(peer, kTarget, 10), EngineError::kOk);
  EXPECT_EQ(SubmitOne(peer, kTarget + 990, 10), EngineError::kOk);
  EXPECT_EQ(path_->opens, 1);
  EXPECT_EQ(path_->batches[1].requests[0].target, 1u);
  EXPECT_EQ(SubmitOne(777, kTarget, 10), EngineError::kInvalidArgument);
}

TEST_F(TransferEngineTest, AnUnknownAddressHasTheMetadataReadAnew) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  ASSERT_EQ(SubmitOne(peer, kTarget, 10), EngineError::kOk);
  Publish("peer:1", {{kTarget, 1000}, {kTarget + 1000, 500}});
  EXPECT_EQ(SubmitOne(peer, kTarget + 900, 300), EngineError::kOk) << "over two neighbours";
  EXPECT_EQ(path_->opens, 2) << "the data path must hear of it";
  EXPECT_EQ(metadata_->fetches, 2);
}

// Else a refresh for another reason would hide the news from the data path.
TEST_F(TransferEngineTest, WhatTheDataPathHasNotHeardOfIsNewsToIt) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  ASSERT_TRUE(directory_->Resolve("peer:1").ok());
  ASSERT_EQ(SubmitOne(peer, kTarget, 10), EngineError::kOk);
  Publish("peer:1", {{kTarget + 5000, 500}});
  EXPECT_EQ(engine_->FirstBufferAddress(peer), kTarget + 5000);
  EXPECT_EQ(SubmitOne(peer, kTarget + 5000, 500), EngineError::kOk);
  EXPECT_EQ(path_->opens, 2);
}

TEST_F(TransferEngineTest, WhatIsNotThereFailsAsATaskAndDoesNotFloodThePeer) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  ASSERT_EQ(SubmitOne(peer, kTarget, 10), EngineError::kOk);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(SubmitOne(peer, kTarget + 2000, 1), EngineError::kOk);
  EXPECT_EQ(path_->opens, 1);
  EXPECT_EQ(path_->batches.size(), 4u);
  EXPECT_EQ(metadata_->fetches, 2) << "once in vain is enough for a while";
}

TEST_F(TransferEngineTest, AnUnreachableTargetFailsItsTasksNotTheCall) {
  Publish("nobody", {{kTarget, 1000}});
  const SegmentHandle peer = engine_->OpenSegment("nobody");
  EXPECT_EQ(SubmitOne(peer, kTarget, 10), EngineError::kOk);
  EXPECT_EQ(path_->batches[1].requests[0].target, 0u) << "which the data path does not know";
}

// --- Each error says what happened, to what, and what to do.

TEST_F(TransferEngineTest, AFailedTaskSaysWhichItIsAndWhy) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  const BatchHandle batch = engine_->AllocateBatch(2);
  const TransferTask task{
      .source = At(0x5000), .target = peer, .target_address = kTarget, .length = 10};
  const std::vector<TransferTask> tasks{task, task};
  ASSERT_EQ(engine_->Submit(batch, tasks), EngineError::kOk);
  path_->Land(1, 0);
  path_->End(1, BatchState::kFailed, TransferError::kNotRegistered);
  engine_->OpenSegment("nobody:1");
  const std::string earlier = TransferEngine::last_error();

  TransferStatus status;
  ASSERT_EQ(engine_->TaskStatus(batch, 0, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kCompleted);
  EXPECT_EQ(status.error, TransferError::kNone);
  EXPECT_EQ(TransferEngine::last_error(), earlier) << "nothing has failed";

  const auto says_why = HasSubstr(
      "task 1: WRITE of 10 bytes, local address 0x5000, remote address 0x10000 of peer:1: the "
      "local range is not inside memory that this engine has registered");
  ASSERT_EQ(engine_->TaskStatus(batch, 1, &status), EngineError::kOk);
  EXPECT_EQ(status.error, TransferError::kNotRegistered);
  EXPECT_THAT(TransferEngine::last_error(), says_why);
  engine_->OpenSegment("nobody:1");
  ASSERT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
  EXPECT_EQ(status.error, TransferError::kNotRegistered);
  EXPECT_THAT(TransferEngine::last_error(), says_why);
}

TEST_F(TransferEngineTest, ATaskWhoseTargetCouldNotBeOpenedSaysWhy) {
  Publish("nobody", {{kTarget, 1000}});
  const TransferTask task{.source = At(0x5000),
                          .target = engine_->OpenSegment("nobody"),
                          .target_address = kTarget,
                          .length = 10};
  const BatchHandle batch = engine_->AllocateBatch(1);
  ASSERT_EQ(engine_->Submit(batch, {&task, 1}), EngineError::kOk);
  path_->End(1, BatchState::kFailed, TransferError::kUnknownTarget);
  engine_->OpenSegment("another:1");
  TransferStatus status;
  ASSERT_EQ(engine_->BatchStatus(batch, &status), EngineError::kOk);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("of the target: unreachable"));
}

TEST_F(TransferEngineTest, ACallThatIsRefusedSaysWhatIsWrongWithIt) {
  TransferTask task{.target = engine_->OpenSegment("peer:1"), .length = 10};
  const std::span<const TransferTask> tasks(&task, 1);
  const BatchHandle batch = engine_->AllocateBatch(1);
  constexpr BatchHandle kStale = 0x700000001;
  TransferStatus status;
  const auto refused = [](EngineError error, EngineError expected, const char* text) {
    EXPECT_EQ(error, expected) << text;
    EXPECT_THAT(TransferEngine::last_error(), HasSubstr(text));
  };
  constexpr auto kInvalid = EngineError::kInvalidArgument;
  refused(engine_->Submit(batch, tasks, std::chrono::milliseconds(-1)), kInvalid,
          "a deadline of -1 ms");
  refused(engine_->Submit(kStale, tasks), kInvalid, "batch 0x700000001 is not there");
  refused(engine_->TaskStatus(kStale, 3, &status), kInvalid, "batch 0x700000001 has no task 3");
  refused(engine_->BatchStatus(kStale, &status), kInvalid, "batch 0x700000001 is not there");
  refused(engine_->Cancel(kStale), kInvalid, "batch 0x700000001 is not there");
  refused(engine_->FreeBatch(kStale), kInvalid, "batch 0x700000001 is not there");
  refused(engine_->SetCallback(kStale, {}), kInvalid, "batch 0x700000001 gets no callback");
  EXPECT_EQ(engine_->AllocateBatch(SIZE_MAX), kNoBatch);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("no batch of 18446744073709551615 tasks"));
  EXPECT_EQ(engine_->FirstBufferAddress(77), 0u);
  EXPECT_THAT(TransferEngine::last_error(), HasSubstr("segment 77 was not opened"));
  refused(engine_->NotifySegment(78, {}), kInvalid, "segment 78 was not opened");
  ASSERT_EQ(engine_->Submit(batch, tasks), EngineError::kOk);
  refused(engine_->Submit(batch, tasks), EngineError::kTooManyRequests,
          "1 tasks: the batch has no");
  refused(engine_->FreeBatch(batch), EngineError::kBatchBusy, "stays: ask for the status");
  task.target = 79;
  refused(engine_->Submit(batch, tasks), kInvalid, "segment 79 was not opened");
  path_->answer = SubmitResult::kStopping;
  task.target = kLocalSegment;
  refused(engine_->Submit(engine_->AllocateBatch(1), tasks), EngineError::kContext,
          "is being destroyed");
}

TEST_F(TransferEngineTest, WordsGoToTheSegmentsOwner) {
  const SegmentHandle peer = engine_->OpenSegment("peer:1");
  EXPECT_EQ(engine_->NotifySegment(peer, {"a", "done"}), EngineError::kOk);
  ASSERT_EQ(metadata_->sent.size(), 1u);
  EXPECT_EQ(metadata_->sent[0], std::make_pair(std::string("peer:1"), std::string("done")));
  EXPECT_EQ(engine_->NotifySegment(99, {"a", "b"}), EngineError::kInvalidArgument);
  EXPECT_EQ(engine_->Probe("peer:1"), EngineError::kOk);
  EXPECT_EQ(engine_->Probe("gone:1"), EngineError::kSocket);
}

}  // namespace
}  // namespace railhop
