// The degrade table, the rows about GPUs, on the stand-in for the driver: docs/degrade.md.
#include <gmock/gmock.h>

#include "runtime/log.h"
#include "tests/actors/rank_support.h"
#include "tests/support/fake_cuda/fake_cuda.h"
#include "transport/cuda/driver_abi.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class DegradeCudaTest : public RankTest {
 protected:
  DegradeCudaTest() {
    fake_.Reset();
    previous_ = SetLogSink([this](LogLevel level, std::string_view message) {
      if (level != LogLevel::kInfo) warnings_.emplace_back(message);
    });
  }
  ~DegradeCudaTest() override { SetLogSink(previous_); }

  std::string OnGpu(const std::string& more = "") const {
    return Relaying(0, kFast, "staging: CUDA gpu: \"0000:65:00.0\" " + more);
  }

  // A write of host memory, and what is said to whoever registers the GPU's.
  void ExpectDirectWithOneWarning(const std::string& config,
                                  const testing::Matcher<const std::string&>& words) {
    const Target target = MakeTarget("decode", 4096, "sim1");
    std::vector<std::byte> memory = Pattern(4096, 1);
    const auto rank = Make(config);
    ASSERT_NE(rank, nullptr);
    Register(*rank, memory);
    const BatchStatus status =
        Run(*rank, {{Opcode::kWrite, memory.data(), Open(*rank, "decode"),
                     reinterpret_cast<uint64_t>(target.memory.data()), memory.size()}});
    EXPECT_EQ(status.state, BatchState::kCompleted);
    EXPECT_EQ(status.relayed_bytes, 0U);
    EXPECT_TRUE(std::equal(memory.begin(), memory.end(), target.memory.begin()));
    EXPECT_THAT(warnings_, ElementsAre(words));
    EXPECT_THAT(rank->pxn_off_reason(), words);
  }

  FakeCuda& fake_ = FakeCuda::Get();
  std::vector<std::string> warnings_;

 private:
  LogSink previous_;
};

TEST_F(DegradeCudaTest, DeviceQueryFails) {
  fake_.fail["cuDeviceGetAttribute"] = cuda::kInvalidValue;
  ExpectDirectWithOneWarning(OnGpu(), AllOf(HasSubstr("0000:65:00.0"), HasSubstr("what it can")));
}

TEST_F(DegradeCudaTest, NoSuchGpu) {
  ExpectDirectWithOneWarning(Relaying(0, kFast, "staging: CUDA gpu: \"0000:99:00.0\""),
                             HasSubstr("0000:99:00.0"));
  std::string error;
  std::byte byte{};
  const auto rank = Make(Config(2, kFast, "staging: CUDA gpu: \"0000:99:00.0\""));
  EXPECT_FALSE(rank->RegisterMemory(&byte, 1, "cuda:0", &error));
  EXPECT_THAT(error, HasSubstr("0000:99:00.0"));
}

TEST_F(DegradeCudaTest, NoMemoryForTheArenaOnTheGpu) {
  // The engine's own memory comes before, and does not matter to this.
  fake_.largest_allocation = 512 << 20;
  ExpectDirectWithOneWarning(OnGpu(),
                             AllOf(HasSubstr("1056964608 bytes"), HasSubstr("0000:65:00.0")));
}

TEST_F(DegradeCudaTest, AGpuThatCanEverythingIsNoNews) {
  const auto rank = Make(OnGpu());
  ASSERT_NE(rank, nullptr);
  EXPECT_EQ(rank->pxn_off_reason(), "");
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace railhop
