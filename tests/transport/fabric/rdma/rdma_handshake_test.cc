// The RDMA handshake against texts of Mooncake's, and against what a peer may get wrong.
#include "transport/fabric/rdma/rdma_handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

RdmaHandshake Example() {
  RdmaHandshake message;
  message.local_nic_path = "10.0.0.1:15432@mlx5_0";
  message.peer_nic_path = "10.0.0.2:15433@mlx5_1";
  message.qp_numbers = {17, 18};
  message.gid = ParseGid("00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01").value();
  message.ready_ack = false;
  return message;
}

// What an engine without RDMA answers, as captured (mooncake-compat (g)).
TEST(RdmaHandshakeTest, TheEmptyMessageIsMooncakes) {
  EXPECT_EQ(RdmaHandshake{}.Encode(),
            R"({"local_gid":"","local_lid":0,"local_nic_path":"","payload":"","peer_nic_path":"",)"
            R"("qp_num":[],"reply_msg":""})"
            "\n");
}

TEST(RdmaHandshakeTest, AMessageComesBack) {
  EXPECT_EQ(Example().Encode(),
            R"({"local_gid":"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:01","local_lid":0,)"
            R"("local_nic_path":"10.0.0.1:15432@mlx5_0","payload":"",)"
            R"("peer_nic_path":"10.0.0.2:15433@mlx5_1","qp_num":[17,18],"ready_ack":false,)"
            R"("reply_msg":""})"
            "\n");
  const auto decoded = RdmaHandshake::Decode(Example().Encode());
  ASSERT_TRUE(decoded.ok()) << decoded.status();
  EXPECT_EQ(decoded->Encode(), Example().Encode());
}

TEST(RdmaHandshakeTest, AnOldPeersMessageLacksWhatCameLater) {
  const auto old = RdmaHandshake::Decode(
      R"({"local_nic_path":"a:1@n","peer_nic_path":"b:2@m","qp_num":[5],"reply_msg":""})");
  ASSERT_TRUE(old.ok()) << old.status();
  EXPECT_THAT(old->qp_numbers, ElementsAre(5));
  EXPECT_FALSE(old->gid.has_value());
  EXPECT_FALSE(old->ready_ack.has_value());
}

TEST(RdmaHandshakeTest, ASenderThatDoesNotSayWhereItIsIsLookedUp) {
  RdmaHandshake message = Example();
  const auto look_up = [](const NicPath& path) -> absl::StatusOr<RdmaAddress> {
    if (path.nic != "mlx5_0") return absl::NotFoundError("no such device");
    EXPECT_EQ(path.server, "10.0.0.1:15432");
    return RdmaAddress{.gid = {9}, .lid = 7};
  };
  message.lid = 3;
  EXPECT_EQ(message.SenderAddress(look_up)->gid, message.gid) << "what it says counts";
  EXPECT_EQ(message.SenderAddress(look_up)->lid, 3);
  message.gid.reset();
  EXPECT_EQ(message.SenderAddress(look_up)->gid, Gid{9});
  EXPECT_EQ(message.SenderAddress(look_up)->lid, 7);
  EXPECT_THAT(std::string(message.SenderAddress(nullptr).status().message()),
              HasSubstr("10.0.0.1:15432@mlx5_0 has no local_gid"));
  message.local_nic_path = "10.0.0.1:15432@mlx5_9";
  const absl::Status refused = message.SenderAddress(look_up).status();
  EXPECT_TRUE(absl::IsNotFound(refused));
  EXPECT_THAT(std::string(refused.message()),
              testing::AllOf(HasSubstr("mlx5_9 has no local_gid"), HasSubstr("no such device")));
}

TEST(RdmaHandshakeTest, ABadKeyIsNamed) {
  const auto error = [](const char* json) {
    return std::string(RdmaHandshake::Decode(json).status().message());
  };
  EXPECT_THAT(error(R"({"qp_num": 5})"), HasSubstr("qp_num"));
  EXPECT_THAT(error(R"({"qp_num": [16777216]})"), HasSubstr("qp_num must be in 0..16777215"));
  EXPECT_THAT(error(R"({"qp_num": [-1]})"), HasSubstr("qp_num"));
  EXPECT_THAT(error(R"({"local_lid": 65536})"), HasSubstr("local_lid"));
  EXPECT_THAT(error(R"({"local_gid": "fe80::1"})"), HasSubstr("local_gid \"fe80::1\" is no GID"));
  EXPECT_THAT(error(R"({"ready_ack": 1})"), HasSubstr("ready_ack"));
  EXPECT_THAT(error(R"({"reply_msg": []})"), HasSubstr("reply_msg"));
  EXPECT_THAT(error("[]"), HasSubstr("array"));
  EXPECT_FALSE(RdmaHandshake::Decode("{").ok());
  std::string many = R"({"qp_num": [0)";
  for (size_t i = 0; i < RdmaHandshake::kMaxQueuePairs; ++i) many += ",1";
  EXPECT_THAT(error((many + "]}").c_str()), HasSubstr("at most 255"));
}

TEST(RdmaHandshakeTest, PathsAreSplitAtTheLastAt) {
  const auto path = ParseNicPath("[fd00::7]:15001@mlx5_0");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(path->server, "[fd00::7]:15001");
  EXPECT_EQ(path->nic, "mlx5_0");
  EXPECT_EQ(FormatNicPath(*path), "[fd00::7]:15001@mlx5_0");
  EXPECT_EQ(ParseNicPath("a@b:1@n")->server, "a@b:1");
  for (const char* text : {"", "host:1", "@nic", "host:1@"}) {
    EXPECT_EQ(ParseNicPath(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

}  // namespace
}  // namespace railhop
