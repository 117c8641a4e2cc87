// Simulated NICs and targets in different processes: real bytes through a shared mapping and
// through the kernel, and targets that die.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "tests/transport/fabric/sim/sim_fixture.h"
#include "tests/transport/staging/child_process.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;

constexpr uint64_t kBytes = 1 << 20;

// What a child that serves a target does: registers memory of one or the other kind, tells its
// parent, then answers each 'c' with a checksum of the memory and each 'f' by filling it.
int ServeTarget(const std::string& directory, bool shared, Channel& channel) {
  auto target = SimTarget::Create(directory, "t");
  if (!target.ok()) return 1;
  std::vector<std::byte> own(shared ? 0 : kBytes);
  std::span<std::byte> memory(own);
  if (shared) memory = *(*target)->AllocateMemory(kBytes);
  auto buffer = (*target)->Register(memory.data(), memory.size(), {"nic1"});
  if (!buffer.ok() || !(*target)->Publish().ok() || !channel.Send('p')) return 2;
  char command;
  while (channel.Receive(&command)) {
    if (command == 'f') {
      for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i / 3);
    } else if (command == 'd' && !(*target)->Deregister(buffer->rkeys[0]).ok()) {
      return 3;
    }
    uint64_t sum = 0;
    for (size_t i = 0; i < kBytes; ++i) sum = sum * 31 + static_cast<uint8_t>(memory[i]);
    if (!channel.Send(sum)) return 4;
  }
  return 0;
}

uint64_t Ask(ChildProcess& child, char command) {
  uint64_t sum = 0;
  EXPECT_TRUE(child.channel().Send(command));
  EXPECT_TRUE(child.channel().Receive(&sum));
  return sum;
}

class SimProcessTest : public testing::TestWithParam<bool> {
 protected:
  static constexpr uint64_t kErrorDelay = 50'000;

  void SetUp() override {
    child_ = std::make_unique<ChildProcess>(
        [this](Channel& channel) { return ServeTarget(directory_.path(), GetParam(), channel); });
    char published;
    ASSERT_TRUE(child_->channel().Receive(&published));
    auto found = LoadSimTarget(directory_.path(), "t");
    ASSERT_TRUE(found.ok()) << found.status();
    info_ = *std::move(found);
    MakeNic(SimMode::kManual);
  }

  void MakeNic(SimMode mode) {
    auto nic = SimNic::Create({.name = "nic0",
                               .mode = mode,
                               .line_rate = 1e9,
                               .base_delay = nanoseconds(100),
                               .send_queue_depth = 64,
                               .max_endpoints = 4,
                               .error_delay = nanoseconds(kErrorDelay),
                               .faults = {},
                               .clock = CycleClock(&now_),
                               .cycles_per_nanosecond = 1.0});
    ASSERT_TRUE(nic.ok()) << nic.status();
    nic_ = *std::move(nic);
    local_.assign(kBytes, std::byte{0});
    key_ = *nic_->Register(local_.data(), local_.size());
    auto endpoint = nic_->Connect(info_, 0);
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *endpoint;
  }

  NicCompletion Run(FabricOpcode opcode, uint64_t offset, uint32_t length) {
    EXPECT_TRUE(nic_->Prepare({.opcode = opcode,
                               .signaled = true,
                               .endpoint = endpoint_,
                               .local = local_.data() + offset,
                               .lkey = key_.lkey,
                               .length = length,
                               .remote_address = info_.buffers[0].address + offset,
                               .rkey = info_.buffers[0].rkeys[0],
                               .user_data = offset}));
    nic_->Submit();
    nic_->Step(1);
    now_ += length + 100 + kErrorDelay;
    NicCompletion completion{.user_data = 0, .status = FabricStatus::kFlushed, .bytes = 0};
    EXPECT_EQ(nic_->Peek({&completion, 1}), 1u);
    nic_->Advance(1);
    return completion;
  }

  uint64_t LocalSum() const {
    uint64_t sum = 0;
    for (const std::byte b : local_) sum = sum * 31 + static_cast<uint8_t>(b);
    return sum;
  }

  TemporaryDirectory directory_;
  uint64_t now_ = 10'000'000;
  std::unique_ptr<ChildProcess> child_;
  TargetInfo info_;
  std::unique_ptr<SimNic> nic_;
  std::vector<std::byte> local_;
  MemoryKey key_;
  EndpointId endpoint_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Memory, SimProcessTest, testing::Bool(),
                         [](const auto& param) { return param.param ? "Mapped" : "ByKernel"; });

