#include "tests/bench/cpu_time.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <string>

#include "tests/support/wait_until.h"

namespace railhop {
namespace {

using testing::HasSubstr;

TEST(CpuTimeTest, GrowsWhileThisProcessWorks) {
  const auto before = CpuTimeOf(getpid());
  ASSERT_TRUE(before.ok());
  auto now = CpuTimeOf(getpid());
  while (now.ok() && *now == *before) now = CpuTimeOf(getpid());
  ASSERT_TRUE(now.ok());
  EXPECT_GT(*now, *before);
}

// 'S' once it blocks; 'R' while it runs or waits for a core.
char StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  return name_end + 2 < line.size() ? line[name_end + 2] : '?';
}

// A child that blocks on a pipe which this process holds: its time stands still.
TEST(CpuTimeTest, StandsStillWhileAnotherSleeps) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "its own thread takes time";
#endif
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[1]);
    char byte;
    _exit(read(ends[0], &byte, 1) == 0 ? 0 : 1);
  }
  close(ends[0]);
  ASSERT_TRUE(WaitUntil([&] { return StateOf(child) == 'S'; }));
  const auto used = CpuTimeOf(child);
  ASSERT_TRUE(used.ok());
  EXPECT_GT(used->count(), 0);
  EXPECT_EQ(CpuShareOf(child, std::chrono::milliseconds(5)).value(), 0);
  close(ends[1]);
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(CpuTimeTest, NamesAProcessThatIsNotThere) {
  const pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  const auto time = CpuTimeOf(gone);
  ASSERT_FALSE(time.ok());
  EXPECT_THAT(std::string(time.status().message()), HasSubstr(std::to_string(gone)));
}

}  // namespace
}  // namespace railhop
