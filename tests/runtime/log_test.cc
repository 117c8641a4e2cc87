#include "runtime/log.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

namespace railhop {
namespace {

class LogTest : public testing::Test {
 protected:
  void SetUp() override {
    previous_ = SetLogSink([this](LogLevel level, std::string_view message) {
      levels_.push_back(level);
      lines_.emplace_back(message);
    });
  }
  void TearDown() override { SetLogSink(previous_); }

  std::vector<LogLevel> levels_;
  std::vector<std::string> lines_;

 private:
  LogSink previous_;
};

TEST_F(LogTest, TheSinkGetsLevelAndMessage) {
  Log(LogLevel::kWarning, "lane 3 is full");
  Log(LogLevel::kError, "entry is gone");
  EXPECT_EQ(levels_, (std::vector<LogLevel>{LogLevel::kWarning, LogLevel::kError}));
  EXPECT_EQ(lines_, (std::vector<std::string>{"lane 3 is full", "entry is gone"}));
}

TEST_F(LogTest, LogOnceSaysEachKeyOnce) {
  LogOnce(LogLevel::kWarning, "log_test/a", "first");
  LogOnce(LogLevel::kWarning, "log_test/a", "second");
  LogOnce(LogLevel::kWarning, "log_test/b", "third");
  EXPECT_EQ(lines_, (std::vector<std::string>{"first", "third"}));
}

TEST_F(LogTest, LogRarelySaysEachKeyAgainAfterAWhileAndHowOftenItWasSilent) {
  const std::chrono::steady_clock::time_point start{std::chrono::hours(1)};
  LogRarely(LogLevel::kWarning, "log_test/rare", "first", start);
  LogRarely(LogLevel::kWarning, "log_test/other", "of another key", start);
  for (int i = 0; i < 3; ++i) {
    LogRarely(LogLevel::kWarning, "log_test/rare", "dropped", start + std::chrono::seconds(9));
  }
  LogRarely(LogLevel::kWarning, "log_test/rare", "second", start + std::chrono::seconds(10));
  LogRarely(LogLevel::kWarning, "log_test/rare", "third", start + std::chrono::seconds(20));
  EXPECT_EQ(lines_,
            (std::vector<std::string>{"first", "of another key",
                                      "second (and 3 like it since the last such line)", "third"}));
}

TEST_F(LogTest, LogRarelyForgetsOldKeysRatherThanKeepingAnyNumber) {
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < 1025; ++i) {
      LogRarely(LogLevel::kWarning, "log_test/many" + std::to_string(i), "said");
    }
  }
  EXPECT_GT(lines_.size(), 1025u);
}

TEST_F(LogTest, LogOnceFromManyThreadsSaysItOnce) {
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([] { LogOnce(LogLevel::kError, "log_test/threads", "once"); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), 1U);
}

TEST_F(LogTest, ASinkMayLogAndReplaceItself) {
  int calls = 0;
  SetLogSink([&calls](LogLevel, std::string_view) {
    if (++calls == 1) {
      Log(LogLevel::kError, "nested");
      SetLogSink(nullptr);
    }
  });
  Log(LogLevel::kError, "outer");
  EXPECT_EQ(calls, 2);
}

TEST_F(LogTest, SetLogSinkReturnsThePreviousOne) {
  const LogSink mine = SetLogSink(nullptr);
  ASSERT_TRUE(mine);
  mine(LogLevel::kError, "handed back");
  EXPECT_EQ(lines_, (std::vector<std::string>{"handed back"}));
  EXPECT_FALSE(SetLogSink(nullptr));
}

// The threshold is read once per process, so each case gets a process of its own.
class LogLevelTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  [[noreturn]] static void LogAllLevels(const char* level) {
    if (level == nullptr) {
      unsetenv("RAILHOP_LOG_LEVEL");
    } else {
      setenv("RAILHOP_LOG_LEVEL", level, 1);
    }
    Log(LogLevel::kInfo, "i");
    Log(LogLevel::kWarning, "w");
    Log(LogLevel::kError, "e");
    std::_Exit(0);
  }
};

TEST_F(LogLevelTest, DefaultDropsInfo) {
  EXPECT_EXIT(LogAllLevels(nullptr), testing::ExitedWithCode(0),
              "^railhop warning: w\nrailhop error: e\n$");
}
TEST_F(LogLevelTest, InfoShowsEverything) {
  EXPECT_EXIT(LogAllLevels("info"), testing::ExitedWithCode(0),
              "^railhop info: i\nrailhop warning: w\nrailhop error: e\n$");
}
TEST_F(LogLevelTest, ErrorShowsErrorsOnly) {
  EXPECT_EXIT(LogAllLevels("error"), testing::ExitedWithCode(0), "^railhop error: e\n$");
}
TEST_F(LogLevelTest, AnUnknownLevelIsTheDefault) {
  EXPECT_EXIT(LogAllLevels("loud"), testing::ExitedWithCode(0),
              "^railhop warning: w\nrailhop error: e\n$");
}

}  // namespace
}  // namespace railhop
