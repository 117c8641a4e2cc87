// Ranks with GPUs, on the stand-in for the driver: the sender's, a relay with the other one in a
// process of its own, and what is said meanwhile.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/actors/warned_rank.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/cuda/device.h"

namespace railhop {

class CudaRankTest : public WarnedRankTest {
 protected:
  static constexpr size_t kBytes = 1 << 20;

  CudaRankTest() { fake_.Reset(); }
  ~CudaRankTest() override { TearDownSender(); }
  void TearDownSender() {
    rank_ = nullptr;
    target_ = {};
    if (source_ == nullptr) return;
    const CudaScope scope(*device_);
    device_->driver().stream_destroy(stream_);
    device_->driver().mem_free(reinterpret_cast<cuda::DevicePointer>(source_));
    source_ = nullptr;
  }

  std::string OnGpu(const std::string& more = "") const {
    return Relaying(0, kFast, "staging: CUDA gpu: \"0000:65:00.0\" " + more);
  }

  // The rest of the process's life with the driver is as `fake_` says by then.
  std::unique_ptr<Child> StartRelay() const {
    return std::make_unique<Child>([this](int end) {
      const auto relay = Make(Relaying(1, kFast, "staging: CUDA gpu: \"0000:17:00.0\""));
      if (relay == nullptr) _exit(1);
      Child::AwaitEnd(end);
      relay->Stop(std::chrono::seconds(1));
    });
  }

  // A rank, a source on its GPU, and a target on the relay's rail.
  void MakeSender(const std::string& config) {
    target_ = MakeTarget("decode", kBytes, "sim1");
    rank_ = Make(config);
    ASSERT_NE(rank_, nullptr);
    const auto driver = CudaDriver::Get();
    ASSERT_TRUE(driver.ok()) << driver.status();
    device_ = *CudaDevice::Open(**driver, "0000:65:00.0");
    const CudaScope scope(*device_);
    cuda::DevicePointer memory = 0;
    ASSERT_EQ((*driver)->mem_alloc(&memory, kBytes), cuda::kSuccess);
    source_ = reinterpret_cast<std::byte*>(memory);  // NOLINT(performance-no-int-to-ptr)
    std::memcpy(source_, content_.data(), kBytes);
    std::string error;
    ASSERT_TRUE(rank_->RegisterMemory(source_, kBytes, "cuda:0", &error)) << error;
    segment_ = Open(*rank_, "decode");
    ASSERT_EQ((*driver)->stream_create_with_priority(&stream_, cuda::kStreamNonBlocking, 0),
              cuda::kSuccess);
  }
  BatchId Submit(const SourceFence& fence) {
    const TransferRequest request{Opcode::kWrite, source_, segment_,
                                  reinterpret_cast<uint64_t>(target_.memory.data()), kBytes};
    BatchId batch;
    EXPECT_EQ(rank_->SubmitWith({&request, 1}, {.timeout = kForever, .fence = fence}, &batch),
              SubmitResult::kOk);
    return batch;
  }
  BatchStatus Finish(BatchId batch) {
    EXPECT_TRUE(rank_->Wait(batch, kForever));
    const BatchStatus status = rank_->Status(batch);
    EXPECT_EQ(rank_->Free(batch), FreeResult::kOk);
    return status;
  }
  bool Arrived(const std::vector<std::byte>& bytes) const {
    return std::equal(bytes.begin(), bytes.end(), target_.memory.begin());
  }

  FakeCuda& fake_ = FakeCuda::Get();
  const std::vector<std::byte> content_ = Pattern(kBytes, 1);
  Target target_;
  std::shared_ptr<const CudaDevice> device_;
  std::byte* source_ = nullptr;
  cuda::Stream stream_ = nullptr;  // the application's
  std::unique_ptr<Rank> rank_;
  SegmentId segment_ = 0;
};

}  // namespace railhop
