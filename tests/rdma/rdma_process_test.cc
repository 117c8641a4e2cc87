// Two processes, with the real handshake between them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "tests/rdma/rdma_support.h"
#include "tests/transport/engine/handshake_support.h"
#include "tests/transport/staging/child_process.h"
#include "transport/engine/handshake_client.h"

namespace railhop {
namespace {

using testing::ElementsAre;

constexpr size_t kBytes = 1 << 20;
constexpr std::string_view kHost = "127.0.0.1";

struct Offer {
  uint16_t port = 0;
  uint64_t address = 0;
  uint32_t rkey = 0;
};

uint64_t SumOf(const std::vector<std::byte>& bytes) {
  uint64_t sum = 0;
  for (const std::byte byte : bytes) sum = sum * 31 + static_cast<uint8_t>(byte);
  return sum;
}

// The target process: answers each byte from its parent with the sum of its memory.
int ServeTarget(Channel& channel) {
  const auto device = OpenRail(1);
  if (device == nullptr) return 1;
  std::vector<std::byte> memory(kBytes);
  for (size_t i = 0; i < kBytes; ++i) memory[i] = static_cast<std::byte>(i * 7 >> 2);
  const auto key = device->Register(memory.data(), kBytes);
  if (!key.ok()) return 2;
  const auto target = RdmaTarget::Create({device});
  if (!target.ok()) return 3;
  const ServerThread server(
      {.on_connection = [&target](std::string_view json) { return (*target)->Answer(json); }});
  if (!channel.Send(Offer{.port = server.port(),
                          .address = reinterpret_cast<uint64_t>(memory.data()),
                          .rkey = key->rkey})) {
    return 4;
  }
  char asked;
  while (channel.Receive(&asked)) {
    if (!channel.Send(SumOf(memory))) return 5;
  }
  return 0;
}

class RdmaProcessTest : public testing::Test {
 protected:
  void SetUp() override {
    child_ = std::make_unique<ChildProcess>(ServeTarget);  // before this process opens a device
    ASSERT_TRUE(child_->channel().Receive(&offer_));
    device_ = OpenRail(0);
    ASSERT_NE(device_, nullptr);
    auto nic = RdmaNic::Create(
        device_, {.server_name = "initiator:1",
                  .exchange = [](const std::string& server,
                                 const std::string& json) -> absl::StatusOr<std::string> {
                    const auto peer = ParseHostPort(server);
                    if (!peer.ok()) return peer.status();
                    return HandshakeClient({}).Exchange(*peer, json);
                  },
                  .retry = kQuickRetry});
    ASSERT_TRUE(nic.ok()) << nic.status();
    nic_ = *std::move(nic);
    const auto key = nic_->Register(local_.data(), kBytes);
    ASSERT_TRUE(key.ok()) << key.status();
    lkey_ = key->lkey;
    const auto endpoint = Connect();
    ASSERT_TRUE(endpoint.ok()) << endpoint.status();
    endpoint_ = *endpoint;
  }

  absl::StatusOr<EndpointId> Connect() {
    return nic_->Connect({.name = "target",
                          .kind = "rdma",
                          .buffers = {},
                          .nics = {{"rxe1", JoinHostPort(kHost, offer_.port) + "@rxe1"}}},
                         0);
  }
  void Prepare(FabricOpcode opcode, uint64_t offset, uint32_t length) {
    EXPECT_TRUE(nic_->Prepare({.opcode = opcode,
                               .signaled = true,
                               .endpoint = endpoint_,
                               .local = local_.data() + offset,
                               .lkey = lkey_,
                               .length = length,
                               .remote_address = offer_.address + offset,
                               .rkey = offer_.rkey,
                               .user_data = offset}));
  }
  uint64_t AskForSum() {
    uint64_t sum = 0;
    EXPECT_TRUE(child_->channel().Send('s'));
    EXPECT_TRUE(child_->channel().Receive(&sum));
    return sum;
  }

  std::unique_ptr<ChildProcess> child_;
  Offer offer_;
  std::shared_ptr<RdmaDevice> device_;
  std::unique_ptr<RdmaNic> nic_;
  std::vector<std::byte> local_{kBytes};
  uint32_t lkey_ = 0;
  EndpointId endpoint_ = 0;
};

TEST_F(RdmaProcessTest, ReadsAndWritesMoveTheBytesOfAnotherProcess) {
  constexpr uint32_t kPiece = 64 << 10;
  for (uint64_t offset = 0; offset < kBytes; offset += kPiece) {
    Prepare(FabricOpcode::kRead, offset, kPiece);
  }
  nic_->Submit();
  for (const auto& completion : Await(*nic_, kBytes / kPiece)) {
    ASSERT_EQ(completion.status, FabricStatus::kOk);
  }
  EXPECT_EQ(SumOf(local_), AskForSum());
  for (size_t i = 0; i < kBytes; ++i) local_[i] = static_cast<std::byte>(i * 13 >> 4);
  for (uint64_t offset = 0; offset < kBytes; offset += kPiece) {
    Prepare(FabricOpcode::kWrite, offset, kPiece);
  }
  nic_->Submit();
  for (const auto& completion : Await(*nic_, kBytes / kPiece)) {
    ASSERT_EQ(completion.status, FabricStatus::kOk);
  }
  EXPECT_EQ(SumOf(local_), AskForSum());
}

// Field fault L1, without the restart.
TEST_F(RdmaProcessTest, AKilledTargetFailsWhatIsPosted) {
  child_->Kill();
  for (uint64_t i = 0; i < 8; ++i) Prepare(FabricOpcode::kWrite, i * 4096, 4096);
  nic_->Submit();
  const auto statuses = StatusesOf(Await(*nic_, 8));
  EXPECT_EQ(statuses[0], FabricStatus::kTransport);
  for (size_t i = 1; i < statuses.size(); ++i) EXPECT_EQ(statuses[i], FabricStatus::kFlushed);
  nic_->Disconnect(endpoint_);
  EXPECT_EQ(Connect().status().code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace railhop
