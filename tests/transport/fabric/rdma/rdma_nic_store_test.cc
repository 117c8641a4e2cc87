// A store of many endpoints, on the stand-in for libibverbs: its completion queue grows with it.
// What evicts whom is in tests/rdma/rdma_store_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/fake_verbs/fake_verbs.h"
#include "transport/fabric/rdma/rdma_nic.h"
#include "transport/fabric/rdma/rdma_target.h"

namespace railhop {
namespace {

using testing::HasSubstr;

class RdmaNicStoreTest : public testing::Test {
 protected:
  static constexpr uint32_t kDepth = 16;

  RdmaNicStoreTest() {
    fake_.Reset();
    device_ = *RdmaDevice::Open({.name = "fake0"});
    far_ = *RdmaDevice::Open({.name = "fake1"});
    target_ = *RdmaTarget::Create({far_}, {.max_endpoints = 4096});
    nic_ = *RdmaNic::Create(device_,
                            {.server_name = "here:1",
                             .exchange = [this](const std::string&, const std::string& json)
                                 -> absl::StatusOr<std::string> { return *target_->Answer(json); },
                             .send_queue_depth = kDepth,
                             .max_endpoints = RdmaNic::kMaxEndpoints});
    key_ = *device_->Register(local_.data(), local_.size());
    remote_key_ = *far_->Register(remote_.data(), remote_.size());
  }
  ~RdmaNicStoreTest() override { EXPECT_EQ(fake_.overflows, 0); }

  void Use(uint32_t depth, uint32_t max_endpoints) {
    nic_ = *RdmaNic::Create(device_,
                            {.server_name = "here:1",
                             .exchange = [this](const std::string&, const std::string& json)
                                 -> absl::StatusOr<std::string> { return *target_->Answer(json); },
                             .send_queue_depth = depth,
                             .max_endpoints = max_endpoints,
                             .eviction = EvictionPolicy::kFifo});
  }
  absl::StatusOr<EndpointId> Connect(int peer) {
    return nic_->Connect({.name = "there",
                          .kind = "rdma",
                          .buffers = {},
                          .nics = {{"fake1", "there:" + std::to_string(peer) + "@fake1"}}},
                         0);
  }
  void Fill(EndpointId endpoint, uint32_t count = kDepth) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(nic_->Prepare({.endpoint = endpoint,
                                 .local = local_.data(),
                                 .lkey = key_.lkey,
                                 .length = 64,
                                 .remote_address = reinterpret_cast<uint64_t>(remote_.data()),
                                 .rkey = remote_key_.rkey}));
    }
    nic_->Submit();
  }
  // Completions without an error, of all that there are now.
  size_t TakeAll() {
    size_t good = 0;
    std::vector<NicCompletion> shown(64);
    while (const size_t count = nic_->Peek(shown)) {
      for (size_t i = 0; i < count; ++i) {
        ++(shown[i].status == FabricStatus::kOk ? good : failed_);
      }
      nic_->Advance(count);
    }
    return good;
  }

  FakeVerbs& fake_ = FakeVerbs::Get();
  std::shared_ptr<RdmaDevice> device_, far_;
  std::vector<std::byte> local_{64}, remote_{64};
  MemoryKey key_, remote_key_;
  std::unique_ptr<RdmaTarget> target_;
  std::unique_ptr<RdmaNic> nic_;
  size_t failed_ = 0;
};

// All that all of them may have under way completes, and nothing was polled while they came.
TEST_F(RdmaNicStoreTest, TheCompletionQueueGrowsWithTheEndpoints) {
  constexpr int kEndpoints = 300;
  for (int peer = 0; peer < kEndpoints; ++peer) {
    const auto endpoint = Connect(peer);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    Fill(*endpoint);
  }
  EXPECT_EQ(fake_.calls["ibv_resize_cq"], 2);  // from 80 to 160 and 320
  EXPECT_EQ(TakeAll(), size_t{kEndpoints} * kDepth);
}

// What is given up without a device, since its endpoints were evicted, is more than can be shown at
// once.
TEST_F(RdmaNicStoreTest, AllThatIsGivenUpIsShownInTheEnd) {
  constexpr uint32_t kDeep = 256;
  Use(kDeep, 64);
  std::vector<EndpointId> evicted;
  for (int peer = 0; peer < 72; ++peer) {
    const EndpointId endpoint = Connect(peer).value();
    Fill(endpoint, 1);  // as long as nobody polls they drain
    if (peer < 8) evicted.push_back(endpoint);
  }
  for (const EndpointId endpoint : evicted) Fill(endpoint, kDeep - 1);
  EXPECT_EQ(TakeAll(), 72u);
  EXPECT_EQ(failed_, evicted.size() * (kDeep - 1));
}

TEST_F(RdmaNicStoreTest, ADeviceWhoseQueueDoesNotGrowKeepsWhatItHasRoomFor) {
  const auto connect = [this](int peer) {
    fake_.fail["ibv_resize_cq"] = {.after = 0, .error = EOPNOTSUPP};
    return Connect(peer);
  };
  int peer = 0;
  absl::StatusOr<EndpointId> endpoint;
  for (; (endpoint = connect(peer)).ok(); ++peer) {
    Fill(*endpoint);
    TakeAll();
  }
  EXPECT_EQ(peer, 80);
  EXPECT_THAT(std::string(endpoint.status().message()),
              HasSubstr("does not enlarge a completion queue"));
  for (const int last = peer + 200; peer < last; ++peer) {
    endpoint = connect(peer);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    Fill(*endpoint);
    EXPECT_EQ(TakeAll(), kDepth);
  }
}

}  // namespace
}  // namespace railhop
