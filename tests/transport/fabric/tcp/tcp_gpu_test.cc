// Memory of GPUs at either end of the TCP fabric, or both, over the stand-in for the driver. The
// CPU cannot touch it: whoever does ends the test.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/landed_bytes.h"
#include "tests/support/wait_until.h"
#include "tests/transport/fabric/tcp/gpu_memory.h"
#include "tests/transport/fabric/tcp/raw_socket.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

using testing::ElementsAre;

// A NIC and a server of this process, each with a range of host memory and one of a GPU's.
class TcpGpuTest : public GpuMemory, public TcpFixture {
 protected:
  void SetUp() override {
    TcpServerOptions server = ServerOptions();
    server.threads = 1;
    server.bounces = MakeBounces();
    StartServer(server);
    target_ = Allocate(1, kBytes);
    ASSERT_TRUE(server_->AddRegion(target_, kBytes).ok());
    TcpNicOptions nic = NicOptions();
    nic.bounces = MakeBounces();
    MakeNic(nic);
    source_ = Allocate(0, kBytes);
    const auto key = nic_->Register(AsPointer(source_), kBytes);
    ASSERT_TRUE(key.ok()) << key.status();
    source_key_ = *key;
  }

  // To or from the start of GPU memory at the ends that are to be a GPU's.
  WorkRequest Gpu(WorkRequest request, bool local, bool remote) const {
    if (local) {
      request.local = AsPointer(
          source_ + static_cast<uint64_t>(static_cast<std::byte*>(request.local) - &local_[0]));
      request.lkey = source_key_.lkey;
    }
    if (remote) request.remote_address += target_ - Address(memory_.data());
    return request;
  }
  size_t Shown() {
    NicCompletion completions[16];
    return nic_->Peek(completions);
  }
  // Polls, and has the GPUs do `commands` at a time meanwhile.
  void PollUntil(const std::function<bool()>& condition, size_t commands = 0) {
    ASSERT_TRUE(WaitUntil([&] {
      fake_.Run(commands);
      Shown();
      return condition();
    }));
  }
  void SetManual(bool manual) {
    const auto lock = fake_.Lock();
    fake_.manual = manual;
  }
  void FailNext(const char* call) {
    const auto lock = fake_.Lock();
    fake_.fail[call] = cuda::kIllegalAddress;
  }
  TcpHeader Header(TcpOperation operation, uint64_t size) const {
    return {.size = size, .address = target_, .operation = operation};
  }

  uint64_t source_ = 0, target_ = 0;
  MemoryKey source_key_;
};

struct Ends {
  const char* version;
  bool local, remote;  // a GPU's
  friend void PrintTo(const Ends& ends, std::ostream* out) {
    *out << ends.version << (ends.local ? " local" : "") << (ends.remote ? " remote" : "");
  }
};

class TcpGpuEndsTest : public TcpGpuTest, public testing::WithParamInterface<Ends> {};

constexpr Ends kAllEnds[] = {
    {"1", true, false},       {"1", false, true},       {"1", true, true},
    {"2", true, false},       {"2", false, true},       {"2", true, true},
    {"2+drain", true, false}, {"2+drain", false, true}, {"2+drain", true, true}};
INSTANTIATE_TEST_SUITE_P(Ends, TcpGpuEndsTest, testing::ValuesIn(kAllEnds));

