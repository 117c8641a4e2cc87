// Ranks whose warnings and errors a test collects, and what a rank does that something switched
// off.
#pragma once

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/log.h"
#include "tests/actors/rank_support.h"

namespace railhop {

class WarnedRankTest : public RankTest {
 protected:
  WarnedRankTest() {
    previous_ = SetLogSink([this](LogLevel level, std::string_view message) {
      if (level != LogLevel::kInfo) warnings_.emplace_back(message);
    });
  }
  ~WarnedRankTest() override { SetLogSink(previous_); }

  // A write of host memory that would be relayed, were PXN on.
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
    EXPECT_EQ(status.bytes, memory.size());
    EXPECT_EQ(status.relayed_bytes, 0U);
    EXPECT_TRUE(std::equal(memory.begin(), memory.end(), target.memory.begin()));
    EXPECT_THAT(warnings_, testing::ElementsAre(words));
    EXPECT_THAT(rank->pxn_off_reason(), words);
    EXPECT_FALSE(rank->WaitForRelay("sim1", std::chrono::milliseconds(0)));
  }

  std::vector<std::string> warnings_;

 private:
  LogSink previous_;
};

}  // namespace railhop
