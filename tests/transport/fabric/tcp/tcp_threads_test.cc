// The TCP NIC with a poster, a poller that parks and a control thread at once, against a server
// whose regions come and go.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/support/scale.h"
#include "tests/support/wait_until.h"
#include "tests/transport/fabric/tcp/tcp_fixture.h"

namespace railhop {
namespace {

class TcpThreadsTest : public TcpFixture {
 protected:
  void SetUp() override {
    StartServer();
    TcpNicOptions options = NicOptions();
    options.max_endpoints = 8;
    MakeNic(options);
  }

  // Polls, parking as a reactor does, until `goal` completions were consumed.
  template <typename Handle>
  void Consume(const std::atomic<uint64_t>& goal, Handle handle) {
    NicCompletion completions[8];
    for (uint64_t count = 0; count < goal;) {
      size_t n = nic_->Peek(completions);
      if (n == 0) {
        const uint64_t time = nic_->PrepareToPark();
        n = nic_->Peek(completions);
        if (n == 0 && time != 0) {
          // A wait that is to end by a wake must not last: one was lost.
          const uint64_t now = ReadCycles();
          const int64_t wait = time == Nic::kNoDeadline ? 60'000
                               : time <= now            ? 0
                                             : ToNanoseconds(time - now).count() / 1'000'000;
          pollfd entry{.fd = nic_->fd(), .events = POLLIN, .revents = 0};
          const int woken = poll(&entry, 1, static_cast<int>(std::min<int64_t>(wait + 1, 60'000)));
          EXPECT_TRUE(woken == 1 || time != Nic::kNoDeadline);
        }
        nic_->FinishPark();
      }
      for (size_t i = 0; i < n; ++i) handle(completions[i]);
      nic_->Advance(n);
      count += n;
    }
  }
};

TEST_F(TcpThreadsTest, PosterAndPollerMoveEverything) {
  const uint64_t requests = StressCount(20'000, 400'000);
  const EndpointId endpoint = Connect("2+drain");
  std::thread poller([&] {
    uint64_t next = 0;
    Consume(std::atomic<uint64_t>(requests), [&](const NicCompletion& completion) {
      EXPECT_EQ(completion.user_data, next++);
      EXPECT_EQ(completion.status, FabricStatus::kOk);
    });
  });
  for (uint64_t i = 0; i < requests; ++i) {
    // No two that are under way at once share bytes.
    const bool large = i % 97 == 0;
    const uint32_t length = large ? 1'500'000 : static_cast<uint32_t>(i * 7 % 5000);
    const uint64_t offset = large ? kBytes / 2 : i % 64 * 8192;
    const WorkRequest request = Request(
        endpoint, i % 3 == 0 ? FabricOpcode::kRead : FabricOpcode::kWrite, i, length, offset);
    while (!nic_->Prepare(request)) {
      nic_->Submit();
      std::this_thread::yield();
    }
    if (i % 5 == 0) nic_->Submit();
  }
  nic_->Submit();
  poller.join();
}

TEST_F(TcpThreadsTest, EndpointsAndRegionsComeAndGoUnderLoad) {
  const uint64_t rounds = StressCount(300, 5000);
  constexpr uint64_t kInRound = 24;
  std::atomic<uint64_t> goal{UINT64_MAX};
  std::atomic<uint64_t> consumed{0};
  std::thread poller([&] { Consume(goal, [&](const NicCompletion&) { ++consumed; }); });
  std::atomic<EndpointId> current{Connect("2+drain")};
  std::atomic<bool> stop{false};
  std::thread control([&] {
    for (int i = 0; !stop; ++i) {
      const uint64_t before = consumed;
      if (!WaitUntil([&] { return stop || consumed > before + 10; })) break;
      nic_->Disconnect(current);
      absl::StatusOr<EndpointId> next(0);
      if (!WaitUntil([&] {
            next = nic_->Connect(TcpTargetInfo(server_->port(), i % 2 == 0 ? "2" : "2+drain"), 0);
            return next.ok() || stop;
          })) {
        break;
      }
      if (next.ok()) current = *next;
      if (i % 3 != 0) continue;
      EXPECT_TRUE(server_->RemoveRegion(Address(memory_.data())).ok());
      std::fill(memory_.begin(), memory_.end(), std::byte{7});
      EXPECT_TRUE(server_->AddRegion(Address(memory_.data()), kBytes).ok());
    }
  });
  uint64_t posted = 0;
  for (uint64_t round = 0; round < rounds; ++round) {
    for (uint64_t i = 0; i < kInRound; ++i) {
      // No two that are under way at once share bytes: an area for each place of an endpoint, which
      // is used anew when all of the one before has ended.
      const EndpointId endpoint = current;
      const uint64_t offset = (endpoint & 7) * (kBytes / 8) + posted % 16 * (kBytes / 128);
      const uint32_t length = i % 8 == 0 ? kBytes / 128 : 1000;
      while (!nic_->Prepare(Write(endpoint, posted, length, offset))) {
        nic_->Submit();
        std::this_thread::yield();
      }
      ++posted;
      // Whoever lowers the goal does it before the last request.
      if (round + 1 == rounds && i + 1 == kInRound) goal = posted;
      nic_->Submit();
    }
  }
  poller.join();
  stop = true;
  control.join();
  EXPECT_EQ(consumed, posted);
  EXPECT_EQ(nic_->exposed_writes(), 0u);
}

}  // namespace
}  // namespace railhop
