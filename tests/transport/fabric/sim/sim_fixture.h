// What the tests of the simulated fabric share: a private directory for segment files, and a NIC
// whose clock and mover the test drives by hand (one cycle a nanosecond, one byte a nanosecond).
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "transport/fabric/sim/sim_nic.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {

class TemporaryDirectory {
 public:
  TemporaryDirectory() : path_(testing::TempDir() + "/railhop-sim-XXXXXX") {
    EXPECT_NE(mkdtemp(path_.data()), nullptr);
  }
  ~TemporaryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryDirectory(const TemporaryDirectory&) = delete;
  TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::vector<NicCompletion> Take(Nic& nic, size_t limit = 1000) {
  std::vector<NicCompletion> completions(limit);
  completions.resize(nic.Peek(completions));
  nic.Advance(completions.size());
  return completions;
}

// A target of this process with one buffer, a NIC connected to it, and as many bytes to send.
class SimFixture : public testing::Test {
 protected:
  static constexpr uint64_t kBytes = 1 << 20;
  static constexpr uint64_t kBaseDelay = 100;
  static constexpr uint64_t kErrorDelay = 50'000;

  void SetUp() override {
    absl::StatusOr<std::unique_ptr<SimTarget>> target = SimTarget::Create(directory_.path(), "t");
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    absl::StatusOr<std::span<std::byte>> memory = target_->AllocateMemory(kBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *memory;
    absl::StatusOr<RemoteBuffer> buffer =
        target_->Register(memory_.data(), memory_.size(), {"nic1"});
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    buffer_ = *buffer;
    source_.resize(kBytes);
    for (size_t i = 0; i < kBytes; ++i) source_[i] = static_cast<std::byte>(i * 7 + i / 256);
  }

  SimNicOptions Options() const {
    return {.name = "nic0",
            .mode = SimMode::kManual,
            .line_rate = 1e9,
            .base_delay = std::chrono::nanoseconds(kBaseDelay),
            .send_queue_depth = 16,
            .max_endpoints = 3,
            .error_delay = std::chrono::nanoseconds(kErrorDelay),
            .faults = {},
            .clock = CycleClock(&now_),
            .cycles_per_nanosecond = 1.0};
  }

  void MakeNic(SimNicOptions options) {
    absl::StatusOr<std::unique_ptr<SimNic>> nic = SimNic::Create(std::move(options));
    ASSERT_TRUE(nic.ok()) << nic.status();
    nic_ = *std::move(nic);
    absl::StatusOr<MemoryKey> key = nic_->Register(source_.data(), source_.size());
    ASSERT_TRUE(key.ok()) << key.status();
    key_ = *key;
    endpoint_ = Connect();
  }

  EndpointId Connect() {
    absl::StatusOr<EndpointId> endpoint = nic_->Connect(target_->info(), 0);
    EXPECT_TRUE(endpoint.ok()) << endpoint.status();
    return endpoint.ok() ? *endpoint : 0;
  }

  // A write of `length` bytes at `offset`, to the same offset of the target.
  WorkRequest Write(uint64_t user_data, uint32_t length, uint64_t offset = 0) {
    return {.opcode = FabricOpcode::kWrite,
            .signaled = true,
            .endpoint = endpoint_,
            .local = source_.data() + offset,
            .lkey = key_.lkey,
            .length = length,
            .remote_address = buffer_.address + offset,
            .rkey = buffer_.rkeys[0],
            .user_data = user_data};
  }

  // Prepares, submits and (with a mover) moves one request.
  void Post(const WorkRequest& request) {
    ASSERT_TRUE(nic_->Prepare(request));
    nic_->Submit();
    nic_->Step(1);
  }

  TemporaryDirectory directory_;
  uint64_t now_ = 1'000'000;
  std::unique_ptr<SimTarget> target_;
  std::span<std::byte> memory_;
  RemoteBuffer buffer_;
  std::vector<std::byte> source_;
  std::unique_ptr<SimNic> nic_;
  MemoryKey key_;
  EndpointId endpoint_ = 0;
};

inline bool operator==(const NicCompletion& a, const NicCompletion& b) {
  return a.user_data == b.user_data && a.status == b.status && a.bytes == b.bytes;
}
inline void PrintTo(const NicCompletion& completion, std::ostream* out) {
  *out << "{" << completion.user_data << ", " << FabricStatusName(completion.status) << ", "
       << completion.bytes << " bytes}";
}

}  // namespace railhop
