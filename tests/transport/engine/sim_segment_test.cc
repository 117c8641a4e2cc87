// The engine's own segment on simulated NICs: what its peers, and their NICs, find.
#include "transport/engine/sim_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class SimSegmentTest : public testing::Test {
 protected:
  SimSegmentTest() : folder_(testing::TempDir() + "/railhop-sim-segment-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~SimSegmentTest() override { std::filesystem::remove_all(folder_); }

  void Make(const std::string& matrix, const std::string& name = "decode") {
    segment_ = nullptr;
    auto segment = SimSegment::Start(
        "127.0.0.1", name, {.directory = folder_, .matrix = *PriorityMatrix::Decode(matrix)},
        ReadEngineEnvironment([](const char*) { return nullptr; }));
    ASSERT_TRUE(segment.ok()) << segment.status();
    segment_ = *std::move(segment);
  }
  std::vector<RemoteBuffer> Published() {
    const absl::StatusOr<TargetInfo> info = LoadSimTarget(folder_, segment_->name());
    EXPECT_TRUE(info.ok()) << info.status();
    return info.ok() ? info->buffers : std::vector<RemoteBuffer>();
  }

  std::string folder_;
  std::unique_ptr<SimSegment> segment_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

TEST_F(SimSegmentTest, IsFoundByNameFromTheStart) {
  Make(R"({"*": [["nic0"], []]})");
  EXPECT_THAT(Published(), IsEmpty());
  Make(R"({"*": [["nic0"], []]})", "");
  EXPECT_EQ(segment_->name(), JoinHostPort(segment_->listener().host, segment_->listener().port));
  EXPECT_THAT(Published(), IsEmpty());
  EXPECT_EQ(segment_->Topology(), R"({"*":[["nic0"],[]]})");
}

TEST_F(SimSegmentTest, MemoryPrefersTheNicsNearItsLocation) {
  Make(R"({"*": [["nic0", "nic1"], []], "cpu:1": [["nic1"], ["nic0"]], "cpu:2": [[], ["nic0"]]})");
  ASSERT_TRUE(segment_->Add(memory_.data(), 100, "cpu:1").ok());
  ASSERT_TRUE(segment_->Add(memory_.data() + 1000, 200, "cpu:7").ok());
  ASSERT_TRUE(segment_->Add(memory_.data() + 2000, 300, "").ok());
  ASSERT_TRUE(segment_->Add(memory_.data() + 3000, 400, "cpu:2").ok());
  const std::vector<RemoteBuffer> buffers = Published();
  ASSERT_EQ(buffers.size(), 4u);
  EXPECT_THAT(buffers[0].preferred_nics, ElementsAre("nic1"));
  EXPECT_THAT(buffers[1].preferred_nics, ElementsAre("nic0", "nic1"));
  EXPECT_THAT(buffers[2].preferred_nics, ElementsAre("nic0", "nic1"));
  EXPECT_THAT(buffers[3].preferred_nics, ElementsAre("nic0"));
  const auto descriptor = SegmentDescriptor::Decode(segment_->Encoded());
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  EXPECT_EQ(descriptor->protocol, SegmentProtocol::kSim);
  ASSERT_EQ(descriptor->buffers.size(), 4u);
  EXPECT_EQ(descriptor->buffers[0].name, "cpu:1");
  EXPECT_EQ(descriptor->buffers[2].name, "*");
}

TEST_F(SimSegmentTest, RemovedMemoryIsGoneFromBoth) {
  Make(R"({"*": [["nic0"], []]})");
  ASSERT_TRUE(segment_->Add(memory_.data(), 100, "*").ok());
  ASSERT_TRUE(segment_->Add(memory_.data() + 1000, 200, "*").ok());
  ASSERT_TRUE(segment_->Remove(memory_.data()).ok());
  ASSERT_EQ(Published().size(), 1u);
  EXPECT_EQ(Published()[0].length, 200u);
  EXPECT_EQ(SegmentDescriptor::Decode(segment_->Encoded())->buffers.size(), 1u);
}

TEST_F(SimSegmentTest, WithoutItsFolderThereIsNone) {
  const auto segment =
      SimSegment::Start("127.0.0.1", "decode", {.directory = folder_ + "/no"},
                        ReadEngineEnvironment([](const char*) { return nullptr; }));
  EXPECT_TRUE(absl::IsNotFound(segment.status())) << segment.status();
}

}  // namespace
}  // namespace railhop
