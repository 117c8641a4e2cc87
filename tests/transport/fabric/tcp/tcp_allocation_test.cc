// The TCP NIC's data path allocates nothing once its connections are made: this binary counts every
// operator new. Its target is another process.
#include <gtest/gtest.h>

#include <vector>

#include "tests/support/allocation_count.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"
#include "tests/transport/staging/child_process.h"

namespace railhop {
namespace {

constexpr uint32_t kLength = 3 << 20;

struct Published {
  uint64_t address;
  uint16_t port;
};

int Serve(Channel& channel) {
  std::vector<std::byte> memory(kLength);
  TcpServerOptions options;
  options.address = "127.0.0.1";
  auto server = TcpServer::Start(options);
  const auto address = reinterpret_cast<uint64_t>(memory.data());
  if (!server.ok() || !(*server)->AddRegion(address, kLength).ok()) return 1;
  if (!channel.Send(Published{address, (*server)->port()})) return 2;
  channel.WaitForEnd();
  return 0;
}

class TcpAllocationTest : public TcpFixture {};

TEST_F(TcpAllocationTest, TheDataPathAllocatesNothing) {
  ChildProcess child([](Channel& channel) { return Serve(channel); });
  Published published{};
  ASSERT_TRUE(child.channel().Receive(&published));
  MakeNic();
  const EndpointId endpoint = Connect("2+drain", published.port);
  uint64_t before = 0;
  for (int round = 0; round < 3; ++round) {
    if (round == 1) before = AllocationCount();
    for (uint64_t i = 0; i < 10; ++i) {
      WorkRequest request =
          Request(endpoint, i % 2 == 0 ? FabricOpcode::kWrite : FabricOpcode::kRead, i,
                  i < 2 ? kLength : 1000);
      request.remote_address = published.address;
      ASSERT_TRUE(nic_->Prepare(request));
    }
    nic_->Submit();
    NicCompletion completions[16];
    size_t shown = 0;
    ASSERT_TRUE(WaitUntil([&] {
      if (nic_->PrepareToPark() != 0) shown = nic_->Peek(completions);
      nic_->FinishPark();
      shown = nic_->Peek(completions);
      return shown == 10;
    }));
    nic_->Advance(shown);
  }
  // And giving up allocates nothing either.
  WorkRequest request = Write(endpoint, 1, kLength);
  request.remote_address = published.address;
  ASSERT_TRUE(nic_->Prepare(request));
  nic_->Submit();
  nic_->Peek({});
  nic_->Disconnect(endpoint);
  NicCompletion completion;
  ASSERT_TRUE(WaitUntil([&] { return nic_->Peek({&completion, 1}) == 1; }));
  EXPECT_EQ(AllocationCount(), before);
}

}  // namespace
}  // namespace railhop
