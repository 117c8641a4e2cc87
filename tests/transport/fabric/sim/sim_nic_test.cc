// The simulated NIC with clock and mover driven by hand: exact times, every order, every error.
#include "transport/fabric/sim/sim_nic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cmath>
#include <cstring>

#include "tests/transport/fabric/sim/sim_fixture.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Kind = SimFault::Kind;

NicCompletion Ok(uint64_t user_data, uint32_t bytes) {
  return {user_data, FabricStatus::kOk, bytes};
}
NicCompletion Failed(uint64_t user_data, FabricStatus status) {
  return {user_data, status, 0};
}
NicCompletion Flushed(uint64_t user_data) {
  return Failed(user_data, FabricStatus::kFlushed);
}

class SimNicTest : public SimFixture {
 protected:
  bool Arrived(uint64_t length, uint64_t offset = 0) const {
    return std::memcmp(memory_.data() + offset, source_.data() + offset, length) == 0;
  }
  bool Readable() const {
    pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
    return poll(&entry, 1, 0) == 1;
  }
};

TEST_F(SimNicTest, CompletesAtItsTimeAndNotBefore) {
  MakeNic(Options());
  ASSERT_TRUE(nic_->Prepare(Write(7, 1000)));
  now_ += 500;  // time counts from Submit
  nic_->Submit();
  EXPECT_EQ(nic_->Step(1), 1u);
  EXPECT_TRUE(Arrived(1000));  // bytes may be early, the completion never
  EXPECT_THAT(Take(*nic_), IsEmpty());
  now_ += 1000 + kBaseDelay - 1;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  now_ += 1;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(7, 1000)));
  EXPECT_THAT(Take(*nic_), IsEmpty());
}

TEST_F(SimNicTest, NeverCompletesBeforeItsBytesMoved) {
  MakeNic(Options());
  ASSERT_TRUE(nic_->Prepare(Write(7, 1000)));
  nic_->Submit();
  now_ += 1'000'000;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  EXPECT_FALSE(Arrived(1000));
  nic_->Step(1);
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(7, 1000)));
}

TEST_F(SimNicTest, LateMoverDoesNotPushBackTheRequestsBehind) {
  MakeNic(Options());
  for (uint64_t i = 0; i < 3; ++i) ASSERT_TRUE(nic_->Prepare(Write(i, 1000)));
  nic_->Submit();
  now_ += 2000 + kBaseDelay;
  nic_->Step(3);
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(0, 1000), Ok(1, 1000)));
  now_ += 999;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  now_ += 1;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(2, 1000)));
}

TEST_F(SimNicTest, NothingHappensBeforeSubmit) {
  MakeNic(Options());
  ASSERT_TRUE(nic_->Prepare(Write(7, 1000)));
  EXPECT_EQ(nic_->Step(1), 0u);
  now_ += 1'000'000;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  EXPECT_FALSE(Arrived(1000));
}

TEST_F(SimNicTest, PeekDoesNotConsume) {
  MakeNic(Options());
  Post(Write(1, 10));
  Post(Write(2, 10));
  now_ += 1000;
  NicCompletion one;
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(nic_->Peek({&one, 1}), 1u);
    EXPECT_EQ(one, Ok(1, 10));
  }
  nic_->Advance(1);
  ASSERT_EQ(nic_->Peek({&one, 1}), 1u);
  EXPECT_EQ(one, Ok(2, 10));
  EXPECT_EQ(nic_->SendRoom(endpoint_), 15u);
}

TEST_F(SimNicTest, ReadsFetchFromTheTarget) {
  MakeNic(Options());
  std::memset(memory_.data(), 0x42, 256);
  WorkRequest read = Write(3, 256);
  read.opcode = FabricOpcode::kRead;
  Post(read);
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(3, 256)));
  EXPECT_EQ(source_[0], std::byte{0x42});
  EXPECT_EQ(source_[255], std::byte{0x42});
  EXPECT_NE(source_[256], std::byte{0x42});
}

TEST_F(SimNicTest, EmptyRequestCompletes) {
  MakeNic(Options());
  Post(Write(9, 0, kBytes));
  now_ += kBaseDelay;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(9, 0)));
}

