// Whole Transfer Engines over TCP, as MakeTransferEngine gives them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/wait_until.h"
#include "tests/transport/engine/handshake_support.h"
#include "transport/engine/segment_descriptor.h"

namespace railhop {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

constexpr size_t kMiB = 1 << 20;
constexpr milliseconds kPatience = std::chrono::duration_cast<milliseconds>(kTestPatience);

std::unique_ptr<TransferEngine> MakeEngine() {
  std::string error;
  auto engine = MakeTransferEngine({.host = "127.0.0.1"}, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

struct Memory {
  explicit Memory(size_t size, int seed = 0) : bytes(size) {
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(seed == 0 ? 0 : i * seed);
  }
  uint64_t address() const { return reinterpret_cast<uint64_t>(bytes.data()); }
  std::vector<std::byte> bytes;
};

// One batch from submission to free.
TransferState Move(TransferEngine& engine, const std::vector<TransferTask>& tasks,
                   milliseconds deadline = milliseconds(0)) {
  const BatchHandle batch = engine.AllocateBatch(tasks.size());
  EXPECT_EQ(engine.Submit(batch, tasks, deadline), EngineError::kOk)
      << TransferEngine::last_error();
  EXPECT_TRUE(engine.Wait(batch, kPatience));
  TransferStatus status;
  EXPECT_EQ(engine.BatchStatus(batch, &status), EngineError::kOk);
  if (HasEnded(status.state)) {
    EXPECT_EQ(engine.FreeBatch(batch), EngineError::kOk);
  }
  return status.state;
}

TEST(EngineTest, MovesBytesBothWays) {
  const auto target = MakeEngine();
  const auto engine = MakeEngine();
  Memory there(8 * kMiB);
  Memory here(8 * kMiB, 7);
  ASSERT_EQ(target->RegisterMemory(there.bytes.data(), 8 * kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), 8 * kMiB, "cpu:0"), EngineError::kOk);
  const SegmentHandle peer = engine->OpenSegment(target->name());
  ASSERT_NE(peer, kNoSegment) << TransferEngine::last_error();
  EXPECT_EQ(engine->FirstBufferAddress(peer), there.address());
  std::vector<TransferTask> tasks;
  for (size_t at = 0; at < 8 * kMiB; at += kMiB / 2) {
    tasks.push_back({.opcode = Opcode::kWrite,
                     .source = here.bytes.data() + at,
                     .target = peer,
                     .target_address = there.address() + at,
                     .length = kMiB / 2});
  }
  EXPECT_EQ(Move(*engine, tasks), TransferState::kCompleted);
  EXPECT_EQ(there.bytes, here.bytes);
  std::fill(here.bytes.begin(), here.bytes.end(), std::byte{1});
  for (TransferTask& task : tasks) task.opcode = Opcode::kRead;
  EXPECT_EQ(Move(*engine, tasks), TransferState::kCompleted);
  EXPECT_EQ(here.bytes, there.bytes);
}

TEST(EngineTest, ATaskThatCannotBeDoneFailsAloneAndSaysSo) {
  const auto target = MakeEngine();
  const auto engine = MakeEngine();
  Memory there(kMiB);
  Memory here(kMiB, 3);
  ASSERT_EQ(target->RegisterMemory(there.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kMiB, "*"), EngineError::kOk);
  const SegmentHandle peer = engine->OpenSegment(target->name());
  const std::vector<TransferTask> tasks{
      {Opcode::kWrite, here.bytes.data(), peer, there.address(), 1000},
      {Opcode::kWrite, here.bytes.data(), peer, there.address() + kMiB - 10, 20},
      {Opcode::kWrite, here.bytes.data(), peer, there.address() + 5000, 0},
      {Opcode::kWrite, here.bytes.data() + 1000, peer, there.address() + 1000, 1000}};
  const BatchHandle batch = engine->AllocateBatch(4);
  ASSERT_EQ(engine->Submit(batch, tasks), EngineError::kOk);
  ASSERT_TRUE(engine->Wait(batch, kPatience));
  const TransferState wanted[] = {TransferState::kCompleted, TransferState::kFailed,
                                  TransferState::kCompleted, TransferState::kCompleted};
  for (size_t task = 0; task < 4; ++task) {
    TransferStatus status;
    EXPECT_EQ(engine->TaskStatus(batch, task, &status), EngineError::kOk);
    EXPECT_EQ(status.state, wanted[task]) << task;
  }
  EXPECT_EQ(engine->FreeBatch(batch), EngineError::kOk);
  EXPECT_EQ(memcmp(there.bytes.data(), here.bytes.data(), 2000), 0);
}

TEST(EngineTest, AnEngineWritesToItself) {
  const auto engine = MakeEngine();
  Memory from(kMiB, 5);
  Memory to(kMiB);
  ASSERT_EQ(engine->RegisterMemory(from.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(to.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->OpenSegment(engine->name()), kLocalSegment);
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, from.bytes.data(), kLocalSegment, to.address(), kMiB}}),
            TransferState::kCompleted);
  EXPECT_EQ(to.bytes, from.bytes);
}

