#include "transport/engine/segment_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "tests/transport/engine/fake_metadata.h"

namespace railhop {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::UnorderedElementsAre;

SegmentDescriptor Descriptor(const std::string& name,
                             const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  SegmentDescriptor descriptor;
  descriptor.name = name;
  descriptor.tcp_data_port = 4711;
  descriptor.tcp_proto_version = 2;
  for (const auto& [address, length] : ranges) {
    descriptor.buffers.push_back(
        {.name = name, .address = address, .length = length, .rkeys = {}, .lkeys = {}});
  }
  return descriptor;
}

TEST(SegmentViewTest, CoversWhatLiesInOneBufferOrInAdjacentOnes) {
  const SegmentView view(Descriptor("a:1", {{5000, 1000}, {1000, 100}, {1100, 50}}), {});
  EXPECT_TRUE(view.Covers(1000, 150));
  EXPECT_TRUE(view.Covers(1099, 2));
  EXPECT_TRUE(view.Covers(5999, 1));
  EXPECT_FALSE(view.Covers(999, 1));
  EXPECT_FALSE(view.Covers(1000, 151));
  EXPECT_FALSE(view.Covers(1150, 1)) << "the byte behind the last one";
  EXPECT_FALSE(view.Covers(3000, 4000));
  EXPECT_FALSE(view.Covers(5500, UINT64_MAX)) << "wraps around";
  EXPECT_FALSE(SegmentView(Descriptor("a:1", {}), {}).Covers(0, 0));
}

TEST(SegmentViewTest, BuffersThatOverlapCountOnce) {
  const SegmentView view(Descriptor("a:1", {{1000, 1000}, {1200, 10}, {1900, 200}}), {});
  EXPECT_TRUE(view.Covers(1205, 895));
  EXPECT_FALSE(view.Covers(1205, 896));
}

class SegmentDirectoryTest : public testing::Test {
 protected:
  SegmentDirectoryTest() { Make({}); }
  void Make(SegmentAccess access) {
    auto metadata = std::make_unique<FakeMetadata>();
    metadata_ = metadata.get();
    directory_ = std::make_unique<SegmentDirectory>("own:1", std::move(metadata), access);
    Publish({{1000, 100}});
  }
  void Publish(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
    metadata_->segments["10.0.0.7:15000"] = Descriptor("10.0.0.7:15000", ranges);
  }
  SegmentDirectory::Segment& Open() {
    const absl::StatusOr<SegmentHandle> handle = directory_->Open("10.0.0.7:15000");
    EXPECT_TRUE(handle.ok()) << handle.status();
    return *directory_->Find(*handle);
  }

