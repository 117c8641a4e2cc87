// The contract of a NIC (transport/fabric/fabric.h) on software RDMA devices.
#include "transport/fabric/rdma/rdma_nic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/rdma/rdma_support.h"

namespace railhop {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bool Readable(int fd, std::chrono::milliseconds patience) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, static_cast<int>(patience.count())) == 1;
}

bool IsZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(),
                     [](std::byte byte) { return byte == std::byte{0}; });
}

class RdmaNicTest : public RdmaRails {};

TEST_F(RdmaNicTest, WritesOfAllSizesArrive) {
  for (const uint32_t length : {0u, 1u, 4095u, 4096u, 4097u, 100'003u, 1u << 20}) {
    std::fill(remote_.begin(), remote_.end(), std::byte{0});
    ASSERT_TRUE(nic_->Prepare(Write(0, length)));
    nic_->Submit();
    const auto completions = Await(*nic_, 1);
    ASSERT_EQ(completions[0].status, FabricStatus::kOk);
    EXPECT_EQ(completions[0].bytes, length);
    EXPECT_EQ(memcmp(remote_.data(), local_.data(), length), 0);
    EXPECT_TRUE(IsZero(std::span(remote_).subspan(length)));
  }
}

TEST_F(RdmaNicTest, ReadsFetchTheTargetsBytes) {
  for (size_t i = 0; i < kBytes; ++i) remote_[i] = static_cast<std::byte>(i * 7 >> 2);
  WorkRequest read = Write(4096, 70'001);
  read.opcode = FabricOpcode::kRead;
  EXPECT_EQ(Run(read), FabricStatus::kOk);
  EXPECT_EQ(memcmp(local_.data() + 4096, remote_.data() + 4096, 70'001), 0);
  EXPECT_NE(local_[4095], remote_[4095]);
}

// Older Mooncakes: neither end says where it is, each looks the other up.
TEST_F(RdmaNicTest, HandshakesWithoutAGidGoByWhatIsLookedUp) {
  const auto look_up = [](std::shared_ptr<RdmaDevice> device, std::string path) -> RdmaAddressOf {
    return [=](const NicPath& asked) -> absl::StatusOr<RdmaAddress> {
      EXPECT_EQ(FormatNicPath(asked), path);
      return RdmaAddress{.gid = device->gid().gid, .lid = device->lid()};
    };
  };
  target_ = *RdmaTarget::Create({far_}, {.address_of = look_up(near_, "here:9@rxe0")});
  const auto strip = [](const std::string& json) {
    RdmaHandshake message = *RdmaHandshake::Decode(json);
    message.gid.reset();
    return message.Encode();
  };
  const auto exchange = [this, strip](const std::string&,
                                      const std::string& json) -> absl::StatusOr<std::string> {
    return strip(*target_->Answer(strip(json)));
  };
  nic_ = MakeNic({.server_name = "here:9",
                  .exchange = exchange,
                  .address_of = look_up(far_, "there:2@rxe1"),
                  .send_queue_depth = kDepth,
                  .retry = kQuickRetry});
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kOk);
  EXPECT_EQ(memcmp(remote_.data(), local_.data(), 4096), 0);

  nic_ = MakeNic({.server_name = "here:9",
                  .exchange = exchange,
                  .send_queue_depth = kDepth,
                  .retry = kQuickRetry});
  EXPECT_THAT(std::string(nic_->Connect(Info(), 0).status().message()),
              HasSubstr("the handshake of there:2@rxe1 has no local_gid"));
}

TEST_F(RdmaNicTest, NothingMovesBeforeSubmit) {
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  NicCompletion completion;
  EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
  EXPECT_EQ(nic_->SendRoom(endpoint_), kDepth - 1);
  nic_->Submit();
  Await(*nic_, 1);
  EXPECT_EQ(nic_->SendRoom(endpoint_), size_t{kDepth});
}

// Field fault L8: selective signalling must not lose the tail.
TEST_F(RdmaNicTest, ChainsOfEveryLengthEndWithOneCompletion) {
  for (uint32_t count = 1; count <= kDepth; ++count) {
    for (uint32_t i = 0; i < count; ++i) {
      ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64, i + 1 == count)));
    }
    nic_->Submit();
    const auto completions = Await(*nic_, 1);
    EXPECT_EQ(completions[0].user_data, (count - 1) * 64);
    EXPECT_EQ(nic_->SendRoom(endpoint_), size_t{kDepth});
  }
  EXPECT_EQ(memcmp(remote_.data(), local_.data(), kDepth * 64), 0);
}