TEST(EngineTest, ThreadsSubmitToOneTargetBesideEachOther) {
  constexpr size_t kThreads = 4;
  const auto target = MakeEngine();
  const auto engine = MakeEngine();
  Memory there(kThreads * kMiB);
  Memory here(kThreads * kMiB, 11);
  ASSERT_EQ(target->RegisterMemory(there.bytes.data(), there.bytes.size(), "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), here.bytes.size(), "*"), EngineError::kOk);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const SegmentHandle peer = engine->OpenSegment(target->name());
      for (size_t at = t * kMiB; at < (t + 1) * kMiB; at += kMiB / 16) {
        EXPECT_EQ(Move(*engine, {{Opcode::kWrite, here.bytes.data() + at, peer,
                                  there.address() + at, kMiB / 16}}),
                  TransferState::kCompleted);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(there.bytes, here.bytes);
}

TEST(EngineTest, ACallbackFreesItsBatchAndSubmitsTheNext) {
  constexpr int kRounds = 50;
  const auto target = MakeEngine();
  Memory there(kMiB);
  Memory here(kMiB, 7);
  std::atomic<int> rounds{0};
  const auto engine = MakeEngine();
  ASSERT_EQ(target->RegisterMemory(there.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kMiB, "*"), EngineError::kOk);
  const SegmentHandle peer = engine->OpenSegment(target->name());
  std::function<void()> submit;
  const BatchCallback on_end = [&](BatchHandle batch, const TransferStatus& status) {
    EXPECT_EQ(status.state, TransferState::kCompleted);
    EXPECT_EQ(status.transferred_bytes, kMiB / kRounds);
    EXPECT_EQ(engine->FreeBatch(batch), EngineError::kOk);
    if (rounds.fetch_add(1) + 1 < kRounds) submit();
  };
  submit = [&] {
    const size_t at = static_cast<size_t>(rounds.load()) * (kMiB / kRounds);
    const TransferTask task{Opcode::kWrite, here.bytes.data() + at, peer, there.address() + at,
                            kMiB / kRounds};
    const BatchHandle batch = engine->AllocateBatch(1);
    EXPECT_EQ(engine->SetCallback(batch, on_end), EngineError::kOk);
    EXPECT_EQ(engine->Submit(batch, {&task, 1}), EngineError::kOk);
  };
  submit();
  EXPECT_TRUE(WaitUntil([&] { return rounds.load() == kRounds; }));
  EXPECT_EQ(memcmp(there.bytes.data(), here.bytes.data(), kRounds * (kMiB / kRounds)), 0);
}

TEST(EngineTest, NicsHaveNothingToDoOnceAllHasEnded) {
  const auto engine = MakeEngine();
  Memory from(kMiB, 5);
  Memory to(kMiB);
  ASSERT_EQ(engine->RegisterMemory(from.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(to.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->NicLoads().size(), 1u);
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, from.bytes.data(), kLocalSegment, to.address(), kMiB}}),
            TransferState::kCompleted);
  const std::vector<NicLoad> loads = engine->NicLoads();
  EXPECT_EQ(loads[0].name, "tcp0");
  EXPECT_EQ(loads[0].inflight_bytes, 0u);
  EXPECT_GT(loads[0].bytes_per_second, 0.0);
}

// What the child of a fork does with its parent's engine: it is told that it cannot, and that the
// engine goes takes nothing from the parent. 0, or which step went wrong.
int TryAsChild(std::unique_ptr<TransferEngine> engine, BatchHandle batch,
               const TransferTask& task) {
  Memory more(kMiB);
  if (engine->RegisterMemory(more.bytes.data(), kMiB, "*") == EngineError::kOk) return 1;
  if (TransferEngine::last_error().find("forked") == std::string::npos) return 2;
  if (engine->UnregisterMemory(task.source) == EngineError::kOk) return 3;
  if (engine->Submit(batch, {&task, 1}) == EngineError::kOk) return 4;
  engine.reset();
#if defined(__SANITIZE_THREAD__)
  return 0;  // ThreadSanitizer lets no forked child have threads of its own
#else
  const auto own = MakeEngine();
  Memory there(kMiB);
  if (own->RegisterMemory(there.bytes.data(), kMiB, "*") != EngineError::kOk) return 5;
  const TransferTask task_of_own{Opcode::kWrite, there.bytes.data(), kLocalSegment,
                                 there.address() + 1000, 1000};
  return Move(*own, {task_of_own}) == TransferState::kCompleted ? 0 : 6;
#endif
}

TEST(EngineTest, AForkedChildLeavesTheEngineToItsParent) {
  auto engine = MakeEngine();
  Memory from(kMiB, 5);
  Memory to(kMiB);
  ASSERT_EQ(engine->RegisterMemory(from.bytes.data(), kMiB, "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(to.bytes.data(), kMiB, "*"), EngineError::kOk);
  const TransferTask task{Opcode::kWrite, from.bytes.data(), kLocalSegment, to.address(), kMiB};
  const BatchHandle batch = engine->AllocateBatch(1);
  std::atomic<int> ends{0};
  ASSERT_EQ(engine->SetCallback(batch, [&](BatchHandle, const TransferStatus&) { ++ends; }),
            EngineError::kOk);
  const pid_t child = fork();
  if (child == 0) _exit(TryAsChild(std::move(engine), batch, task));
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << (WIFSIGNALED(status) ? "died of signal " : "step ")
                       << (WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
  ASSERT_EQ(engine->Submit(batch, {&task, 1}), EngineError::kOk);
  EXPECT_TRUE(WaitUntil([&] { return ends.load() == 1; }));
  EXPECT_EQ(from.bytes, to.bytes);
  EXPECT_NE(MakeEngine()->OpenSegment(engine->name()), kNoSegment) << TransferEngine::last_error();
}

// A target in a process of its own: says its name and its memory's address over a pipe, then waits.
class TargetProcess {
 public:
  explicit TargetProcess(size_t size) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_ = fork();
    if (pid_ == 0) {
      const auto engine = MakeEngine();
      Memory memory(size);
      engine->RegisterMemory(memory.bytes.data(), size, "*");
      const std::string hello = engine->name() + " " + std::to_string(memory.address()) + "\n";
      if (write(ends[1], hello.data(), hello.size()) < 0) _exit(1);
      while (true) pause();
    }
    close(ends[1]);
    FILE* const answers = fdopen(ends[0], "r");
    char text[128] = {};
    unsigned long long where = 0;
    EXPECT_EQ(fscanf(answers, "%127s %llu", text, &where), 2);
    fclose(answers);
    name = text;
    address = where;
  }
  ~TargetProcess() { Kill(); }
  void Signal(int signal) const { kill(pid_, signal); }
  // Returns once none of its threads runs any more.
  void Stop() const {
    Signal(SIGSTOP);
    EXPECT_EQ(waitpid(pid_, nullptr, WUNTRACED), pid_);
  }
  void Kill() {
    if (pid_ < 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

  std::string name;
  uint64_t address = 0;

 private:
  pid_t pid_ = -1;
};

TEST(EngineTest, NobodyIsCalledOnceTheEngineIsBeingDestroyed) {
  TargetProcess target(64 * kMiB);
  Memory here(64 * kMiB, 3);
  std::atomic<int> calls{0};
  {
    const auto engine = MakeEngine();
    ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), here.bytes.size(), "*"), EngineError::kOk);
    const SegmentHandle peer = engine->OpenSegment(target.name);
    target.Signal(SIGSTOP);
    const TransferTask task{Opcode::kWrite, here.bytes.data(), peer, target.address,
                            here.bytes.size()};
    const BatchHandle batch = engine->AllocateBatch(1);
    engine->SetCallback(batch, [&](BatchHandle, const TransferStatus&) { ++calls; });
    ASSERT_EQ(engine->Submit(batch, {&task, 1}), EngineError::kOk);
    target.Kill();
  }
  const int at_the_end = calls.load();
  EXPECT_LE(at_the_end, 1);
}

TEST(EngineTest, AStoppedTargetIsATimeoutUntilItIsGone) {
  constexpr size_t kSize = 64 * kMiB;  // more than sockets hold
  TargetProcess target(kSize);
  const auto engine = MakeEngine();
  Memory here(kSize, 3);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kSize, "*"), EngineError::kOk);
  const SegmentHandle peer = engine->OpenSegment(target.name);
  ASSERT_NE(peer, kNoSegment);
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, here.bytes.data(), peer, target.address, 100}}),
            TransferState::kCompleted);

  target.Signal(SIGSTOP);
  const BatchHandle batch = engine->AllocateBatch(1);
  const TransferTask task{Opcode::kWrite, here.bytes.data(), peer, target.address, kSize};
  ASSERT_EQ(engine->Submit(batch, {&task, 1}, milliseconds(200)), EngineError::kOk);
  ASSERT_TRUE(engine->Wait(batch, kPatience));
  TransferStatus status;
  ASSERT_EQ(engine->BatchStatus(batch, &status), EngineError::kOk);
  EXPECT_EQ(status.state, TransferState::kTimeout);
  EXPECT_EQ(engine->FreeBatch(batch), EngineError::kBatchBusy);
  EXPECT_EQ(engine->UnregisterMemory(here.bytes.data()), EngineError::kContext) << "it is read";

  target.Kill();
  EXPECT_TRUE(WaitUntil([&] {
    engine->BatchStatus(batch, &status);
    return HasEnded(status.state);
  }));
  EXPECT_EQ(status.state, TransferState::kFailed);
  EXPECT_EQ(engine->FreeBatch(batch), EngineError::kOk);
  EXPECT_EQ(engine->UnregisterMemory(here.bytes.data()), EngineError::kOk);
}