// Every number of requests around the queue depth, each signalled as its contract asks.
TEST_F(SimNicTest, SelectiveSignallingLosesNoTail) {
  for (const SimMode mode : {SimMode::kManual, SimMode::kModel}) {
    SimNicOptions options = Options();
    options.mode = mode;
    MakeNic(options);
    for (uint64_t count = 1; count <= 3 * 16 + 1; ++count) {
      uint64_t posted = 0, completed = 0;
      while (completed < count) {
        for (; posted < count; ++posted) {
          WorkRequest request = Write(posted, 8, posted * 8);
          request.signaled = posted % 8 == 7 || posted + 1 == count;
          if (!nic_->Prepare(request)) break;
        }
        nic_->Submit();
        nic_->Step(1000);
        now_ += 1000;
        const std::vector<NicCompletion> done = Take(*nic_);
        ASSERT_THAT(done, testing::Not(IsEmpty())) << count;
        for (const NicCompletion& completion : done) {
          ASSERT_EQ(completion, Ok(completion.user_data, 8));
          ASSERT_GE(completion.user_data + 1, completed);
          completed = completion.user_data + 1;
        }
      }
      EXPECT_EQ(nic_->SendRoom(endpoint_), 16u) << count;
    }
  }
}

TEST_F(SimNicTest, FullQueueSaysSoAndRoomReturnsWithASignaledCompletion) {
  MakeNic(Options());
  for (uint64_t i = 0; i < 16; ++i) {
    EXPECT_EQ(nic_->SendRoom(endpoint_), 16 - i);
    WorkRequest request = Write(i, 8);
    request.signaled = i == 9;
    ASSERT_TRUE(nic_->Prepare(request));
  }
  EXPECT_FALSE(nic_->Prepare(Write(16, 8)));
  nic_->Submit();
  nic_->Step(16);
  now_ += 10'000;
  NicCompletion completion;
  ASSERT_EQ(nic_->Peek({&completion, 1}), 1u);
  EXPECT_EQ(nic_->SendRoom(endpoint_), 0u);  // not before it is consumed
  nic_->Advance(1);
  EXPECT_EQ(nic_->SendRoom(endpoint_), 10u);
}

TEST_F(SimNicTest, FullEndpointLeavesRoomForOthers) {
  MakeNic(Options());
  const EndpointId other = Connect();
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(nic_->Prepare(Write(i, 8)));
  WorkRequest request = Write(99, 8);
  EXPECT_FALSE(nic_->Prepare(request));
  request.endpoint = other;
  EXPECT_TRUE(nic_->Prepare(request));
}

TEST_F(SimNicTest, OutOfBoundsAndWrongKeysAreRefused) {
  SimNicOptions options = Options();
  for (const SimMode mode : {SimMode::kManual, SimMode::kModel}) {
    options.mode = mode;
    MakeNic(options);
    std::memset(memory_.data(), 0, kBytes);
    struct Case {
      const char* what;
      uint64_t offset;
      uint32_t length, lkey_change, rkey_change;
      FabricStatus status;
    };
    const Case cases[] = {
        {"remote end", kBytes - 99, 100, 0, 0, FabricStatus::kRemoteAccess},
        {"rkey", 0, 100, 0, 1u << 31, FabricStatus::kRemoteAccess},
        {"lkey", 0, 100, 1u << 31, 0, FabricStatus::kLocalProtection},
    };
    for (const Case& test : cases) {
      WorkRequest request = Write(1, test.length, 0);
      request.remote_address += test.offset;
      request.lkey ^= test.lkey_change;
      request.rkey ^= test.rkey_change;
      Post(request);
      now_ += 1000;
      EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, test.status))) << test.what;
      EXPECT_FALSE(Arrived(100)) << test.what;
      nic_->Disconnect(endpoint_);
      Take(*nic_);
      endpoint_ = Connect();
    }
    WorkRequest beyond = Write(1, 100, kBytes - 99);
    beyond.remote_address = buffer_.address;
    Post(beyond);
    now_ += 1000;
    EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kLocalProtection)));
    // The last byte is still inside.
    nic_->Disconnect(endpoint_);
    Take(*nic_);
    endpoint_ = Connect();
    Post(Write(2, 100, kBytes - 100));
    now_ += 1000;
    EXPECT_THAT(Take(*nic_), ElementsAre(Ok(2, 100)));
    EXPECT_EQ(Arrived(100, kBytes - 100), mode == SimMode::kManual);
  }
}

