#include "transport/ring/process_identity.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pthread.h>
#include <sys/syscall.h>

#include <string>

#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {
namespace {

using ::railhop::testing::Child;

// Tells who it is, then waits.
Child MakeSleeper() {
  return Child([](const Child::Link& link) { return link.Tell() && link.Await() != 0; });
}

ProcessIdentity IdentityOf(pid_t pid) {
  std::FILE* file = std::fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
  char text[4096] = {};
  const size_t size = std::fread(text, 1, sizeof(text) - 1, file);
  std::fclose(file);
  return {geteuid(), pid, ParseProcessStat({text, size})->start_ticks};
}

std::string Stat(const std::string& command, const std::string& state = "S") {
  std::string text = "42 (" + command + ") " + state;
  for (int field = 4; field <= 52; ++field) text += " " + std::to_string(field * 100);
  return text + "\n";
}

TEST(ParseProcessStatTest, CountsFieldsAfterTheLastParenthesis) {
  for (const char* command :
       {"simple", "two words", "a) S 1 2 3", ") (", "", "((x))", "tab\tnew\nline"}) {
    const std::optional<ProcessStat> stat = ParseProcessStat(Stat(command));
    ASSERT_TRUE(stat.has_value()) << command;
    EXPECT_EQ(stat->state, 'S');
    EXPECT_EQ(stat->threads, 2000);
    EXPECT_EQ(stat->start_ticks, 2200u);
  }
}

TEST(ParseProcessStatTest, RefusesWhatIsNoStat) {
  for (const char* text : {"", "42", "42 (x", "42 (x)", "42 (x) S", "42 (x) S 1 2 3", ")"}) {
    EXPECT_FALSE(ParseProcessStat(text).has_value()) << text;
  }
  EXPECT_FALSE(ParseProcessStat(Stat("x", "SS")).has_value());
  std::string text = Stat("x");
  text.replace(text.find(" 2200 "), 6, " 22x0 ");
  EXPECT_FALSE(ParseProcessStat(text).has_value());
  text.replace(text.find(" 22x0 "), 6, " 0 ");
  EXPECT_FALSE(ParseProcessStat(text).has_value());
}

TEST(ProcessIdentityTest, SelfIsAlive) {
  const absl::StatusOr<ProcessIdentity> self = SelfIdentity();
  ASSERT_TRUE(self.ok());
  EXPECT_EQ(self->pid, getpid());
  EXPECT_EQ(self->uid, geteuid());
  EXPECT_EQ(*self, IdentityOf(getpid()));
  EXPECT_TRUE(IsAlive(*self));
  EXPECT_FALSE(IsDead(*self));
}

TEST(ProcessIdentityTest, OtherStartTicksAreAnotherProcess) {
  ProcessIdentity self = *SelfIdentity();
  ++self.start_ticks;
  EXPECT_TRUE(IsDead(self));
}

TEST(ProcessIdentityTest, NonsenseIsDead) {
  EXPECT_TRUE(IsDead({0, 0, 1}));
  EXPECT_TRUE(IsDead({0, -1, 1}));
  EXPECT_TRUE(IsDead({0, getpid(), 0}));
}

TEST(ProcessIdentityTest, ZombieIsDead) {
  const Child child = MakeSleeper();
  ASSERT_NE(child.Await(), 0);
  const ProcessIdentity identity = IdentityOf(child.pid());
  EXPECT_TRUE(IsAlive(identity));
  child.KillToZombie();
  EXPECT_TRUE(IsDead(identity));
}

TEST(ProcessIdentityTest, StoppedIsAlive) {
  const Child child = MakeSleeper();
  ASSERT_NE(child.Await(), 0);
  const ProcessIdentity identity = IdentityOf(child.pid());
  child.Stop();
  EXPECT_TRUE(IsAlive(identity));
}

class ProcessWatchTest : public ::testing::TestWithParam<ProcessWatch::Method> {};

TEST_P(ProcessWatchTest, EndsWithItsProcess) {
  Child child = MakeSleeper();
  ASSERT_NE(child.Await(), 0);
  ProcessWatch watch(IdentityOf(child.pid()), GetParam());
  EXPECT_FALSE(watch.Ended());
  EXPECT_EQ(watch.fd() >= 0, GetParam() == ProcessWatch::Method::kPidfd);
  child.KillToZombie();
  if (watch.fd() >= 0) {
    pollfd entry{.fd = watch.fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&entry, 1, 10'000), 1);
  }
  EXPECT_TRUE(watch.Ended());
  child.Kill();
  EXPECT_TRUE(watch.Ended());
}

TEST_P(ProcessWatchTest, KnowsAtOnceThatTheProcessWasGone) {
  Child child = MakeSleeper();
  ASSERT_NE(child.Await(), 0);
  const ProcessIdentity identity = IdentityOf(child.pid());
  child.Kill();
  ProcessWatch watch(identity, GetParam());
  EXPECT_TRUE(watch.Ended());
}

// The id belongs to a living process, but to a later one.
TEST_P(ProcessWatchTest, IsNotFooledByAReusedId) {
  ProcessIdentity self = *SelfIdentity();
  --self.start_ticks;
  ProcessWatch watch(self, GetParam());
  EXPECT_TRUE(watch.Ended());
  EXPECT_EQ(watch.fd(), -1);
}

// "Ended" is the promise that all descriptors are closed; a main thread's exit is not that.
TEST_P(ProcessWatchTest, LivesAsLongAsItsLastThread) {
  Child child([](const Child::Link& link) {
    static const Child::Link* shared = nullptr;
    shared = &link;
    pthread_t thread;
    pthread_create(
        &thread, nullptr,
        [](void*) -> void* {
          shared->Await();
          _exit(0);
        },
        nullptr);
    link.Tell();
    syscall(SYS_exit, 0);  // the main thread alone
    return true;
  });
  ASSERT_NE(child.Await(), 0);
  const ProcessIdentity identity = IdentityOf(child.pid());
  while (IsAlive(identity)) {
  }
  EXPECT_EQ(ProbeLiveness(identity), Liveness::kEnding);
  ProcessWatch watch(identity, GetParam());
  EXPECT_FALSE(watch.Ended());
  child.KillToZombie();
  while (!watch.Ended()) {
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, ProcessWatchTest,
                         ::testing::Values(ProcessWatch::Method::kPidfd,
                                           ProcessWatch::Method::kProcOnly),
                         [](const auto& row) {
                           return row.param == ProcessWatch::Method::kPidfd ? "Pidfd" : "ProcOnly";
                         });

TEST(GuardedFdTest, OwnsItsDescriptor) {
  const int raw = open("/dev/null", O_RDONLY | O_CLOEXEC);
  GuardedFd fd(raw);
  EXPECT_EQ(fd.get(), raw);
  GuardedFd moved = std::move(fd);
  EXPECT_EQ(moved.get(), raw);
  moved.Reset();
  EXPECT_FALSE(moved.valid());
  EXPECT_EQ(fcntl(raw, F_GETFD), -1);
  EXPECT_FALSE(GuardedFd(-1).valid());
}

TEST(GuardedFdTest, ForkedChildDoesNotKeepIt) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  GuardedFd reader(ends[0]);
  GuardedFd writer(ends[1]);
  Child child([&](const Child::Link& link) {
    const bool gone = !reader.valid() && !writer.valid() && fcntl(ends[0], F_GETFD) == -1 &&
                      fcntl(ends[1], F_GETFD) == -1;
    // The numbers are free again; the objects must not close what gets them next.
    const int first = open("/dev/null", O_RDONLY);
    GuardedFd second(open("/dev/null", O_RDONLY));
    reader.Reset();
    writer.Reset();
    const bool kept = fcntl(first, F_GETFD) >= 0 && fcntl(second.get(), F_GETFD) >= 0;
    link.Tell();
    link.Await();
    return gone && kept;
  });
  ASSERT_NE(child.Await(), 0);
  // With the child alive, our writer is the last one.
  EXPECT_TRUE(reader.valid());
  writer.Reset();
  char byte;
  EXPECT_EQ(read(reader.get(), &byte, 1), 0);
  child.Tell();
  EXPECT_TRUE(child.Join());
}

}  // namespace
}  // namespace railhop