  FakeMetadata* metadata_;
  std::unique_ptr<SegmentDirectory> directory_;
};

TEST_F(SegmentDirectoryTest, HandlesCountUpAndNamesKeepTheirs) {
  metadata_->segments["b:2"] = Descriptor("b:2", {});
  EXPECT_EQ(*directory_->Open("own:1"), kLocalSegment);
  EXPECT_EQ(*directory_->Open("10.0.0.7:15000"), 1u);
  EXPECT_EQ(*directory_->Open("b:2"), 2u);
  EXPECT_EQ(*directory_->Open("/10.0.0.7:15000"), 1u) << "a slash in front counts for nothing";
  EXPECT_EQ(directory_->size(), 3u);
  EXPECT_EQ(directory_->Find(2)->name, "b:2");
  EXPECT_EQ(directory_->Find(3), nullptr);
  EXPECT_EQ(directory_->Find(kNoSegment), nullptr);
  EXPECT_EQ(metadata_->fetches, 2) << "read once each; the own one not at all";
}

TEST_F(SegmentDirectoryTest, WhatCannotBeReadTakesNoHandle) {
  EXPECT_TRUE(absl::IsUnavailable(directory_->Open("nobody:1").status()));
  EXPECT_EQ(directory_->size(), 1u);
  metadata_->segments["nobody:1"] = Descriptor("nobody:1", {});
  EXPECT_EQ(*directory_->Open("nobody:1"), 1u);
}

TEST_F(SegmentDirectoryTest, TheLimitIsSaid) {
  for (size_t i = 1; i < SegmentDirectory::kMaxSegments; ++i) {
    const std::string name = "peer:" + std::to_string(i);
    metadata_->segments[name] = Descriptor(name, {});
    ASSERT_TRUE(directory_->Open(name).ok()) << i;
  }
  const auto one_more = directory_->Open("10.0.0.7:15000");
  EXPECT_TRUE(absl::IsResourceExhausted(one_more.status()));
  EXPECT_TRUE(directory_->Open("peer:7").ok());
}

TEST_F(SegmentDirectoryTest, RefreshReadsWhatIsTooOld) {
  SegmentDirectory::Segment& segment = Open();
  Publish({{1000, 100}, {9000, 10}});
  EXPECT_TRUE(directory_->Refresh(segment, hours(1)).ok());
  EXPECT_EQ(segment.view()->descriptor().buffers.size(), 1u);
  EXPECT_TRUE(directory_->Refresh(segment, milliseconds(0)).ok());
  EXPECT_EQ(segment.view()->descriptor().buffers.size(), 2u);
  metadata_->segments.clear();
  EXPECT_FALSE(directory_->Refresh(segment, milliseconds(0)).ok());
  EXPECT_EQ(segment.view()->descriptor().buffers.size(), 2u) << "what was known stays";
}

TEST_F(SegmentDirectoryTest, WhoReadsSaysHowLongItMayTake) {
  SegmentDirectory::Segment& segment = Open();
  const auto until = std::chrono::steady_clock::now() + hours(1);
  EXPECT_FALSE(directory_->Look(segment, 9000, 10, {.until = until}));
  EXPECT_EQ(metadata_->last_patience.until, until);
  std::stop_source stop;
  directory_->Resolve("new:1", stop.get_token()).IgnoreError();
  EXPECT_LT(metadata_->last_patience.until, until) << "the control path has a bound of its own";
  stop.request_stop();
  EXPECT_TRUE(metadata_->last_patience.stop.stop_requested());
}

TEST_F(SegmentDirectoryTest, ALookInVainIsNotRepeatedAtOnce) {
  SegmentDirectory::Segment& segment = Open();
  const int fetches = metadata_->fetches;
  EXPECT_TRUE(directory_->Look(segment, 1050, 50));
  EXPECT_EQ(metadata_->fetches, fetches) << "it is known";
  Publish({{1000, 100}, {9000, 10}});
  EXPECT_TRUE(directory_->Look(segment, 9000, 10));
  EXPECT_EQ(metadata_->fetches, fetches + 1);
  const auto before = std::chrono::steady_clock::now();
  EXPECT_FALSE(directory_->Look(segment, 9000, 11));
  EXPECT_FALSE(directory_->Look(segment, 9000, 11));
  if (std::chrono::steady_clock::now() - before < milliseconds(100)) {
    EXPECT_EQ(metadata_->fetches, fetches + 2);
  }
}

TEST_F(SegmentDirectoryTest, ResolveSaysHowATcpSegmentIsReached) {
  metadata_->segments["10.0.0.7:15000"].railhop_drain = 1;
  const absl::StatusOr<TargetInfo> info = directory_->Resolve("10.0.0.7:15000");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->name, "10.0.0.7:15000");
  EXPECT_EQ(info->kind, "tcp");
  EXPECT_THAT(info->nics[0].connection, HasSubstr("4711"));
  EXPECT_THAT(info->nics[0].connection, HasSubstr("2+drain"));
  ASSERT_EQ(info->buffers.size(), 1u);
  EXPECT_EQ(info->buffers[0].address, 1000u);
  EXPECT_EQ(directory_->size(), 2u) << "it is open now";
  EXPECT_TRUE(directory_->Find(1)->resolved()->Covers(1000, 100));
}