TEST_F(SimNicTest, AfterAnErrorTheEndpointFlushesAndOthersGoOn) {
  MakeNic(Options());
  const EndpointId healthy = Connect();
  WorkRequest bad = Write(2, 10);
  bad.rkey ^= 1u << 31;
  bad.signaled = false;  // an error completes all the same
  WorkRequest quiet = Write(3, 10, 4096);
  quiet.signaled = false;
  WorkRequest other = Write(5, 10, 8192);
  other.endpoint = healthy;
  for (const WorkRequest& request : {Write(1, 10), bad, quiet, Write(4, 10, 4096), other}) {
    ASSERT_TRUE(nic_->Prepare(request));
  }
  nic_->Submit();
  nic_->Step(5);
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 10), Failed(2, FabricStatus::kRemoteAccess),
                                       Flushed(3), Flushed(4), Ok(5, 10)));
  EXPECT_FALSE(Arrived(10, 4096));
  Post(Write(6, 10, 4096));
  EXPECT_THAT(Take(*nic_), ElementsAre(Flushed(6)));  // at once, and without line time
  EXPECT_FALSE(Arrived(10, 4096));

  nic_->Disconnect(endpoint_);
  Take(*nic_);
  endpoint_ = Connect();
  Post(Write(7, 10, 4096));
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(7, 10)));
  EXPECT_TRUE(Arrived(10, 4096));
}

TEST_F(SimNicTest, DeregisteredKeyIsRefusedThoughPostedBefore) {
  MakeNic(Options());
  ASSERT_TRUE(nic_->Prepare(Write(1, 10)));
  nic_->Submit();
  ASSERT_TRUE(target_->Deregister(buffer_.rkeys[0]).ok());
  ASSERT_TRUE(target_->Register(memory_.data(), memory_.size(), {}).ok());
  nic_->Step(1);
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kRemoteAccess)));
  EXPECT_FALSE(Arrived(10));
}

TEST_F(SimNicTest, DeregisteredLocalMemoryIsNotRead) {
  MakeNic(Options());
  ASSERT_TRUE(nic_->Deregister(key_).ok());
  EXPECT_EQ(nic_->Deregister(key_).code(), absl::StatusCode::kNotFound);
  Post(Write(1, 10));
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kLocalProtection)));
}

TEST_F(SimNicTest, MemoryRegisteredAfterConnectIsReachable) {
  MakeNic(Options());
  auto more = target_->AllocateMemory(4096);
  ASSERT_TRUE(more.ok());
  auto buffer = target_->Register(more->data(), more->size(), {});
  ASSERT_TRUE(buffer.ok());
  WorkRequest request = Write(1, 4096);
  request.remote_address = buffer->address;
  request.rkey = buffer->rkeys[0];
  Post(request);
  now_ += 10'000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 4096)));
  EXPECT_EQ(std::memcmp(more->data(), source_.data(), 4096), 0);
}

TEST_F(SimNicTest, DroppedRequestStallsItsEndpointUntilDisconnect) {
  for (const SimMode mode : {SimMode::kManual, SimMode::kModel}) {
    SimNicOptions options = Options();
    options.mode = mode;
    options.faults = {{.kind = Kind::kDrop, .first = 2}};
    MakeNic(options);
    const EndpointId healthy = Connect();
    WorkRequest other = Write(4, 10);
    other.endpoint = healthy;
    for (const WorkRequest& request :
         {Write(1, 10), Write(2, 10, 4096), Write(3, 10, 4096), other}) {
      ASSERT_TRUE(nic_->Prepare(request));
    }
    nic_->Submit();
    nic_->Step(4);
    now_ += 1'000'000'000;
    EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 10), Ok(4, 10)));
    now_ += 1'000'000'000;
    EXPECT_THAT(Take(*nic_), IsEmpty());
    EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
    nic_->Disconnect(endpoint_);
    EXPECT_TRUE(Readable());
    EXPECT_THAT(Take(*nic_), ElementsAre(Flushed(2), Flushed(3)));
    EXPECT_FALSE(Arrived(10, 4096));
  }
}