TEST_F(RdmaNicTest, AFullSendQueueSaysSo) {
  for (uint32_t i = 0; i < kDepth; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64)));
  EXPECT_EQ(nic_->SendRoom(endpoint_), 0u);
  EXPECT_FALSE(nic_->Prepare(Write(0, 64)));
  nic_->Submit();
  const auto completions = Await(*nic_, kDepth);
  for (uint32_t i = 0; i < kDepth; ++i) EXPECT_EQ(completions[i].user_data, i * 64);
  EXPECT_TRUE(nic_->Prepare(Write(0, 64)));
  nic_->Submit();
  Await(*nic_, 1);
}

TEST_F(RdmaNicTest, RoomOfAChainThatAsksForNoCompletionComesBack) {
  for (uint32_t round = 0; round < 3; ++round) {
    for (uint32_t i = 0; i < kDepth; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64, false)));
    nic_->Submit();
    ASSERT_TRUE(WaitUntil([this] {
      NicCompletion completion;
      EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
      return nic_->SendRoom(endpoint_) == kDepth;
    }));
  }
}

TEST_F(RdmaNicTest, ShownCompletionsStayUntilConsumed) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64)));
  nic_->Submit();
  std::vector<NicCompletion> shown(3);
  ASSERT_TRUE(WaitUntil([&] { return nic_->Peek(shown) == 3; }));
  nic_->Advance(1);
  EXPECT_EQ(nic_->SendRoom(endpoint_), kDepth - 2);
  ASSERT_EQ(nic_->Peek(shown), 2u);
  EXPECT_EQ(shown[0].user_data, 64u);
  nic_->Advance(2);
  EXPECT_EQ(nic_->SendRoom(endpoint_), size_t{kDepth});
}

TEST_F(RdmaNicTest, AWrongKeyIsRefusedAndTheRestFlushed) {
  WorkRequest wrong = Write(64, 64);
  wrong.rkey ^= 0xff;
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  ASSERT_TRUE(nic_->Prepare(wrong));
  ASSERT_TRUE(nic_->Prepare(Write(128, 64, false)));
  ASSERT_TRUE(nic_->Prepare(Write(192, 64)));
  nic_->Submit();
  EXPECT_THAT(StatusesOf(Await(*nic_, 4)),
              ElementsAre(FabricStatus::kOk, FabricStatus::kRemoteAccess, FabricStatus::kFlushed,
                          FabricStatus::kFlushed));
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kFlushed);
  EXPECT_EQ(remote_[64], std::byte{0});
  EXPECT_THAT(nic_->Describe(endpoint_),
              HasSubstr("rxe0 (GID index 1) -> there:2@rxe1: remote access error"));
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
}

TEST_F(RdmaNicTest, ARangePastTheEndIsRefused) {
  WorkRequest past = Write(0, 64);
  past.remote_address += kBytes - 63;
  EXPECT_EQ(Run(past), FabricStatus::kRemoteAccess);
}

TEST_F(RdmaNicTest, DeregisteredMemoryIsNotTouched) {
  ASSERT_TRUE(far_->Deregister(remote_key_).ok());
  EXPECT_EQ(Run(Write(0, 4096)), FabricStatus::kRemoteAccess);
  EXPECT_TRUE(IsZero(remote_));
}

// With a key that does not exist, other devices say the same; this one's driver has another error.
TEST_F(RdmaNicTest, ALocalRangePastTheEndIsALocalProtectionError) {
  WorkRequest past = Write(kBytes - 63, 64);
  past.remote_address -= 64;
  EXPECT_EQ(Run(past), FabricStatus::kLocalProtection);
}