// Whether this host has a connection to that port of its own that has been accepted.
bool IsConnectedTo(const std::string& name) {
  const auto port = static_cast<unsigned>(std::stoul(name.substr(name.rfind(':') + 1)));
  constexpr unsigned kEstablished = 1;
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    unsigned remote = 0;
    unsigned state = 0;
    const int read = sscanf(line.c_str(), "%*s %*8x:%*x %*8x:%x %x", &remote, &state);
    if (read == 2 && remote == port && state == kEstablished) return true;
  }
  return false;
}

// Far beyond what is needed, and less than what a peer that is waited for by mistake could take.
constexpr milliseconds kHang{40'000};

TEST(EngineTest, AStoppedTargetHoldsUpNeitherOthersNorDeadlines) {
  TargetProcess mute(kMiB);
  TargetProcess alive(kMiB);
  Memory here(kMiB, 3);
  const auto engine = MakeEngine();
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kMiB, "*"), EngineError::kOk);
  const SegmentHandle first = engine->OpenSegment(mute.name);
  const TransferTask task{Opcode::kWrite, here.bytes.data(), first, mute.address, 100};
  EXPECT_EQ(Move(*engine, {task}), TransferState::kCompleted);

  // The data connection breaks at the deadline, so that the metadata is read anew.
  mute.Stop();
  const auto times_out = [&] {
    const BatchHandle batch = engine->AllocateBatch(1);
    EXPECT_EQ(engine->Submit(batch, {&task, 1}, milliseconds(200)), EngineError::kOk);
    EXPECT_TRUE(engine->Wait(batch, kHang)) << "the deadline is not kept";
    TransferStatus status;
    engine->BatchStatus(batch, &status);
    EXPECT_TRUE(status.state == TransferState::kTimeout || status.state == TransferState::kFailed);
  };
  times_out();
  ASSERT_TRUE(WaitUntil([&] { return IsConnectedTo(mute.name); })) << "it is not asked";

  const SegmentHandle second = engine->OpenSegment(alive.name);
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, here.bytes.data(), second, alive.address, kMiB}}),
            TransferState::kCompleted);
  times_out();
  mute.Kill();  // else the engine's end gives what was sent to it time to land
}