TEST_P(SimProcessTest, WritesOfRandomSizesArrive) {
  std::mt19937_64 random(7);
  for (std::byte& byte : local_) byte = static_cast<std::byte>(random());
  for (uint64_t offset = 0; offset != kBytes;) {
    const auto length = static_cast<uint32_t>(
        std::min(random() % (random() % 8 == 0 ? 99'999 : 99), kBytes - offset));
    const NicCompletion completion = Run(FabricOpcode::kWrite, offset, length);
    ASSERT_EQ(completion.status, FabricStatus::kOk);
    ASSERT_EQ(completion.bytes, length);
    offset += length;
  }
  EXPECT_EQ(Ask(*child_, 'c'), LocalSum());
}

TEST_P(SimProcessTest, ReadsFetchTheTargetsBytes) {
  const uint64_t sum = Ask(*child_, 'f');
  EXPECT_EQ(Run(FabricOpcode::kRead, 0, 700'001).status, FabricStatus::kOk);
  EXPECT_EQ(Run(FabricOpcode::kRead, 700'001, kBytes - 700'001).status, FabricStatus::kOk);
  EXPECT_EQ(LocalSum(), sum);
}

TEST_P(SimProcessTest, DeregisteredMemoryIsNotTouched) {
  local_.assign(kBytes, std::byte{0x11});
  const uint64_t before = Ask(*child_, 'd');
  EXPECT_EQ(Run(FabricOpcode::kWrite, 0, 4096).status, FabricStatus::kRemoteAccess);
  EXPECT_EQ(Ask(*child_, 'c'), before);
}

TEST_P(SimProcessTest, KilledTargetIsNoticed) {
  const EndpointId first = endpoint_;
  EXPECT_EQ(Run(FabricOpcode::kWrite, 0, 4096).status, FabricStatus::kOk);
  endpoint_ = *nic_->Connect(info_, 0);
  child_->Kill();
  EXPECT_EQ(nic_->Connect(info_, 0).status().code(), absl::StatusCode::kUnavailable);
  now_ += 1'000'000;  // it asks that often whether the target lives
  EXPECT_EQ(Run(FabricOpcode::kWrite, 0, 4096).status, FabricStatus::kTargetDead);
  EXPECT_EQ(Run(FabricOpcode::kWrite, 0, 4096).status, FabricStatus::kFlushed);
  endpoint_ = first;
  EXPECT_EQ(Run(FabricOpcode::kRead, 0, 4096).status, FabricStatus::kTargetDead);
}

TEST_P(SimProcessTest, ModelNoticesAKilledTargetToo) {
  MakeNic(SimMode::kModel);
  child_->Kill();
  ASSERT_TRUE(nic_->Prepare({.endpoint = endpoint_,
                             .local = local_.data(),
                             .lkey = key_.lkey,
                             .length = 4096,
                             .remote_address = info_.buffers[0].address,
                             .rkey = info_.buffers[0].rkeys[0]}));
  nic_->Submit();
  now_ += 4096 + 100;
  NicCompletion completion;
  EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
  EXPECT_EQ(nic_->PrepareToPark(), now_ + kErrorDelay);
  now_ += kErrorDelay;
  ASSERT_EQ(nic_->Peek({&completion, 1}), 1u);
  EXPECT_EQ(completion.status, FabricStatus::kTargetDead);
}

TEST_P(SimProcessTest, KilledTargetFailsEverythingPosted) {
  child_->Kill();
  size_t posted = 0;
  for (; posted < 64; ++posted) {
    ASSERT_TRUE(nic_->Prepare({.endpoint = endpoint_,
                               .local = local_.data(),
                               .lkey = key_.lkey,
                               .length = 64,
                               .remote_address = info_.buffers[0].address,
                               .rkey = info_.buffers[0].rkeys[0],
                               .user_data = posted}));
  }
  nic_->Submit();
  nic_->Step(1000);
  now_ += 64 * 64 + 100 + kErrorDelay;
  const std::vector<NicCompletion> done = Take(*nic_);
  ASSERT_EQ(done.size(), posted);
  for (size_t i = 0; i < done.size(); ++i) {
    EXPECT_EQ(done[i].user_data, i);
    EXPECT_EQ(done[i].status, i == 0 ? FabricStatus::kTargetDead : FabricStatus::kFlushed);
  }
}

}  // namespace
}  // namespace railhop