TEST_F(SegmentDirectoryTest, ALocalSocketIsNamedUnlessItIsTurnedOff) {
  metadata_->segments["10.0.0.7:15000"].railhop_local = "railhop-3f";
  EXPECT_THAT(directory_->Resolve("10.0.0.7:15000")->nics[0].connection,
              testing::Not(HasSubstr("@")))
      << "who does not drain has none";
  metadata_->segments["10.0.0.7:15000"].railhop_drain = 1;
  ASSERT_TRUE(directory_->Refresh(Open(), milliseconds(0)).ok());
  EXPECT_THAT(directory_->Resolve("10.0.0.7:15000")->nics[0].connection,
              HasSubstr("2+drain@railhop-3f"));
  Make({.tcp_local = false});
  metadata_->segments["10.0.0.7:15000"].railhop_drain = 1;
  metadata_->segments["10.0.0.7:15000"].railhop_local = "railhop-3f";
  EXPECT_THAT(directory_->Resolve("10.0.0.7:15000")->nics[0].connection,
              testing::EndsWith("2+drain"));
}

TEST_F(SegmentDirectoryTest, ResolveSaysHowAnRdmaSegmentIsReached) {
  SegmentDescriptor descriptor = Descriptor("10.0.0.8:15000", {{1000, 100}, {9000, 10}});
  descriptor.protocol = SegmentProtocol::kRdma;
  Make({.protocol = SegmentProtocol::kRdma});
  metadata_->segments["10.0.0.8:15000"] = descriptor;
  EXPECT_TRUE(absl::IsUnavailable(directory_->Resolve("10.0.0.8:15000").status())) << "no device";

  descriptor.devices = {{.name = "mlx5_2", .lid = 0, .gid = "g"},
                        {.name = "mlx5_3", .lid = 0, .gid = "h"}};
  descriptor.buffers[0].rkeys = descriptor.buffers[0].lkeys = {17, 18};  // [1]: not for others
  descriptor.buffers[0].name = "cuda:0";
  Make({.protocol = SegmentProtocol::kRdma});
  metadata_->segments["10.0.0.8:15000"] = descriptor;
  const absl::StatusOr<TargetInfo> info = directory_->Resolve("10.0.0.8:15000");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_EQ(info->kind, "rdma");
  EXPECT_THAT(info->nics, ElementsAre(RemoteNic{"mlx5_2", "10.0.0.8:15000@mlx5_2"},
                                      RemoteNic{"mlx5_3", "10.0.0.8:15000@mlx5_3"}));
  ASSERT_EQ(info->buffers.size(), 1u);
  EXPECT_THAT(info->buffers[0].rkeys, ElementsAre(17u, 18u));
}

// Which NICs a buffer prefers is what its location's row says, by name and whatever their order is
// there; a NIC that is not among the devices counts for nothing.
TEST_F(SegmentDirectoryTest, TheMatrixOfAnRdmaSegmentSaysWhatItsBuffersPrefer) {
  SegmentDescriptor descriptor =
      Descriptor("10.0.0.8:15000", {{1000, 100}, {2000, 100}, {3000, 100}, {4000, 100}});
  descriptor.protocol = SegmentProtocol::kRdma;
  for (const char* nic : {"mlx5_2", "mlx5_3"}) {
    descriptor.devices.push_back({.name = nic, .lid = 0, .gid = "g"});
  }
  const char* const locations[] = {"cuda:0", "cuda:1", "cuda:2", "cuda:9"};
  for (size_t i = 0; i < 4; ++i) {
    descriptor.buffers[i].name = locations[i];
    descriptor.buffers[i].rkeys = descriptor.buffers[i].lkeys = {1, 2};
  }
  descriptor.priority_matrix = *PriorityMatrix::Create({{"cuda:0", {{"mlx5_3"}, {"mlx5_2"}}},
                                                        {"cuda:1", {{"gone", "mlx5_2"}, {}}},
                                                        {"cuda:2", {{"gone"}, {"mlx5_3"}}}});
  Make({.protocol = SegmentProtocol::kRdma});
  metadata_->segments["10.0.0.8:15000"] = descriptor;
  const absl::StatusOr<TargetInfo> info = directory_->Resolve("10.0.0.8:15000");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->buffers[0].preferred_nics, ElementsAre("mlx5_3"));
  EXPECT_THAT(info->buffers[1].preferred_nics, ElementsAre("mlx5_2"));
  EXPECT_THAT(info->buffers[2].preferred_nics, ElementsAre("mlx5_3"));
  EXPECT_THAT(info->buffers[3].preferred_nics, UnorderedElementsAre("mlx5_2", "mlx5_3"))
      << "unknown locations prefer all";
}

