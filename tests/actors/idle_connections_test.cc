// An engine whose data port thousands of clients hold open without a word: it stays small, and goes
// on serving those that have something to say.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/wait_until.h"
#include "tests/transport/staging/child_process.h"
#include "transport/engine/environment.h"
#include "transport/engine/p2p_metadata.h"

namespace railhop {
namespace {

constexpr uint32_t kIdle = 10'000;
constexpr uint64_t kBytesEach = 8 * 1024;  // of the engine's memory; the kernel's come on top
constexpr auto kPatience = std::chrono::duration_cast<std::chrono::milliseconds>(kTestPatience);

bool AllowDescriptors(uint32_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < count) return false;
  limit.rlim_cur = limit.rlim_max;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

uint64_t ResidentBytes() {
  uint64_t whole = 0;
  uint64_t resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// The client: connects as often as it is told to the port it is told, then holds what it has.
int Connect(Channel& channel) {
  uint16_t port = 0;
  if (!channel.Receive(&port)) return 1;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  uint32_t connected = 0;
  for (uint32_t i = 0; i < kIdle; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) ++connected;
  }
  channel.Send(connected);
  channel.WaitForEnd();
  return 0;
}

std::unique_ptr<TransferEngine> MakeEngine() {
  std::string error;
  auto engine = MakeTransferEngine({.host = "127.0.0.1"}, &error);
  EXPECT_NE(engine, nullptr) << error;
  return engine;
}

TransferState Write(TransferEngine& engine, SegmentHandle target, std::vector<std::byte>& from,
                    const std::vector<std::byte>& to) {
  const TransferTask task{.opcode = Opcode::kWrite,
                          .source = from.data(),
                          .target = target,
                          .target_address = reinterpret_cast<uint64_t>(to.data()),
                          .length = from.size()};
  const BatchHandle batch = engine.AllocateBatch(1);
  EXPECT_EQ(engine.Submit(batch, {&task, 1}), EngineError::kOk);
  EXPECT_TRUE(engine.Wait(batch, kPatience));
  TransferStatus status;
  engine.BatchStatus(batch, &status);
  engine.FreeBatch(batch);
  return status.state;
}

TEST(IdleConnectionsTest, TenThousandAtTheDataPortHurtNobody) {
  if (!AllowDescriptors(kIdle + 1000)) GTEST_SKIP() << "`ulimit -Hn` is below " << kIdle + 1000;
  ChildProcess clients(Connect);
  const auto target = MakeEngine();
  const auto engine = MakeEngine();
  std::vector<std::byte> here(1 << 20, std::byte{3});
  std::vector<std::byte> there(1 << 20);
  ASSERT_EQ(target->RegisterMemory(there.data(), there.size(), "*"), EngineError::kOk);
  ASSERT_EQ(engine->RegisterMemory(here.data(), here.size(), "*"), EngineError::kOk);
  const SegmentHandle peer = engine->OpenSegment(target->name());
  ASSERT_EQ(Write(*engine, peer, here, there), TransferState::kCompleted);

  P2pMetadata metadata(ReadEngineEnvironment([](const char*) { return nullptr; }),
                       [] { return std::string("null\n"); });
  const auto descriptor = metadata.Fetch(target->name(), {});
  ASSERT_TRUE(descriptor.ok()) << descriptor.status();
  // It connects at its first write only: behind all of the others in the listen queue.
  const auto late = MakeEngine();
  ASSERT_EQ(late->RegisterMemory(here.data(), here.size(), "*"), EngineError::kOk);
  const uint64_t before = ResidentBytes();
  ASSERT_TRUE(clients.channel().Send(descriptor->tcp_data_port));
  uint32_t connected = 0;
  ASSERT_TRUE(clients.channel().Receive(&connected));
  EXPECT_EQ(connected, kIdle);
  std::fill(here.begin(), here.end(), std::byte{9});
  EXPECT_EQ(Write(*late, late->OpenSegment(target->name()), here, there),
            TransferState::kCompleted);
  EXPECT_EQ(there, here);
  EXPECT_EQ(Write(*engine, peer, here, there), TransferState::kCompleted);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(ResidentBytes(), before + kIdle * kBytesEach + (64 << 20));
#else
  (void)before;
#endif
  clients.Kill();
  EXPECT_EQ(Write(*engine, peer, here, there), TransferState::kCompleted);
}

}  // namespace
}  // namespace railhop