TEST(EngineTest, AnEngineEndsWhileAPeerIsBeingAsked) {
  Memory here(kMiB, 3);
  std::atomic<bool> mute{false};
  Flag asked;
  Flag over;
  std::string name;
  const ServerThread peer({.on_metadata = [&](std::string_view) -> std::string {
    if (mute) {
      asked.Set();
      EXPECT_TRUE(over.Wait());
    }
    SegmentDescriptor descriptor;
    descriptor.name = name;
    descriptor.tcp_data_port = 1;  // where nobody listens: the peer is looked for again
    descriptor.buffers.push_back(
        {.name = name, .address = here.address(), .length = kMiB, .rkeys = {}, .lkeys = {}});
    return descriptor.Encode();
  }});
  auto engine = MakeEngine();
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kMiB, "*"), EngineError::kOk);
  name = "127.0.0.1:" + std::to_string(peer.port());
  const SegmentHandle target = engine->OpenSegment(name);
  ASSERT_NE(target, kNoSegment) << TransferEngine::last_error();
  const TransferTask task{Opcode::kWrite, here.bytes.data(), target, here.address(), 100};
  EXPECT_EQ(Move(*engine, {task}), TransferState::kFailed);
  mute = true;
  ASSERT_TRUE(WaitUntil([&] {
    EXPECT_EQ(Move(*engine, {task}, milliseconds(50)), TransferState::kFailed);
    return asked.IsSet();
  }));
  Flag gone;
  std::thread end([&] {
    engine.reset();
    gone.Set();
  });
  EXPECT_TRUE(gone.Wait(kHang)) << "the end waits for the peer";
  over.Set();
  end.join();
}

