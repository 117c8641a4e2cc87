// Memory of GPUs over the TCP fabric, on whatever device there is: source on the first, target on
// the second if there is one.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/gpu/gpu_support.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"
#include "transport/fabric/tcp/tcp_bounce.h"

namespace railhop {
namespace {

using testing::ElementsAre;

class GpuTcpTest : public TcpFixture, public testing::WithParamInterface<const char*> {
 protected:
  void SetUp() override {
    std::string why;
    if (TestDriver(&why) == nullptr) GTEST_SKIP() << why;
    source_ = std::make_unique<GpuBuffer>(TestDevice(0), kBytes);
    target_ = std::make_unique<GpuBuffer>(TestDevice(1), kBytes);
    TcpServerOptions server = ServerOptions();
    server.bounces = std::make_shared<TcpBounces>(TestDevice(0));
    StartServer(server);
    const absl::Status added = server_->AddRegion(Address(target_->data()), kBytes);
    ASSERT_TRUE(added.ok()) << added;
    TcpNicOptions nic = NicOptions();
    nic.bounces = server.bounces;
    MakeNic(nic);
    const auto key = nic_->Register(source_->data(), kBytes);
    ASSERT_TRUE(key.ok()) << key.status();
    source_key_ = *key;
    endpoint_ = Connect(GetParam());
  }
  // Nothing may move any more when the buffers go.
  void TearDown() override {
    nic_.reset();
    server_.reset();
  }

  void Move(FabricOpcode opcode, uint32_t length, uint64_t offset) {
    Post({.opcode = opcode,
          .signaled = true,
          .endpoint = endpoint_,
          .local = source_->data() + offset,
          .lkey = source_key_.lkey,
          .length = length,
          .remote_address = Address(target_->data()) + offset,
          .rkey = 0,
          .user_data = length});
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(length, length)));
  }

  std::unique_ptr<GpuBuffer> source_, target_;
  MemoryKey source_key_;
  EndpointId endpoint_ = 0;
};

INSTANTIATE_TEST_SUITE_P(Version, GpuTcpTest, testing::Values("2", "2+drain", "2+drain@"),
                         TcpVersionName);

TEST_P(GpuTcpTest, BytesGoFromGpuToGpuAndBack) {
  constexpr uint64_t kOffset = 3;
  for (const uint32_t length : {1u, 4096u, 256u * 1024 + 1, (3u << 20) + 3}) {
    SCOPED_TRACE(length);
    const std::vector<std::byte> bytes = RandomBytes(kBytes, length);
    const std::vector<std::byte> zeros(kBytes);
    source_->Write(bytes);
    target_->Write(zeros);
    Move(FabricOpcode::kWrite, length, kOffset);
    std::vector<std::byte> expected = zeros;
    std::copy_n(bytes.begin() + kOffset, length, expected.begin() + kOffset);
    EXPECT_EQ(ReadGpu(*TestDevice(1), target_->data(), kBytes), expected);
    source_->Write(zeros);
    Move(FabricOpcode::kRead, length, kOffset);
    EXPECT_EQ(ReadGpu(*TestDevice(0), source_->data(), kBytes), expected);
  }
}

}  // namespace
}  // namespace railhop

int main(int argc, char** argv) {
  return railhop::RunGpuTests(argc, argv);
}
