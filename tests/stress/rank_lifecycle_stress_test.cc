// Whole ranks that are made, stopped in every way and destroyed, over and over, and a host process
// that forks while its rank is at work: nothing hangs, nothing is left behind, and no child makes a
// dead rank look alive.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/flag.h"
#include "tests/support/scale.h"
#include "tests/support/wait_until.h"
#include "transport/fabric/sim/sim_target.h"

namespace railhop {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr milliseconds kForever{120'000};  // only a hang reaches it
constexpr uint64_t kBytes = 4 << 20;

class RankLifecycleStressTest : public testing::Test {
 protected:
  RankLifecycleStressTest() : folder_(testing::TempDir() + "/railhop-lifecycle-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) std::abort();
  }
  ~RankLifecycleStressTest() override { fs::remove_all(folder_); }

  std::unique_ptr<Rank> MakeRank(int number, uint64_t rate) {
    const std::string config = fmt::format(
        "name: \"rank{0}\" sim_directory: \"{1}\" registry_root: \"{1}\"\n"
        "nics {{ name: \"sim{0}\" sim {{ line_rate_bytes_per_s: {2} }} }}\n"
        "pxn {{ enable: true group_id: \"test\" preattach: true }}\n",
        number, folder_, rate);
    std::string error;
    auto rank = Rank::Create(config, "test", &error);
    EXPECT_NE(rank, nullptr) << error;
    if (rank == nullptr) return rank;
    EXPECT_EQ(rank->pxn_off_reason(), "");
    EXPECT_TRUE(rank->RegisterMemory(source_.data(), source_.size(), "cpu:0", &error)) << error;
    return rank;
  }
  void MakeTarget(const std::string& rail) {
    auto target = SimTarget::Create(folder_, "decode");
    ASSERT_TRUE(target.ok()) << target.status();
    target_ = *std::move(target);
    auto memory = target_->AllocateMemory(kBytes);
    ASSERT_TRUE(memory.ok()) << memory.status();
    memory_ = *memory;
    ASSERT_TRUE(target_->Register(memory_.data(), memory_.size(), {rail}).ok());
    ASSERT_TRUE(target_->Publish().ok());
  }
  BatchId Submit(Rank& rank) {
    std::string error;
    const SegmentId target = rank.OpenSegment("decode", &error);
    EXPECT_NE(target, 0u) << error;
    const TransferRequest request{Opcode::kWrite, source_.data(), target,
                                  reinterpret_cast<uint64_t>(memory_.data()), kBytes};
    BatchId batch;
    EXPECT_EQ(rank.Submit({&request, 1}, kForever, &batch), SubmitResult::kOk);
    return batch;
  }
  BatchState Run(Rank& rank) {
    const BatchId batch = Submit(rank);
    EXPECT_TRUE(rank.Wait(batch, kForever));
    const BatchState state = rank.Status(batch).state;
    EXPECT_EQ(rank.Free(batch), FreeResult::kOk);
    return state;
  }

  void LiveOnce(uint64_t number);
  size_t Files() const {
    size_t files = 0;
    for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
      files += entry.is_directory() || entry.path().filename() == ".lock" ? 0 : 1;
    }
    return files;
  }