TEST(EngineTest, ADeadTargetFailsItsTasksAndAnotherIsReached) {
  TargetProcess dead(kMiB);
  TargetProcess alive(kMiB);
  const auto engine = MakeEngine();
  Memory here(kMiB, 3);
  ASSERT_EQ(engine->RegisterMemory(here.bytes.data(), kMiB, "*"), EngineError::kOk);
  const SegmentHandle first = engine->OpenSegment(dead.name);
  const SegmentHandle second = engine->OpenSegment(alive.name);
  dead.Kill();
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, here.bytes.data(), first, dead.address, kMiB}}),
            TransferState::kFailed);
  EXPECT_EQ(Move(*engine, {{Opcode::kWrite, here.bytes.data(), second, alive.address, kMiB}}),
            TransferState::kCompleted);
  EXPECT_EQ(engine->OpenSegment(dead.name), first) << "a handle stays";
}

TEST(EngineTest, WordsReachThePeer) {
  const auto target = MakeEngine();
  const auto engine = MakeEngine();
  EXPECT_EQ(engine->Notify(target->name(), {"kv", "is there"}), EngineError::kOk);
  const std::vector<Notification> got = target->TakeNotifications();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].message, "is there");
  EXPECT_EQ(engine->Probe(target->name()), EngineError::kOk);
}

TEST(EngineTest, WhatCannotBeMadeSaysWhy) {
  std::string error;
  EXPECT_EQ(MakeTransferEngine({.host = "127.0.0.1", .protocol = "carrier pigeon"}, &error),
            nullptr);
  EXPECT_THAT(error, HasSubstr("carrier pigeon"));
  EXPECT_EQ(MakeTransferEngine({.host = ""}, &error), nullptr);
  EXPECT_FALSE(error.empty());
  EXPECT_EQ(MakeTransferEngine({.host = "127.0.0.1", .config_text = "nonsense: 1"}, &error),
            nullptr);
  EXPECT_THAT(error, HasSubstr("nonsense"));
}

}  // namespace
}  // namespace railhop
