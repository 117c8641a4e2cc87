// The simulated NIC with its worker, a poster, a poller and a control thread at once.
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "tests/transport/fabric/sim/sim_fixture.h"
#include "tests/transport/staging/child_process.h"

namespace railhop {
namespace {

using std::chrono::nanoseconds;

class SimThreadsTest : public SimFixture {
 protected:
  SimNicOptions Options(SimMode mode) const {
    return {.name = "nic0",
            .mode = mode,
            .line_rate = 4e9,
            .base_delay = nanoseconds(2000),
            .send_queue_depth = 32,
            .max_endpoints = 8,
            .error_delay = nanoseconds(20'000),
            .faults = {},
            .clock = {},
            .cycles_per_nanosecond = 0};
  }

  // Polls, parking as a reactor does, until `goal` completions were consumed. Whoever lowers the
  // goal does it before posting the last request.
  template <typename Handle>
  void Consume(const std::atomic<uint64_t>& goal, Handle handle) {
    NicCompletion completions[8];
    for (uint64_t count = 0; count < goal;) {
      size_t n = nic_->Peek(completions);
      if (n == 0) {
        const uint64_t time = nic_->PrepareToPark();
        n = nic_->Peek(completions);
        if (n == 0 && time != 0) {
          const uint64_t now = ReadCycles();
          const int64_t wait = time == Nic::kNoDeadline ? 3'600'000'000'000
                               : time <= now            ? 0
                                                        : ToNanoseconds(time - now).count();
          const timespec limit{wait / 1'000'000'000, wait % 1'000'000'000};
          pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
          uint64_t drained;
          if (ppoll(&entry, 1, &limit, nullptr) > 0) {
            EXPECT_EQ(read(nic_->fd(), &drained, sizeof(drained)), 8);
          }
        }
        nic_->FinishPark();
      }
      for (size_t i = 0; i < n; ++i) handle(completions[i]);
      nic_->Advance(n);
      count += n;
    }
  }
};

TEST_F(SimThreadsTest, PosterAndPollerMoveEverythingAndParkInBetween) {
  for (const SimMode mode : {SimMode::kMove, SimMode::kModel}) {
    MakeNic(Options(mode));
    constexpr uint64_t kRequests = 3000;
    std::vector<std::byte> expected(kBytes);
    std::thread poller([&] {
      uint64_t next = 0;
      Consume(std::atomic<uint64_t>(kRequests), [&](const NicCompletion& completion) {
        EXPECT_EQ(completion.status, FabricStatus::kOk);
        EXPECT_EQ(completion.user_data, next++);
      });
    });
    std::mt19937_64 random(3);
    for (uint64_t i = 0; i < kRequests; ++i) {
      const auto length = static_cast<uint32_t>(random() % 3000);
      const uint64_t offset = random() % (kBytes - length);
      std::memcpy(expected.data() + offset, source_.data() + offset, length);
      while (!nic_->Prepare(Write(i, length, offset))) {
        nic_->Submit();
        std::this_thread::yield();
      }
      if (random() % 4 == 0) nic_->Submit();
      if (random() % 256 == 0) usleep(300);  // lets the others park
    }
    nic_->Submit();
    poller.join();
    if (mode == SimMode::kMove) {
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), memory_.begin()));
      EXPECT_GT(nic_->WorkerCpuTime(), nanoseconds(0));
    }
  }
}