TEST_F(SimNicTest, DelayedRequestHoldsUpItsEndpointOnly) {
  SimNicOptions options = Options();
  options.faults = {{.kind = Kind::kDelay, .first = 1, .time = nanoseconds(5000)}};
  MakeNic(options);
  WorkRequest other = Write(3, 10);
  other.endpoint = Connect();
  for (const WorkRequest& request : {Write(1, 10), Write(2, 10), other}) {
    ASSERT_TRUE(nic_->Prepare(request));
  }
  nic_->Submit();
  nic_->Step(3);
  now_ += 30 + kBaseDelay;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(3, 10)));
  EXPECT_EQ(nic_->PrepareToPark(), 1'000'000 + 10 + kBaseDelay + 5000);
  nic_->FinishPark();
  now_ = 1'000'000 + 10 + kBaseDelay + 5000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 10), Ok(2, 10)));
}

TEST_F(SimNicTest, DisconnectFlushesWhatIsNotDue) {
  SimNicOptions options = Options();
  options.faults = {{.kind = Kind::kDelay, .first = 1, .time = std::chrono::hours(1)}};
  MakeNic(options);
  Post(Write(1, 10));                              // moved, not due
  ASSERT_TRUE(nic_->Prepare(Write(2, 10, 4096)));  // not moved
  nic_->Submit();
  nic_->Disconnect(endpoint_);
  nic_->Step(10);
  EXPECT_THAT(Take(*nic_), ElementsAre(Flushed(1), Flushed(2)));
  nic_->Step(10);
  EXPECT_FALSE(Arrived(10, 4096));
}

TEST_F(SimNicTest, ScriptedErrorCarriesItsStatus) {
  SimNicOptions options = Options();
  options.faults = {{.kind = Kind::kError, .first = 1, .status = FabricStatus::kTransport}};
  MakeNic(options);
  Post(Write(1, 10));
  now_ += 10 + kBaseDelay;
  EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kTransport)));
  EXPECT_FALSE(Arrived(10));
}

TEST_F(SimNicTest, LinkDownIsNoticedAfterTheErrorDelayAndPasses) {
  SimNicOptions options = Options();
  options.faults = {{.kind = Kind::kLinkDown, .first = 1, .time = nanoseconds(200'000)}};
  MakeNic(options);
  Post(Write(1, 10));
  now_ += kErrorDelay - 1;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  EXPECT_EQ(nic_->PrepareToPark(), now_ + 1);
  nic_->FinishPark();
  now_ += 1;
  EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kTransport)));
  nic_->Disconnect(endpoint_);
  Take(*nic_);
  endpoint_ = Connect();
  now_ += 200'000;
  Post(Write(2, 10));
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(2, 10)));
}

TEST_F(SimNicTest, PulledCableFailsWhatIsPostedMeanwhile) {
  MakeNic(Options());
  nic_->SetLinkUp(false);
  Post(Write(1, 10));
  now_ += kErrorDelay;
  EXPECT_THAT(Take(*nic_), ElementsAre(Failed(1, FabricStatus::kTransport)));
  nic_->SetLinkUp(true);
  nic_->Disconnect(endpoint_);
  Take(*nic_);
  endpoint_ = Connect();
  Post(Write(2, 10));
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(2, 10)));
}

TEST_F(SimNicTest, UnknownEndpointsAreFlushed) {
  MakeNic(Options());
  const EndpointId old = endpoint_;
  nic_->Disconnect(old);
  Take(*nic_);
  endpoint_ = Connect();
  EXPECT_NE(endpoint_, old);
  for (const EndpointId unknown : {EndpointId{0}, old, EndpointId{0xFFFFFFFF}}) {
    WorkRequest request = Write(unknown, 10);
    request.endpoint = unknown;
    request.signaled = false;
    Post(request);
    EXPECT_THAT(Take(*nic_), ElementsAre(Flushed(unknown)));
    EXPECT_EQ(nic_->SendRoom(unknown), 16u);
  }
  EXPECT_FALSE(Arrived(10));
  nic_->Disconnect(old);  // does not concern its successor
  Post(Write(1, 10));
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 10)));
}

