// RDMA engines and peers whose handshakes have no GID, as older Mooncakes send them: it is in their
// segment's descriptor (mooncake-compat (c)). On the stand-in for libibverbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "actors/bootstrap.h"
#include "transport/engine/handshake_client.h"
#include "transport/fabric/rdma/rdma_handshake.h"

namespace railhop {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RdmaOldPeerTest : public testing::Test {
 protected:
  static std::unique_ptr<TransferEngine> Make(const std::string& device) {
    std::string error;
    auto engine = MakeTransferEngine({.host = "127.0.0.1",
                                      .protocol = "rdma",
                                      .config_text = "nics { name: '" + device + "' rdma {} }"},
                                     &error);
    EXPECT_NE(engine, nullptr) << error;
    return engine;
  }
  // What the target answers to a handshake of that NIC without a GID.
  RdmaHandshake AnswerTo(const NicPath& nic) const {
    RdmaHandshake message;
    message.local_nic_path = FormatNicPath(nic);
    message.peer_nic_path = FormatNicPath({.server = target_->name(), .nic = "fake0"});
    message.qp_numbers = {5, 6};
    const auto answer =
        HandshakeClient({}).Exchange(ParseHostPort(target_->name()).value(), message.Encode());
    EXPECT_TRUE(answer.ok()) << answer.status();
    const auto decoded = RdmaHandshake::Decode(answer.value_or("{}"));
    EXPECT_TRUE(decoded.ok()) << decoded.status();
    return decoded.value_or(RdmaHandshake{});
  }

  std::unique_ptr<TransferEngine> target_ = Make("fake0"), peer_ = Make("fake1");
};

TEST_F(RdmaOldPeerTest, ItIsServedByWhatItsSegmentSays) {
  const RdmaHandshake answer = AnswerTo({.server = peer_->name(), .nic = "fake1"});
  EXPECT_EQ(answer.reply_msg, "");
  EXPECT_EQ(answer.qp_numbers.size(), 2u);
  EXPECT_FALSE(answer.ready_ack.has_value()) << "it did not ask for it";
}

TEST_F(RdmaOldPeerTest, ADeviceThatItsSegmentDoesNotHaveIsRefused) {
  EXPECT_THAT(AnswerTo({.server = peer_->name(), .nic = "fake7"}).reply_msg,
              AllOf(HasSubstr("@fake7 has no local_gid"), HasSubstr("has no device fake7")));
}

TEST_F(RdmaOldPeerTest, APeerWhoseSegmentCannotBeReadIsRefused) {
  EXPECT_THAT(AnswerTo({.server = "127.0.0.1:1", .nic = "fake1"}).reply_msg,
              AllOf(HasSubstr("127.0.0.1:1@fake1 has no local_gid"), HasSubstr("cannot be read")));
}

}  // namespace
}  // namespace railhop