// A control thread replaces an endpoint again and again while the poster is using it, some of its
// requests are bad, and another endpoint must notice nothing of it.
TEST_F(SimThreadsTest, EndpointsFailAndAreReplacedUnderLoad) {
  for (const SimMode mode : {SimMode::kMove, SimMode::kModel}) {
    MakeNic(Options(mode));
    constexpr int kReplacements = 200;
    const EndpointId healthy = Connect();
    std::atomic<EndpointId> unreliable{endpoint_};
    std::atomic<bool> replaced{false};
    std::atomic<uint64_t> goal{UINT64_MAX};
    uint64_t healthy_ok = 0, others = 0, posted = 0;
    std::thread poller([&] {
      Consume(goal, [&](const NicCompletion& completion) {
        if (completion.user_data == 2) {
          ++others;
        } else {
          healthy_ok += completion.status == FabricStatus::kOk ? 1 : 0;
        }
      });
    });
    std::thread control([&] {
      for (int i = 0; i < kReplacements; ++i) {
        nic_->Disconnect(unreliable);
        absl::StatusOr<EndpointId> next = nic_->Connect(target_->info(), 0);
        while (
            !next.ok()) {  // all places are still draining; the poster goes on with the closed one
          std::this_thread::yield();
          next = nic_->Connect(target_->info(), 0);
        }
        unreliable = *next;
        usleep(100);
      }
      replaced = true;
    });
    const auto post = [&](const WorkRequest& request) {
      while (!nic_->Prepare(request)) {
        nic_->Submit();
        std::this_thread::yield();
      }
    };
    while (!replaced) {
      WorkRequest request = Write(1, 512, posted % 512 * 512);
      request.endpoint = healthy;
      post(request);
      request.user_data = 2;
      request.endpoint = unreliable;
      if (posted % 97 == 0) request.rkey ^= 1u << 31;
      post(request);
      nic_->Submit();
      ++posted;
    }
    control.join();
    goal = 2 * posted + 1;
    WorkRequest last = Write(1, 512);
    last.endpoint = healthy;
    post(last);
    nic_->Submit();
    poller.join();
    EXPECT_EQ(healthy_ok, posted + 1);
    EXPECT_EQ(others, posted);
  }
}

TEST_F(SimThreadsTest, DestructionWithRequestsUnderWayIsClean) {
  for (int round = 0; round < 50; ++round) {
    MakeNic(Options(SimMode::kMove));
    for (uint64_t i = 0; i < 32; ++i) ASSERT_TRUE(nic_->Prepare(Write(i, 32 * 1024)));
    nic_->Submit();
    if (round % 2 == 0) std::this_thread::yield();
    nic_.reset();
  }
}

#if !defined(__SANITIZE_THREAD__)  // which does not let a process with threads fork
TEST_F(SimThreadsTest, ForkedChildMayDestroyItsCopy) {
  MakeNic(Options(SimMode::kMove));
  ChildProcess child([&](Channel&) {
    nic_.reset();
    return 0;
  });
  EXPECT_EQ(child.Wait(), 0);
  ASSERT_TRUE(nic_->Prepare(Write(1, 64)));
  nic_->Submit();
  Consume(std::atomic<uint64_t>(1),
          [](const NicCompletion& completion) { EXPECT_EQ(completion.status, FabricStatus::kOk); });
}
#endif

TEST_F(SimThreadsTest, DeregisteredTargetMemoryIsNotWrittenAfterwards) {
  MakeNic(Options(SimMode::kMove));
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte> own(64 * 1024);
    auto buffer = target_->Register(own.data(), own.size(), {});
    ASSERT_TRUE(buffer.ok());
    WorkRequest request = Write(1, 64 * 1024);
    request.remote_address = buffer->address;
    request.rkey = buffer->rkeys[0];
    for (int i = 0; i < 4; ++i) ASSERT_TRUE(nic_->Prepare(request));
    nic_->Submit();
    if (round % 2 == 0) std::this_thread::yield();
    ASSERT_TRUE(target_->Deregister(buffer->rkeys[0]).ok());
    std::fill(own.begin(), own.end(), std::byte{0x77});
    Consume(std::atomic<uint64_t>(4), [](const NicCompletion&) {});
    EXPECT_EQ(std::count(own.begin(), own.end(), std::byte{0x77}), 64 * 1024);
    nic_->Disconnect(endpoint_);
    Take(*nic_);
    endpoint_ = Connect();
  }
}

}  // namespace
}  // namespace railhop
