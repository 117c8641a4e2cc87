// Many peers that read the descriptor of a real engine while its application registers and
// unregisters buffers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/bootstrap.h"
#include "tests/support/scale.h"
#include "transport/engine/handshake_client.h"
#include "transport/engine/segment_descriptor.h"

namespace railhop {
namespace {

constexpr int kClients = 32;
constexpr size_t kBuffers = 24;
constexpr size_t kStride = 4096;

// Buffer i is kStride / 2 + i bytes at i * kStride: none can be taken for another one, or for a
// part of one.
class Memory {
 public:
  std::byte* address(size_t i) { return bytes_.data() + i * kStride; }
  static size_t length(size_t i) { return kStride / 2 + i; }
  BufferEntry entry(size_t i) { return {.address = address(i), .length = length(i)}; }

  // Whether what a peer was told is a set of these buffers, each whole and once.
  void Check(const SegmentDescriptor& segment) {
    std::set<size_t> seen;
    for (const SegmentBuffer& buffer : segment.buffers) {
      const uint64_t offset = buffer.address - reinterpret_cast<uint64_t>(bytes_.data());
      ASSERT_LT(offset, bytes_.size());
      ASSERT_EQ(offset % kStride, 0u);
      ASSERT_EQ(buffer.length, length(offset / kStride));
      ASSERT_EQ(buffer.name, segment.name);
      ASSERT_TRUE(seen.insert(offset / kStride).second) << "told twice";
    }
    ASSERT_TRUE(seen.contains(0)) << "which is registered all the time";
  }

 private:
  alignas(kStride) std::array<std::byte, kBuffers * kStride> bytes_{};
};

// Registers and unregisters buffers first..last - 1, one by one and all of them in one call.
void ComeAndGo(TransferEngine& engine, Memory& memory, size_t first, size_t last,
               const std::atomic<int>& running) {
  std::vector<BufferEntry> entries;
  std::vector<void*> addresses;
  for (size_t i = first; i < last; ++i) {
    entries.push_back(memory.entry(i));
    addresses.push_back(memory.address(i));
  }
  do {
    for (const BufferEntry& entry : entries) {
      ASSERT_EQ(engine.RegisterMemory(entry.address, entry.length, "*"), EngineError::kOk)
          << TransferEngine::last_error();
    }
    for (void* const address : addresses) {
      ASSERT_EQ(engine.UnregisterMemory(address), EngineError::kOk);
    }
    ASSERT_EQ(engine.RegisterMemoryBatch(entries, "*"), EngineError::kOk);
    ASSERT_EQ(engine.UnregisterMemoryBatch(addresses), EngineError::kOk);
  } while (running.load(std::memory_order_relaxed) > 0);
}

TEST(EngineMetadataStressTest, ThirtyTwoPeersReadWholeDescriptorsWhileBuffersComeAndGo) {
  const uint64_t fetches = StressCount(100, 5'000);
  static Memory memory;
  std::string error;
  const auto engine = MakeTransferEngine({.host = "127.0.0.1"}, &error);
  ASSERT_NE(engine, nullptr) << error;
  ASSERT_EQ(engine->RegisterMemory(memory.address(0), Memory::length(0), "*"), EngineError::kOk);
  const auto listener = ParseHostPort(engine->listener());
  ASSERT_TRUE(listener.ok());

  std::atomic<int> running{kClients};
  std::atomic<uint64_t> changed{0};  // fetches that saw another set of buffers than the one before
  std::vector<std::thread> threads;
  threads.emplace_back([&] { ComeAndGo(*engine, memory, 1, kBuffers / 2, running); });
  threads.emplace_back([&] { ComeAndGo(*engine, memory, kBuffers / 2, kBuffers, running); });
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&] {
      const HandshakeClient client({});
      size_t buffers = 0;
      for (uint64_t n = 0; n < fetches; ++n) {
        const auto segment = client.FetchDescriptor(*listener, "{}\n");
        EXPECT_TRUE(segment.ok()) << segment.status().message();
        if (!segment.ok()) break;
        EXPECT_EQ(segment->name, engine->name());
        EXPECT_NE(segment->tcp_data_port, 0);
        memory.Check(*segment);
        if (std::exchange(buffers, segment->buffers.size()) != buffers) changed.fetch_add(1);
      }
      running.fetch_sub(1, std::memory_order_relaxed);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(changed.load(), uint64_t{kClients}) << "nothing came or went";

  const auto segment = HandshakeClient({}).FetchDescriptor(*listener, "{}\n");
  ASSERT_TRUE(segment.ok());
  EXPECT_THAT(segment->buffers, testing::SizeIs(1)) << "what is left in the end";
}

}  // namespace
}  // namespace railhop
