// The engine's own segment over TCP, seen from its peers: descriptor, words and memory.
#include "transport/engine/tcp_segment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "transport/engine/p2p_metadata.h"

namespace railhop {
namespace {

using testing::HasSubstr;

EngineEnvironment Environment() {
  EngineEnvironment environment = ReadEngineEnvironment([](const char*) { return nullptr; });
  environment.tcp_bind_address = "127.0.0.1";
  return environment;
}

class TcpSegmentTest : public testing::Test {
 protected:
  void Make(const std::string& name = "") {
    auto segment = TcpSegment::Start("127.0.0.1", name, Environment());
    ASSERT_TRUE(segment.ok()) << segment.status();
    segment_ = *std::move(segment);
  }
  std::string Address() const {
    return JoinHostPort(segment_->listener().host, segment_->listener().port);
  }
  SegmentDescriptor Fetched() {
    const absl::StatusOr<SegmentDescriptor> found = peer_.Fetch(Address(), {});
    EXPECT_TRUE(found.ok()) << found.status();
    return found.ok() ? *found : SegmentDescriptor();
  }

  std::unique_ptr<TcpSegment> segment_;
  P2pMetadata peer_{Environment(), [] { return std::string("null\n"); }};
  std::vector<std::byte> memory_ = std::vector<std::byte>(4096);
};

TEST_F(TcpSegmentTest, IsNamedAfterItsListenerUnlessItHasAName) {
  Make();
  EXPECT_EQ(segment_->name(), Address());
  EXPECT_EQ(Fetched().name, Address());
  EXPECT_EQ(segment_->Topology(), "{}");
  Make("prefill-3");
  EXPECT_EQ(segment_->name(), "prefill-3");
  EXPECT_EQ(Fetched().name, "prefill-3");
}

TEST_F(TcpSegmentTest, TellsPeersHowItsMemoryIsReached) {
  Make();
  const SegmentDescriptor empty = Fetched();
  EXPECT_EQ(empty.protocol, SegmentProtocol::kTcp);
  EXPECT_NE(empty.tcp_data_port, 0);
  EXPECT_NE(empty.tcp_data_port, segment_->listener().port);
  EXPECT_EQ(empty.tcp_proto_version, 2u);
  EXPECT_TRUE(empty.buffers.empty());

  ASSERT_TRUE(segment_->Add(memory_.data(), 1000, "cpu:0").ok());
  ASSERT_TRUE(segment_->Add(memory_.data() + 2000, 100, "*").ok());
  const SegmentDescriptor full = Fetched();
  ASSERT_EQ(full.buffers.size(), 2u);
  EXPECT_EQ(full.buffers[0].address, reinterpret_cast<uint64_t>(memory_.data()));
  EXPECT_EQ(full.buffers[0].length, 1000u);
  EXPECT_EQ(full.buffers[0].name, segment_->name()) << "not the location";
  EXPECT_EQ(segment_->Encoded(), full.Encode());

  ASSERT_TRUE(segment_->Remove(memory_.data()).ok());
  ASSERT_EQ(Fetched().buffers.size(), 1u);
  EXPECT_EQ(Fetched().buffers[0].length, 100u);
}

TEST_F(TcpSegmentTest, WordsWaitUntilTheyAreTaken) {
  Make();
  ASSERT_TRUE(peer_.Notify(Address(), {"kv", "one"}).ok());
  ASSERT_TRUE(peer_.Notify(Address(), {"kv", "two"}).ok());
  const std::vector<Notification> taken = segment_->TakeNotifications();
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_EQ(taken[0].message, "one");
  EXPECT_EQ(taken[1].message, "two");
  EXPECT_TRUE(segment_->TakeNotifications().empty());
  EXPECT_TRUE(peer_.Probe(Address()).ok());
}

TEST_F(TcpSegmentTest, ThePortsComeFromTheRange) {
  EngineEnvironment environment = Environment();
  environment.min_rpc_port = 21'000;
  environment.max_rpc_port = 21'050;
  const auto segment = TcpSegment::Start("127.0.0.1", "", environment);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_GE((*segment)->listener().port, 21'000);
  EXPECT_LE((*segment)->listener().port, 21'050);
}

TEST_F(TcpSegmentTest, ARangeThatIsFullIsAnErrorThatNamesIt) {
  EngineEnvironment environment = Environment();
  environment.min_rpc_port = environment.max_rpc_port = 21'060;  // for two listeners
  const auto segment = TcpSegment::Start("127.0.0.1", "", environment);
  ASSERT_FALSE(segment.ok());
  EXPECT_THAT(std::string(segment.status().message()), HasSubstr("21060"));
}

TEST_F(TcpSegmentTest, PeersMayAskWhileBuffersComeAndGo) {
  Make();
  std::thread peer([this] {
    for (int i = 0; i < 50; ++i) {
      EXPECT_LE(Fetched().buffers.size(), 4u);
    }
  });
  for (int i = 0; i < 200; ++i) {
    const size_t at = 1000 * (static_cast<size_t>(i) % 4);
    ASSERT_TRUE(segment_->Add(memory_.data() + at, 100, "*").ok());
    ASSERT_TRUE(segment_->Remove(memory_.data() + at).ok());
  }
  peer.join();
}

}  // namespace
}  // namespace railhop
