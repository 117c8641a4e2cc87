#include "tests/bench/child_process.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

namespace railhop {
namespace {

using testing::HasSubstr;
constexpr std::chrono::seconds kLong{60};

absl::StatusOr<ChildProcess> Shell(const std::string& script) {
  return ChildProcess::Start({"/bin/sh", "-c", script});
}

TEST(ChildProcessTest, ReadsItsLines) {
  auto child = Shell("echo one; printf 'two\\nthree'");
  ASSERT_TRUE(child.ok());
  EXPECT_EQ(child->ReadLine(kLong).value(), "one");
  EXPECT_EQ(child->ReadLine(kLong).value(), "two");
  EXPECT_TRUE(absl::IsOutOfRange(child->ReadLine(kLong).status()));  // "three" has no newline
}

TEST(ChildProcessTest, GivesUpOnAQuietChild) {
  auto child = Shell("exec sleep 1000");
  ASSERT_TRUE(child.ok());
  EXPECT_TRUE(absl::IsDeadlineExceeded(child->ReadLine(std::chrono::milliseconds(1)).status()));
}

TEST(ChildProcessTest, EndsWithTheObject) {
  pid_t pid = 0;
  {
    auto child = Shell("echo ready; exec sleep 1000");
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE(child->ReadLine(kLong).ok());
    pid = child->pid();
    EXPECT_EQ(kill(pid, 0), 0);
  }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ChildProcessTest, KillsOneThatIgnoresSigterm) {
  auto child = Shell("trap '' TERM; echo ready; exec sleep 1000");
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child->ReadLine(kLong).ok());
  const pid_t pid = child->pid();
  { const ChildProcess ended = *std::move(child); }
  EXPECT_EQ(kill(pid, 0), -1);
}

TEST(ChildProcessTest, SaysThatAProgramIsNotThere) {
  auto child = ChildProcess::Start({"/nonexistent/program"});
  ASSERT_TRUE(child.ok());  // exec fails in the child
  EXPECT_TRUE(absl::IsOutOfRange(child->ReadLine(kLong).status()));
}

TEST(CpuTimeTest, GrowsWhileAProcessWorks) {
  const auto before = CpuTimeOf(getpid());
  ASSERT_TRUE(before.ok());
  auto now = CpuTimeOf(getpid());
  while (now.ok() && *now == *before) now = CpuTimeOf(getpid());
  ASSERT_TRUE(now.ok());
  EXPECT_GT(*now, *before);
}

TEST(CpuTimeTest, ASleeperUsesNone) {
  auto child = Shell("echo ready; exec sleep 1000");
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(child->ReadLine(kLong).ok());
  const auto share = CpuShareOf(child->pid(), std::chrono::milliseconds(20));
  ASSERT_TRUE(share.ok());
  EXPECT_GE(*share, 0);
}

TEST(CpuTimeTest, NamesAProcessThatIsNotThere) {
  pid_t gone = fork();
  if (gone == 0) _exit(0);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  const auto time = CpuTimeOf(gone);
  ASSERT_FALSE(time.ok());
  EXPECT_THAT(std::string(time.status().message()), HasSubstr(std::to_string(gone)));
}

}  // namespace
}  // namespace railhop