TEST_F(RdmaNicTest, EverythingCompletesAfterDisconnect) {
  constexpr uint32_t kPiece = 60'000;
  for (uint32_t i = 0; i < kDepth - 2; ++i) {
    ASSERT_TRUE(nic_->Prepare(Write(i * kPiece, kPiece, i % 2 == 0)));
  }
  nic_->Submit();
  nic_->Disconnect(endpoint_);
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  nic_->Submit();
  std::vector<NicCompletion> completions(kDepth);
  std::vector<FabricStatus> statuses;
  EXPECT_TRUE(WaitUntil([&] {
    const size_t count = nic_->Peek(completions);
    for (size_t i = 0; i < count; ++i) statuses.push_back(completions[i].status);
    nic_->Advance(count);
    return nic_->SendRoom(endpoint_) == kDepth;
  }));
  ASSERT_GE(statuses.size(), size_t{(kDepth - 2) / 2 + 2});  // the signaled ones, and errors
  EXPECT_EQ(statuses.back(), FabricStatus::kFlushed);
  const auto first_flushed = std::find(statuses.begin(), statuses.end(), FabricStatus::kFlushed);
  EXPECT_TRUE(std::all_of(first_flushed, statuses.end(),
                          [](FabricStatus status) { return status == FabricStatus::kFlushed; }));
}

// Not kFlushed: who uses it may not know that it is gone.
TEST_F(RdmaNicTest, AnIdThatOutlivedItsEndpointIsToldOf) {
  const EndpointId old = endpoint_;
  nic_->Disconnect(old);
  std::vector<EndpointId> later;
  for (int i = 0; i < 4; ++i) later.push_back(Connected());  // one of them in the old one's place
  EXPECT_EQ(std::count(later.begin(), later.end(), old), 0);
  WorkRequest stale = Write(0, 64);
  stale.endpoint = old;
  EXPECT_EQ(Run(stale), FabricStatus::kTransport);
  nic_->Disconnect(old);
  for (const EndpointId endpoint : later) {
    endpoint_ = endpoint;
    // The target keeps one connection of this NIC, the newest.
    EXPECT_EQ(Run(Write(0, 64)),
              endpoint == later.back() ? FabricStatus::kOk : FabricStatus::kTransport);
  }
}

// The first two of a chain and no more, as a device does that is about to go.
int (*post_all)(ibv_qp*, ibv_send_wr*, ibv_send_wr**) = nullptr;
int PostTwo(ibv_qp* queue_pair, ibv_send_wr* work, ibv_send_wr** bad) {
  ibv_send_wr* const rest = std::exchange(work->next->next, nullptr);
  EXPECT_EQ(post_all(queue_pair, work, bad), 0);
  work->next->next = rest;
  *bad = rest;
  return ENOMEM;
}

TEST_F(RdmaNicTest, WhatTheDeviceDoesNotTakeIsFlushed) {
  post_all = std::exchange(near_->context()->ops.post_send, PostTwo);
  for (uint32_t i = 0; i < 5; ++i) ASSERT_TRUE(nic_->Prepare(Write(i * 64, 64, i % 2 == 0)));
  nic_->Submit();
  near_->context()->ops.post_send = post_all;
  ASSERT_TRUE(nic_->Prepare(Write(5 * 64, 64)));
  nic_->Submit();
  const auto completions = Await(*nic_, 6);
  for (uint32_t i = 0; i < completions.size(); ++i) {
    EXPECT_EQ(completions[i].user_data, i * 64);
  }
  // The first may have been carried out before the queue pair ended. The first that was not is an
  // error, or nobody would connect anew.
  std::vector<FabricStatus> statuses = StatusesOf(completions);
  if (statuses[0] == FabricStatus::kOk) statuses.erase(statuses.begin());
  EXPECT_EQ(statuses[0], FabricStatus::kTransport);
  EXPECT_TRUE(std::all_of(statuses.begin() + 1, statuses.end(),
                          [](FabricStatus status) { return status == FabricStatus::kFlushed; }));
  EXPECT_EQ(nic_->SendRoom(endpoint_), size_t{kDepth});
  nic_->Disconnect(endpoint_);
  endpoint_ = Connected();
  EXPECT_EQ(Run(Write(0, 64)), FabricStatus::kOk);
}

TEST_F(RdmaNicTest, AClosedEndpointKeepsItsPlaceWhileAChainHoldsIt) {
  nic_ = MakeNic({.server_name = "here:3",
                  .exchange = AskTarget(),
                  .send_queue_depth = kDepth,
                  .max_endpoints = 1,  // and 4 places for those that are being drained
                  .retry = kQuickRetry});
  endpoint_ = Connected();
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  nic_->Disconnect(endpoint_);
  for (int i = 0; i < 4; ++i) Connected();
  EXPECT_EQ(nic_->Connect(Info(), 0).status().code(), absl::StatusCode::kResourceExhausted);
  nic_->Submit();
  EXPECT_EQ(Await(*nic_, 1)[0].status, FabricStatus::kFlushed);
  EXPECT_NE(Connected(), 0u);
}

