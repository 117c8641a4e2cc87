#include "transport/ring/file_lock.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "tests/transport/ring/ring_test_support.h"
#include "transport/ring/guarded_fd.h"

namespace railhop {
namespace {

using ::railhop::testing::Child;
using ::railhop::testing::PrivateRoot;
using std::chrono::milliseconds;

class FileLockTest : public ::testing::Test {
 protected:
  FileLockTest() : path_(root_.path() + "/lock"), fd_(OpenLock()) {}
  int OpenLock() const { return open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }
  // Holds the lock until it is told otherwise.
  Child MakeHolder() const {
    return Child([this](const Child::Link& link) {
      const GuardedFd fd(OpenLock());
      const absl::StatusOr<FileLock> lock = FileLock::Acquire(fd.get(), path_, milliseconds(0));
      return lock.ok() && link.Tell() && link.Await() != 0;
    });
  }

  PrivateRoot root_;
  std::string path_;
  GuardedFd fd_;
};

TEST_F(FileLockTest, IsReleasedAtTheEndOfItsScope) {
  const GuardedFd other(OpenLock());
  {
    const absl::StatusOr<FileLock> lock = FileLock::Acquire(fd_.get(), path_, milliseconds(0));
    ASSERT_TRUE(lock.ok());
    EXPECT_TRUE(
        absl::IsDeadlineExceeded(FileLock::Acquire(other.get(), path_, milliseconds(0)).status()));
  }
  EXPECT_TRUE(FileLock::Acquire(other.get(), path_, milliseconds(0)).ok());
}

TEST_F(FileLockTest, Rule10NonBlockingLocksAgainstAStoppedHolder) {
  const Child holder = MakeHolder();
  ASSERT_NE(holder.Await(), 0);
  holder.Stop();
  const absl::Status status = FileLock::Acquire(fd_.get(), path_, milliseconds(20)).status();
  ASSERT_TRUE(absl::IsDeadlineExceeded(status)) << status;
  EXPECT_NE(std::string(status.message()).find(path_), std::string::npos) << status;
}

TEST_F(FileLockTest, IsFreeOnceItsHolderIsDead) {
  Child holder = MakeHolder();
  ASSERT_NE(holder.Await(), 0);
  EXPECT_FALSE(FileLock::Acquire(fd_.get(), path_, milliseconds(0)).ok());
  holder.Kill();
  EXPECT_TRUE(FileLock::Acquire(fd_.get(), path_, milliseconds(0)).ok());
}

TEST_F(FileLockTest, WaiterGetsItWhenItIsLetGo) {
  Child holder = MakeHolder();
  ASSERT_NE(holder.Await(), 0);
  holder.Tell();  // may release before or after we ask
  EXPECT_TRUE(FileLock::Acquire(fd_.get(), path_, milliseconds(60'000)).ok());
  EXPECT_TRUE(holder.Join());
}

TEST_F(FileLockTest, BadDescriptorIsAnErrorThatNamesTheFile) {
  const absl::Status status = FileLock::Acquire(-1, path_, milliseconds(1000)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_NE(std::string(status.message()).find(path_), std::string::npos);
}

}  // namespace
}  // namespace railhop