TEST_P(TcpGpuEndsTest, BytesOfEverySizeArriveBothWays) {
  const auto [version, local, remote] = GetParam();
  const EndpointId endpoint = Connect(version);
  constexpr uint32_t kBuffer = TcpBounce::kBufferBytes;
  uint64_t seed = 0;
  for (const uint32_t size : {1u, 7u, 4000u, 4096u, 5000u, kBuffer - 1, kBuffer, kBuffer + 1,
                              3 * kBuffer + 12345, (3u << 20) + 3}) {
    SCOPED_TRACE(size);
    constexpr uint64_t kOffset = 3;
    const std::vector<std::byte> bytes = Pattern(size, ++seed);
    const auto there = [&] {
      if (remote) return fake_.Read(target_ + kOffset, size) == bytes;
      return LandedBytes(memory_.data() + kOffset, size) == bytes;
    };
    if (local) {
      fake_.Write(source_ + kOffset, bytes);
    } else {
      std::copy(bytes.begin(), bytes.end(), local_.begin() + kOffset);
    }
    Post(Gpu(Write(endpoint, 1, size, kOffset), local, remote));
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, size)));
    // A version 1 write is done before the target has it.
    ASSERT_TRUE(WaitUntil(there));

    const std::vector<std::byte> zeros(size);
    fake_.Write(source_ + kOffset, zeros);
    std::fill(local_.begin(), local_.end(), std::byte{0});
    Post(Gpu(Read(endpoint, 2, size, kOffset), local, remote));
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, size)));
    if (local) {
      EXPECT_EQ(fake_.Read(source_ + kOffset, size), bytes);
    } else {
      EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), local_.begin() + kOffset));
    }
  }
}

// Small and large, of GPUs and not, all at once: what follows a part in the socket may be
// another's.
TEST_P(TcpGpuEndsTest, RequestsOfAllKindsFollowEachOther) {
  const auto [version, local, remote] = GetParam();
  const EndpointId endpoint = Connect(version);
  constexpr uint32_t kSizes[] = {100, 3000, 300'000, 1, 8, 5000};
  constexpr uint64_t kSlot = 300'000;
  const std::vector<std::byte> theirs = Pattern(kBytes, 11), ours = Pattern(kBytes, 12);
  memory_ = theirs;
  fake_.Write(target_, theirs);
  local_ = ours;
  fake_.Write(source_, ours);
  // The even slots are written, the odd ones read; every third has host memory at both ends.
  const auto of_gpu = [](uint64_t i) { return i % 3 != 2; };
  std::vector<NicCompletion> expected;
  for (uint64_t i = 0; i < 12; ++i) {
    const uint32_t size = kSizes[i % std::size(kSizes)];
    WorkRequest request =
        i % 2 == 0 ? Write(endpoint, i, size, i * kSlot) : Read(endpoint, i, size, i * kSlot);
    if (of_gpu(i)) request = Gpu(request, local, remote);
    ASSERT_TRUE(nic_->Prepare(request));
    expected.push_back(Done(i, size));
  }
  nic_->Submit();
  EXPECT_EQ(Consume(*nic_, 12), expected);
  for (uint64_t i = 0; i < 12; ++i) {
    const uint32_t size = kSizes[i % std::size(kSizes)];
    const auto slice = [&](const std::vector<std::byte>& bytes) {
      const auto begin = bytes.begin() + static_cast<long>(i * kSlot);
      return std::vector<std::byte>(begin, begin + size);
    };
    const bool gpu = of_gpu(i);
    const auto at_target = [&] {
      return gpu && remote ? fake_.Read(target_ + i * kSlot, size)
                           : LandedBytes(memory_.data() + i * kSlot, size);
    };
    const auto here = [&] {
      return gpu && local ? fake_.Read(source_ + i * kSlot, size) : slice(local_);
    };
    if (i % 2 == 0) {
      EXPECT_TRUE(WaitUntil([&] { return at_target() == slice(ours); })) << i;
    } else {
      EXPECT_EQ(here(), slice(theirs)) << i;
    }
  }
}

// What was loaded for a request is no other's, even from the same place.
TEST_P(TcpGpuEndsTest, SourcesMayOverlap) {
  const auto [version, local, remote] = GetParam();
  const EndpointId endpoint = Connect(version);
  fake_.Write(source_, local_);
  constexpr uint32_t kSizes[] = {4000, 4000, 10, 10, 100, 100};
  std::vector<NicCompletion> expected;
  for (uint64_t i = 0; i < std::size(kSizes); ++i) {
    WorkRequest request = Gpu(Write(endpoint, i, kSizes[i], i * 10), local, remote);
    request.remote_address += i * 100'000;
    ASSERT_TRUE(nic_->Prepare(request));
    expected.push_back(Done(i, kSizes[i]));
  }
  nic_->Submit();
  EXPECT_EQ(Consume(*nic_, std::size(kSizes)), expected);
  for (uint64_t i = 0; i < std::size(kSizes); ++i) {
    const uint64_t offset = i * 100'010;
    const auto from = local_.begin() + static_cast<long>(i * 10);
    const std::vector<std::byte> bytes(from, from + kSizes[i]);
    EXPECT_TRUE(WaitUntil([&] {
      if (remote) return fake_.Read(target_ + offset, kSizes[i]) == bytes;
      return LandedBytes(memory_.data() + offset, kSizes[i]) == bytes;
    })) << i;
  }
}

// --- This end

// Field fault G5: the border between two mappings lies inside a copy.
TEST_F(TcpGpuTest, G5AnExpandableSegmentIsOneRange) {
  const uint64_t chunks = fake_.MapChunks(64 << 10, std::array{0, 0, 0});
  const auto key = nic_->Register(AsPointer(chunks + 100), (192 << 10) - 100);
  ASSERT_TRUE(key.ok()) << key.status();
  const std::vector<std::byte> bytes = Pattern((192 << 10) - 100, 3);
  fake_.Write(chunks + 100, bytes);
  WorkRequest request = Write(Connect("2"), 1, static_cast<uint32_t>(bytes.size()));
  request.local = AsPointer(chunks + 100);
  request.lkey = key->lkey;
  Post(request);
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, request.length)));
  EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), memory_.begin()));
}