TEST_F(SimNicTest, EndpointsAreReusedOnceTheirCompletionsAreConsumed) {
  MakeNic(Options());
  Connect();
  const EndpointId third = Connect();
  EXPECT_EQ(nic_->Connect(target_->info(), 0).status().code(),
            absl::StatusCode::kResourceExhausted);
  WorkRequest request = Write(1, 10);
  request.endpoint = third;
  Post(request);
  nic_->Disconnect(third);
  NicCompletion completion;
  ASSERT_EQ(nic_->Peek({&completion, 1}), 1u);
  EXPECT_FALSE(nic_->Connect(target_->info(), 0).ok());
  nic_->Advance(1);
  for (int i = 0; i < 10'000; ++i) {
    endpoint_ = Connect();
    ASSERT_NE(endpoint_, third);
    if (i % 100 == 0) {
      Post(Write(1, 10));
      now_ += 1000;
      ASSERT_THAT(Take(*nic_), ElementsAre(Ok(1, 10)));
    }
    nic_->Disconnect(endpoint_);
    Take(*nic_);
  }
}

TEST_F(SimNicTest, LateRequestsOfAClosedEndpointAreFlushed) {
  MakeNic(Options());
  const EndpointId old = endpoint_;
  ASSERT_TRUE(nic_->Prepare(Write(1, 10)));
  nic_->Disconnect(old);
  EXPECT_THAT(Take(*nic_), IsEmpty());  // nothing is posted: the endpoint is drained
  const EndpointId second = Connect();
  EXPECT_NE(second, 0u);  // its place is not given away while a chain is being prepared
  endpoint_ = second;
  ASSERT_TRUE(nic_->Prepare(Write(2, 10, 4096)));
  endpoint_ = old;
  ASSERT_TRUE(nic_->Prepare(Write(3, 10)));
  nic_->Submit();
  nic_->Step(10);
  now_ += 1000;
  EXPECT_THAT(Take(*nic_), testing::UnorderedElementsAre(Flushed(1), Ok(2, 10), Flushed(3)));
  EXPECT_FALSE(Arrived(10));
  Connect();
  Connect();  // the third and last place is the old one's
  EXPECT_FALSE(nic_->Connect(target_->info(), 0).ok());
}

TEST_F(SimNicTest, StaleLineEntriesTouchNoLaterRequest) {
  MakeNic(Options());
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(nic_->Prepare(Write(i, 10, 4096)));
  nic_->Submit();
  nic_->Disconnect(endpoint_);
  EXPECT_EQ(Take(*nic_).size(), 16u);  // flushed before the mover came by
  endpoint_ = Connect();
  for (uint64_t i = 0; i < 16; ++i) ASSERT_TRUE(nic_->Prepare(Write(100 + i, 10)));
  nic_->Submit();
  EXPECT_EQ(nic_->Step(16), 16u);  // all stale
  EXPECT_FALSE(Arrived(10));
  EXPECT_FALSE(Arrived(10, 4096));
  EXPECT_EQ(nic_->Step(100), 16u);
  now_ += 10'000;
  EXPECT_EQ(Take(*nic_).size(), 16u);
  EXPECT_TRUE(Arrived(10));
}

TEST_F(SimNicTest, ParkingTellsWhenToLookAgain) {
  MakeNic(Options());
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  ASSERT_TRUE(nic_->Prepare(Write(1, 1000)));
  EXPECT_FALSE(Readable());
  nic_->Submit();
  EXPECT_TRUE(Readable());  // woken: it did not know of this one
  nic_->FinishPark();
  EXPECT_EQ(nic_->PrepareToPark(), now_ + 1000 + kBaseDelay);
  nic_->FinishPark();
  now_ += 1000 + kBaseDelay;
  // Due, but its bytes did not move yet: whoever moves them will tell.
  EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
  nic_->Step(1);
  EXPECT_TRUE(Readable());
  EXPECT_EQ(nic_->PrepareToPark(), 0u);
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 1000)));
}

