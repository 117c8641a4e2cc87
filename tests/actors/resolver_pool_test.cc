#include "actors/resolver_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "tests/support/flag.h"

namespace railhop {
namespace {

absl::StatusOr<TargetInfo> Named(const std::string& name) {
  TargetInfo info;
  info.name = name;
  return info;
}

TEST(ResolverPoolTest, ATargetThatDoesNotAnswerHoldsUpNoOther) {
  Flag begun, go, mute_answered, other_answered;
  ResolverPool pool([&](const std::string& name, const std::stop_token&) {
    if (name == "mute") {
      begun.Set();
      EXPECT_TRUE(go.Wait());
    }
    return Named(name);
  });
  pool.Resolve("mute", [&](const absl::StatusOr<TargetInfo>& info) {
    EXPECT_EQ(info->name, "mute");
    mute_answered.Set();
  });
  ASSERT_TRUE(begun.Wait());
  pool.Resolve("other", [&](const absl::StatusOr<TargetInfo>& info) {
    EXPECT_EQ(info->name, "other");
    other_answered.Set();
  });
  EXPECT_TRUE(other_answered.Wait());
  EXPECT_FALSE(mute_answered.IsSet());
  go.Set();
  EXPECT_TRUE(mute_answered.Wait());
}

TEST(ResolverPoolTest, WhatReadingLeavesIsDoneAfterTheAnswer) {
  Flag answered, settled;
  ResolverPool pool([](const std::string& name, const std::stop_token&) { return Named(name); },
                    [&] {
                      EXPECT_TRUE(answered.IsSet());
                      settled.Set();
                    });
  pool.Resolve("one", [&](const absl::StatusOr<TargetInfo>&) { answered.Set(); });
  EXPECT_TRUE(settled.Wait());
}

TEST(ResolverPoolTest, AbandonEndsWhatWaitsAndDropsTheRest) {
  std::atomic<size_t> reads{0};
  Flag full;
  {
    ResolverPool pool([&](const std::string&, const std::stop_token& stop) {
      Flag stopped;
      const std::stop_callback on_stop(stop, [&] { stopped.Set(); });
      if (++reads == ResolverPool::kThreads) full.Set();
      EXPECT_TRUE(stopped.Wait());
      return absl::StatusOr<TargetInfo>(absl::CancelledError("stopped"));
    });
    for (size_t i = 0; i < 2 * ResolverPool::kThreads; ++i) {
      pool.Resolve(std::to_string(i), [](const absl::StatusOr<TargetInfo>& info) {
        EXPECT_TRUE(absl::IsCancelled(info.status()));
      });
    }
    ASSERT_TRUE(full.Wait());
    pool.Abandon();
  }
  EXPECT_EQ(reads, ResolverPool::kThreads) << "what had not begun";
}

}  // namespace
}  // namespace railhop