TEST_F(TcpGpuTest, G5WhatIsMappedInPartIsNotRegistered) {
  const uint64_t chunks = fake_.MapChunks(64 << 10, std::array{0, -1});
  EXPECT_TRUE(absl::IsInvalidArgument(nic_->Register(AsPointer(chunks), 65537).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(server_->AddRegion(chunks, 65537)));
}

TEST_F(TcpGpuTest, WhatTheGpuRefusesFailsAndTheNicGoesOn) {
  for (const FabricOpcode opcode : {FabricOpcode::kWrite, FabricOpcode::kRead}) {
    for (const char* call : {"cuMemcpyAsync", "cuEventQuery"}) {
      SCOPED_TRACE(call);
      const EndpointId endpoint = Connect("2+drain");
      Post(Write(endpoint, 1, 100));
      EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
      FailNext(call);
      Post(Gpu(Request(endpoint, opcode, 2, 500'000), true, false));
      EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(2, FabricStatus::kDevice)));
      nic_->Disconnect(endpoint);
      const EndpointId next = Connect("2+drain");
      Post(Gpu(Request(next, opcode, 3, 500'000), true, false));
      EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(3, 500'000)));
      nic_->Disconnect(next);
    }
  }
}

TEST_F(TcpGpuTest, ASlowGpuHoldsUpNobodyElse) {
  const EndpointId slow = Connect("2+drain"), other = Connect("2+drain");
  SetManual(true);
  Post(Gpu(Write(slow, 1, 100), true, false));
  PollUntil([&] { return fake_.Waiting() != 0; });
  Post(Write(other, 2, 100, 1000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(2, 100)));
  fake_.Run(SIZE_MAX);
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
}

// Nothing is told, and the range is not given back, as long as the GPU may read or write it.
TEST_F(TcpGpuTest, WhatIsGivenUpEndsAfterTheCopy) {
  for (const FabricOpcode opcode : {FabricOpcode::kWrite, FabricOpcode::kRead}) {
    const EndpointId endpoint = Connect("2+drain");
    SetManual(true);
    Post(Gpu(Request(endpoint, opcode, 1, 100), true, false));
    PollUntil([&] { return fake_.Waiting() != 0; });
    nic_->Disconnect(endpoint);
    // The connections have ended once the server has seen it.
    PollUntil([&] { return server_->connections() == 0; });
    for (int i = 0; i < 100; ++i) EXPECT_EQ(Shown(), 0u);
    if (opcode == FabricOpcode::kWrite) {
      EXPECT_TRUE(absl::IsDeadlineExceeded(nic_->Deregister(source_key_)));
      source_key_ = *nic_->Register(AsPointer(source_), kBytes);
    }
    SetManual(false);
    fake_.Run(SIZE_MAX);
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(1, FabricStatus::kFlushed)));
    EXPECT_EQ(fake_.Waiting(), 0u);
  }
}

TEST_F(TcpGpuTest, ADestroyedNicWaitsForItsCopies) {
  const EndpointId endpoint = Connect("2");
  SetManual(true);
  Post(Gpu(Write(endpoint, 1, 100), true, false));
  PollUntil([&] { return fake_.Waiting() != 0; });
  nic_.reset();
  EXPECT_EQ(fake_.Waiting(), 0u);
}

// --- The target

TEST_F(TcpGpuTest, WhatTheTargetsGpuRefusesIsRefusedAndTheServerGoesOn) {
  for (const char* call : {"cuMemcpyAsync", "cuEventQuery"}) {
    SCOPED_TRACE(call);
    const EndpointId endpoint = Connect("2+drain");
    Post(Gpu(Write(endpoint, 1, 100), false, true));
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
    FailNext(call);
    Post(Gpu(Write(endpoint, 2, 500'000), false, true));
    EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(2, FabricStatus::kRemoteAccess)));
    nic_->Disconnect(endpoint);
    for (const auto& [version, status] : {std::pair("2+drain", FabricStatus::kRemoteAccess),
                                          std::pair("1", FabricStatus::kHungUp)}) {
      const EndpointId reader = Connect(version);
      FailNext(call);
      Post(Gpu(Read(reader, 3, 500'000), false, true));
      EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Failed(3, status)));
      nic_->Disconnect(reader);
    }
  }
  Post(Gpu(Write(Connect("2"), 4, 100), false, true));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(4, 100)));
}

// What a status has announced can only be hung up on.
TEST_F(TcpGpuTest, AReadOfWhichTheTargetsGpuFailsALaterPartIsHungUpOn) {
  const RawSocket client = RawSocket::ConnectTo(server_->port());
  SetManual(true);
  client.SendHeader(Header(TcpOperation::kRead, 2 * TcpBounce::kBufferBytes));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  FailNext("cuMemcpyAsync");  // the first one is under way
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(client.ReceiveStatus(), 0);
  EXPECT_EQ(client.Receive(TcpBounce::kBufferBytes).size(), TcpBounce::kBufferBytes);
  EXPECT_TRUE(client.Ended());
}

// The server of these tests has one thread.
TEST_F(TcpGpuTest, ASlowGpuOfTheTargetHoldsUpNobodyElse) {
  const RawSocket slow = RawSocket::ConnectTo(server_->port());
  SetManual(true);
  slow.SendHeader(Header(TcpOperation::kWrite, 100));
  slow.Send(Pattern(100, 1));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  Post(Write(Connect("2"), 1, 100'000));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100'000)));
  EXPECT_EQ(slow.Available(), 0u);
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(slow.ReceiveStatus(), 0);
  EXPECT_EQ(fake_.Read(target_, 100), Pattern(100, 1));
}

TEST_F(TcpGpuTest, ARegionIsRemovedAfterItsCopy) {
  const RawSocket client = RawSocket::ConnectTo(server_->port());
  SetManual(true);
  client.SendHeader(Header(TcpOperation::kWrite, 100));
  client.Send(Pattern(100, 1));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  EXPECT_TRUE(absl::IsDeadlineExceeded(server_->RemoveRegion(target_)));
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(client.ReceiveStatus(), 0);
}

// Else what was given up could land after the initiator was told that it cannot.
TEST_F(TcpGpuTest, ADrainIsConfirmedAfterTheCopiesOfItsGroup) {
  const RawSocket member = RawSocket::ConnectTo(server_->port());
  member.SendHeader({.size = 0, .address = 42, .operation = TcpOperation::kJoin});
  EXPECT_EQ(member.ReceiveStatus(), 0);
  SetManual(true);
  member.SendHeader(Header(TcpOperation::kWrite, 100));
  member.Send(Pattern(50, 1));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  const RawSocket drain = RawSocket::ConnectTo(server_->port());
  drain.SendHeader({.size = 0, .address = 42, .operation = TcpOperation::kDrain});
  // Whoever comes later has an answer, and the drain has none.
  Post(Write(Connect("2"), 1, 100));
  EXPECT_THAT(Consume(*nic_, 1), ElementsAre(Done(1, 100)));
  EXPECT_EQ(drain.Available(), 0u);
  fake_.Run(SIZE_MAX);
  EXPECT_EQ(drain.ReceiveStatus(), 0);
  // Nothing of the member's begins any more.
  member.Send(Pattern(50, 2));
  EXPECT_EQ(member.ReceiveStatus(), 1);
}

// A slow reader has no buffer while its socket is full: all the others get theirs.
TEST_F(TcpGpuTest, MoreConnectionsThanBuffersAllGetTheirTurn) {
  constexpr size_t kClients = 2 * TcpBounce::kBuffers;
  std::vector<RawSocket> readers, writers;
  for (size_t i = 0; i < kClients; ++i) {
    readers.push_back(RawSocket::ConnectTo(server_->port()));
    readers.back().SendHeader(Header(TcpOperation::kRead, kBytes));
  }
  SetManual(true);
  for (size_t i = 0; i < kClients; ++i) {
    writers.push_back(RawSocket::ConnectTo(server_->port()));
    TcpHeader header = Header(TcpOperation::kWrite, 100);
    header.address += i * 100;
    writers.back().SendHeader(header);
    writers.back().Send(Pattern(100, i));
  }
  for (size_t i = 0; i < kClients; ++i) {
    ASSERT_TRUE(WaitUntil([&] {
      fake_.Run(8);
      return writers[i].Available() == kTcpStatusBytes;
    }));
    EXPECT_EQ(writers[i].ReceiveStatus(), 0);
    EXPECT_EQ(fake_.Read(target_ + i * 100, 100), Pattern(100, i));
  }
  fake_.Run(SIZE_MAX);
  SetManual(false);
}

// Who takes too long is ended, but not while the GPU is at work: that would hold up all others.
TEST_F(TcpGpuTest, ALateSessionEndsAfterItsCopy) {
  TcpServerOptions options = ServerOptions();
  options.threads = 1;
  options.request_timeout = std::chrono::milliseconds(5);
  options.bounces = MakeBounces();
  StartServer(options);
  ASSERT_TRUE(server_->AddRegion(target_, kBytes).ok());
  const RawSocket slow = RawSocket::ConnectTo(server_->port());
  SetManual(true);
  slow.SendHeader(Header(TcpOperation::kWrite, 100));
  slow.Send(Pattern(50, 1));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  const RawSocket later = RawSocket::ConnectTo(server_->port());
  later.Send(Pattern(5, 1));
  EXPECT_TRUE(later.Ended());
  EXPECT_NE(fake_.Waiting(), 0u);
  fake_.Run(SIZE_MAX);
  EXPECT_TRUE(slow.Ended());
}

TEST_F(TcpGpuTest, AStoppedServerWaitsForItsCopies) {
  const RawSocket client = RawSocket::ConnectTo(server_->port());
  SetManual(true);
  client.SendHeader(Header(TcpOperation::kWrite, 100));
  client.Send(Pattern(100, 1));
  ASSERT_TRUE(WaitUntil([&] { return fake_.Waiting() != 0; }));
  server_.reset();
  EXPECT_EQ(fake_.Waiting(), 0u);
}

}  // namespace
}  // namespace railhop
