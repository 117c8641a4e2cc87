// The TCP NIC and a target in another process, that stops and dies in the middle of payloads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/support/wait_until.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"
#include "tests/transport/staging/child_process.h"

namespace railhop {
namespace {

constexpr uint32_t kLength = 4 << 20;
constexpr uint64_t kPosted = 12;  // far more bytes than the sockets hold

struct Published {
  uint64_t address;
  uint16_t port;
  char local_name[64];
};

// What the server's threads stored was confirmed to the process that asks for the sum: an order
// that goes through another process, where ThreadSanitizer does not see it.
__attribute__((no_sanitize("thread"))) uint64_t Sum(const std::vector<std::byte>& memory) {
  uint64_t sum = 0;
  for (const std::byte byte : memory) sum = sum * 31 + static_cast<uint8_t>(byte);
  return sum;
}

// Serves one region; answers each command with a sum of it.
int Serve(Channel& channel) {
  std::vector<std::byte> memory(kLength);
  TcpServerOptions options;
  options.address = "127.0.0.1";
  auto server = TcpServer::Start(options);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  if (!server.ok() || !(*server)->AddRegion(address, kLength).ok()) return 1;
  Published published{address, (*server)->port(), {}};
  (*server)->local_name().copy(published.local_name, sizeof(published.local_name) - 1);
  if (!channel.Send(published)) return 2;
  char command;
  while (channel.Receive(&command)) {
    if (!channel.Send(Sum(memory))) return 3;
  }
  return 0;
}

class TcpProcessTest : public TcpFixture, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    StartChild();
    TcpNicOptions options = NicOptions();
    options.status_timeout = std::chrono::milliseconds(100);
    options.finish_timeout = std::chrono::milliseconds(100);
    MakeNic(options);
  }

  void StartChild() {
    child_ = std::make_unique<ChildProcess>([](Channel& channel) { return Serve(channel); });
    ASSERT_TRUE(child_->channel().Receive(&published_));
    local_name_ = published_.local_name;
  }
  void PostAll(FabricOpcode opcode) {
    endpoint_ = Connect(GetParam(), published_.port);
    for (uint64_t i = 0; i < kPosted; ++i) {
      WorkRequest request = Request(endpoint_, opcode, i, kLength);
      request.remote_address = published_.address;
      ASSERT_TRUE(nic_->Prepare(request));
    }
    nic_->Submit();
  }
  // Until the target has taken the first request.
  void AwaitFirst() { EXPECT_EQ(Consume(*nic_, 1).front().status, FabricStatus::kOk); }
  void StopChild() const {
    ASSERT_EQ(kill(child_->pid(), SIGSTOP), 0);
    int status = 0;
    ASSERT_EQ(waitpid(child_->pid(), &status, WUNTRACED), child_->pid());
    ASSERT_TRUE(WIFSTOPPED(status));
  }
  uint64_t Sum() const {
    uint64_t sum = 0;
    EXPECT_TRUE(child_->channel().Send('s'));
    EXPECT_TRUE(child_->channel().Receive(&sum));
    return sum;
  }
  bool acknowledged() const { return std::string(GetParam()) != "1"; }

  std::unique_ptr<ChildProcess> child_;
  Published published_{};
  EndpointId endpoint_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Version, TcpProcessTest, testing::ValuesIn(kTcpVersions), TcpVersionName);

TEST_P(TcpProcessTest, ATargetKilledInTheMiddleOfPayloads) {
  for (const FabricOpcode opcode : {FabricOpcode::kWrite, FabricOpcode::kRead}) {
    PostAll(opcode);
    AwaitFirst();
    if (opcode == FabricOpcode::kRead) child_->Kill();
    if (opcode == FabricOpcode::kWrite) {
      Consume(*nic_, kPosted - 1);
      StopChild();  // so that payloads are under way for certain
      PostAll(opcode);
      for (int i = 0; i < 1000; ++i) nic_->Peek({});
      child_->Kill();
    }
    const size_t left = opcode == FabricOpcode::kRead ? kPosted - 1 : kPosted;
    bool failed = false;
    for (const NicCompletion& completion : Consume(*nic_, left)) {
      if (completion.status == FabricStatus::kOk) {
        EXPECT_FALSE(
            failed);  // what fits into the sockets, in version 1, and what was read already
        continue;
      }
      if (failed) {
        EXPECT_EQ(completion.status, FabricStatus::kFlushed);
      } else {
        EXPECT_THAT(completion.status,
                    testing::AnyOf(FabricStatus::kTransport, FabricStatus::kTargetDead,
                                   FabricStatus::kHungUp));
      }
      failed = true;
    }
    EXPECT_TRUE(failed);
    EXPECT_EQ(nic_->exposed_writes(), 0u);
    nic_->Disconnect(endpoint_);
    if (opcode == FabricOpcode::kWrite) {
      StartChild();
    }
  }
}

TEST_P(TcpProcessTest, AStoppedTargetIsGivenUpAndItsWritesAreCounted) {
  StopChild();
  PostAll(FabricOpcode::kWrite);
  const std::vector<NicCompletion> completions = Consume(*nic_, kPosted);
  EXPECT_EQ(completions.back().status, FabricStatus::kFlushed);
  // A Railhop target that has not greeted was sent nothing; another one had its sockets filled.
  EXPECT_EQ(nic_->exposed_writes() == 0, std::string(GetParam()).starts_with("2+drain"));
  ASSERT_EQ(kill(child_->pid(), SIGCONT), 0);
}

TEST_P(TcpProcessTest, AStoppedTargetThatGoesOnConfirmsThatNothingLandsAnyMore) {
  MakeNic(NicOptions());  // with its 30 s to confirm
  PostAll(FabricOpcode::kWrite);
  AwaitFirst();
  StopChild();
  nic_->Disconnect(endpoint_);
  NicCompletion completions[kPosted];
  size_t shown = 0;
  for (int i = 0; i < 1000; ++i) shown = nic_->Peek(completions);
  if (acknowledged()) {
    EXPECT_LT(shown, kPosted - 1);
  }
  ASSERT_EQ(kill(child_->pid(), SIGCONT), 0);
  EXPECT_EQ(Consume(*nic_, kPosted - 1).back().status, FabricStatus::kFlushed);
  EXPECT_EQ(nic_->exposed_writes(), 0u);
  const uint64_t sum = Sum();
  EXPECT_EQ(Sum(), sum);
}

}  // namespace
}  // namespace railhop