TEST_F(SegmentDirectoryTest, AnOlderDataProtocolIsSpokenIfAskedForOrIfThePeerHasNoOther) {
  Make({.tcp_version = 1});
  EXPECT_THAT(directory_->Resolve("10.0.0.7:15000")->nics[0].connection,
              testing::Not(HasSubstr("drain")));
  Make({});
  metadata_->segments["10.0.0.7:15000"].railhop_drain = 1;
  metadata_->segments["10.0.0.7:15000"].tcp_proto_version = 1;
  EXPECT_THAT(directory_->Resolve("10.0.0.7:15000")->nics[0].connection,
              testing::Not(HasSubstr("drain")));
}

TEST_F(SegmentDirectoryTest, ResolvedIsWhatTheDataPathHasBeenTold) {
  SegmentDirectory::Segment& segment = Open();
  ASSERT_TRUE(directory_->Resolve("10.0.0.7:15000").ok());
  Publish({{1000, 100}, {9000, 10}});
  EXPECT_TRUE(directory_->Look(segment, 9000, 10));
  EXPECT_FALSE(segment.resolved()->Covers(9000, 10)) << "known here, but not there";
  ASSERT_TRUE(directory_->Resolve("10.0.0.7:15000").ok());
  EXPECT_TRUE(segment.resolved()->Covers(9000, 10));
}

TEST_F(SegmentDirectoryTest, SegmentsOfOtherProtocolsAndWithoutAPortAreRefused) {
  metadata_->segments["10.0.0.7:15000"].tcp_data_port = 0;
  EXPECT_TRUE(absl::IsUnavailable(directory_->Resolve("10.0.0.7:15000").status()));
  for (const SegmentProtocol protocol : {SegmentProtocol::kRdma, SegmentProtocol::kSim}) {
    SegmentDescriptor other = Descriptor("other:1", {});
    other.protocol = protocol;
    Make({});
    metadata_->segments["other:1"] = other;
    const absl::Status status = directory_->Resolve("other:1").status();
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("same protocol"));
  }
}

TEST_F(SegmentDirectoryTest, ThreadsThatOpenTheSameNameGetTheSameHandle) {
  constexpr int kThreads = 4;
  // Fetch counts without a lock: each name is read before the threads start.
  for (int i = 0; i < 8; ++i) {
    metadata_->segments["p:" + std::to_string(i)] = Descriptor("p:" + std::to_string(i), {});
    ASSERT_TRUE(directory_->Open("p:" + std::to_string(i)).ok());
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([this] {
      for (int round = 0; round < 100; ++round) {
        for (int i = 0; i < 8; ++i) {
          const auto handle = directory_->Open("p:" + std::to_string(i));
          EXPECT_EQ(*handle, static_cast<SegmentHandle>(i + 1));
          EXPECT_EQ(directory_->Find(*handle)->name, "p:" + std::to_string(i));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace railhop