TEST_F(RdmaNicTest, ParksAndIsWokenByACompletion) {
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
    NicCompletion completion;
    EXPECT_EQ(nic_->Peek({&completion, 1}), 0u);
    EXPECT_FALSE(Readable(nic_->fd(), std::chrono::milliseconds(0)));
    ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
    nic_->Submit();
    EXPECT_TRUE(Readable(nic_->fd(), kTestPatience));
    nic_->FinishPark();
    EXPECT_EQ(Await(*nic_, 1)[0].status, FabricStatus::kOk);
  }
}

TEST_F(RdmaNicTest, ACompletionThatCameBeforeArmingForbidsToPark) {
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  nic_->Submit();
  EXPECT_TRUE(WaitUntil([this] {
    const uint64_t until = nic_->PrepareToPark();
    nic_->FinishPark();
    return until == 0;
  }));
  Await(*nic_, 1);
}

TEST_F(RdmaNicTest, ParksAndIsWokenByWhatNoDeviceTellsOf) {
  WorkRequest unknown = Write(0, 64);
  unknown.endpoint = 4711;
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  ASSERT_TRUE(nic_->Prepare(unknown));
  nic_->Submit();
  EXPECT_TRUE(Readable(nic_->fd(), kTestPatience));
  nic_->FinishPark();
  EXPECT_EQ(Await(*nic_, 1)[0].status, FabricStatus::kTransport);
}

TEST_F(RdmaNicTest, ParksAndIsWokenByDisconnect) {
  const RdmaNicOptions slow{.server_name = "here:3",
                            .exchange = AskTarget(),
                            .send_queue_depth = kDepth,
                            .max_endpoints = 1,
                            .retry = {.timeout = 20, .count = 6}};
  nic_ = MakeNic(slow);
  endpoint_ = Connected();
  const PulledCable pulled(1);  // nothing ends by itself meanwhile
  ASSERT_TRUE(nic_->Prepare(Write(0, 64)));
  nic_->Submit();
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  nic_->Disconnect(endpoint_);
  EXPECT_TRUE(Readable(nic_->fd(), kTestPatience));
  nic_->FinishPark();
  EXPECT_EQ(Await(*nic_, 1)[0].status, FabricStatus::kFlushed);
}

TEST_F(RdmaNicTest, OneThreadPostsWhileAnotherPolls) {
  constexpr uint32_t kRequests = 2'000;
  std::thread poster([this] {
    for (uint32_t i = 0; i < kRequests;) {
      WorkRequest request = Write((i % 128) * 64, 64, i % 4 == 3);
      request.user_data = i;
      if (nic_->Prepare(request)) {
        ++i;
      } else {
        std::this_thread::yield();
      }
      if (i % 4 == 0) nic_->Submit();
    }
  });
  const auto completions = Await(*nic_, kRequests / 4);
  poster.join();
  for (uint32_t i = 0; i < completions.size(); ++i) {
    ASSERT_EQ(completions[i].user_data, i * 4 + 3);
    ASSERT_EQ(completions[i].status, FabricStatus::kOk);
  }
}

TEST_F(RdmaNicTest, OptionsOutOfTheirRangeAreNamed) {
  const auto error = [this](RdmaNicOptions options) {
    return std::string(RdmaNic::Create(near_, std::move(options)).status().message());
  };
  EXPECT_THAT(error({.server_name = "s", .exchange = {}, .send_queue_depth = 0}),
              HasSubstr("send queue depth 0"));
  EXPECT_THAT(error({.server_name = "s", .exchange = {}, .max_endpoints = 5000}),
              HasSubstr("endpoints 5000"));
  EXPECT_THAT(error({.server_name = "s", .exchange = {}, .queue_pairs = 0}),
              HasSubstr("queue pairs 0"));
  EXPECT_THAT(error({.server_name = "s", .exchange = {}, .retry = {.timeout = 0}}),
              HasSubstr("retry timeout 0"));
}

}  // namespace
}  // namespace railhop
