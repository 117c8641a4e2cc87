// Many clients of one handshake server, while what it answers changes under it.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/scale.h"
#include "tests/transport/engine/handshake_support.h"
#include "transport/engine/handshake_client.h"
#include "transport/engine/segment_descriptor.h"

namespace railhop {
namespace {

constexpr int kClients = 32;

// Version v is a segment of v % 100 + 1 buffers of v bytes each: half of one would show.
std::string EncodedVersion(uint64_t version) {
  SegmentDescriptor segment;
  segment.name = "127.0.0.1:1";
  segment.buffers.resize(version % 100 + 1);
  for (SegmentBuffer& buffer : segment.buffers) {
    buffer.name = segment.name;
    buffer.address = version;
    buffer.length = version;
  }
  return segment.Encode();
}

void CheckWhole(const SegmentDescriptor& segment) {
  const uint64_t version = segment.buffers.at(0).length;
  ASSERT_EQ(segment.buffers.size(), version % 100 + 1);
  for (const SegmentBuffer& buffer : segment.buffers) {
    ASSERT_EQ(buffer.length, version);
    ASSERT_EQ(buffer.address, version);
  }
}

TEST(HandshakeStressTest, ThirtyTwoClientsSeeWholeDescriptorsInOrder) {
  const uint64_t fetches = StressCount(100, 5'000);
  std::mutex mutex;
  auto current = std::make_shared<const std::string>(EncodedVersion(1));
  std::atomic<uint64_t> notified{0};
  const ServerThread server({.on_metadata =
                                 [&](std::string_view) {
                                   const std::lock_guard lock(mutex);
                                   return *current;
                                 },
                             .on_notify =
                                 [&](const std::string&, const std::string&) {
                                   notified.fetch_add(1, std::memory_order_relaxed);
                                   return true;
                                 }});
  const HostPort peer{.host = "127.0.0.1", .port = server.port()};

  std::atomic<int> running{kClients};
  std::thread publisher([&] {
    for (uint64_t version = 2; running.load(std::memory_order_relaxed) > 0; ++version) {
      auto next = std::make_shared<const std::string>(EncodedVersion(version));
      const std::lock_guard lock(mutex);
      current = std::move(next);
    }
  });
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      const HandshakeClient client({});
      uint64_t last = 0;
      for (uint64_t n = 0; n < fetches; ++n) {
        const auto segment = client.FetchDescriptor(peer, "{}\n");
        EXPECT_TRUE(segment.ok()) << segment.status().message();
        if (!segment.ok()) break;
        CheckWhole(*segment);
        EXPECT_GE(segment->buffers[0].length, last) << "an older version after a newer one";
        last = segment->buffers[0].length;
        if (n % 10 == 0) {
          const absl::Status status = client.SendNotify(peer, std::to_string(i), "note");
          EXPECT_TRUE(status.ok()) << status.message();
        }
      }
      running.fetch_sub(1, std::memory_order_relaxed);
    });
  }
  for (std::thread& client : clients) client.join();
  publisher.join();
  EXPECT_EQ(notified.load(), kClients * ((fetches + 9) / 10));
}

}  // namespace
}  // namespace railhop