TEST_F(SimNicTest, ParkedPollerIsWokenOnlyForWhatComesSooner) {
  SimNicOptions options = Options();
  options.faults = {{.kind = Kind::kDelay, .first = 2, .time = nanoseconds(90'000)}};
  MakeNic(options);
  Post(Write(1, 10'000));
  EXPECT_EQ(nic_->PrepareToPark(), now_ + 10'000 + kBaseDelay);
  Post(Write(2, 10));
  EXPECT_FALSE(Readable());  // it wakes before that anyway
  nic_->FinishPark();
  now_ += 10'000 + kBaseDelay;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 10'000)));
  const uint64_t delayed = nic_->PrepareToPark();
  EXPECT_EQ(delayed, 1'000'000 + 10'000 + 10 + kBaseDelay + 90'000);
  WorkRequest other = Write(3, 10);
  other.endpoint = Connect();
  Post(other);
  EXPECT_TRUE(Readable());
}

TEST_F(SimNicTest, UnsignaledRequestsAloneWakeNobodyInALoop) {
  for (const SimMode mode : {SimMode::kManual, SimMode::kModel}) {
    SimNicOptions options = Options();
    options.mode = mode;
    MakeNic(options);
    WorkRequest quiet = Write(1, 10);
    quiet.signaled = false;
    Post(quiet);
    const uint64_t time = nic_->PrepareToPark();
    EXPECT_EQ(time, now_ + 10 + kBaseDelay);
    nic_->FinishPark();
    now_ = time;
    EXPECT_EQ(nic_->PrepareToPark(), Nic::kNoDeadline);
    nic_->FinishPark();
  }
}

TEST_F(SimNicTest, ModelKeepsTheClockAndMovesNothing) {
  SimNicOptions options = Options();
  options.mode = SimMode::kModel;
  MakeNic(options);
  ASSERT_TRUE(nic_->Prepare(Write(1, 1000)));
  nic_->Submit();
  now_ += 999 + kBaseDelay;
  EXPECT_THAT(Take(*nic_), IsEmpty());
  now_ += 1;
  EXPECT_THAT(Take(*nic_), ElementsAre(Ok(1, 1000)));
  EXPECT_FALSE(Arrived(1000));
  EXPECT_EQ(nic_->WorkerCpuTime(), nanoseconds(0));
}

TEST_F(SimNicTest, OptionsOutOfRangeAreNamed) {
  const auto error = [](SimNicOptions options) {
    return std::string(SimNic::Create(std::move(options)).status().message());
  };
  SimNicOptions options = Options();
  for (const double rate : {0.0, -1e9, 999'999.0, std::nan(""), HUGE_VAL}) {
    options.line_rate = rate;
    EXPECT_THAT(error(options), HasSubstr("line rate")) << rate;
  }
  options = Options();
  options.send_queue_depth = 0;
  EXPECT_THAT(error(options), HasSubstr("send queue depth 0"));
  options = Options();
  options.max_endpoints = 100'000;
  EXPECT_THAT(error(options), HasSubstr("100000 endpoints"));
  options = Options();
  options.base_delay = nanoseconds(-1);
  EXPECT_THAT(error(options), HasSubstr("negative"));
  options = Options();
  options.faults = {{.kind = Kind::kDrop, .first = 0}};
  EXPECT_THAT(error(options), HasSubstr("count from 1"));
  options = Options();
  options.name = "";
  EXPECT_THAT(error(options), HasSubstr("without a name"));
}

TEST_F(SimNicTest, TargetsOfOtherFabricsAreRefused) {
  MakeNic(Options());
  TargetInfo info = target_->info();
  EXPECT_EQ(nic_->kind(), "sim");
  EXPECT_EQ(info.kind, "sim");
  info.kind = "rdma";
  EXPECT_EQ(nic_->Connect(info, 0).status().code(), absl::StatusCode::kInvalidArgument);
  info = target_->info();
  info.nics[0].connection = "{}";
  EXPECT_EQ(nic_->Connect(info, 0).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace railhop