  std::string folder_;
  std::vector<std::byte> source_ = std::vector<std::byte>(kBytes, std::byte{7});
  std::unique_ptr<SimTarget> target_;
  std::span<std::byte> memory_;
};

size_t Entries(const char* directory) {
  const fs::directory_iterator entries(directory);
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

// Of this process: those shared with others, and all.
struct Mappings {
  size_t shared = 0, all = 0;
};
Mappings CountMappings() {
  Mappings count;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    ++count.all;
    const size_t permissions = line.find(' ') + 1;
    count.shared += line[permissions + 3] == 's' ? 1 : 0;
  }
  return count;
}

void RankLifecycleStressTest::LiveOnce(uint64_t number) {
  const uint64_t ending = number % 7;
  // A second for the batch where it should be under way at the end.
  const auto rank = MakeRank(0, ending < 3 ? 50'000'000'000 : kBytes);
  ASSERT_NE(rank, nullptr);
  if (ending == 0) return;  // at once
  const BatchId batch = Submit(*rank);
  const auto stop = [&](milliseconds deadline) {
    rank->Stop(deadline);
    const BatchStatus status = rank->Status(batch);
    EXPECT_NE(status.state, BatchState::kPending) << TransferErrorName(status.error);
  };
  switch (ending) {
    case 1:  // drained
      stop(kForever);
      // Refused, if it was still in the queue.
      if (rank->Status(batch).error == TransferError::kStopping) break;
      EXPECT_EQ(rank->Status(batch).state, BatchState::kCompleted);
      EXPECT_TRUE(std::equal(memory_.begin(), memory_.end(), source_.begin()));
      break;
    case 2:  // idle again
      EXPECT_TRUE(rank->Wait(batch, kForever));
      EXPECT_EQ(rank->Free(batch), FreeResult::kOk);
      rank->Stop(kForever);
      rank->Stop(kForever);
      break;
    case 3:  // no time to drain, and once more
      stop(milliseconds(0));
      stop(milliseconds(0));
      break;
    case 4:  // from two threads
    {
      std::thread other([&] { stop(milliseconds(1)); });
      stop(milliseconds(0));
      other.join();
      break;
    }
    case 5:  // while another thread waits for the batch
    {
      std::thread waiter([&] { EXPECT_TRUE(rank->Wait(batch, kForever)); });
      stop(milliseconds(1));
      waiter.join();
      break;
    }
    default:  // with the batch cancelled, which may not have ended yet
      rank->Cancel(batch);
      stop(milliseconds(0));
  }
}

TEST_F(RankLifecycleStressTest, CreateAndDestroyLeaveNothingBehind) {
  MakeTarget("sim0");
  for (uint64_t i = 0; i < 7; ++i) ASSERT_NO_FATAL_FAILURE(LiveOnce(i));  // what is made once
  const size_t descriptors = Entries("/proc/self/fd");
  const size_t threads = Entries("/proc/self/task");
  const size_t files = Files();
  const Mappings mappings = CountMappings();
  const uint64_t loops = StressCount(350, 10'000);
  for (uint64_t i = 0; i < loops; ++i) {
    ASSERT_NO_FATAL_FAILURE(LiveOnce(i));
    ASSERT_EQ(Entries("/proc/self/fd"), descriptors) << "after loop " << i;
    ASSERT_EQ(Files(), files) << "after loop " << i;
    ASSERT_EQ(CountMappings().shared, mappings.shared) << "after loop " << i;
  }
  EXPECT_TRUE(WaitUntil([&] { return Entries("/proc/self/task") <= threads; }));
  // The rest is the allocator's: it may grow, but not with the loops.
  EXPECT_LE(CountMappings().all, mappings.all + 50);
}

// What the child of a fork has open of its parent's rank.
std::string Inherited(const std::string& folder) {
  std::string found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const std::string file = fs::read_symlink(entry.path(), ignored).string();
    for (const std::string_view part : {std::string_view(folder), std::string_view("memfd:"),
                                        std::string_view("pidfd"), std::string_view("railhop")}) {
      if (file.find(part) != std::string::npos) found += " " + file;
    }
  }
  return found;
}

TEST_F(RankLifecycleStressTest, AHostThatForksUnderLoadHarmsNothing) {
  MakeTarget("sim0");
  auto rank = MakeRank(0, 2'000'000'000);
  ASSERT_NE(rank, nullptr);
  const uint64_t forks = StressCount(30, 300);
  for (uint64_t i = 0; i < forks; ++i) {
    const BatchId batch = Submit(*rank);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(60);
      if (const std::string kept = Inherited(folder_); !kept.empty()) {
        std::fprintf(stderr, "the child holds%s\n", kept.c_str());
        _exit(3);
      }
      // With destructors, without them, or with an exec: that is how children of hosts end.
      if (i % 3 == 0) rank.reset();
      if (i % 3 == 1) execl("/bin/true", "true", static_cast<char*>(nullptr));
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << " at " << i;
    EXPECT_TRUE(rank->Wait(batch, kForever));
    EXPECT_EQ(rank->Status(batch).state, BatchState::kCompleted) << "after fork " << i;
    EXPECT_EQ(rank->Free(batch), FreeResult::kOk);
    EXPECT_EQ(Run(*rank), BatchState::kCompleted) << "after fork " << i;
  }
}

// A pipe whose reader sees the end of file when the writer goes away.
struct Pipe {
  Pipe() {
    if (pipe(ends) != 0) std::abort();
  }
  int ends[2];
  void AwaitEnd() {
    close(ends[1]);
    char byte;
    while (read(ends[0], &byte, 1) != 0) {
    }
  }
};

// A relay's host dies and leaves a child that never executes anything.
TEST_F(RankLifecycleStressTest, AForkedChildDoesNotMakeADeadRelayLookAlive) {
  Pipe end;
  Pipe forked;
  const pid_t host = fork();
  ASSERT_GE(host, 0);
  if (host == 0) {
    const auto relay = MakeRank(1, 2'000'000'000);
    const pid_t child = fork();
    if (child > 0 && write(forked.ends[1], "", 1) != 1) _exit(1);
    close(forked.ends[1]);  // the child says nothing, and must not keep the pipe open
    end.AwaitEnd();
    _exit(0);
  }
  close(forked.ends[1]);
  MakeTarget("sim1");
  const auto rank = MakeRank(0, 2'000'000'000);
  ASSERT_NE(rank, nullptr);
  char byte;
  ASSERT_EQ(read(forked.ends[0], &byte, 1), 1);
  ASSERT_TRUE(rank->WaitForRelay("sim1", kForever));
  EXPECT_EQ(Run(*rank), BatchState::kCompleted);
  EXPECT_EQ(rank->Stats().bytes_relayed, kBytes);
  const size_t files = Files();

  kill(host, SIGKILL);
  ASSERT_EQ(waitpid(host, nullptr, 0), host);
  EXPECT_TRUE(WaitUntil([&] { return !rank->WaitForRelay("sim1", milliseconds(0)); }));
  EXPECT_EQ(Run(*rank), BatchState::kCompleted);
  // Its entry is nobody's, and a rank that comes after it takes its place. (The next look at the
  // registry removes what it left.)
  EXPECT_TRUE(WaitUntil([&] { return Files() < files; }));
  close(end.ends[1]);  // the child ends
}

}  // namespace
}  // namespace railhop
